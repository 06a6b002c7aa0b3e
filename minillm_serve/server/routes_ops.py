"""The routes of whoever runs the server: is it well, what is it, how much does it do."""

from fastapi import FastAPI
from starlette.responses import JSONResponse, PlainTextResponse, Response

import minillm_serve
from minillm_serve.server.connection import InPieces
from minillm_serve.server.metrics import Metrics
from minillm_serve.server.service import Service


def add_ops_routes(app: FastAPI, service: Service, metrics: Metrics) -> None:
    """Adds the routes to an app."""

    @app.get("/health", response_model=None)
    async def health() -> Response:
        """Whether the engine runs: if not, start the server anew."""
        return _state(service, service.engine.health.problem)

    @app.get("/ready", response_model=None)
    async def ready() -> Response:
        """Whether to send requests here: not while it shuts down."""
        return _state(service, service.problem)

    @app.get("/version", response_model=None)
    async def version() -> Response:
        """The server's version."""
        return JSONResponse({"version": minillm_serve.__version__})

    @app.get("/metrics", response_model=None, response_class=PlainTextResponse)
    async def figures() -> Response:
        """Prometheus' text format."""
        whole = metrics.response()
        return InPieces(bytes(whole.body), service.settings.read_seconds, whole.media_type)


def _state(service: Service, problem: str | None) -> Response:
    if problem is None:
        return JSONResponse({"status": "ok"})
    headers = {"Retry-After": str(service.settings.retry_after)}
    return JSONResponse({"status": "unavailable", "problem": problem}, 503, headers)
