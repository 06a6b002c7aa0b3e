"""Work for a client who may hang up at any moment, or stop to read."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Bytes of an answer that are sent at once: as many as uvicorn keeps before it makes us wait.
PIECE = 64 * 2**10


class Connection(H11Protocol):
    """uvicorn's connection, which a request can cut: `scope["state"]["cut"]()`.

    (To close it would wait until the client has read everything.)
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See uvicorn."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "cut": transport.abort}


def in_time(scope: Scope, send: Send, seconds: float) -> Send:
    """Sends as long as the client reads; once it has read nothing for so long, it is cut off.

    Whoever works for it hears of that as of any other client that has hung up.
    """

    async def send_in_time(message: Message) -> None:
        try:
            async with asyncio.timeout(seconds):
                await send(message)
        except TimeoutError:
            cut = scope.get("state", {}).get("cut")
            if cut is None:
                raise ConnectionError(f"the client has read nothing for {seconds:g} s") from None
            cut()
            await asyncio.get_running_loop().create_future()  # until we are broken off

    return send_in_time


async def send_json(send: Send, body: bytes) -> None:
    """Sends a whole answer, piece by piece: all at once it would not be noticed if nobody reads."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for end in range(PIECE, len(body) + PIECE, PIECE):
        piece, more = body[end - PIECE : end], end < len(body)
        await send({"type": "http.response.body", "body": piece, "more_body": more})


async def while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> bool:
    """Does some work, and breaks it off as soon as the client has gone.

    The request's body must have been read: what comes after it can only be the end.

    Returns:
        False if the client has gone before the work was done.

    Raises:
        Exception: whatever the work raises.
    """
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_until_gone(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
            return True
        return False
    finally:
        for task in (working, watching):
            task.cancel()
        # The work cleans up behind itself: it ends the requests. That is waited for.
        await asyncio.gather(working, watching, return_exceptions=True)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
