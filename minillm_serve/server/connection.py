"""Work for a client who may hang up at any moment, or stop to read."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from minillm_serve.server.settings import ServerSettings

#: Bytes of an answer that are sent at once: as many as uvicorn keeps before it makes us wait.
PIECE = 64 * 2**10


class Connection(H11Protocol):
    """uvicorn's connection, which a request can cut: `scope["state"]["cut"]()`.

    (To close it would wait until the client has read everything.)

    It cuts itself if a request's headers take too long to arrive, counted from its beginning or
    the last answer whatever comes meanwhile, and if a client reads nothing. (uvicorn's own timer
    runs only after an answer, until the next byte.)

    Args:
        args: uvicorn's.
        settings: of the server.
        options: uvicorn's.
    """

    def __init__(self, *args: Any, settings: ServerSettings, **options: Any) -> None:
        super().__init__(*args, **options)
        self._settings = settings
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See uvicorn."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "cut": transport.abort}
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """See uvicorn."""
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """See uvicorn."""
        super().handle_events()
        if self._is_answering and not self.flow.write_paused:
            self._stop_waiting()  # there is a request, whose body has a limit of its own

    def on_response_complete(self) -> None:
        """See uvicorn."""
        self._wait()  # first, since uvicorn goes on to a request that has come already
        super().on_response_complete()

    def pause_writing(self) -> None:
        """See uvicorn."""
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        """See uvicorn."""
        super().resume_writing()
        if self._is_answering:
            self._stop_waiting()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        """Gives the client time to read what is there for him, or else to ask something."""
        self._stop_waiting()
        unread = self.transport.get_write_buffer_size()
        seconds = self._settings.read_seconds if unread else self._settings.body_seconds
        self._timer = self.loop.call_later(seconds, self._time_is_up, unread)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _time_is_up(self, unread_before: int) -> None:
        has_read = self.transport.get_write_buffer_size() < unread_before
        is_idle = self.timeout_keep_alive_task is not None and not self.transport.is_closing()
        if has_read or is_idle:  # (uvicorn closes one that is idle between two requests)
            self._wait()
        else:
            self.transport.abort()


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


async def send_whole(send: Send, whole: Response) -> None:
    """Sends an answer piece by piece: all at once it would not be noticed if nobody reads."""
    start = {"status": whole.status_code, "headers": whole.raw_headers}
    await send({"type": "http.response.start", **start})
    body = bytes(whole.body)
    for end in range(PIECE, len(body) + PIECE, PIECE):
        piece, more = body[end - PIECE : end], end < len(body)
        await send({"type": "http.response.body", "body": piece, "more_body": more})


class InPieces(Response):
    """An answer that may be long, sent as long as the client reads it.

    Args:
        body: the answer.
        seconds: a client that reads nothing for so long is cut off.
        media_type: of it.
    """

    def __init__(
        self, body: bytes, seconds: float, media_type: str | None = "application/json"
    ) -> None:
        super().__init__(body, media_type=media_type)
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Speaks ASGI."""
        send = in_time(scope, send, self._seconds)
        await while_connected(receive, send_whole(send, self))


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
