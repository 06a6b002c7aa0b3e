"""A server in a process of its own: the one that can be killed."""

from __future__ import annotations

import atexit
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

import httpx

#: Seconds that a server may take to start, on a machine that has other things to do.
PATIENCE = 120.0


class Child:
    """`minillm-serve serve` as a child process, on a port of its own. It ends with this process.

    Args:
        arguments: of the command, without host and port.
        port: 0 lets the first start choose one, and every later one take the same.
    """

    def __init__(self, arguments: Sequence[str] = (), *, port: int = 0) -> None:
        self._arguments = list(arguments)
        self._port = port
        self._process: subprocess.Popen[str] | None = None
        self._ready = threading.Event()
        self.url = ""
        atexit.register(self._leave_nothing_behind)

    def start(self) -> None:
        """Starts it and returns at once; see `wait`."""
        self._ready.clear()
        command = [sys.executable, "-m", "minillm_serve.cli", "serve", *self._arguments]
        self._process = subprocess.Popen(
            [*command, "--port", str(self._port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        """Hears where it is, which it says when it can be reached; then empties its pipe."""
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                if " is served at " in line:
                    self.url = line.split(" is served at ")[1].split("/v1")[0]
                    self._port = int(self.url.rsplit(":", 1)[1])
                    self._ready.set()
        self._ready.set()

    def wait(self) -> str:
        """Waits until it can be reached; gives its URL.

        Raises:
            RuntimeError: it has ended instead.
        """
        self._ready.wait(PATIENCE)
        if not self.is_alive or not self.url:
            raise RuntimeError("the server has not started")
        return self.url

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> int:
        """`kill -9`: it can do nothing about it. Gives its exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        return self._process.wait()

    def _leave_nothing_behind(self) -> None:
        """A notebook may be closed before the cell that stops it has run."""
        if self.is_alive:
            self.kill()

    def stop(self) -> None:
        """Asks it to end, waits, and frees the port. Does nothing if it has ended."""
        if self._process is not None and self.is_alive:
            self._process.terminate()
            self._process.wait(PATIENCE)


def ask(url: str, seconds: float = 5.0) -> str:
    """One short question: the status, or what became of the connection."""
    body = {"prompt": [1, 2, 3], "max_tokens": 2}
    try:
        return f"{httpx.post(f'{url}/v1/completions', json=body, timeout=seconds).status_code}"
    except httpx.HTTPError as error:
        return type(error).__name__


def knock_until_served(url: str, seconds: float = PATIENCE) -> tuple[int, float]:
    """A client that does not give up: tries again, later each time.

    Returns:
        How often it knocked, and for how many seconds.

    Raises:
        TimeoutError: nobody has answered.
    """
    began, pause, knocks = time.monotonic(), 0.1, 0
    while time.monotonic() - began < seconds:
        knocks += 1
        if ask(url) == "200":
            return knocks, time.monotonic() - began
        time.sleep(pause)
        pause = min(2 * pause, 1.0)
    raise TimeoutError(f"{url} has not answered within {seconds:g} s")
