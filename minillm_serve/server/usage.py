"""The usage of a request."""

from collections.abc import Sequence
from typing import Any

from minillm_serve.collector import Collector
from minillm_serve.outputs import CompletionDelta, RequestOutput
from minillm_serve.server.schema.sampling import StreamOptions
from minillm_serve.server.schema.usage import CompletionDetails, PromptDetails, Usage


def usage_of(outputs: Sequence[RequestOutput]) -> Usage:
    """Tokens of all prompts, each counted once, and of all answers: the ids that were returned."""
    prompt = sum(len(output.prompt_token_ids) for output in outputs)
    completion = sum(len(answer.token_ids) for output in outputs for answer in output.outputs)
    drafts = sum(output.metrics.num_draft_tokens for output in outputs)
    accepted = sum(output.metrics.num_accepted_tokens for output in outputs)
    cached = sum(output.num_cached_tokens for output in outputs)
    return _usage(prompt, completion, cached, accepted, drafts)


class UsageInChunks:
    """What the chunks of a stream say of its usage, before the last one says all.

    Args:
        options: of the stream; None if there are none.
    """

    def __init__(self, options: StreamOptions | None) -> None:
        self._includes = options is not None and options.include_usage
        self._tells = self._includes and options is not None and options.continuous_usage_stats
        self._prompts: dict[int, Collector] = {}
        self._num_told = 0

    def fields(self, which: int, delta: CompletionDelta, collector: Collector) -> dict[str, Any]:
        """Fields of the next chunk. Every delta must be shown, be it sent or not.

        Where the usage comes last, every chunk before says that it has none, as OpenAI's do;
        or, on request, how many tokens of answers have been told so far, and those of the prompts
        that they answer.
        """
        self._prompts[which] = collector
        self._num_told += len(delta.token_ids)
        if not self._tells:
            return {"usage": None} if self._includes else {}
        asked = [collector.request for collector in self._prompts.values()]
        metrics = [collector.metrics for collector in self._prompts.values()]
        return {
            "usage": _usage(
                sum(len(request.prompt_token_ids) for request in asked),
                self._num_told,
                sum(seen.num_cached_tokens for seen in metrics),
                sum(seen.num_accepted_tokens for seen in metrics),
                sum(seen.num_draft_tokens for seen in metrics),
            )
        }


def _usage(prompt: int, completion: int, cached: int, accepted: int, drafts: int) -> Usage:
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        prompt_tokens_details=PromptDetails(cached_tokens=cached),
        completion_tokens_details=CompletionDetails(
            accepted_prediction_tokens=accepted, rejected_prediction_tokens=drafts - accepted
        ),
    )
