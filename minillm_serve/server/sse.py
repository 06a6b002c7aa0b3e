"""Server-sent events, as OpenAI sends them: `data: {...}`, and `data: [DONE]` in the end."""

import asyncio

from starlette.types import Send

from minillm_serve.server.errors import ApiError
from minillm_serve.server.schema.base import Reply

DONE = b"data: [DONE]\n\n"
#: A comment, which clients pass over: there is somebody at the other end.
KEEP_ALIVE = b": keep-alive\n\n"

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy that gathers pieces would spoil the stream
]


class EventStream:
    """The sending end of one stream.

    An error that comes after the stream has begun is an event of its own, `data: {"error": ...}`
    and `[DONE]` behind it, as in vLLM; OpenAI's clients raise it.

    Args:
        send: of the ASGI connection. It waits as long as the client does not read.

    Attributes:
        begun: a status has been sent.
        last_sent: when something was sent last, in seconds of the event loop's clock.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False
        self.last_sent = asyncio.get_running_loop().time()

    async def begin(self) -> None:
        """Sends the status, unless that is done: from now on an error can have none of its own."""
        if not self.begun:
            self.begun = True
            await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})

    async def keep_alive(self) -> None:
        """Sends a comment, so that nobody on the way takes the connection for dead."""
        await self.begin()
        await self._body(KEEP_ALIVE)

    async def send(self, chunks: list[Reply]) -> None:
        """Sends an event for each of some chunks."""
        if chunks:
            await self._body(b"".join(b"data: " + c.json_bytes() + b"\n\n" for c in chunks))

    async def send_error(self, error: ApiError) -> None:
        """Sends what went wrong."""
        await self._body(b"data: " + error.json() + b"\n\n")

    async def end(self) -> None:
        """Sends the last event."""
        await self._body(DONE, more=False)

    async def _body(self, body: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})
        self.last_sent = asyncio.get_running_loop().time()
