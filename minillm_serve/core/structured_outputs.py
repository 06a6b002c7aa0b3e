"""What shape an answer is to have."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: A schema, an expression or a grammar of more characters than this is surely a slip.
MOST_CHARS = 64 * 2**10

KINDS = ("json", "regex", "choice", "grammar", "json_object")


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredOutputsParams:
    """The shape that an answer is to have: exactly one of five kinds. Names follow vLLM.

    Attributes:
        json: JSON that satisfies this schema; a mapping, or its text. (Kept as text, so that what
            was validated cannot change.) Properties come in the schema's order, and further ones
            only where it names `additionalProperties`.
        regex: all of the answer matches this regular expression.
        choice: the answer is one of these strings.
        grammar: the answer follows this grammar, in the EBNF of llama.cpp; its rule `root`.
        json_object: any JSON object.
        disable_any_whitespace: JSON on one line, with a space after commas and colons. Otherwise
            the model puts spaces and line feeds where it likes, and a small one may never end.

    Raises:
        ValueError: naming the kind, its value and what is expected. Whether a schema makes sense
            is for its compiler to find out.
    """

    json: str | Mapping[str, Any] | None = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False

    def __post_init__(self) -> None:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            which = " and ".join(given) or "nothing"
            raise ValueError(f"structured_outputs has {which}: give exactly one of {list(KINDS)}")
        if self.json is not None:
            object.__setattr__(self, "json", _schema_text(self.json))
        if self.choice is not None:
            object.__setattr__(self, "choice", _choices(self.choice))
        for name in ("regex", "grammar"):
            if getattr(self, name) is not None:
                _text(name, getattr(self, name))
        for name in ("json_object", "disable_any_whitespace"):
            if not isinstance(getattr(self, name), bool | None):
                raise ValueError(f"{name}={getattr(self, name)!r}: expected True or False")
        if self.json_object is False:
            raise ValueError("json_object=False asks for nothing: leave structured_outputs out")
        if self.disable_any_whitespace and self.kind not in ("json", "json_object"):
            raise ValueError(f"disable_any_whitespace is for JSON: drop it, or give no {self.kind}")

    @property
    def kind(self) -> str:
        """Which of the five it is."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)


def _schema_text(schema: Any) -> str:
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema, allow_nan=False)
        read = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"json={_short(schema)}: it cannot be read as JSON ({error})") from None
    if not isinstance(read, dict):
        raise ValueError(f"json={_short(schema)}: expected a JSON schema, which is an object")
    return _text("json", text)


def _choices(values: Any) -> tuple[str, ...]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ValueError(f"choice={_short(values)}: expected a list of strings")
    choices = tuple(values)
    if not choices:
        raise ValueError("choice=[]: give at least one string")
    # First, since to look at each character takes long.
    length = sum(len(value) for value in choices if isinstance(value, str))
    if length > MOST_CHARS:
        raise ValueError(f"choice has {length} characters: at most {MOST_CHARS} in all")
    for value in choices:
        _text("choice entry", value)
    return choices


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name}={_short(value)}: expected a string of at least one character")
    if len(value) > MOST_CHARS:
        raise ValueError(f"{name} has {len(value)} characters: at most {MOST_CHARS}")
    if any("\ud800" <= character <= "\udfff" for character in value) or "\0" in value:
        raise ValueError(f"{name}={_short(value)}: half a surrogate pair or a NUL is no text")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
