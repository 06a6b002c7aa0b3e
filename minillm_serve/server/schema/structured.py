"""The fields of a request that say what shape the answer is to have."""

from typing import Annotated, Any, Literal

from pydantic import Field

from minillm_serve.core.structured_outputs import StructuredOutputsParams
from minillm_serve.server.errors import invalid
from minillm_serve.server.schema.base import Body


class JsonSchema(Body):
    """A schema that the answer is to satisfy.

    It always does: `strict` changes nothing. A keyword that the answer would not be held to is
    refused by its name.
    """

    name: str
    description: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class ResponseFormat(Body):
    """What shape the answer takes: text, any JSON object, or JSON by a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    def shape(self) -> StructuredOutputsParams | None:
        """What the engine is asked for; None for text.

        Raises:
            ApiError: 400: schema and type do not go together.
            ValueError: the schema cannot be one.
        """
        if (self.json_schema is not None) != (self.type == "json_schema"):
            raise invalid(
                "response_format: json_schema goes with the type 'json_schema' and no other",
                "response_format",
            )
        if self.json_schema is not None:
            # OpenAI's rule: without a schema, any object.
            return StructuredOutputsParams(json=self.json_schema.schema_ or {"type": "object"})
        return StructuredOutputsParams(json_object=True) if self.type == "json_object" else None


class Shape(Body):
    """What shape the answer takes, exactly one of five (vLLM's `structured_outputs`)."""

    json_: Annotated[dict[str, Any] | str | None, Field(alias="json")] = None
    regex: str | None = None
    choice: Annotated[list[str] | None, Field(fail_fast=True)] = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False

    def shape(self) -> StructuredOutputsParams:
        """What the engine is asked for.

        Raises:
            ValueError: none of the five is given, or several, or one cannot be what it should.
        """
        return StructuredOutputsParams(
            json=self.json_,
            regex=self.regex,
            choice=None if self.choice is None else tuple(self.choice),
            grammar=self.grammar,
            json_object=self.json_object,
            disable_any_whitespace=self.disable_any_whitespace,
        )
