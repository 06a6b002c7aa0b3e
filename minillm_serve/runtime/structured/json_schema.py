"""JSON schemas, as far as grammars follow them: what they would pass over is refused by name."""

import re
from collections.abc import Callable, Mapping
from typing import Any

#: Schemas nested deeper than this are surely a slip.
DEEPEST = 64

Schema = Mapping[str, Any]

#: What says nothing about which values are right.
_REMARKS = {
    *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
    *("$comment", "$schema", "$id", "$defs", "definitions", "discriminator", "nullable"),
    *("contentEncoding", "contentMediaType"),
}
#: Keywords that stand alone, apart from remarks: beside them others would be passed over.
_ALONE = ("$ref", "anyOf", "oneOf", "allOf", "const", "enum")
_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
#: Any of these says which properties an object may have.
_PROPERTIES = {
    *("properties", "patternProperties", "propertyNames"),
    *("additionalProperties", "unevaluatedProperties"),
}
_ITEMS = {"items", "prefixItems", "unevaluatedItems"}
#: Which keywords are followed for values of which type.
_BY_TYPE: Mapping[str, set[str]] = {
    "null": set(),
    "boolean": set(),
    "integer": {*_BOUNDS, "multipleOf"},
    "number": _BOUNDS,
    "string": {"minLength", "maxLength", "pattern", "format"},
    "array": {*_ITEMS, "minItems", "maxItems"},
    "object": {*_PROPERTIES, "required", "minProperties", "maxProperties"},
}
_FORMATS = {
    *("date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"),
    *("uri", "uri-reference", "uri-template", "json-pointer", "relative-json-pointer"),
}
_IS_OF: Mapping[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value == int(value),
    "number": lambda value: _is_number(value),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
#: A quotation mark, a backslash or a control character, which JSON strings only have escaped.
_UNSAFE = re.compile(r'["\x00-\x1f]|\\[\\nrtfv0c]|\\x[01]|\\u00[01]|\\(x|u00)(22|5[cC])|\\u\{')
_UNKNOWN_ESCAPE = re.compile(r"\\[^dDwWsSnrtfv0xuc\W_]")


class Unsupported(ValueError):
    """Something that the answer would not be held to."""


def explicit(schema: Schema) -> Schema:
    """The same schema, with what it leaves open spelled out for the compiler.

    Where nothing is said about the items of an array, or the properties of an object, any may come.
    (Where properties are listed and nothing is said about others, only those come: it is what
    people mean, and a subset of what is allowed.)

    Raises:
        Unsupported: naming the place and the keyword that the grammar would pass over.
    """
    result = _explicit(schema, "#", 0)
    assert isinstance(result, dict)
    return result


def check_expression(expression: str) -> None:
    """Raises `Unsupported` if a regular expression has an escape that would stand for itself."""
    if (unknown := _UNKNOWN_ESCAPE.search(expression.replace("\\\\", ""))) is not None:
        raise Unsupported(f"{unknown[0]} is not supported in a regular expression")


def _explicit(schema: Any, place: str, depth: int) -> Any:
    if depth > DEEPEST:
        raise Unsupported(f"{place[:80]}...: the schema is nested more than {DEEPEST} deep")
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict):
        raise Unsupported(f"{place}: expected a schema, which is an object, true or false")
    _check_keywords(schema, place)
    result = dict(schema)
    for name in ("properties", "patternProperties", "$defs", "definitions"):
        if name in schema:
            result[name] = _each_named(schema[name], f"{place}/{name}", depth)
    for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if name in schema:
            result[name] = _each(schema[name], f"{place}/{name}", depth)
    for name in (*_ITEMS - {"prefixItems"}, *_PROPERTIES - {"properties", "patternProperties"}):
        if name in schema:
            result[name] = _explicit(schema[name], f"{place}/{name}", depth + 1)
    types = _types(schema, place)
    if "array" in types and not schema.keys() & _ITEMS:
        result["items"] = True
    if "object" in types and not schema.keys() & _PROPERTIES:
        result["additionalProperties"] = True
    return result


def _each_named(schemas: Any, place: str, depth: int) -> dict[str, Any]:
    if not isinstance(schemas, dict):
        raise Unsupported(f"{place}: expected an object of schemas")
    return {name: _explicit(s, f"{place}/{name}", depth + 1) for name, s in schemas.items()}


def _each(schemas: Any, place: str, depth: int) -> list[Any]:
    if not isinstance(schemas, list) or not schemas:
        raise Unsupported(f"{place}: expected a list of at least one schema")
    return [_explicit(s, f"{place}/{index}", depth + 1) for index, s in enumerate(schemas)]


def _check_keywords(schema: Schema, place: str) -> None:
    said = schema.keys() - _REMARKS
    alone = next((name for name in _ALONE if name in schema), None)
    types = _types(schema, place)
    if alone is not None:
        beside = {"type"} if alone in ("enum", "const") else set()
        if extra := sorted(said - beside - {alone}):
            raise Unsupported(f"{place}: {extra[0]!r} beside {alone!r} is not supported")
        _check_alone(schema, alone, types, place)
        return
    known = {"type"}.union(*(_BY_TYPE[kind] for kind in types))
    if extra := sorted(said - known):
        which = f"for type {schema['type']!r}" if "type" in schema else "without a 'type'"
        raise Unsupported(f"{place}: {extra[0]!r} is not supported {which}")
    _check_strings(schema, place)
    _check_numbers(schema, types, place)
    _check_objects(schema, place)


def _types(schema: Schema, place: str) -> list[str]:
    """The types that a value may have, as far as the grammar will look at their keywords."""
    if "type" not in schema:
        kinds = {kind: _BY_TYPE[kind] & schema.keys() for kind in ("object", "array")}
        return [kind for kind, keywords in kinds.items() if keywords][:1]
    given = schema["type"]
    types = given if isinstance(given, list) else [given]
    for kind in types:
        if not isinstance(kind, str) or kind not in _BY_TYPE:
            raise Unsupported(f"{place}: type {kind!r:.40} is none of {list(_BY_TYPE)}")
    return types


def _check_alone(schema: Schema, keyword: str, types: list[str], place: str) -> None:
    value = schema[keyword]
    if keyword == "$ref" and not (isinstance(value, str) and re.match(r"#(/|$)", value)):
        raise Unsupported(f"{place}: $ref {value!r:.80} leads out of the schema: give '#/...'")
    if keyword == "allOf" and isinstance(value, list) and len(value) > 1:
        raise Unsupported(f"{place}: allOf with several schemas is not supported: merge them")
    values = value if keyword == "enum" and isinstance(value, list) else [value]
    if keyword not in ("enum", "const") or "type" not in schema:
        return
    for one in values:
        if not any(_IS_OF[kind](one) for kind in types):
            raise Unsupported(f"{place}: {keyword} {one!r:.40} is not of type {schema['type']!r}")


def _check_strings(schema: Schema, place: str) -> None:
    form, pattern = schema.get("format"), schema.get("pattern")
    if form is not None and form not in _FORMATS:
        raise Unsupported(f"{place}: format {form!r:.40} is not supported")
    said = schema.keys() & {"format", "pattern", "minLength", "maxLength"}
    if said & {"format", "pattern"} and len(said) > 1:
        raise Unsupported(f"{place}: {' and '.join(sorted(said))} together are not supported")
    patterns = [] if pattern is None else [pattern]
    if isinstance(schema.get("patternProperties"), dict):
        patterns += schema["patternProperties"]
    for one in patterns:
        if not isinstance(one, str) or _UNSAFE.search(one):
            raise Unsupported(
                f"{place}: pattern {one!r:.80} has a quotation mark, a backslash or a control "
                "character, which is not supported"
            )
        try:
            check_expression(one)
        except Unsupported as error:
            raise Unsupported(f"{place}: pattern {one!r:.80}: {error}") from None


def _check_numbers(schema: Schema, types: list[str], place: str) -> None:
    factor = schema.get("multipleOf")
    if factor is None:
        return
    if "number" in types or not _IS_OF["integer"](factor):
        raise Unsupported(f"{place}: multipleOf is supported for integers alone")
    if extra := sorted(schema.keys() & _BOUNDS):
        raise Unsupported(f"{place}: multipleOf and {extra[0]} together are not supported")


def _check_objects(schema: Schema, place: str) -> None:
    required, listed = schema.get("required", []), schema.get("properties", {})
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise Unsupported(f"{place}: required is {required!r:.80}, expected a list of names")
    missing = next((name for name in required if name not in listed), None)
    if missing is not None:
        raise Unsupported(f"{place}: {missing!r:.80} is required and is none of the properties")
    if "properties" in schema and schema.keys() & {"propertyNames", "patternProperties"}:
        raise Unsupported(
            f"{place}: properties beside propertyNames or patternProperties are not supported"
        )
    if "patternProperties" in schema and "additionalProperties" in schema:
        raise Unsupported(
            f"{place}: patternProperties and additionalProperties together are not supported"
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
