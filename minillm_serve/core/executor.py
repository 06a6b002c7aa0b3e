"""The line between WHAT runs next and HOW it runs."""

from dataclasses import dataclass
from typing import Protocol

from minillm_serve.core.batch import Batch, StepResult


class StepHandle(Protocol):
    """A step under way."""

    def wait(self) -> StepResult:
        """Blocks until the step is done."""
        ...


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """A handle on a step that had run before `submit` returned."""

    result: StepResult

    def wait(self) -> StepResult:
        """The result, at once."""
        return self.result


class Executor(Protocol):
    """Runs batches: on a GPU, on a CPU, or against a stopwatch.

    `submit` may return before the step has run, so that the next step can be prepared meanwhile.
    It reads everything it needs of the sequences before it returns. Steps run in the order in
    which they were submitted, so that a block given back by one may be written by the next.

    Copies come before the step: first everything in `Batch.swap_out`, then `Batch.copies`, then
    `Batch.swap_in`. They are ordered with the steps as well: a step still under way may write the
    blocks that are copied.

    One sequence may read what another one writes in the same step (they share a prefix): in each
    layer the keys and values of the whole batch are written before any query looks at them.

    Where a slice has room for drafts (`ScheduledSequence.num_drafts`), the executor may put tokens
    that it guesses; it then says how many of them were right. It need not guess.

    A scheduled position at or past the end of `Sequence.token_ids` is a pending token: the one
    that the step submitted just before samples for this sequence. (Should that step fail, any
    token will do: the sequence has ended.)
    """

    def submit(self, batch: Batch) -> StepHandle:
        """Starts a step."""
        ...
