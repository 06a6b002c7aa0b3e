"""The server under load, and the same engine without one, each in a process of its own."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.workloads import Job

#: Seconds that a server has to put away everything after a signal.
TO_STOP = 60.0


class ServerProcess:
    """`minillm-serve serve` on a port of its own, as long as the `with` lasts.

    What it logs goes where this process's own errors go.

    Args:
        model: to serve.
        options: of `minillm-serve serve`.

    Attributes:
        url: where it is.
        pid: its process.

    Raises:
        ValueError: it has ended before it served anybody; it has said why.
    """

    def __init__(self, model: str, options: Sequence[str]) -> None:
        command = [sys.executable, "-m", "minillm_serve.cli", "serve", model, "--port", "0"]
        self._process = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        found = [word for word in words if word.startswith("http://")]
        if not found:
            raise ValueError(f"the server has ended with {self._process.wait()}: see above")
        self.url = found[0].removesuffix("/v1")

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(TO_STOP)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class OfflineProcess:
    """`LLM.generate` in a process of its own, for as long as the `with` lasts.

    Args:
        model: to load.
        options: of `minillm-serve serve`; those of the engine count.

    Raises:
        ValueError: the model cannot be loaded.
    """

    def __init__(self, model: str, options: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.load.offline", model, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._read()  # it is ready

    def run(self, jobs: Sequence[Job]) -> tuple[float, list[str]]:
        """Answers some jobs; seconds that it took, and their texts."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([[j.prompt, j.output_len] for j in jobs]) + "\n")
        self._process.stdin.flush()
        found = self._read()
        return found["seconds"], found["texts"]

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ValueError(f"offline: it has ended with {self._process.wait()}: see above")
        read: dict[str, Any] = json.loads(line)
        return read

    def __enter__(self) -> "OfflineProcess":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()


def served_model(url: str, api_key: str | None, patience: float = 10.0) -> str:
    """The name under which a server knows its model.

    Raises:
        ValueError: nobody answers, or not as a server of OpenAI's API does.
    """
    where = f"{url.rstrip('/').removesuffix('/v1')}/v1/models"
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(where, headers=headers), timeout=patience
        ) as reply:
            name: str = json.load(reply)["data"][0]["id"]
            return name
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{where}: {error}: is this the URL of a server?") from None


def cpu_seconds(pid: int) -> float | None:
    """CPU time that a process has taken so far; None where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
