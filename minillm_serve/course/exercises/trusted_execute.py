"""nbgrader's `Execute`, replaced: learners' code runs in a child process, scores come from here.

nbgrader reads a score from a cell's output, and takes no output for full marks. Its own step runs
the notebook in one kernel, where an answer may exit, hang, or print what it likes.
"""

from __future__ import annotations

from typing import Any

from nbformat.v4 import new_output
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Unicode

from minillm_serve.course.exercises import registry
from minillm_serve.course.exercises.grading import DEFAULT_SEED, Grade, grade
from minillm_serve.course.exercises.program import grading_of
from minillm_serve.course.exercises.score import Score


class TrustedExecute(NbGraderPreprocessor):
    """Grades a notebook and writes each score as the output of its cell."""

    seed = Unicode(DEFAULT_SEED, help="The instructor's seed of the hidden cases.").tag(config=True)

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Every graded code cell gets an output: a score, or an error that counts nothing."""
        exercise = registry.load(resources["nbgrader"]["notebook"])
        scores = scores_by_cell(grade(exercise, nb, self.seed))
        for cell in nb.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
                if grading_of(cell).get("grade"):
                    _write(cell, scores.get(cell.metadata.nbgrader["grade_id"]))
        return nb, resources


def scores_by_cell(graded: Grade) -> dict[str, Score]:
    """grade_id of each autograded cell -> its score."""
    name = graded.exercise.id
    scores = {f"{name}-{part.part.id}": Score.of_part(part) for part in graded.parts}
    if graded.hidden is not None:
        scores[f"{name}-hidden"] = graded.hidden
    if graded.problem:
        for score in scores.values():
            score.note = graded.problem
    return scores


def _write(cell: Any, score: Score | None) -> None:
    if score is None:
        unknown = {"ename": "UnknownCell", "evalue": "the exercise has no such part"}
        cell.outputs = [new_output("error", traceback=[], **unknown)]
        return
    data = {"text/plain": repr(score), "text/html": score._repr_html_()}
    cell.outputs = [new_output("execute_result", data=data, execution_count=1)]
    cell.execution_count = 1
