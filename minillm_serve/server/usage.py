"""The usage of a request."""

from collections.abc import Sequence

from minillm_serve.outputs import RequestOutput
from minillm_serve.server.schema.usage import CompletionDetails, PromptDetails, Usage


def usage_of(outputs: Sequence[RequestOutput]) -> Usage:
    """Tokens of all prompts, each counted once, and of all answers: the ids that were returned."""
    prompt = sum(len(output.prompt_token_ids) for output in outputs)
    completion = sum(len(answer.token_ids) for output in outputs for answer in output.outputs)
    drafts = sum(output.metrics.num_draft_tokens for output in outputs)
    accepted = sum(output.metrics.num_accepted_tokens for output in outputs)
    cached = sum(output.num_cached_tokens for output in outputs)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        prompt_tokens_details=PromptDetails(cached_tokens=cached),
        completion_tokens_details=CompletionDetails(
            accepted_prediction_tokens=accepted, rejected_prediction_tokens=drafts - accepted
        ),
    )
