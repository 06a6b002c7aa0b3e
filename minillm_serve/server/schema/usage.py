"""What an answer cost, and how likely a prompt was."""

from minillm_serve.server.schema.base import Reply


class PromptDetails(Reply):
    """Of the prompt's tokens.

    Attributes:
        cached_tokens: those whose KV the prefix cache had.
    """

    cached_tokens: int


class CompletionDetails(Reply):
    """Of the drafts of speculative decoding.

    Attributes:
        accepted_prediction_tokens: drafts that became part of an answer.
        rejected_prediction_tokens: drafts that did not.
    """

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class Usage(Reply):
    """Tokens of all prompts and all answers of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class PromptLogprob(Reply):
    """How likely a token of a prompt was (vLLM's format)."""

    logprob: float
    rank: int
    decoded_token: str
