"""What `LLM.generate` returns; shaped like vLLM's."""

from dataclasses import dataclass

from minillm_serve.core.metrics import RequestMetrics


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One generated answer.

    Attributes:
        index: which of the request's answers.
        text: the generated text.
        token_ids: the generated ids, the stop token included.
        finish_reason: "stop", "length", "abort" or "error".
        error: what went wrong, if that is "error".
    """

    index: int
    text: str
    token_ids: list[int]
    finish_reason: str | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """A request and its answers.

    Attributes:
        request_id: the engine's id.
        prompt: the prompt's text; None if ids were given.
        prompt_token_ids: the prompt's ids.
        outputs: the answers.
        metrics: when what happened.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    metrics: RequestMetrics
