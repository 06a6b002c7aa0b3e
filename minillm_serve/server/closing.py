"""Connections that end with a refusal: nobody waits for the rest of what was sent."""

import asyncio
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Refusals of a body that has not come whole: it takes too long, or is too long.
EARLY = frozenset({408, 413})
#: Seconds for which the rest is read before the connection is closed.
LINGER = 5.0


class Closing:
    """ASGI middleware: `Connection: close` with an early refusal, and the end of the connection.

    A socket that is closed with bytes unread resets its connection, and a client that is still
    sending may lose the answer. So what comes is read for a moment, and dropped.

    Args:
        app: whose answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Speaks ASGI."""
        closes = False

        async def closing_send(message: Message) -> None:
            nonlocal closes
            if message["type"] == "http.response.start" and message["status"] in EARLY:
                closes = True
                headers = [*message.get("headers", ()), (b"connection", b"close")]
                message = {**message, "headers": headers}
            elif closes and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await _drop_rest(receive)
                message = {"type": "http.response.body"}
            await send(message)

        await self._app(scope, receive, closing_send)


async def _drop_rest(receive: Receive) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER):
            while (await receive()).get("more_body", False):
                pass
