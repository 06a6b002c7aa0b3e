"""Drafts by a small trained head, over what the model's last layer gives."""

from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.core.request import Sequence
from minillm_serve.models.draft_head import DraftHead
from minillm_serve.models.layers import Embedding
from minillm_serve.runtime.attention.base import (
    AttentionBackend,
    FusedPagedAttention,
    PagedAttention,
)
from minillm_serve.runtime.device import upload_one
from minillm_serve.runtime.inputs import StepInputs
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.spec.drafter import Proposal
from minillm_serve.runtime.spec.passes import draft, is_reading
from minillm_serve.runtime.spec.rows import Rows, Stretch, lay_out
from minillm_serve.runtime.spec.trail import Piece, Trail, gather

#: Rows of decoding sequences that may wait for their head's pass, over all sequences: should nobody
#: ask for drafts, they are computed together then, and what the model gave for them is let go.
MOST_PENDING = 512


class EagleDrafter:
    """Runs a draft head behind the model (EAGLE, Li et al. 2024, arXiv:2401.15077).

    The head's row of position t reads the token there and the model's output one position earlier.
    It writes keys and values for position t to the head's own cache, addressed by the model's block
    tables. So the model's outputs are kept until the head's rows are computed: of prompts at once,
    so that whoever shares the model's blocks finds the head's keys and values there as well; of
    decoded tokens when drafts are asked for:

        tokens                   0   1   2   3   4   5   6       L = 7
        the model's output       .   .   .   .   .   .           nobody knows yet what comes after 6
        the head's rows          .   .   .   .                   missing: 4 5 6, which read 3 4 5
                                                                 row 6 gives the first draft

    After that the head goes on by itself: its own output takes the place of the model's. Rows that
    it computed so are computed again when the model's output is there.

    Args:
        head: trained for this model, filled.
        embedding: the model's.
        kv_cache: of one layer.
        backend: attends.
        vocab_size: V, of the model.
        max_model_len: no position reaches it; by default the model's own limit.
    """

    def __init__(
        self,
        head: DraftHead,
        embedding: Embedding,
        kv_cache: KVCache,
        backend: AttentionBackend,
        *,
        vocab_size: int,
        max_model_len: int | None = None,
    ) -> None:
        self.kv_cache: KVCache | None = kv_cache
        self.vocabulary: Tensor | None = head.vocabulary
        self._cache = kv_cache
        self._head = head
        self._embedding = embedding
        self._backend = backend
        self._vocab_size = vocab_size
        length = max_model_len or head.config.max_position_embeddings
        self._write_rotated = backend.rotating_writer(head.frequencies, length)
        weight = head.norm.weight
        self._nothing = torch.zeros(1, weight.shape[0], dtype=weight.dtype, device=weight.device)
        self._trails = WeakKeyDictionary[Sequence, Trail]()

    def propose(self, items: list[ScheduledSequence]) -> Proposal:
        """See `Drafter.propose`. A sequence whose outputs it has not seen gets no drafts."""
        known = [index for index, item in enumerate(items) if self._knows(item)]
        token_ids: list[list[int]] = [[] for _ in items]
        if not known:
            return Proposal(token_ids)
        proposal = draft(self, [items[index] for index in known], self._cache, self._vocab_size)
        for index, drafts in zip(known, proposal.token_ids, strict=True):
            token_ids[index] = drafts
            sequence = items[index].sequence
            self._trails[sequence].advance(len(sequence))
        return Proposal(token_ids, tuple(known[i] for i in proposal.drawn), proposal.probs)

    @torch.inference_mode()
    def observe(self, batch: Batch, inputs: StepInputs, hidden: Tensor) -> None:
        """See `Drafter.observe`: reads what the model has read of prompts, and keeps the rest."""
        first, rows, reading = 0, list[int](), list[ScheduledSequence]()
        for item in batch.scheduled:
            last = first + item.num_tokens
            if is_reading(item):
                self._extend(item, Piece(item.start, item.end, hidden, first))
                reading.append(item)
                rows.append(last - 1)  # the next slice's first row will read it
            else:
                rows.extend(range(first, last))
            first = last
        self._read(reading)
        # A copy in either case: the next step may write its own outputs where these are.
        picked = hidden[upload_one(rows, np.int64, hidden.device)] if reading else None
        self._keep(batch.scheduled, hidden[:first].clone() if picked is None else picked)

    def begin(self, items: list[ScheduledSequence]) -> tuple[list[int], Tensor]:
        """See `Draftsman`: the rows that are missing, and the model's outputs before them."""
        begins, pieces = list[int](), list[Piece]()
        for item in items:
            trail = self._trails[item.sequence]
            trail.num_read = min(trail.num_read, item.start)
            begins.append(trail.num_read)
            pieces += trail.before(len(item.sequence), self._nothing)
        return begins, gather(pieces)

    def run(self, rows: Rows, before: Tensor | None) -> Tensor:
        """See `Draftsman`."""
        assert before is not None
        config = self._head.config
        paged = PagedAttention(
            self._backend,
            self._cache,
            rows.attention,
            scale=config.head_dim**-0.5,
            windows=config.sliding_windows,
        )
        attend: PagedAttention | FusedPagedAttention = paged
        if self._write_rotated is not None:
            attend = FusedPagedAttention(paged, rows.positions, self._write_rotated)
        features = self._head(self._embedding(rows.token_ids), before, rows.positions, attend)
        assert isinstance(features, Tensor)
        return features

    def logits(self, hidden: Tensor) -> Tensor:
        """See `Draftsman`."""
        return self._head.logits(hidden)

    def _knows(self, item: ScheduledSequence) -> bool:
        """Whether the model's outputs are known up to the last token but one."""
        trail = self._trails.get(item.sequence)
        return trail is not None and trail.stop >= item.start

    def _extend(self, item: ScheduledSequence, piece: Piece) -> Trail:
        """Takes in outputs of a slice. If it reads, rows from its start on were lost."""
        trail = self._trails.get(item.sequence)
        if trail is None:
            # What others computed, it takes for granted that the head had computed as well.
            trail = self._trails[item.sequence] = Trail(item.start)
        most = item.start if is_reading(item) else item.known_end
        trail.num_read = min(trail.num_read, most)
        trail.extend(piece)
        return trail

    def _read(self, items: list[ScheduledSequence]) -> None:
        """Computes all rows of some sequences that can be computed."""
        stretches, pieces = list[Stretch](), list[Piece]()
        for item in items:
            sequence, trail, end = item.sequence, self._trails[item.sequence], item.known_end
            if trail.num_read < end:
                begin = trail.num_read
                tokens = sequence.token_ids[begin:end]
                stretches.append(Stretch(tokens, begin, sequence.block_table))
                pieces += trail.before(end, self._nothing)
                trail.advance(end)
        if stretches:
            rows = lay_out(stretches, self._cache.block_size, self._nothing.device)
            self.run(rows, gather(pieces))

    def _keep(self, items: tuple[ScheduledSequence, ...], kept: Tensor) -> None:
        """Keeps the outputs that later rows will read.

        Args:
            items: of the step.
            kept: [N, hidden], the last output of each item that reads, all of each other one.
        """
        row, waiting, num_pending = 0, list[ScheduledSequence](), 0
        for item in items:
            if is_reading(item):
                trail = self._trails[item.sequence]
                trail.extend(Piece(item.end - 1, item.end, kept, row))
                trail.advance(item.end)  # lets go of all other outputs of the slice
                row += 1
            else:
                trail = self._extend(item, Piece(item.start, item.end, kept, row))
                waiting.append(item)
                num_pending += item.known_end - trail.num_read
                row += item.num_tokens
        if num_pending > MOST_PENDING:
            self._read(waiting)
