"""`check`, `check_hidden` and `hint`: what a learner calls in an exercise's notebook.

Here the learner's code runs in their own kernel, for an answer at once. A grade comes from
`grading`, which runs it in another process and trusts nothing that happened here.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from minillm_serve.course.exercises import registry
from minillm_serve.course.exercises.evidence import carried
from minillm_serve.course.exercises.exercise import Exercise, Part
from minillm_serve.course.exercises.grading import DEFAULT_SEED, hidden_score
from minillm_serve.course.exercises.hints import Hint
from minillm_serve.course.exercises.judging import PUBLIC_SEED, cases_of, gather, judge_part
from minillm_serve.course.exercises.score import Score


class OutOfTime(BaseException):
    """The answer took too long. No `Exception`: a learner's `except` should not swallow it."""


def check(name: str, answer: Any) -> Score:
    """Runs the checks of one part on an answer.

    Args:
        name: such as ``"ex01-bytes"``.
        answer: the learner's function or class.

    Returns:
        The points, which a notebook shows with a tick a check and, where one fails, the first
        difference.

    Raises:
        ValueError: there is no such exercise or part.
    """
    exercise, part = registry.find(name)
    try:
        with time_limit(exercise.limits.seconds):
            found = _gather(exercise, part, answer, PUBLIC_SEED)
    except OutOfTime as error:
        return _nothing(exercise, part, str(error))
    except SystemExit:
        return _nothing(exercise, part, "the answer called exit: when graded, that scores nothing")
    return Score.of_part(judge_part(exercise, part, PUBLIC_SEED, found))


def check_hidden(exercise_id: str, namespace: Mapping[str, Any]) -> Score:
    """Runs every check of an exercise on other cases, and tells no more than which ones failed.

    Args:
        exercise_id: such as ``"ex01"``.
        namespace: the notebook's `globals()`.
    """
    exercise = registry.load(exercise_id)
    seed = f"hidden/{DEFAULT_SEED}"
    answers = exercise.named(namespace)
    found = {
        part.id: _gather(exercise, part, answers[part.id], seed)
        for part in exercise.parts
        if part.id in answers
    }
    return hidden_score(exercise, seed, found)


def hint(name: str, number: int = 1) -> Hint:
    """A hint: the first is vague, the last nearly the answer.

    Args:
        name: such as ``"ex01-bytes"``.
        number: which one, from 1.

    Raises:
        ValueError: there is no such exercise, part or hint.
    """
    exercise, part = registry.find(name)
    return Hint(f"{exercise.id}-{part.id}", part.hints, number)


def _gather(exercise: Exercise, part: Part, answer: Any, seed: str) -> dict[str, list[Any]]:
    return {
        one.name: carried(gather(one.run, answer, cases_of(exercise, part, one, seed)))
        for one in part.checks
    }


def _nothing(exercise: Exercise, part: Part, note: str) -> Score:
    title = f"{exercise.id}-{part.id}: {part.answer}"
    return Score(0.0, title=title, possible=part.points, hints=part.hints, note=note)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Stops Python code that runs longer, where the system has alarms (not on Windows).

    Raises:
        OutOfTime: it did.
    """
    usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not usable:
        yield
        return

    def stop(*_: Any) -> None:
        raise OutOfTime(f"stopped after {seconds:g} s: does a loop never end?")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
