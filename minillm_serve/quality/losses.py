"""How far a model's expectations have moved: perplexity, KL divergence, the likeliest token."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from minillm_serve.quality.reading import Reading

#: Rows whose logits are held at once: two times 64 x V floats.
ROWS = 64


@dataclass(frozen=True, slots=True)
class Losses:
    """What reading in fewer bits cost, over some tokens.

    Attributes:
        tokens: how many were foretold.
        nll: mean of -log p of the token that really came [nats].
        reference_nll: the same of the reference.
        kl: mean of KL(reference || this) of the next token's distribution [nats].
        same_top: share of places at which both think the same token likeliest.
    """

    tokens: int
    nll: float
    reference_nll: float
    kl: float
    same_top: float

    @property
    def perplexity(self) -> float:
        """exp(nll): between how many equally likely tokens it would have had to choose."""
        return float(torch.tensor(self.nll, dtype=torch.float64).exp())

    @property
    def reference_perplexity(self) -> float:
        """The reference's."""
        return float(torch.tensor(self.reference_nll, dtype=torch.float64).exp())

    @classmethod
    def of_all(cls, parts: Iterable["Losses"]) -> "Losses":
        """Several texts as one; each token counts the same.

        Raises:
            ValueError: there are none.
        """
        every = list(parts)
        tokens = sum(part.tokens for part in every)
        if not tokens:
            raise ValueError("no tokens to compare")

        def mean(name: str) -> float:
            return sum(part.tokens * getattr(part, name) for part in every) / tokens

        return cls(tokens, *map(mean, ("nll", "reference_nll", "kl", "same_top")))


@torch.inference_mode()
def compare(reference: Reading, other: Reading, start: int = 0) -> Losses:
    """What the other reading lost.

    Args:
        reference: of the same text, by the model at its best.
        other: in fewer bits.
        start: tokens up to here are read, and not counted: a prompt before an answer.

    Raises:
        ValueError: the texts differ, or are too short to foretell anything.
    """
    if reference.token_ids != other.token_ids:
        raise ValueError("two readings of different texts cannot be compared")
    last = len(reference.token_ids) - 1  # nothing is known to follow it
    first = max(start - 1, 0)
    if first >= last:
        raise ValueError(f"nothing is foretold behind token {start} of {last + 1}")
    came = torch.tensor(reference.token_ids)
    sums = torch.zeros(4, dtype=torch.float64)
    for begin in range(first, last, ROWS):
        rows = slice(begin, min(begin + ROWS, last))
        p, q = reference.log_probs(rows), other.log_probs(rows)
        next_ids = came[rows.start + 1 : rows.stop + 1, None].to(p.device)
        kl = (p.exp() * (p - q)).sum(-1)
        same = p.argmax(-1) == q.argmax(-1)
        found = (-q.gather(1, next_ids), -p.gather(1, next_ids), kl, same)
        sums += torch.stack([one.double().sum() for one in found]).cpu()
    nll, reference_nll, divergence, same_top = (sums / (last - first)).tolist()
    return Losses(last - first, nll, reference_nll, divergence, same_top)
