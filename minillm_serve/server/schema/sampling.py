"""The fields of a request that say how its tokens are chosen."""

import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PlainValidator

from minillm_serve.core.sampling_params import HOTTEST, SamplingParams
from minillm_serve.core.structured_outputs import StructuredOutputsParams
from minillm_serve.server.errors import invalid, param_of
from minillm_serve.server.schema.base import LARGEST, Body
from minillm_serve.server.schema.structured import ResponseFormat, Shape
from minillm_serve.server.settings import ServerSettings

#: Most entries of `logit_bias` and of `stop_token_ids`: each is looked at with every prompt.
MOST_ENTRIES = 1024

Whole = Annotated[int, Field(ge=-LARGEST, le=LARGEST)]
Seed = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
TokenId = Annotated[int, Field(json_schema_extra={"minimum": 0})]
#: KV is shared under a salt; nobody needs a long one, and it is hashed with every block.
Salt = Annotated[str, Field(min_length=1, max_length=256)]


def _documented(**limits: float) -> Any:
    """Limits for the API's document; the engine checks them, and says what it expects."""
    return Field(json_schema_extra=dict(limits))


Penalty = Annotated[float, _documented(minimum=-2, maximum=2)]
Share = Annotated[float, _documented(minimum=0, maximum=1)]
Count = Annotated[Whole, _documented(minimum=0)]
Positive = Annotated[Whole, _documented(minimum=1)]


def _read_stop(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise ValueError("expected a string or a list of strings")
    return tuple(stops)


def _read_bias(value: Any) -> dict[int, float]:
    if not isinstance(value, dict):
        raise ValueError("expected an object from token ids to numbers")
    if len(value) > MOST_ENTRIES:
        raise ValueError(f"{len(value)} entries, at most {MOST_ENTRIES}")
    bias = {}
    for key, amount in value.items():
        if re.fullmatch(r"-?\d{1,10}", key, re.ASCII) is None:
            raise ValueError(f"the key {key[:40]!r} is no token id")
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            raise ValueError(f"the value of {key!r} is no number")
        # (An integer may be too large for a float.)
        bias[int(key)] = math.inf if abs(amount) > LARGEST else float(amount)
    return bias


def _once_each(values: list[int]) -> list[int]:
    return list(dict.fromkeys(values))


BiasDocument = Annotated[dict[str, float], Field(max_length=MOST_ENTRIES)]
StopTokenIds = Annotated[
    list[TokenId], Field(fail_fast=True, max_length=MOST_ENTRIES), AfterValidator(_once_each)
]


class StreamOptions(Body):
    """How an answer is streamed.

    Attributes:
        include_usage: send the usage, in a last chunk without choices.
        continuous_usage_stats: with it, send what it is so far in every chunk (vLLM's).
    """

    include_usage: bool = False
    continuous_usage_stats: bool = False


class SamplingFields(Body):
    """What completions and chats have in common; names and meanings are OpenAI's and vLLM's.

    `user` is taken and not used: the server keeps no accounts.
    """

    model: str | None = None
    max_tokens: Positive | None = None
    temperature: Annotated[float, _documented(minimum=0, maximum=HOTTEST)] = 1.0
    top_p: Share = 1.0
    n: Positive = 1
    stream: bool = False
    stream_options: StreamOptions | None = None
    stop: Annotated[
        tuple[str, ...], PlainValidator(_read_stop, json_schema_input_type=str | list[str])
    ] = ()
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    logit_bias: Annotated[
        dict[int, float], PlainValidator(_read_bias, json_schema_input_type=BiasDocument)
    ] = Field(default_factory=dict)
    seed: Seed | None = None
    response_format: ResponseFormat | None = None
    user: str | None = None
    # vLLM's
    top_k: Annotated[Whole, _documented(minimum=-1)] = 0
    min_p: Share = 0.0
    repetition_penalty: Annotated[float, _documented(minimum=1e-3, maximum=1e3)] = 1.0
    min_tokens: Count = 0
    stop_token_ids: StopTokenIds = Field(default_factory=list)
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    structured_outputs: Shape | None = None
    priority: Whole = 0
    cache_salt: Salt | None = None
    prompt_logprobs: Count | None = None

    @property
    def asked_tokens(self) -> int | None:
        """How many tokens were asked for, if a number was named."""
        return self.max_tokens

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def shape_field(self) -> str:
        """The field that says what shape the answer is to have."""
        return "response_format" if self.structured_outputs is None else "structured_outputs"

    def shape(self) -> StructuredOutputsParams | None:
        """What shape the answer is to have.

        Raises:
            ApiError: 400: it cannot have it, or is asked for two.
        """
        try:
            shape = self.response_format.shape() if self.response_format is not None else None
            if self.structured_outputs is None:
                return shape
            if shape is not None:
                message = "response_format and structured_outputs: give one of them"
                raise invalid(message, "structured_outputs")
            return self.structured_outputs.shape()
        except ValueError as error:
            raise invalid(f"{self.shape_field}: {error}", self.shape_field) from None

    def check(self, settings: ServerSettings) -> None:
        """Holds the request against the server's limits.

        Raises:
            ApiError: 400, naming the field, its value and the limit.
        """
        if self.n > settings.max_n:
            raise invalid(f"n={self.n}: at most {settings.max_n} answers to one prompt", "n")
        if len(self.stop) > settings.max_stop:
            raise invalid(f"stop has {len(self.stop)} strings: at most {settings.max_stop}", "stop")
        longest = max(map(len, self.stop), default=0)
        if longest > settings.max_stop_chars:
            raise invalid(
                f"a stop string has {longest} characters: at most {settings.max_stop_chars}", "stop"
            )
        check_logprobs("prompt_logprobs", self.prompt_logprobs, settings)
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options without stream=true: drop one of them", "stream_options")
        if self.stream and self.prompt_logprobs is not None:
            raise invalid("prompt_logprobs cannot be streamed: drop one of them", "prompt_logprobs")

    def sampling_params(self, **options: Any) -> SamplingParams:
        """The engine's parameters.

        Args:
            options: `max_tokens`, `logprobs` and `prompt_logprobs`, which endpoints read apart.

        Raises:
            ApiError: 400, naming the field, its value and what is expected.
        """
        names = (
            "n temperature top_p top_k min_p presence_penalty frequency_penalty repetition_penalty "
            "logit_bias min_tokens stop include_stop_str_in_output ignore_eos seed "
            "skip_special_tokens stop_token_ids"
        )
        given = {name: getattr(self, name) for name in names.split()}
        shape = self.shape()
        try:
            return SamplingParams(**given, structured_outputs=shape, **options)
        except ValueError as error:
            raise invalid(str(error), param_of(str(error), type(self).model_fields)) from None


def check_logprobs(name: str, value: int | None, settings: ServerSettings) -> None:
    """How many alternatives to a token may be asked for.

    Raises:
        ApiError: 400: too many, or fewer than none.
    """
    if value is not None and not 0 <= value <= settings.max_logprobs:
        raise invalid(f"{name}={value}: expected from 0 to {settings.max_logprobs}", name)
