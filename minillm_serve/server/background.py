"""A server in a thread, for notebooks, tests, and whoever wants one for a while."""

import threading

from fastapi import FastAPI

from minillm_serve.server.run import Server, address_of, bind


class BackgroundServer:
    """Serves an app as long as its `with` lasts, on a port of its own.

        with BackgroundServer(create_app(engine, settings)) as url:
            httpx.get(f"{url}/health")

    Leaving it drains the server, frees the port and stops the engine; calling `stop` twice, or a
    cell again, does no harm.

    Args:
        app: of `create_app`.
        host: to listen on.
        port: 0 takes any that is free.

    Attributes:
        url: where it is.

    Raises:
        ValueError: the port cannot be had.
        RuntimeError: the server has not started.
    """

    def __init__(self, app: FastAPI, *, host: str = "127.0.0.1", port: int = 0) -> None:
        bound = bind(host, port)
        self.url = address_of(bound)
        started = threading.Event()
        self._server = Server(app, started.set)
        options = {"sockets": [bound]}
        self._thread = threading.Thread(
            target=self._server.run, kwargs=options, name="minillm-server", daemon=True
        )
        self._thread.start()
        while not started.wait(0.05):
            if not self._thread.is_alive():
                raise RuntimeError("the server has not started: its log says why")

    def stop(self) -> None:
        """Drains the server and waits for its end."""
        self._server.should_exit = True
        self._thread.join()

    def __enter__(self) -> str:
        return self.url

    def __exit__(self, *exc: object) -> None:
        self.stop()
