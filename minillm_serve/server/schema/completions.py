"""`/v1/completions`: a prompt goes on."""

from typing import Annotated, Any

from pydantic import Field, PlainValidator

from minillm_serve.core.sampling_params import SamplingParams
from minillm_serve.server.errors import invalid
from minillm_serve.server.schema.base import Reply
from minillm_serve.server.schema.sampling import Count, SamplingFields, check_logprobs
from minillm_serve.server.schema.usage import PromptLogprob, Usage
from minillm_serve.server.settings import ServerSettings

#: As many tokens as OpenAI gives to whoever names no number.
DEFAULT_MAX_TOKENS = 16

ManyPrompts = list[str] | list[list[int]]


def _read_prompts(value: Any) -> ManyPrompts:
    """A text, ids, or a list of either, as a list of one kind."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise ValueError("expected a string, a list of token ids, or a list of either")
    if not value:
        raise ValueError("the list is empty: give at least one prompt, or one token id")
    if isinstance(value[0], str):
        _same(value, str, "strings")
        return value
    if isinstance(value[0], list):
        _same(value, list, "lists of token ids")
        for index, ids in enumerate(value):
            if not ids:
                raise ValueError(f"prompt {index} is an empty list: give at least one token id")
            _same(ids, int, "token ids")
        return value
    _same(value, int, "token ids")
    return [value]


def _same(items: list[Any], kind: type, name: str) -> None:
    for index, item in enumerate(items):
        if type(item) is not kind:  # not even a bool, which is an int
            raise ValueError(f"item {index} of a list of {name} is {str(item)[:40]!r}")


class CompletionRequest(SamplingFields):
    """A request to go on with one prompt or several.

    Attributes:
        prompt: a text, token ids, or a list of either.
        echo: begin the answer with the prompt.
        logprobs: log probabilities of the answer's tokens and of so many alternatives to each.
    """

    prompt: Annotated[
        ManyPrompts,
        PlainValidator(
            _read_prompts, json_schema_input_type=str | list[str] | list[int] | list[list[int]]
        ),
    ]
    echo: bool = False
    logprobs: Count | None = None

    def check(self, settings: ServerSettings) -> None:
        """See `SamplingFields.check`."""
        super().check(settings)
        check_logprobs("logprobs", self.logprobs, settings)
        if len(self.prompt) > settings.max_prompts:
            raise invalid(
                f"{len(self.prompt)} prompts: at most {settings.max_prompts} in one request",
                "prompt",
            )

    def params(self) -> SamplingParams:
        """The engine's parameters."""
        wanted = [self.prompt_logprobs, self.logprobs if self.echo else None]
        of_prompt = max((count for count in wanted if count is not None), default=None)
        by_default = max(DEFAULT_MAX_TOKENS, self.min_tokens)
        return self.sampling_params(
            max_tokens=by_default if self.max_tokens is None else self.max_tokens,
            logprobs=self.logprobs,
            prompt_logprobs=of_prompt,
        )


class CompletionLogprobs(Reply):
    """One entry a token, in four lists of one length.

    Attributes:
        tokens: what each token adds to the text; joined, they are the text.
        token_logprobs: null for the first token of an echoed prompt: nothing comes before it.
        top_logprobs: by text, the likeliest tokens and the chosen one. Of tokens that read alike
            the likeliest counts; one that is no whole character reads `bytes:\\\\xf0\\\\x9f`.
        text_offset: where each token's text begins in the choice's text, in code points.
    """

    tokens: list[str] = Field(default_factory=list)
    token_logprobs: list[float | None] = Field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = Field(default_factory=list)
    text_offset: list[int] = Field(default_factory=list)


class CompletionChoice(Reply):
    """One answer, or in a stream what has come of it.

    Attributes:
        index: answers to the first prompt come first.
        stop_reason: the stop string or token id that ended it, if one did (vLLM's).
        prompt_logprobs: by token id, if they were asked for (vLLM's).
    """

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None
    prompt_logprobs: list[dict[int, PromptLogprob] | None] | None = None


class Completion(Reply):
    """The answers, or a chunk of a stream of them."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None
