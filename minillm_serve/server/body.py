"""A request's body, from bytes to fields."""

import asyncio
from typing import TypeVar

from starlette.requests import Request

from minillm_serve.server.errors import ApiError
from minillm_serve.server.schema.base import Body, parse
from minillm_serve.server.settings import ServerSettings

#: Longer bodies are parsed in a thread, so that nobody else waits for them.
LONG = 64 * 2**10

B = TypeVar("B", bound=Body)


async def read_body(request: Request, kind: type[B], settings: ServerSettings) -> B:
    """Reads and checks a body.

    Raises:
        ApiError: 400 a field is at fault, 408 it takes too long to arrive, 415 it is no JSON.
        ClientDisconnect: the client has gone.
    """
    media_type = request.headers.get("content-type", "application/json").split(";")[0].strip()
    if media_type.lower() != "application/json":
        raise ApiError(415, "Content-Type: only application/json is understood here")
    try:
        async with asyncio.timeout(settings.body_seconds):
            raw = await request.body()
    except TimeoutError:
        raise ApiError(408, "the body took too long to arrive") from None
    if len(raw) > LONG:
        return await asyncio.to_thread(parse, kind, raw)
    return parse(kind, raw)
