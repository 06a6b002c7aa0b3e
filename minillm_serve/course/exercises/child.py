"""The process that runs a learner's code: `python -m minillm_serve.course.exercises.child`.

It is told what to run by a pickle on its standard input, and writes evidence, a line of JSON for
each check, to its standard output. It knows inputs, but no expected values and no grader's seed.
"""

from __future__ import annotations

import json
import linecache
import os
import pickle
import sys
from typing import Any, TextIO

from minillm_serve.course.exercises.evidence import CELL_FILE, encode, raised
from minillm_serve.course.exercises.exercise import Limits
from minillm_serve.course.exercises.job import Job, Question
from minillm_serve.course.exercises.judging import gather

_FILE_LIMIT = 256 * 2**20


def main() -> None:
    """Takes a job from standard input, and never more than its limits allow."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the learner prints is for people, not for the grader
    job: Job = pickle.load(sys.stdin.buffer)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # input() ends instead of waiting
    restrict(job.limits)
    namespace = run_cells(job.cells, channel)
    for question in job.questions:
        _tell(channel, question.key, _evidence(question, namespace))
    _tell(channel, "done", True)
    channel.close()
    sys.stdout.flush()
    os._exit(0)  # threads and exit handlers of the learner's are not waited for


def _evidence(question: Question, namespace: dict[str, Any]) -> list[Any]:
    if question.answer not in namespace:
        missing = NameError(f"the notebook has no {question.answer!r}")
        return [encode(raised(missing))] * len(question.cases)
    return [encode(one) for one in gather(question.run, namespace[question.answer], question.cases)]


def run_cells(cells: list[str], channel: TextIO) -> dict[str, Any]:
    """Runs them in one namespace, as a kernel does: a cell that fails does not stop the next."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, source in enumerate(cells, 1):
        file = CELL_FILE.format(number)
        # Triton and `inspect` look for the source of what is defined here.
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        try:
            exec(compile(source, file, "exec", dont_inherit=True), namespace)
        except Exception as error:
            found = raised(error)
            _tell(channel, "cell", f"{found.type}: {found.message} (code cell {number})")
    return namespace


def _tell(channel: TextIO, key: str, value: Any) -> None:
    channel.write(json.dumps([key, value]) + "\n")
    channel.flush()


def restrict(limits: Limits) -> None:
    """Bounds memory, processor time and file size, where the system can (not on Windows)."""
    try:
        import resource
    except ImportError:
        return
    cores = os.cpu_count() or 1
    _lower(resource.RLIMIT_CPU, int(limits.seconds * cores) + 1)
    _lower(resource.RLIMIT_FSIZE, _FILE_LIMIT)
    _lower(resource.RLIMIT_DATA, _data_now() + limits.memory)


def _lower(which: int, value: int) -> None:
    import resource

    _, hard = resource.getrlimit(which)
    bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (bounded, bounded))


def _data_now() -> int:
    """Bytes of private memory that this process has mapped already."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not on macOS
        return 0


if __name__ == "__main__":
    main()
