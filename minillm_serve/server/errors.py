"""What goes wrong, as a status and OpenAI's error object."""

import re
from collections.abc import Iterable

from pydantic import BaseModel
from starlette.responses import Response

INVALID = "invalid_request_error"
SERVER = "server_error"
UNAVAILABLE = "service_unavailable_error"


class ErrorInfo(BaseModel):
    """What happened.

    Attributes:
        message: for people.
        type: the kind of error.
        param: the field that is at fault, if one is.
        code: for programs, if there is one.
    """

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorReply(BaseModel):
    """Every answer but the good ones has this body."""

    error: ErrorInfo


class ApiError(Exception):
    """Ends a request with a status and an `ErrorReply`.

    Attributes:
        status: of HTTP.
        info: the error.
        headers: to send along.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = INVALID,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.info = ErrorInfo(message=message, type=kind, param=param, code=code)
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(retry_after)

    def json(self) -> bytes:
        """The body."""
        return ErrorReply(error=self.info).model_dump_json().encode()

    def response(self) -> Response:
        """The whole answer."""
        return Response(self.json(), self.status, self.headers, media_type="application/json")


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """The request is at fault."""
    return ApiError(400, message, param=param, code=code)


def internal(request_id: str) -> ApiError:
    """Nobody foresaw it: the log has the rest, the client learns nothing of it."""
    message = f"the server failed at this request; its log has more under {request_id}"
    return ApiError(500, message, kind=SERVER, code="internal_error")


def unavailable(message: str, retry_after: int, code: str) -> ApiError:
    """Nobody is served just now."""
    return ApiError(503, message, kind=UNAVAILABLE, code=code, retry_after=retry_after)


def param_of(message: str, fields: Iterable[str]) -> str | None:
    """The first of some fields that a message of the engine names."""
    known = set(fields)
    return next((word for word in re.findall(r"\w+", message) if word in known), None)
