"""How a small model drafts: it reads up to each sequence's end, then goes on by itself.

    has read   is to read   L      to draft    passes: the first   the second   the third
    0 .. 4     5 6          7      7 8 9               5 6         7            8
    0 .. 5     6            7      7 8                 6           7
    0 .. 2     3 4          5      5                   3 4

(Positions, of three sequences.) The first pass catches up on tokens that the small model has not
read yet. Each later one reads the drafts of the pass before, one row a sequence. A sequence drops
out when it has all its drafts; the last of them is never read.
"""

from typing import Protocol

import torch
from torch import Tensor

from minillm_serve.core.batch import ScheduledSequence
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.spec.drafter import Proposal
from minillm_serve.runtime.spec.picking import Picker
from minillm_serve.runtime.spec.rows import Plan, Rows


class Draftsman(Protocol):
    """A small model that drafts.

    Attributes:
        vocabulary: [V_d] int64, the ids that it has logits for; None if it has them for all.
    """

    vocabulary: Tensor | None

    def begin(self, items: list[ScheduledSequence]) -> tuple[list[int], Tensor | None]:
        """What the first pass is to read.

        Returns:
            The first position that it computes of each sequence, at most that of the last token;
            and what `run` gets with the rows.
        """
        ...

    def run(self, rows: Rows, before: Tensor | None) -> Tensor:
        """Computes rows.

        Args:
            rows: of the first pass, or the drafts of the pass before.
            before: in the first pass what `begin` gave; in later ones what the pass before gave for
                the same sequences, [R, hidden].

        Returns:
            [T, hidden].
        """
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """[R, hidden] -> [R, V_d]."""
        ...


@torch.inference_mode()
def draft(
    by: Draftsman, items: list[ScheduledSequence], kv_cache: KVCache, vocab_size: int
) -> Proposal:
    """Drafts for several sequences, one token each in a pass.

    Args:
        by: the small model.
        items: with `num_drafts` of at least 1.
        kv_cache: that it reads and writes.
        vocab_size: V, of the model that is drafted for.
    """
    block_size, device = kv_cache.block_size, kv_cache.k[0].device
    order = sorted(range(len(items)), key=lambda i: -items[i].num_drafts)
    ordered = [items[i] for i in order]
    starts, before = by.begin(ordered)
    longest = ordered[0].num_drafts
    plan = Plan.of(ordered, starts, longest - 1, block_size, device)
    picker = Picker(ordered, by.vocabulary, vocab_size, device)
    hidden = by.run(plan.first, before)
    if plan.last is not None:
        hidden = hidden[plan.last]
    tokens = picker.pick(by.logits(hidden))
    for j in range(1, longest):
        rows = sum(item.num_drafts > j for item in ordered)
        hidden = by.run(plan.later(j - 1, rows, tokens), hidden[:rows])
        tokens = picker.pick(by.logits(hidden))
    return picker.proposal(order)


def is_reading(item: ScheduledSequence) -> bool:
    """Whether a slice reads a prompt, or what was lost of a sequence, rather than decoding."""
    return item.known_end - item.start > 1 or not item.samples
