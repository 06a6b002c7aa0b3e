"""Sends requests and notes when bytes come back; what they mean is read when all is over.

The client shares its machine with the server that it measures, so it must cost next to nothing.
It does no more than note down `(moment, bytes)`: about 10 us a token, a tenth of what a
client takes that reads each event as it comes. `answers.py` reads the notes afterwards.
"""

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

#: Where completions are asked for.
PATH = "/v1/completions"
Clock = Callable[[], float]


@dataclass(slots=True)
class Recording:
    """What happened to one request. Times are the client's clock, in seconds.

    Attributes:
        due: when it was to be sent. Latencies count from here: a client that comes late, since
            its server keeps it busy, must not make the server look fast (coordinated omission).
        sent: when it was.
        heard: when what came back, until the server closed the connection.
        problem: why nothing came, or not all of it; None if the server has closed the connection.
    """

    due: float
    sent: float = 0.0
    heard: list[tuple[float, bytes]] = field(default_factory=list)
    problem: str | None = None


class Client:
    """Sends requests to one server, each over a connection of its own, as strangers would.

    Args:
        url: of the server, as in http://127.0.0.1:8000; a path before /v1 is kept.
        api_key: to send along.
        timeout: seconds after which an answer is given up.
        clock: in seconds.

    Raises:
        ValueError: the URL is none.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float = 600.0,
        clock: Clock = time.perf_counter,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url {url!r}: expected one like http://127.0.0.1:8000")
        self.clock = clock
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._ssl = ssl.create_default_context() if parts.scheme == "https" else None
        self._timeout = timeout
        key = "" if api_key is None else f"Authorization: Bearer {api_key}\r\n"
        self._head = (
            f"POST {parts.path.rstrip('/').removesuffix('/v1')}{PATH} HTTP/1.1\r\n"
            f"Host: {parts.netloc}\r\n{key}"
            "Content-Type: application/json\r\nConnection: close\r\n"
        )

    async def send(self, body: Mapping[str, Any], due: float) -> Recording:
        """Sends a request now, and waits until the server has closed the connection.

        Args:
            body: of the request.
            due: when it was to be sent.
        """
        recording = Recording(due)
        content = json.dumps(body).encode()
        head = f"{self._head}Content-Length: {len(content)}\r\n\r\n".encode()
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        recording.sent = self.clock()
        transport: asyncio.BaseTransport | None = None
        try:
            async with asyncio.timeout(self._timeout):
                transport, _ = await loop.create_connection(
                    lambda: _Listener(head + content, recording, ended, self.clock),
                    self._host,
                    self._port,
                    ssl=self._ssl,
                )
                await ended
        except TimeoutError:
            recording.problem = f"no end after {self._timeout:g} s"
        except OSError as error:
            recording.problem = f"{type(error).__name__}: {error.strerror or error}"
        finally:
            if transport is not None:
                transport.close()
        return recording


class _Listener(asyncio.Protocol):
    """Sends a request as soon as it is connected, and notes what comes."""

    def __init__(
        self, request: bytes, recording: Recording, ended: "asyncio.Future[None]", clock: Clock
    ) -> None:
        self._request = request
        self._note = recording.heard.append
        self._ended = ended
        self._clock = clock

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._note((self._clock(), data))

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if self._ended.done():
            return  # it is we who have left
        if exc is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(exc)
