"""Counts requests over HTTP, by labels of which there are only so many."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from minillm_serve.server.metrics import Metrics

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
#: What nginx notes down for a client that has hung up.
CLIENT_GONE = 499


class Counting:
    """ASGI middleware.

    Args:
        app: whose requests.
        metrics: where they are counted.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Speaks ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = CLIENT_GONE

        async def noting_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting_send)
        finally:
            route = getattr(scope.get("route"), "path", "unmatched")
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._metrics.count(method, route, status)
