"""Checks of what comes on top of the engine: the embedded model, the course, a browser."""

from __future__ import annotations

from .probe import Probe
from .report import Check, Status

MODEL_GROUP = "Model"
COURSE_GROUP = "Course"
_FETCH = "minillm-serve models fetch smollm2-135m"


def check_model(probe: Probe) -> Check:
    """Check that the embedded model is in the cache, whole."""
    name = "smollm2-135m"
    if probe.error:
        found = f"{probe.missing} is not installed" if probe.missing else probe.error
        remedy = "see the lines above; the cache could not be looked at"
        return Check(MODEL_GROUP, name, Status.WARN, f"not checked: {found}", remedy)
    path, trouble = probe.data["path"], probe.data["problem"]
    if not probe.data["present"]:
        found = f"not fetched yet (it goes to {path})"
        remedy = f"{_FETCH}, or let the first generate do it"
        return Check(MODEL_GROUP, name, Status.WARN, found, remedy)
    if trouble:
        remedy = f"{_FETCH} builds it again"
        return Check(MODEL_GROUP, name, Status.WARN, f"{path}: {trouble}", remedy)
    return Check(MODEL_GROUP, name, Status.OK, f"whole, at {path}")


def check_course(probe: Probe) -> Check:
    """Check what the notebooks import."""
    if probe.error:
        found = f"{probe.missing} is not installed" if probe.missing else probe.error
        remedy = "for the notebooks: make lab, or pip install 'minillm-serve[course]'"
        return Check(COURSE_GROUP, "jupyter", Status.WARN, found, remedy)
    data = probe.data
    found = f"JupyterLab {data['jupyterlab']}, ipywidgets {data['ipywidgets']}"
    found += f", anywidget {data['anywidget']}, matplotlib {data['matplotlib']}"
    return Check(COURSE_GROUP, "jupyter", Status.OK, found)


def check_browser(probe: Probe) -> Check:
    """Check for a browser that tests can drive; people may read the notebooks in any."""
    if not probe.error and probe.data["path"]:
        return Check(COURSE_GROUP, "browser", Status.OK, probe.data["path"])
    found = probe.error or "no Chrome or Chromium found: the browser tests will be skipped"
    remedy = "python -m minillm_serve.course.browser --install"
    return Check(COURSE_GROUP, "browser", Status.WARN, found, remedy)
