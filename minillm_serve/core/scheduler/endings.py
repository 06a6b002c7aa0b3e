"""When a sequence has come to its end."""

from minillm_serve.core.request import FinishReason, Sequence, SequenceStatus


def take_tokens(
    sequence: Sequence, token_ids: tuple[int, ...], max_len: int
) -> tuple[tuple[int, ...], FinishReason | None]:
    """Appends tokens to a sequence, up to one that ends it; tells which, and why it ends."""
    for count, token in enumerate(token_ids, 1):
        sequence.token_ids.append(token)
        reason = reason_to_stop(sequence, token, max_len)
        if reason is not None:
            return token_ids[:count], reason
    return token_ids, None


def reason_to_stop(sequence: Sequence, token: int, max_len: int) -> FinishReason | None:
    """Why a sequence ends with the token it has just got; None if it goes on.

    Args:
        sequence: whose tokens include that one.
        token: its id.
        max_len: no sequence gets longer.
    """
    if token in sequence.stop_ids:
        return FinishReason.STOP
    return FinishReason.LENGTH if is_full(sequence, len(sequence.token_ids), max_len) else None


def is_full(sequence: Sequence, num_tokens: int, max_len: int) -> bool:
    """Whether a sequence of so many tokens may get no further one."""
    max_tokens = sequence.params.max_tokens
    if max_tokens is not None and num_tokens - sequence.num_prompt_tokens >= max_tokens:
        return True
    return num_tokens >= max_len


def tokens_left(sequence: Sequence, max_len: int) -> int:
    """How many tokens a sequence may still get."""
    left = max_len - len(sequence)
    if sequence.params.max_tokens is not None:
        left = min(left, sequence.params.max_tokens - sequence.num_output_tokens)
    return left


def is_gone(sequence: Sequence) -> bool:
    """Whether it has ended, and no step uses its blocks any more."""
    return sequence.status is SequenceStatus.FINISHED and not sequence.num_under_way
