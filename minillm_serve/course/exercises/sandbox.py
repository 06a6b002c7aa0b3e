"""Runs a learner's code in a process of its own and brings back evidence, whatever the code does.

This holds against endless loops, `os._exit(0)`, `SystemExit`, too much memory, floods of output, a
patched checker and forged scores. It does not hold against code that sets out to harm the machine,
or to read other people's files or this process: it runs with the grader's rights. Strangers' code
belongs in a container, or in an account of its own, besides.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minillm_serve.course.exercises import forking
from minillm_serve.course.exercises.evidence import EvidenceError, decode
from minillm_serve.course.exercises.exercise import Exercise
from minillm_serve.course.exercises.forking import Files, Forker, ForkerGone
from minillm_serve.course.exercises.job import Job, Question
from minillm_serve.course.exercises.judging import Evidence, cases_of

_RESULT_LIMIT = 64 * 2**20
_CHILD = "minillm_serve.course.exercises.child"
_ROOT = Path(__file__).resolve().parents[3]
#: What forks, once there is one, and who may ask it.
_KEPT: list[Forker] = []
_LOCK = threading.Lock()


@dataclass
class Outcome:
    """What came back.

    Attributes:
        evidence: seed -> evidence; empty if the process did not end in order.
        problem: why it did not, in words for the learner; "" if it did.
        cell_errors: exceptions of cells, which by themselves cost nothing.
        output: the end of what the code printed.
    """

    evidence: dict[str, Evidence] = field(default_factory=dict)
    problem: str = ""
    cell_errors: list[str] = field(default_factory=list)
    output: str = ""


def run(exercise: Exercise, cells: list[str], seeds: Sequence[str]) -> Outcome:
    """Runs the cells once and asks them every check, with the cases of every seed.

    Args:
        exercise: whose checks are asked.
        cells: the learner's program.
        seeds: of the cases; they stay here.
    """
    keys: dict[str, tuple[str, str, str]] = {}
    questions = []
    for seed in seeds:
        for part in exercise.parts:
            for check in part.checks:
                key = f"q{len(keys)}"  # says nothing about which cases are hidden
                keys[key] = (seed, part.id, check.name)
                cases = cases_of(exercise, part, check, seed)
                questions.append(Question(key, part.answer, check.run, cases))
    lines, problem, output = _execute(Job(cells, questions, exercise.limits))
    outcome = Outcome(problem=problem, output=output)
    answered, ended = _read_lines(lines, outcome)
    if not problem and not ended:
        outcome.problem = (
            "the code ended the whole process before the checks were through (exit, os._exit, or a "
            "crash): it scores nothing"
        )
    if not outcome.problem:
        outcome.evidence = _sorted_out(answered, keys)
    return outcome


def _sorted_out(
    answered: Mapping[str, list[Any]], keys: Mapping[str, tuple[str, str, str]]
) -> dict[str, Evidence]:
    found: dict[str, dict[str, dict[str, list[Any]]]] = {}
    for key, (seed, part, check) in keys.items():
        place = found.setdefault(seed, {}).setdefault(part, {})
        if key in answered:
            place[check] = answered[key]
    return dict(found)


def _read_lines(lines: list[bytes], outcome: Outcome) -> tuple[dict[str, list[Any]], bool]:
    """Evidence by key, and whether the process ended in order. Garbage is no evidence."""
    answered: dict[str, list[Any]] = {}
    ended = False
    for line in lines:
        try:
            key, value = json.loads(line)
            if key == "done":
                ended = True
            elif key == "cell":
                outcome.cell_errors.append(str(value))
            else:
                answered[str(key)] = [decode(one) for one in value]
        except (ValueError, TypeError, RecursionError, EvidenceError):
            continue
    return answered, ended


def _execute(job: Job) -> tuple[list[bytes], str, str]:
    """`(lines of evidence, problem, end of what was printed)` of one process."""
    with tempfile.TemporaryDirectory(
        prefix="minillm-answer-", ignore_cleanup_errors=True
    ) as folder:
        # Files rather than pipes: their size is limited, and nobody waits for a grandchild's end.
        files = Files(*(Path(folder, name) for name in Files._fields))
        files.work.mkdir()
        files.evidence.touch()
        files.printed.touch()
        files.job.write_bytes(pickle.dumps(job))
        run = _forked if forking.AVAILABLE else _started
        problem = ""
        if not run(files, job.limits.seconds):
            problem = (
                f"the code was stopped after {job.limits.seconds:g} s: does a loop never end? It "
                "scores nothing until it does"
            )
        output = files.printed.read_bytes()[-4000:].decode("utf-8", "replace")
        if files.evidence.stat().st_size > _RESULT_LIMIT:
            return [], "the code returned more data than any right answer does", output
        return files.evidence.read_bytes().splitlines(), problem, output


@contextmanager
def _forker() -> Iterator[Forker]:
    """The one that is kept from answer to answer, for one answer at a time."""
    with _LOCK:
        environment = _environment()
        if _KEPT and not (_KEPT[0].alive and _KEPT[0].environment == environment):
            _KEPT.pop().close()
        if not _KEPT:
            _KEPT.append(Forker(environment))
        try:
            yield _KEPT[0]
        except BaseException:  # it is gone, or what it tells next is about this answer
            _KEPT.pop().close()
            raise


def _forked(files: Files, seconds: float) -> bool:
    """Runs the process, and whether it ended by itself. Afterwards all its children are gone."""
    try:
        with _forker() as forker:
            return forker.run(files, seconds)
    except ForkerGone:  # the answer has killed it, and itself with it
        return True


def _started(files: Files, seconds: float) -> bool:
    """The same by a process that imports everything itself."""
    job, evidence, printed = (
        path.open(mode)
        for path, mode in ((files.job, "rb"), (files.evidence, "wb"), (files.printed, "wb"))
    )
    with job, evidence, printed:
        process = subprocess.Popen(
            [sys.executable, "-m", _CHILD],
            stdin=job,
            stdout=evidence,
            stderr=printed,
            cwd=files.work,
            env=_environment(),
            start_new_session=os.name == "posix",
        )
        try:
            process.wait(seconds)
            return True
        except subprocess.TimeoutExpired:
            return False
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except (ProcessLookupError, PermissionError):  # all gone already
        pass
    process.wait()


def _environment() -> dict[str, str]:
    """The grader's environment, with this package importable from the empty folder."""
    paths = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
