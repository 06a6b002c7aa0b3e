"""Drafts copied where the text has been before, and guessed everywhere else."""

from torch import Tensor

from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.runtime.inputs import StepInputs
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.spec.drafter import Drafter, Proposal
from minillm_serve.runtime.spec.ngram import NgramDrafter


class LookupFirstDrafter:
    """Asks another drafter only for sequences whose last tokens have not been there already.

    A long piece that came before tells more about what follows than any small network, and costs
    nothing: names, quotations, table rows, the code that is being edited. Everywhere else there is
    nothing to copy, and the network guesses.

    Args:
        lookup: asked first. Let it look for long pieces only: a short one says little.
        other: asked for everybody else.
    """

    def __init__(self, lookup: NgramDrafter, other: Drafter) -> None:
        self.kv_cache: KVCache | None = other.kv_cache
        self._lookup = lookup
        self._other = other

    def propose(self, items: list[ScheduledSequence]) -> Proposal:
        """See `Drafter.propose`. Copied drafts are certain."""
        token_ids = self._lookup.propose(items).token_ids
        left = [index for index, drafts in enumerate(token_ids) if not drafts]
        if not left:
            return Proposal(token_ids)
        proposal = self._other.propose([items[index] for index in left])
        for index, drafts in zip(left, proposal.token_ids, strict=True):
            token_ids[index] = drafts
        return Proposal(token_ids, tuple(left[i] for i in proposal.drawn), proposal.probs)

    def observe(self, batch: Batch, inputs: StepInputs, hidden: Tensor) -> None:
        """See `Drafter.observe`."""
        self._other.observe(batch, inputs, hidden)
