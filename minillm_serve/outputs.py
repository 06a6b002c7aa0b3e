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
class CompletionDelta:
    """What has come of an answer since the last delta. Joined, deltas are its `CompletionOutput`.

    Attributes:
        index: which of the request's answers.
        text: what is to be appended; nothing of it is ever taken back.
        token_ids: the new ids. (Their text may be held back for a while: it could become a stop
            string, or half a character.)
        logprobs: one entry a new id, if they were asked for.
        text_offsets: one a new id, counted from the answer's beginning.
        text_end: where the text of all ids so far ends, what is held back included.
        finish_reason: set in the last delta of an answer.
        stop_reason: likewise, as in `CompletionOutput`.
        error: likewise.
    """

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None
    text_offsets: list[int]
    text_end: int
    finish_reason: str | None
    stop_reason: int | str | None
    error: str | None


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
