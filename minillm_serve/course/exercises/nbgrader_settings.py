"""nbgrader's settings for this repository, for its command line and for `release`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.preprocessors import ClearSolutions, Execute
from traitlets.config import Config

from minillm_serve.course.exercises.places import WORK, private_seed
from minillm_serve.course.exercises.stubs import Stubs, Tidy
from minillm_serve.course.exercises.trusted_execute import TrustedExecute


def settings(root: Path) -> Config:
    """Sources in `solutions/`, releases in `exercises/`, all else under `.grading/`."""
    config, work = Config(), root / WORK
    course = config.CourseDirectory
    course.root = str(root)
    course.course_id = "minillm-serve"
    course.source_directory, course.release_directory = "solutions", "exercises"
    for step in ("submitted", "autograded", "feedback", "solution", "source_with_tests"):
        setattr(course, f"{step}_directory", f"{WORK}/{step}")
    course.db_url = f"sqlite:///{work / 'gradebook.db'}"
    work.mkdir(exist_ok=True)
    # nbgrader starts `alembic` by its bare name, also where no environment is activated.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

    config.GenerateAssignment.preprocessors = [
        Tidy,
        *(Stubs if step is ClearSolutions else step for step in _default(GenerateAssignment)),
    ]
    config.Autograde.autograde_preprocessors = [
        TrustedExecute if step is Execute else step
        for step in _default(Autograde, "autograde_preprocessors")
    ]
    config.TrustedExecute.seed = private_seed(root)
    config.OverwriteCells.add_missing_cells = True  # a graded cell that was deleted scores nothing

    # Collected are STUDENT/ex01.ipynb, or zips of them, of .grading/downloaded/EXERCISE/archive.
    config.ZipCollectApp.downloaded_directory = f"{WORK}/downloaded"
    config.FileNameCollectorPlugin.named_regexp = (
        r".*[/\\]extracted[/\\](?P<student_id>[^/\\]+)[/\\](?:.*[/\\])?(?P<file_id>ex\d\d)\.ipynb"
    )
    return config


def _default(converter: Any, name: str = "preprocessors") -> list[type]:
    """nbgrader's own steps, in its order."""
    return list(converter.class_traits()[name].default())
