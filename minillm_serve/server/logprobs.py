"""Log probabilities in OpenAI's two formats, and vLLM's for prompts."""

from collections.abc import Sequence

from minillm_serve.core.logprobs import Logprob, TokenLogprobs
from minillm_serve.server.schema.chat import ChatLogprobs, TokenLogprob, TopLogprob
from minillm_serve.server.schema.completions import CompletionLogprobs
from minillm_serve.server.schema.usage import PromptLogprob
from minillm_serve.server.token_text import TokenInText, own_text
from minillm_serve.text.vocabulary import Vocabulary

#: JSON has no -inf, which is how likely a token is that the model rules out.
LEAST = -9999.0


def completion_logprobs(
    tokens: Sequence[TokenInText], count: int, vocabulary: Vocabulary
) -> CompletionLogprobs:
    """Four lists of one length.

    Args:
        tokens: of the answer, behind those of an echoed prompt.
        count: of how many of the likeliest tokens to tell, besides the chosen one.
        vocabulary: the model's.
    """
    return CompletionLogprobs(
        tokens=[token.text for token in tokens],
        token_logprobs=[
            None if token.logprobs is None else _value(token.logprobs[token.token_id])
            for token in tokens
        ],
        top_logprobs=[_by_text(token, count, vocabulary) for token in tokens],
        text_offset=[token.offset for token in tokens],
    )


def chat_logprobs(
    tokens: Sequence[TokenInText], count: int, vocabulary: Vocabulary
) -> ChatLogprobs:
    """One entry a token, each with the `count` likeliest in its place."""
    return ChatLogprobs(content=[_in_chat(token, count, vocabulary) for token in tokens])


def prompt_logprobs(
    entries: Sequence[TokenLogprobs | None], count: int, vocabulary: Vocabulary
) -> list[dict[int, PromptLogprob] | None]:
    """By token id: the prompt's token, which comes first, and the `count` likeliest."""
    return [
        None
        if entry is None
        else {
            token_id: PromptLogprob(
                logprob=_value(told),
                rank=told.rank,
                decoded_token=own_text(vocabulary, token_id).text,
            )
            for place, (token_id, told) in enumerate(entry.items())
            if place == 0 or told.rank <= count
        }
        for entry in entries
    ]


def _by_text(token: TokenInText, count: int, vocabulary: Vocabulary) -> dict[str, float] | None:
    if token.logprobs is None:
        return None
    chosen = token.text or own_text(vocabulary, token.token_id).text
    by_text = {chosen: _value(token.logprobs[token.token_id])}
    for other, told in _likeliest(token.logprobs, count):
        if other != token.token_id:
            by_text.setdefault(own_text(vocabulary, other).text, _value(told))
    return by_text


def _in_chat(token: TokenInText, count: int, vocabulary: Vocabulary) -> TokenLogprob:
    assert token.logprobs is not None  # an answer's tokens all have theirs
    own = own_text(vocabulary, token.token_id)
    top = []
    for other, told in _likeliest(token.logprobs, count):
        text, raw, _ = own_text(vocabulary, other)
        if other == token.token_id and token.text:
            text = token.text
        top.append(TopLogprob(token=text, logprob=_value(told), bytes=list(raw)))
    return TokenLogprob(
        token=token.text,
        logprob=_value(token.logprobs[token.token_id]),
        # Joined, these too are the answer: halves of a character by their own bytes.
        bytes=list(token.text.encode() if own.is_whole else own.raw),
        top_logprobs=top,
    )


def _likeliest(entry: TokenLogprobs, count: int) -> list[tuple[int, Logprob]]:
    ranked = sorted(entry.items(), key=lambda item: item[1].rank)
    return [(token_id, told) for token_id, told in ranked if told.rank <= count]


def _value(told: Logprob) -> float:
    return max(told.logprob, LEAST)
