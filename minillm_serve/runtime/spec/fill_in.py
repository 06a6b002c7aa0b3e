"""Puts drafts into a batch that has room for them."""

from dataclasses import replace

from torch import Tensor

from minillm_serve.core.batch import Batch
from minillm_serve.core.request import Sequence
from minillm_serve.runtime.spec.drafter import Drafter


def fill_in(batch: Batch, drafter: Drafter) -> tuple[Batch, dict[Sequence, Tensor]]:
    """Asks a drafter for what there is room for; room that it leaves empty is dropped.

    Returns:
        The batch with its drafts; and whose drafts were drawn, from what: [k, V] each.
    """
    asked = [item for item in batch.scheduled if item.num_drafts]
    if not asked:
        return batch, {}
    proposal = drafter.propose(asked)
    guessed = {
        item.sequence: tuple(ids) for item, ids in zip(asked, proposal.token_ids, strict=True)
    }
    drawn = {}
    if proposal.probs is not None:
        for place, index in enumerate(proposal.drawn):
            sequence = asked[index].sequence
            if guessed[sequence]:
                drawn[sequence] = proposal.probs[place, : len(guessed[sequence])]
    scheduled = tuple(
        item.with_drafts(guessed[item.sequence]) if item.num_drafts else item
        for item in batch.scheduled
    )
    return replace(batch, scheduled=scheduled), drawn
