"""A small exercise that is not in the course: what the machinery is tried on."""

from random import Random

from minillm_serve.course.exercises.exercise import Case, Check, Exercise, Limits, Part, Raises

GIB = 2**30


def double_cases(rng: Random) -> list[Case]:
    """Small numbers."""
    return [{"x": 1}, {"x": rng.randint(2, 10**9)}]


def refused_cases(rng: Random) -> list[Case]:
    """Negative numbers."""
    return [{"x": -rng.randint(1, 99)}]


DOUBLE = Part(
    id="double",
    answer="double",
    checks=(
        Check("doubles", 2, double_cases, expected=lambda case: 2 * case["x"]),
        Check("refuses", 1, refused_cases, expected=lambda case: Raises(ValueError, ("negative",))),
    ),
    hints=("Add.", "Add x to x."),
)
TRIPLE = Part(
    id="triple",
    answer="triple",
    checks=(Check("triples", 1, double_cases, expected=lambda case: 3 * case["x"]),),
    hints=("Add twice.", "Add x to x, and x to that."),
)
EXERCISE = Exercise(
    id="ex99",
    name="demo",
    title="Arithmetic",
    chapter="99",
    parts=(DOUBLE, TRIPLE),
    hidden_points=4,
    limits=Limits(seconds=20, memory=GIB // 2),
)

RIGHT = """
def double(x):
    if x < 0:
        raise ValueError("negative")
    return 2 * x

def triple(x):
    return 3 * x
"""
STUB = """
def double(x):
    raise NotImplementedError("return twice x")

def triple(x):
    raise NotImplementedError("return three times x")
"""


def notebook(*sources: str) -> dict[str, object]:
    """A notebook with these code cells."""
    cells = [{"cell_type": "code", "metadata": {}, "source": source} for source in sources]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
