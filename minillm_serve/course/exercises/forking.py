"""Processes that begin with torch imported: forked from one that has done so once (Linux only).

Importing torch takes longer than most answers take to be checked, and a class brings many answers.
The process that forks never runs anything but this: what an answer does stays in its own.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import NamedTuple

#: Elsewhere a forked process may not use what its parent has imported.
AVAILABLE = sys.platform.startswith("linux")


class ForkerGone(Exception):
    """The process that forks is no more: somebody has killed it."""


class Files(NamedTuple):
    """What a process reads and writes.

    Attributes:
        job: its standard input.
        evidence: its standard output.
        printed: its standard error.
        work: the folder that it stands in.
    """

    job: Path
    evidence: Path
    printed: Path
    work: Path


class Forker:
    """The process that forks, seen from the grader.

    Args:
        environment: of all processes.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from {__name__} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.environment,
            cwd=os.sep,
            bufsize=0,
            start_new_session=True,
        )

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def run(self, files: Files, seconds: float) -> bool:
        """Runs `child.main` in a process of its own; false if it had to be stopped.

        Afterwards the process, and whatever it has started, is gone.

        Args:
            files: that it reads and writes.
            seconds: that it may take, from the fork on.

        Raises:
            ForkerGone: somebody has killed this one meanwhile.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([*map(str, files)]).encode() + b"\n")
        except BrokenPipeError:
            raise ForkerGone from None
        pid = self._told(None)
        assert pid is not None
        try:
            in_time = self._told(seconds) is not None
        finally:
            _kill_group(pid)
        if not in_time:
            self._told(None)
        return in_time

    def close(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.communicate()

    def _told(self, seconds: float | None) -> int | None:
        """The next number that it tells; None if there is none in time."""
        out = self._process.stdout
        assert out is not None
        if seconds is not None and not select.select([out], [], [], seconds)[0]:
            return None
        line = out.readline()
        if not line:
            raise ForkerGone
        return int(line)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # all gone already
        os.killpg(pid, signal.SIGKILL)


def main() -> None:
    """Forks once for each line of its standard input, and tells number and end of each process."""
    from minillm_serve.course.exercises import child

    __import__("torch")  # for everybody
    # Nothing is read or written through `sys`, whose buffers every process would inherit.
    requests, replies = FileIO(os.dup(0), "r"), FileIO(os.dup(1), "w")
    while line := requests.readline():
        files = Files(*map(Path, json.loads(line)))
        pid = os.fork()
        if pid == 0:
            _become(files, requests, replies, child.main)
        # (The process does the same. Whoever comes second changes nothing.)
        _lead_group(pid)
        replies.write(b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        replies.write(b"%d\n" % status)


def _become(files: Files, requests: FileIO, replies: FileIO, run: Callable[[], None]) -> None:
    """Turns a forked process into one that looks as if it had been started by itself."""
    try:
        _lead_group(0)
        requests.close()
        replies.close()
        for fd, path, flags in (
            (0, files.job, os.O_RDONLY),
            (1, files.evidence, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
            (2, files.printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        ):
            opened = os.open(path, flags, 0o600)
            os.dup2(opened, fd)
            os.close(opened)
        os.chdir(files.work)
        sys.path.insert(0, str(files.work))
        run()
    except SystemExit:
        pass
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


def _lead_group(pid: int) -> None:
    with suppress(PermissionError, ProcessLookupError):  # it has, and may be gone
        os.setpgid(pid, 0)
