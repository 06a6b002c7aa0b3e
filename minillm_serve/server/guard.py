"""The door of the server: who may come in, and how much he may bring."""

import hashlib
import hmac
import logging
import re
import uuid

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from minillm_serve.server.errors import ApiError, internal
from minillm_serve.server.settings import ServerSettings

logger = logging.getLogger(__name__)

#: What a load balancer asks; they need no key.
PROBES = frozenset({"/health", "/ready"})
_SAFE_ID = re.compile(rb"[A-Za-z0-9._:-]+")
_SCOPE_KEY = "minillm.request_id"


def request_id_of(scope: Scope) -> str:
    """The id under which a request stands in the log, and which its answer brings back."""
    return str(scope.get(_SCOPE_KEY, "?"))


class Guard:
    """ASGI middleware around everything: ids, sizes, the key, and what nobody foresaw.

    (Plain ASGI: middleware that gathers a response before it is sent spoils streams.)

    Args:
        app: what is guarded.
        settings: of the server.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings
        self._key = None if settings.api_key is None else _digest(settings.api_key.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Speaks ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[_SCOPE_KEY] = f"req-{uuid.uuid4().hex}"
        started = False

        async def named_send(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                name = (b"x-request-id", request_id_of(scope).encode())
                message = {**message, "headers": [*message.get("headers", ()), name]}
            await send(message)

        try:
            headers = _Headers(scope, self._settings)
            if headers.request_id is not None:
                scope[_SCOPE_KEY] = headers.request_id
            self._check_key(scope, headers)
            limit = self._settings.max_body_bytes
            await self._app(scope, _limited(receive, headers.body_bytes, limit), named_send)
        except ApiError as error:
            await error.response()(scope, receive, named_send)
        except Exception:
            logger.exception("%s failed", request_id_of(scope))
            if started:
                raise  # half an answer is out: all that is left is to cut the connection
            await internal(request_id_of(scope)).response()(scope, receive, named_send)

    def _check_key(self, scope: Scope, headers: "_Headers") -> None:
        if self._key is None or scope["path"] in PROBES:
            return
        scheme, _, key = headers.authorization.partition(b" ")
        # Of equal length and compared in constant time: nothing is learnt by measuring.
        if scheme.lower() != b"bearer" or not hmac.compare_digest(_digest(key.strip()), self._key):
            raise ApiError(
                401,
                "Incorrect API key provided: send it as 'Authorization: Bearer KEY'.",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )


class _Headers:
    """The headers that the guard reads.

    Raises:
        ApiError: 431 there is too much of them, 400 the request's id is none, 413 the body will be
            too long.
    """

    def __init__(self, scope: Scope, settings: ServerSettings) -> None:
        self.authorization = b""
        self.request_id: str | None = None
        self.body_bytes: int | None = None
        if sum(len(name) + len(value) for name, value in scope["headers"]) > (
            settings.max_header_bytes
        ):
            raise ApiError(431, f"the headers exceed {settings.max_header_bytes} bytes")
        for name, value in scope["headers"]:
            match name.lower():
                case b"authorization":
                    self.authorization = value
                case b"x-request-id":
                    self.request_id = _read_id(value, settings.max_request_id_chars)
                case b"content-length":
                    self.body_bytes = _read_length(value)


def _read_id(value: bytes, longest: int) -> str:
    if len(value) > longest or _SAFE_ID.fullmatch(value) is None:
        raise ApiError(
            400, f"X-Request-Id: expected 1 to {longest} letters, digits, dots, colons or dashes"
        )
    return value.decode()


def _read_length(value: bytes) -> int:
    if not value.isdigit() or len(value) > 18:
        raise ApiError(400, "Content-Length: expected a number of bytes")
    return int(value)


def _limited(receive: Receive, announced: int | None, limit: int) -> Receive:
    """The body as it comes, as long as it is not too long, whatever its length is said to be.

    Raises:
        ApiError: 413, at once if it is announced to be.
    """
    error = ApiError(413, f"the body exceeds {limit} bytes")
    if announced is not None and announced > limit:
        raise error
    so_far = 0

    async def limited() -> Message:
        nonlocal so_far
        message = await receive()
        so_far += len(message.get("body", b""))
        if so_far > limit:
            raise error
        return message

    return limited


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
