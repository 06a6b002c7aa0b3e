"""Sequences that nobody asked for: to time steps, or to compile what they need, before any do."""

from minillm_serve.core.request import Request, Sequence
from minillm_serve.core.sampling_params import SamplingParams


def made_up_sequences(count: int, length: int, width: int) -> list[Sequence]:
    """Sequences of so many tokens, each with so many blocks of its own, from block 0 on.

    The last token is unlike all others, so that a drafter which looks it up finds nothing to copy.

    Args:
        count: how many.
        length: tokens of each.
        width: blocks of each.
    """
    params = SamplingParams(temperature=0)
    made, prompt = [], (*[0] * (length - 1), 1)
    for number in range(count):
        request = Request(request_id=str(number), prompt_token_ids=prompt, params=params)
        sequence = Sequence(request)
        sequence.block_table = list(range(number * width, (number + 1) * width))
        made.append(sequence)
    return made
