"""The OpenAPI document: bodies are read by us, so FastAPI has to be told what they look like."""

from collections.abc import Sequence
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


def describe(app: FastAPI, model_names: Sequence[str], *kinds: type[Body]) -> None:
    """Puts the bodies that routes take into the app's document, with the models' names."""

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
                described["properties"]["model"]["anyOf"][0]["enum"] = list(model_names)
                bodies = {kind.__name__: described, **described.pop("$defs", {})}
                known.update({name: _with_nulls(body) for name, body in bodies.items()})
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _with_nulls(body: dict[str, Any]) -> dict[str, Any]:
    """A body's schema as it is read: null is taken for every field that may be left out."""
    properties = body.get("properties", {})
    optional = {name: p for name, p in properties.items() if name not in body.get("required", [])}
    return {**body, "properties": properties | {n: _or_null(p) for n, p in optional.items()}}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    nothing = {"type": "null"}
    if nothing in schema.get("anyOf", []):
        return schema
    remarks = ("title", "description", "default")
    about = {name: value for name, value in schema.items() if name in remarks}
    what = {name: value for name, value in schema.items() if name not in remarks}
    return {**about, "anyOf": [*what.get("anyOf", [what]), nothing]}
