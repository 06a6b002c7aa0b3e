"""What all requests have in common: strict types, nothing unknown, nulls as if absent."""

from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from minillm_serve.server.errors import ApiError, invalid

#: More is no sensible value of any whole number here, and would not fit where it has to go.
LARGEST = 2**31 - 1


class _Unsupported(ValueError):
    """A field that is not known.

    Attributes:
        field: its name, or the beginning of it.
    """

    def __init__(self, field: str) -> None:
        self.field = _short(field)
        super().__init__(f"'{self.field}' is not supported here: leave it out")


class Body(BaseModel):
    """A request's body, or an object in one.

    Types are strict: "1" is no number, true is no 1. A field that is not known is refused by its
    name. null is what many clients write for a field that they do not use.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _only_known_fields(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        given = {name: value for name, value in data.items() if value is not None}
        known = {field.alias or name for name, field in cls.model_fields.items()}
        unknown = next((name for name in given if name not in known), None)
        if unknown is not None:
            # The first alone: a body of a million such fields would make a million errors.
            raise _Unsupported(unknown)
        return given


class Reply(BaseModel):
    """An answer, or an object in one. A field that is None is left out unless somebody set it."""

    _always: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        fields = cls.model_fields.items()
        cls._always = frozenset(name for name, field in fields if field.default is not None)

    def model_post_init(self, context: Any, /) -> None:
        """Counts defaults such as `object` as set."""
        self.model_fields_set.update(self._always)

    def json_bytes(self) -> bytes:
        """As it is sent."""
        return self.model_dump_json(exclude_unset=True).encode()


B = TypeVar("B", bound=Body)


def parse(kind: type[B], raw: bytes) -> B:
    """Reads a body.

    Raises:
        ApiError: 400, naming the field and what is expected of it.
    """
    try:
        return kind.model_validate_json(raw)
    except ValidationError as error:
        raise _explained(error) from None


def _explained(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        # "Invalid JSON: expected value at line 1 column 2": what and where, nothing of the body.
        what = first["msg"].removeprefix("Invalid JSON: ")
        if what.startswith("recursion limit"):
            what = "it is nested too deeply"
        return invalid(f"the body is not valid JSON: {what}", code="invalid_json")
    place, message = first["loc"], first["msg"].removeprefix("Value error, ")
    if first["type"] == "model_type" and not place:
        return invalid("the body is not a JSON object", code="invalid_json")
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, _Unsupported):
        param = str(place[0]) if place else cause.field
        return invalid(message, param, "unsupported_parameter")
    return invalid(f"{_path(place)}: {message}", str(place[0]) if place else None)


def _path(place: tuple[int | str, ...]) -> str:
    """`messages[0].content`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in place]
    return _short("".join(parts).removeprefix("."))


def _short(text: str) -> str:
    """Of what somebody sent, no more than helps him."""
    return text if len(text) <= 200 else f"{text[:200]}..."
