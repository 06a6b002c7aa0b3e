"""The routes of OpenAI's API, and vLLM's two for tokens."""

from fastapi import FastAPI, Request
from starlette.responses import Response

from minillm_serve.server.answering import Answering
from minillm_serve.server.body import read_body
from minillm_serve.server.chat import ChatJob
from minillm_serve.server.completions import CompletionJob
from minillm_serve.server.connection import InPieces
from minillm_serve.server.openapi import errors, takes
from minillm_serve.server.schema.chat import ChatCompletion, ChatRequest
from minillm_serve.server.schema.completions import Completion, CompletionRequest
from minillm_serve.server.schema.tokens import (
    DetokenizeReply,
    DetokenizeRequest,
    ModelCard,
    ModelList,
    TokenizeReply,
    TokenizeRequest,
)
from minillm_serve.server.service import Service
from minillm_serve.server.tokens import detokenize, tokenize

STREAM = {
    "description": "The answer; with `stream`, server-sent events of chunks of it.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}
REFUSALS = errors(400, 401, 404, 413, 415)
ALL_ERRORS = errors(400, 401, 404, 413, 415, 429, 500, 503)


def add_api_routes(app: FastAPI, service: Service) -> None:
    """Adds the routes to an app."""
    settings = service.settings

    @app.post(
        "/v1/completions",
        response_model=None,
        responses={200: {"model": Completion, **STREAM}, **ALL_ERRORS},
        openapi_extra=takes(CompletionRequest),
    )
    async def completions(request: Request) -> Response:
        """Goes on with one prompt or several."""
        body = await read_body(request, CompletionRequest, settings)
        return Answering(service, CompletionJob(service, body))

    @app.post(
        "/v1/chat/completions",
        response_model=None,
        responses={200: {"model": ChatCompletion, **STREAM}, **ALL_ERRORS},
        openapi_extra=takes(ChatRequest),
    )
    async def chat(request: Request) -> Response:
        """Takes the assistant's turn in a conversation."""
        body = await read_body(request, ChatRequest, settings)
        return Answering(service, ChatJob(service, body))

    @app.post(
        "/tokenize",
        response_model=None,
        responses={200: {"model": TokenizeReply}, **REFUSALS},
        openapi_extra=takes(TokenizeRequest),
    )
    async def tokens(request: Request) -> Response:
        """Cuts a text or a conversation into tokens."""
        body = await read_body(request, TokenizeRequest, settings)
        return InPieces(await tokenize(service, body), settings.read_seconds)

    @app.post(
        "/detokenize",
        response_model=None,
        responses={200: {"model": DetokenizeReply}, **REFUSALS},
        openapi_extra=takes(DetokenizeRequest),
    )
    async def text(request: Request) -> Response:
        """Puts tokens together to a text."""
        body = await read_body(request, DetokenizeRequest, settings)
        return InPieces(await detokenize(service, body), settings.read_seconds)

    @app.get("/v1/models", response_model=None, responses={200: {"model": ModelList}})
    async def models() -> Response:
        """The names under which the model is served."""
        cards = [_card(service, name) for name in settings.model_names]
        return _json(ModelList(data=cards))

    @app.get(
        "/v1/models/{name:path}",
        response_model=None,
        responses={200: {"model": ModelCard}, **errors(404)},
    )
    async def model(name: str) -> Response:
        """One of them."""
        service.check_model(name)
        return _json(_card(service, name))


def _card(service: Service, name: str) -> ModelCard:
    return ModelCard(
        id=name,
        created=service.created,
        root=service.engine.llm.model_path.name,
        max_model_len=service.max_len,
    )


def _json(reply: ModelList | ModelCard) -> Response:
    return Response(reply.json_bytes(), media_type="application/json")
