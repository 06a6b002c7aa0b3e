"""Runs a server with uvicorn, from the first connection to the last word."""

import asyncio
import socket
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType

import uvicorn
from fastapi import FastAPI

from minillm_serve.server.closing import Closing
from minillm_serve.server.connection import Connection
from minillm_serve.server.service import Service

#: Seconds that clients have to read the rest, once everything has been said.
TO_READ = 5
#: Seconds that an engine is ill before the server ends: everybody has heard of it by then.
TO_TELL = 3.0
#: Seconds between two looks at the engine.
LOOK_EVERY = 0.5


def bind(host: str, port: int) -> socket.socket:
    """Takes a port before anything else is done: a model is loaded for nothing if it is taken.

    Nobody can connect before the server runs.

    Args:
        host: name or address.
        port: 0 takes any that is free.

    Raises:
        ValueError: it cannot be had, and why.
    """
    if not 0 <= port < 2**16:
        raise ValueError(f"port={port}: expected from 0 to {2**16 - 1}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ValueError(f"host={host!r}: {error.strerror}") from None
    try:
        if sys.platform != "win32":  # there it would let two servers have the same port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise ValueError(
            f"port {port} of {host} cannot be had ({error.strerror}): choose another with --port, "
            "or 0 for any that is free"
        ) from None
    return bound


class Server(uvicorn.Server):
    """uvicorn, but it drains before it closes its port: newcomers are told to come again.

    The first signal asks it to stop, the second one not to wait. Either way the process ends well.

    Args:
        app: of `create_app`.
        on_start: called when it can be reached.
        ends_if_ill: end as well once the engine is stuck, or dead, and does not recover.

    Attributes:
        problem: what was wrong with the engine when that ended it; None otherwise.
    """

    def __init__(
        self,
        app: FastAPI,
        on_start: Callable[[], None] = lambda: None,
        *,
        ends_if_ill: bool = False,
    ) -> None:
        self.problem: str | None = None
        self._service: Service = app.state.service
        self._on_start = on_start
        self._ends_if_ill = ends_if_ill
        self._watching: asyncio.Task[None] | None = None
        settings = self._service.settings
        config = uvicorn.Config(
            Closing(app),
            # Of h11, whose limit on headers is what is set here.
            http=partial(Connection, settings=settings),  # type: ignore[arg-type]
            ws="none",
            lifespan="on",
            h11_max_incomplete_event_size=settings.max_header_bytes + 2**12,  # the request line
            timeout_graceful_shutdown=TO_READ,
            server_header=False,
            access_log=False,
            log_level="warning",
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        await super().startup(sockets)
        if self.started:
            if self._ends_if_ill:
                self._watching = asyncio.create_task(self._watch())
            self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drains, then closes."""
        if self._watching is not None:
            self._watching.cancel()  # an engine that has been stopped is not well either
        await self._service.drain(self._service.settings.drain_seconds)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Hears a signal. (uvicorn would raise it again in the end, or leave things half done.)"""
        if self.should_exit:
            self._service.hurry()
        self.should_exit = True

    async def _watch(self) -> None:
        """Ends the server once its engine has been ill for a while.

        (Looks are counted, not seconds: a process that was held up for a minute, by a laptop's lid,
        say, has an engine that seems stuck, and gets on with the first chance.)
        """
        num_ill = 0
        while num_ill * LOOK_EVERY < TO_TELL:
            await asyncio.sleep(LOOK_EVERY)
            problem = self._service.engine.health.problem
            num_ill = 0 if problem is None else num_ill + 1
        self.problem = problem
        self._service.hurry()
        self.should_exit = True


def serve(
    app: FastAPI, bound: socket.socket, on_start: Callable[[], None], *, ends_if_ill: bool = False
) -> str | None:
    """Serves until a signal comes, or the engine is past help.

    Args:
        app: of `create_app`.
        bound: of `bind`.
        on_start: called when it can be reached.
        ends_if_ill: see `Server`.

    Returns:
        What was wrong with the engine; None if it was a signal.
    """
    server = Server(app, on_start, ends_if_ill=ends_if_ill)
    server.run(sockets=[bound])
    return server.problem


def address_of(bound: socket.socket) -> str:
    """The URL of a bound port."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
