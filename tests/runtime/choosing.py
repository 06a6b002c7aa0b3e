"""The sampler, asked by sequences."""

import torch
from torch import Tensor

from minillm_serve.core import Sequence
from minillm_serve.runtime.sampling.choice import Choice
from minillm_serve.runtime.sampling.sampler import choose


def last_tokens(sequences: list[Sequence]) -> Tensor:
    return torch.tensor([sequence.token_ids[-1] for sequence in sequences])


def choose_tokens(logits: Tensor, sequences: list[Sequence]) -> list[int]:
    """What is reported of each row: a token, or a key of `FAULTS`."""
    choices = [Choice.of(sequence) for sequence in sequences]
    tokens, reported = choose(logits, choices, last_tokens(sequences))
    assert ((tokens >= 0) & (tokens < logits.shape[-1])).all()  # the next step looks them up
    return reported.tolist()
