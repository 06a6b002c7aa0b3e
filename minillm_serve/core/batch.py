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

    @property
    def end(self) -> int:
        """Position after the last one computed."""
        return self.start + self.num_tokens


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything that one step runs.

    Attributes:
        scheduled: one entry a sequence; empty when there is nothing to run.
        preempted: sequences that lost their blocks to make room for this step.
    """

    scheduled: tuple[ScheduledSequence, ...]
    preempted: tuple[Sequence, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step, over all sequences."""
        return sum(s.num_tokens for s in self.scheduled)


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
