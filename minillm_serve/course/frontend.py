"""The two anywidgets that do in the browser what native ipywidgets cannot.

Their JavaScript and CSS lie beside this file and travel inside the notebook's own connection: no
page of the course asks any other host for anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

STATIC = Path(__file__).parent / "static"


def asset(name: str) -> str:
    """The text of a file in `static/`."""
    return (STATIC / name).read_text(encoding="utf-8")


class Links(anywidget.AnyWidget):
    """Formula, live values, and the links: symbol <-> control <-> part of the drawing.

    Belongs inside a container with the class `mls-experiment`, which bounds what it links. Without
    a formula it still brings the style, and keeps JupyterLab's one-letter shortcuts away from the
    controls.
    """

    _esm = asset("links.js")
    _css = asset("experiment.css")

    formula = traitlets.Unicode().tag(sync=True)
    live = traitlets.Unicode().tag(sync=True)
    hints = traitlets.Dict().tag(sync=True)

    def __repr__(self) -> str:
        """Without the address: notebooks are compared."""
        return "Links()"


class Drawing(anywidget.AnyWidget):
    """An SVG drawing whose parts marked with `data-sym` can be lit and pointed at."""

    _esm = asset("drawing.js")

    svg = traitlets.Unicode().tag(sync=True)
    alt = traitlets.Unicode().tag(sync=True)
    width = traitlets.Int(946).tag(sync=True)

    def __repr__(self) -> str:
        """Without the address: notebooks are compared."""
        return f"Drawing({self.alt!r})"

    def clear(self) -> None:
        """Show nothing."""
        self.svg = ""


def view_data(widget: Any) -> dict[str, Any]:
    """The MIME bundle entry by which a front end with a kernel shows the live widget."""
    return {
        "application/vnd.jupyter.widget-view+json": {
            "version_major": 2,
            "version_minor": 0,
            "model_id": widget.model_id,
        }
    }
