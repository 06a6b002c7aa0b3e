"""`/v1/chat/completions`: the assistant's turn in a conversation."""

from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator

from minillm_serve.core.sampling_params import SamplingParams
from minillm_serve.server.errors import ApiError, invalid
from minillm_serve.server.schema.base import Body, Reply
from minillm_serve.server.schema.sampling import (
    Count,
    Positive,
    SamplingFields,
    check_logprobs,
)
from minillm_serve.server.schema.usage import PromptLogprob, Usage
from minillm_serve.server.settings import ServerSettings


class TextPart(Body):
    """A piece of a message: text, and nothing else so far."""

    type: Literal["text"]
    text: str


def _read_content(value: Any) -> str:
    """The text of a message; of several parts, one under the other, as in vLLM."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise ValueError("expected a string, or a list of parts {'type': 'text', 'text': ...}")
    for index, part in enumerate(value):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(part.get("text"), str) or len(part) > 2:
            raise ValueError(f"part {index}: only {{'type': 'text', 'text': ...}} is supported")
    return "\n".join(part["text"] for part in value)


class ChatMessage(Body):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[
        str, PlainValidator(_read_content, json_schema_input_type=str | list[TextPart])
    ]


class ChatRequest(SamplingFields):
    """A request for the assistant's next turn.

    Attributes:
        messages: the conversation so far.
        max_completion_tokens: OpenAI's newer name of `max_tokens`; without either, the answer may
            go on to the end of the context.
        logprobs: whether to tell the log probabilities of the answer's tokens.
        top_logprobs: of how many alternatives to each.
    """

    messages: Annotated[list[ChatMessage], Field(min_length=1, fail_fast=True)]
    max_completion_tokens: Positive | None = None
    logprobs: bool = False
    top_logprobs: Count | None = None

    @property
    def asked_tokens(self) -> int | None:
        """How many tokens were asked for, if a number was named."""
        newer = self.max_completion_tokens
        return self.max_tokens if newer is None else newer

    def check(self, settings: ServerSettings) -> None:
        """See `SamplingFields.check`."""
        super().check(settings)
        check_logprobs("top_logprobs", self.top_logprobs, settings)
        if self.top_logprobs is not None and not self.logprobs:
            raise invalid("top_logprobs without logprobs=true: set it", "top_logprobs")
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise invalid("max_tokens and max_completion_tokens: give one of them", "max_tokens")

    def params(self) -> SamplingParams:
        """The engine's parameters."""
        try:
            return self.sampling_params(
                max_tokens=self.asked_tokens,
                logprobs=(self.top_logprobs or 0) if self.logprobs else None,
                prompt_logprobs=self.prompt_logprobs,
            )
        except ApiError as error:
            if error.info.param != "max_tokens" or self.max_completion_tokens is None:
                raise
            newer = "max_completion_tokens"  # the name that it came by
            raise invalid(error.info.message.replace("max_tokens", newer), newer) from None


class TopLogprob(Reply):
    """How likely a token was in some place.

    Attributes:
        token: its text.
        bytes: the bytes that it stands for, which tell halves of characters apart.
    """

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    """How likely a token of the answer was; the texts of all, joined, are the answer."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(Reply):
    """One entry a token of the answer."""

    content: list[TokenLogprob]


class AssistantMessage(Reply):
    """What the model said."""

    role: str = "assistant"
    content: str


class ChatChoice(Reply):
    """One answer."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None


class ChatCompletion(Reply):
    """The answers to a conversation."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: list[dict[int, PromptLogprob] | None] | None = None


class Delta(Reply):
    """What has come of a message; the first one of an answer has the role."""

    role: str | None = None
    content: str | None = None


class ChatChunkChoice(Reply):
    """What has come of one answer."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None = None


class ChatChunk(Reply):
    """One event of a stream."""

    id: str
    object: str = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | None = None
