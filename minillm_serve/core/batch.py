"""What a step is to run (`Batch`), and what came out of it (`StepResult`)."""

from dataclasses import dataclass

from minillm_serve.core.logprobs import TokenLogprobs
from minillm_serve.core.request import FinishReason, Sequence


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """The slice of one sequence that a step computes: positions [start, start + num_tokens).

    A new prompt, a chunk of a prompt, one decode token and a resumed sequence differ only in
    these two numbers.

    Attributes:
        sequence: whose tokens.
        start: first position computed; everything before it is in the KV cache.
        num_tokens: at least 1.
        samples: the slice reaches the end of the sequence, so that a token is sampled after it.
    """

    sequence: Sequence
    start: int
    num_tokens: int
    samples: bool

    @classmethod
    def of(cls, sequence: Sequence, num_tokens: int) -> "ScheduledSequence":
        """The next so many tokens of a sequence."""
        start = sequence.num_computed
        return cls(sequence, start, num_tokens, start + num_tokens == len(sequence))

    @property
    def end(self) -> int:
        """Position after the last one computed."""
        return self.start + self.num_tokens


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
        token_ids: the sampled ids; empty if the slice did not reach the sequence's end.
        logprobs: one entry a sampled id, if the request wants them.
        prompt_logprobs: entries that follow `Sequence.prompt_logprobs`, if it wants those.
        error: set if this sequence alone failed (non-finite logits, say).
    """

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    error: str | None = None


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
    """

    sequence: Sequence
    new_token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None

    @property
    def request_id(self) -> str:
        """The id of the request that the sequence belongs to."""
        return self.sequence.request.request_id

    @property
    def index(self) -> int:
        """Which of the request's answers the sequence is."""
        return self.sequence.index
