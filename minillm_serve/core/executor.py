"""The line between WHAT runs next and HOW it runs."""

from typing import Protocol

from minillm_serve.core.batch import Batch, StepResult


class StepHandle(Protocol):
    """A step under way."""

    def wait(self) -> StepResult:
        """Blocks until the step is done."""
        ...


class Executor(Protocol):
    """Runs batches: on a GPU, on a CPU, or against a stopwatch.

    `submit` may return before the step has run, so that the next step can be prepared meanwhile.
    It reads everything it needs of the sequences before it returns.
    """

    def submit(self, batch: Batch) -> StepHandle:
        """Starts a step."""
        ...
