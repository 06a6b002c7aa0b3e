"""The OpenAPI document: bodies are read by us, so FastAPI has to be told what they look like."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from minillm_serve.server.errors import ErrorReply
from minillm_serve.server.schema.base import Body

_REFERENCE = "#/components/schemas/{model}"


def takes(kind: type[Body]) -> dict[str, Any]:
    """What a route's `openapi_extra` says of its body."""
    schema = {"$ref": _REFERENCE.format(model=kind.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route's `responses` say of errors: all have one shape."""
    return {status: {"model": ErrorReply} for status in statuses}


def describe(app: FastAPI, *kinds: type[Body]) -> None:
    """Puts the bodies that routes take into the app's document."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
            )
            known = schema.setdefault("components", {}).setdefault("schemas", {})
            for kind in kinds:
                described = kind.model_json_schema(ref_template=_REFERENCE)
                known.update(described.pop("$defs", {}))
                known[kind.__name__] = described
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
