"""Drafts by another, smaller model."""

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.core.request import Sequence
from minillm_serve.runtime.forward import Forward
from minillm_serve.runtime.inputs import StepInputs
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.spec.drafter import Proposal
from minillm_serve.runtime.spec.passes import draft, is_reading
from minillm_serve.runtime.spec.rows import Rows, Stretch, lay_out

#: Tokens of decoding sequences that may wait to be read, over all sequences: should nobody ask for
#: drafts, they are read together then, lest a later pass be larger than any step.
MOST_PENDING = 512


class DraftModelDrafter:
    """Lets a smaller model of the same vocabulary write on.

    (Leviathan et al. 2023, arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318.) It has a KV cache
    of its own, addressed by the model's block tables. Prompts it reads when the model reads them,
    so that whoever shares the model's blocks finds its keys and values there as well; the tokens of
    answers when it is asked for drafts:

        the model has read      [ prompt ............. | answer ............... ]
        the drafter             [ prompt ............. | answer ... ]
                                             the next first pass:   ^^^^^^^^^^^^

    Args:
        forward: the smaller model on its cache.
        vocab_size: V, of the model that is drafted for.

    Raises:
        ValueError: the smaller model does not know all ids of the other one.
    """

    vocabulary: Tensor | None = None

    def __init__(self, forward: Forward, vocab_size: int) -> None:
        known = forward.model.config.vocab_size
        if known < vocab_size:
            raise ValueError(
                f"the draft model knows {known} token ids, the model {vocab_size}: take one that "
                "was made for the same tokenizer"
            )
        self.kv_cache: KVCache | None = forward.kv_cache
        self._forward = forward
        self._vocab_size = vocab_size
        self._progress = WeakKeyDictionary[Sequence, _Progress]()

    def propose(self, items: list[ScheduledSequence]) -> Proposal:
        """See `Drafter.propose`."""
        proposal = draft(self, items, self._forward.kv_cache, self._vocab_size)
        for item, drafts in zip(items, proposal.token_ids, strict=True):
            progress = self._progress[item.sequence]
            progress.num_read = len(item.sequence)
            progress.guessed = drafts[:-1]  # nothing came after the last one, so it was not read
        return proposal

    @torch.inference_mode()
    def observe(self, batch: Batch, inputs: StepInputs, hidden: Tensor) -> None:
        """See `Drafter.observe`: reads what the model has read of prompts."""
        due, waiting, num_pending = [], [], 0
        for item in batch.scheduled:
            if is_reading(item):
                self._settle(item, item.start)
                due.append(item)
            else:
                waiting.append(item)
                num_pending += item.known_end - self._settle(item, item.known_end)
        self._read(due + waiting if num_pending > MOST_PENDING else due)

    def begin(self, items: list[ScheduledSequence]) -> tuple[list[int], None]:
        """See `Draftsman`: everything that it has not read yet."""
        return [self._settle(item, item.start) for item in items], None

    def run(self, rows: Rows, before: Tensor | None) -> Tensor:
        """See `Draftsman`."""
        return self._forward.hidden(*rows)

    def logits(self, hidden: Tensor) -> Tensor:
        """See `Draftsman`."""
        return self._forward.model.logits(hidden)[:, : self._vocab_size]

    def _read(self, items: list[ScheduledSequence]) -> None:
        """Reads all that the model has read of some sequences."""
        stretches = []
        for item in items:
            sequence, progress = item.sequence, self._progress[item.sequence]
            begin, end = progress.num_read, item.known_end
            if begin < end:
                tokens = sequence.token_ids[begin:end]
                stretches.append(Stretch(tokens, begin, sequence.block_table))
                progress.num_read = end
        if stretches:
            cache = self._forward.kv_cache
            self.run(lay_out(stretches, cache.block_size, cache.k[0].device), None)

    def _settle(self, item: ScheduledSequence, most: int) -> int:
        """How many of a sequence's tokens it has read, of which at most so many can be there."""
        progress = self._progress.get(item.sequence)
        if progress is None:
            # What others computed, it takes for granted that they had read as well.
            progress = self._progress[item.sequence] = _Progress(item.start)
        progress.settle(item.sequence.token_ids, most)
        return progress.num_read


@dataclass(slots=True)
class _Progress:
    """How far a sequence has been read.

    Attributes:
        num_read: tokens of it whose keys and values are there.
        guessed: drafts whose keys and values stand behind those.
    """

    num_read: int
    guessed: list[int] = field(default_factory=list)

    def settle(self, tokens: list[int], most: int) -> None:
        """Counts guesses that have proved right as read, and forgets what is no longer there.

        Args:
            tokens: of the sequence.
            most: whatever was read from this position on is lost, since blocks were taken away.
        """
        right = 0
        for token, guess in zip(tokens[self.num_read :], self.guessed, strict=False):
            if token != guess:
                self.guessed = []
                break
            right += 1
        self.num_read += right
        self.guessed = self.guessed[right:]
        if self.num_read > most:
            self.num_read, self.guessed = most, []
