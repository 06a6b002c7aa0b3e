"""What a step is to run (`Batch`), and what came out of it (`StepResult`)."""

from dataclasses import dataclass, replace

from minillm_serve.core.logprobs import TokenLogprobs
from minillm_serve.core.request import FinishReason, Sequence


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """The slice of one sequence that a step computes: positions [start, start + num_tokens).

    A new prompt, a chunk of a prompt, one decode token and a resumed sequence differ only in
    these two numbers. Drafts, which are tokens that somebody guessed, stand behind the sequence's
    own tokens, and are computed to find out whether they are right:

        [ ... computed | own tokens | drafts ]
                       start        known_end    end

    Attributes:
        sequence: whose tokens.
        start: first position computed; everything before it is in the KV cache.
        num_tokens: at least 1, drafts included.
        samples: the slice reaches the end of the sequence, so that a token is sampled after it.
        num_drafts: drafts that it may have in this step. The executor asks its drafter for them,
            and computes fewer if it gets fewer. 0 unless it samples.
        draft_token_ids: the drafts, as soon as the executor knows them.
    """

    sequence: Sequence
    start: int
    num_tokens: int
    samples: bool
    num_drafts: int = 0
    draft_token_ids: tuple[int, ...] = ()

    @classmethod
    def of(cls, sequence: Sequence, num_tokens: int) -> "ScheduledSequence":
        """The next so many tokens of a sequence."""
        start = sequence.num_computed
        return cls(sequence, start, num_tokens, start + num_tokens == len(sequence))

    @property
    def end(self) -> int:
        """Position after the last one computed."""
        return self.start + self.num_tokens

    @property
    def known_end(self) -> int:
        """Position after the last of the sequence's own tokens that is computed."""
        return self.end - self.num_drafts

    def with_room(self, num_drafts: int) -> "ScheduledSequence":
        """The same slice, with room for so many drafts behind it."""
        num_tokens = self.known_end - self.start + num_drafts
        return replace(self, num_tokens=num_tokens, num_drafts=num_drafts)

    def with_drafts(self, token_ids: tuple[int, ...]) -> "ScheduledSequence":
        """The same slice, with exactly these drafts behind it."""
        return replace(self.with_room(len(token_ids)), draft_token_ids=token_ids)


@dataclass(frozen=True, slots=True)
class Swap:
    """Blocks of a preempted sequence on their way to host memory, or back.

    Attributes:
        sequence: whose blocks.
        moves: pairs (from, to): a block of the one memory, a block of the other.
    """

    sequence: Sequence
    moves: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Copy:
    """A block that several sequences share, copied for one of them, which is about to write to it.

    Attributes:
        sequence: who gets the copy.
        source: the block that was shared.
        target: the one that it has instead.
    """

    sequence: Sequence
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything that one step runs.

    Attributes:
        scheduled: one entry a sequence; empty when there is nothing to run.
        preempted: sequences that lost their blocks to make room for this step.
        swap_out: blocks to copy to the host before the step. Then
        copies: blocks to copy within the pool, maybe into those that were just copied out. Then
        swap_in: blocks to copy from the host.
        num_idle: rows that a fixed batch drags along although their sequence has ended.
    """

    scheduled: tuple[ScheduledSequence, ...]
    preempted: tuple[Sequence, ...] = ()
    swap_out: tuple[Swap, ...] = ()
    copies: tuple[Copy, ...] = ()
    swap_in: tuple[Swap, ...] = ()
    num_idle: int = 0

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step, over all sequences."""
        return sum(s.num_tokens for s in self.scheduled)

    @property
    def concerned(self) -> tuple[Sequence, ...]:
        """Everybody whose KV is computed or copied, each once."""
        moved = (move.sequence for move in (*self.swap_out, *self.swap_in))
        copied = (copy.sequence for copy in self.copies)
        return tuple(dict.fromkeys((*(s.sequence for s in self.scheduled), *moved, *copied)))

    @property
    def writes(self) -> dict[Sequence, int]:
        """From which position on each sequence has the KV that this step writes or copies back."""
        starts = {item.sequence: item.start for item in self.scheduled}
        return starts | {swap.sequence: 0 for swap in self.swap_in}

    @property
    def blocks_to_swap_out(self) -> tuple[tuple[int, int], ...]:
        """Pairs (block of the pool, block of the host)."""
        return tuple(move for swap in self.swap_out for move in swap.moves)

    @property
    def blocks_to_copy(self) -> tuple[tuple[int, int], ...]:
        """Pairs (block of the pool, another one)."""
        return tuple((copy.source, copy.target) for copy in self.copies)

    @property
    def blocks_to_swap_in(self) -> tuple[tuple[int, int], ...]:
        """Pairs (block of the host, block of the pool)."""
        return tuple(move for swap in self.swap_in for move in swap.moves)


@dataclass(frozen=True, slots=True)
class SequenceOutput:
    """What a step gave one scheduled sequence.

    Attributes:
        token_ids: the sampled ids; empty if the slice did not reach the sequence's end. If there
            were drafts: as many of them as were right, and one more.
        logprobs: one entry a sampled id, if the request wants them.
        prompt_logprobs: entries that follow `Sequence.prompt_logprobs`, if it wants those.
        draft_token_ids: the drafts that were verified.
        error: set if this sequence alone failed (non-finite logits, say).
    """

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    draft_token_ids: tuple[int, ...] = ()
    error: str | None = None

    @property
    def num_accepted(self) -> int:
        """Drafts that were right."""
        return max(0, len(self.token_ids) - 1) if self.draft_token_ids else 0


@dataclass(frozen=True, slots=True)
class StepResult:
    """One output for each entry of `Batch.scheduled`, in the same order."""

    outputs: tuple[SequenceOutput, ...]


@dataclass(frozen=True, slots=True)
class SequenceUpdate:
    """What the caller of the engine is told about one sequence after a step.

    Attributes:
        sequence: the sequence itself.
        new_token_ids: ids appended in this step, the stop token included.
        logprobs: one entry a new id, if the request wants them.
        finish_reason: set in the last update of a sequence, which comes exactly once.
        draft_token_ids: what was guessed of them. (The new ids begin with what was right of it.)
        num_accepted: new ids that were guessed.
    """

    sequence: Sequence
    new_token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    draft_token_ids: tuple[int, ...] = ()
    num_accepted: int = 0

    @property
    def request_id(self) -> str:
        """The id of the request that the sequence belongs to."""
        return self.sequence.request.request_id

    @property
    def index(self) -> int:
        """Which of the request's answers the sequence is."""
        return self.sequence.index
