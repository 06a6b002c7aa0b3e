"""What `LLM.generate` returns; shaped like vLLM's."""

from dataclasses import dataclass

from minillm_serve.core.logprobs import TokenLogprobs
from minillm_serve.core.metrics import RequestMetrics


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One generated answer. Ids, text and log probabilities end at the same token.

    Attributes:
        index: which of the request's answers.
        text: the generated text; a stop string is cut off.
        token_ids: the generated ids, the stop token included.
        finish_reason: "stop", "length", "abort", "error" or "deadline".
        stop_reason: the stop string or the id from `stop_token_ids` that ended it, if one did.
        logprobs: one entry an id, if `SamplingParams.logprobs` was set.
        text_offsets: where each id's text begins in `text`, in code points; never falls.
        error: what went wrong, if that is how it ended.
    """

    index: int
    text: str
    token_ids: list[int]
    finish_reason: str | None
    stop_reason: int | str | None
    logprobs: list[TokenLogprobs] | None
    text_offsets: list[int]
    error: str | None

    @property
    def cumulative_logprob(self) -> float | None:
        """Log probability of the whole answer, if log probabilities were asked for."""
        if self.logprobs is None:
            return None
        pairs = zip(self.token_ids, self.logprobs, strict=True)
        return sum(entry[token].logprob for token, entry in pairs)


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """A request and its answers.

    Attributes:
        request_id: the engine's id.
        prompt: the prompt's text; None if ids were given.
        prompt_token_ids: the prompt's ids.
        prompt_logprobs: one entry a prompt id, the first None, if they were asked for.
        outputs: the answers, as many as `SamplingParams.n`.
        metrics: when what happened.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    prompt_logprobs: list[TokenLogprobs | None] | None
    outputs: list[CompletionOutput]
    metrics: RequestMetrics

    @property
    def num_cached_tokens(self) -> int:
        """Tokens of the prompt that did not have to be computed: the prefix cache had them."""
        return self.metrics.num_cached_tokens
