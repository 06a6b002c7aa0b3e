"""The web application: routes, and what stands around them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

import minillm_serve
from minillm_serve.async_llm import AsyncLLM
from minillm_serve.server.counting import CLIENT_GONE, Counting
from minillm_serve.server.errors import ApiError
from minillm_serve.server.guard import Guard
from minillm_serve.server.metrics import Metrics
from minillm_serve.server.openapi import describe
from minillm_serve.server.routes_api import add_api_routes
from minillm_serve.server.routes_ops import add_ops_routes
from minillm_serve.server.schema.chat import ChatRequest
from minillm_serve.server.schema.completions import CompletionRequest
from minillm_serve.server.schema.tokens import DetokenizeRequest, TokenizeRequest
from minillm_serve.server.service import Service
from minillm_serve.server.settings import ServerSettings

if TYPE_CHECKING:
    from minillm_serve.server.tracing import Tracing


def create_app(
    engine: AsyncLLM, settings: ServerSettings, tracing: "Tracing | None" = None
) -> FastAPI:
    """The server of one engine.

    When it shuts down, it lets nobody in any more, gives answers under way `drain_seconds`, ends
    the rest, and stops the engine. (`app.state.service.drain` does that earlier, while the port is
    still open and newcomers can be told; see `run`.)

    Args:
        engine: nobody else's from now on.
        settings: limits and names.
        tracing: makes spans of requests, if there is any; closed when the server shuts down.
    """
    service = Service(engine, settings, tracing)
    metrics = Metrics(engine, settings.served_model_name)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with ExitStack() as watching:
            watching.enter_context(metrics.watching())
            if tracing is not None:
                watching.enter_context(tracing.watching(engine.llm.llm_engine))
            yield
            await service.drain(settings.drain_seconds)
        if tracing is not None:
            await asyncio.to_thread(tracing.close)

    app = FastAPI(
        title="minillm-serve",
        version=minillm_serve.__version__,
        description="OpenAI's API, with vLLM's extras.",
        lifespan=lifespan,
        docs_url=None,  # both pages are made of scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    add_api_routes(app, service)
    add_ops_routes(app, service, metrics)
    bodies = (CompletionRequest, ChatRequest, TokenizeRequest, DetokenizeRequest)
    describe(app, settings.model_names, *bodies)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _gone)
    # The last one added stands outermost.
    if tracing is not None:
        from minillm_serve.server.tracing import Continuing

        app.add_middleware(Continuing)
    app.add_middleware(Guard, settings=settings)
    if settings.cors_origins:  # outside the guard: a browser's preflight brings no key
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-Id"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    app.add_middleware(Counting, metrics=metrics)
    return app


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _http_error(request: Request, error: Exception) -> Response:
    """FastAPI's own: no such path, no such method."""
    assert isinstance(error, HTTPException)
    messages = {404: "There is no such path here.", 405: "This path takes another method."}
    message = messages.get(error.status_code, "The request cannot be answered.")
    headers = dict(error.headers or {})
    return ApiError(error.status_code, message, headers=headers).response()


async def _gone(request: Request, error: Exception) -> Response:
    """Nobody will read it."""
    return Response(status_code=CLIENT_GONE)
