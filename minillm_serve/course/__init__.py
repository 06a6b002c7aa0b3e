"""Tools of the course's notebooks: experiments, formulas, quizzes, plots, scoreboard, Lab.

Importing this package loads none of Jupyter, ipywidgets or matplotlib: each name below is fetched
from its module when it is first asked for, so that the command line starts fast and says clearly
what is missing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import controls, plots
    from .experiment import Experiment
    from .formula import Symbol
    from .linked import FormulaExperiment
    from .listing import show
    from .predict import Predict
    from .quiz import Question, Quiz
    from .scoreboard import Scoreboard

__all__ = [
    "Experiment",
    "FormulaExperiment",
    "Predict",
    "Question",
    "Quiz",
    "Scoreboard",
    "Symbol",
    "controls",
    "plots",
    "show",
]

# Name -> the module that holds it (the two modules stand for themselves).
_HOME = {
    "Experiment": "experiment",
    "FormulaExperiment": "linked",
    "Predict": "predict",
    "Question": "quiz",
    "Quiz": "quiz",
    "Scoreboard": "scoreboard",
    "Symbol": "formula",
    "controls": "controls",
    "plots": "plots",
    "show": "listing",
}

EXTRA_HINT = 'pip install "minillm-serve[course]"'


def __getattr__(name: str) -> Any:
    """Import what `name` needs, on first use.

    Raises:
        AttributeError: The course has no such name.
        ImportError: A package of the `course` extra is missing; the message has the remedy.
    """
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f".{_HOME[name]}", __name__)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("minillm_serve"):
            raise
        raise ImportError(
            f"minillm_serve.course.{name} needs {error.name!r}, which is not installed: "
            f"{EXTRA_HINT}"
        ) from error
    value = module if name in ("controls", "plots") else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The lazily exported names too."""
    return sorted({*globals(), *__all__})
