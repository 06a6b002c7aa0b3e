"""Which token a small model drafts, given its logits."""

import numpy as np
import torch
from torch import Tensor

from minillm_serve.core.batch import ScheduledSequence
from minillm_serve.runtime.device import upload_one
from minillm_serve.runtime.sampling.choice import Choice
from minillm_serve.runtime.sampling.inversion import invert
from minillm_serve.runtime.sampling.randomness import DRAFT, stream, uniform
from minillm_serve.runtime.sampling.sampler import distributions
from minillm_serve.runtime.spec.drafter import Proposal


class Picker:
    """Picks the drafts of several sequences, pass by pass, and keeps what they were drawn from.

    A greedy request gets the likeliest tokens. So does one with a seed of its own, which asks for
    the very tokens that it would get without drafts. For everybody else drafts are drawn as the
    model's tokens would be, by temperature and filters: more of them are accepted then.

    Args:
        items: the most drafts first.
        vocabulary: [V_d] int64, the ids that there will be logits for; None if for all.
        vocab_size: V.
        device: where the logits are.
    """

    def __init__(
        self,
        items: list[ScheduledSequence],
        vocabulary: Tensor | None,
        vocab_size: int,
        device: torch.device,
    ) -> None:
        self._vocabulary = vocabulary
        self._picked = list[Tensor]()
        self._drawn = [row for row, item in enumerate(items) if draws(item)]
        self._choices = [Choice.of(items[row].sequence) for row in self._drawn]
        self._probs: Tensor | None = None
        if self._drawn:
            shape = (len(self._drawn), items[0].num_drafts, vocab_size)
            # Ids without logits have probability 0.
            make = torch.empty if vocabulary is None else torch.zeros
            self._probs = make(shape, dtype=torch.float32, device=device)

    def pick(self, logits: Tensor) -> Tensor:
        """The next draft [R] int64 of the first R sequences, by logits [R, V_d]."""
        picked = logits.argmax(dim=-1)
        drawn = [row for row in self._drawn if row < len(logits)]
        if drawn:
            rows = upload_one(drawn, np.int64, logits.device)
            picked[rows] = self._draw(logits if len(drawn) == len(logits) else logits[rows])
        if self._vocabulary is not None:
            picked = self._vocabulary[picked]
        self._picked.append(picked)
        return picked

    def _draw(self, logits: Tensor) -> Tensor:
        """Draws one token [R] of the first R sequences that draw, by their logits [R, V_d]."""
        assert self._probs is not None
        j, choices = len(self._picked), self._choices[: len(logits)]
        probs = distributions(logits, choices)
        columns = slice(None) if self._vocabulary is None else self._vocabulary
        self._probs[: len(logits), j, columns] = probs
        numbers = [uniform(stream(c.seed, DRAFT), c.position + j) for c in choices]
        return invert(probs, upload_one(numbers, np.float64, logits.device))

    def proposal(self, order: list[int]) -> Proposal:
        """All drafts, where the items that they were picked for were numbered like this."""
        passes = iter(torch.cat(self._picked).tolist())
        drafts: list[list[int]] = [[] for _ in order]
        for picked in self._picked:
            for index, token in zip(order[: len(picked)], passes, strict=False):
                drafts[index].append(token)
        return Proposal(drafts, tuple(order[row] for row in self._drawn), self._probs)


def draws(item: ScheduledSequence) -> bool:
    """Whether an item's drafts are drawn rather than certain."""
    params = item.sequence.params
    return not params.greedy and params.seed is None
