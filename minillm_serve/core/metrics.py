"""What the engine notes down about each request and each step. All times in seconds."""

from dataclasses import dataclass


@dataclass(slots=True)
class RequestMetrics:
    """Times of one request, on the engine's clock.

    Attributes:
        arrival_time: when it was added.
        first_scheduled_time: when the first step that computed any of its tokens began.
        first_token_time: when its first token was there.
        last_token_time: when its last token was there.
        finished_time: when it ended.
        num_output_tokens: tokens generated, of all answers together.
        num_preemptions: how often it lost its blocks.
        num_cached_tokens: tokens of its prompt that the prefix cache had when it was let in.
        num_draft_tokens: tokens that were guessed for it.
        num_accepted_tokens: those of them that were right: part of its output tokens.
    """

    arrival_time: float
    first_scheduled_time: float | None = None
    first_token_time: float | None = None
    last_token_time: float | None = None
    finished_time: float | None = None
    num_output_tokens: int = 0
    num_preemptions: int = 0
    num_cached_tokens: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0

    @property
    def ttft(self) -> float | None:
        """Time to first token: from arrival to the first token, queueing included."""
        return None if self.first_token_time is None else self.first_token_time - self.arrival_time

    @property
    def tpot(self) -> float | None:
        """Time per output token after the first; None with fewer than two tokens."""
        if self.first_token_time is None or self.last_token_time is None:
            return None
        if self.num_output_tokens < 2:
            return None
        return (self.last_token_time - self.first_token_time) / (self.num_output_tokens - 1)

    @property
    def latency(self) -> float | None:
        """End to end: from arrival to the end."""
        return None if self.finished_time is None else self.finished_time - self.arrival_time


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step, as seen by an observer (`EngineCore(on_step=...)`).

    Attributes:
        began: when the step was scheduled.
        ended: when its results were in.
        num_scheduled: sequences that computed something.
        num_tokens: tokens computed.
        num_sampled: tokens generated.
        num_running: sequences that held blocks during the step.
        num_waiting: sequences in the queue.
        num_preempted: sequences that lost their blocks to make room.
        blocks_used: blocks that sequences named during the step; what is shared counts once, and
            what is only kept in the prefix cache does not count.
        tokens_stored: tokens whose KV was in these blocks when the step had run.
        finished: ids of requests that ended with this step.
        num_idle: rows that a fixed batch dragged along although their sequence had ended.
        blocks_swapped_out: blocks copied to host memory before the step.
        blocks_swapped_in: blocks copied back.
    """

    began: float
    ended: float
    num_scheduled: int
    num_tokens: int
    num_sampled: int
    num_running: int
    num_waiting: int
    num_preempted: int
    blocks_used: int
    tokens_stored: int
    finished: tuple[str, ...] = ()
    num_idle: int = 0
    blocks_swapped_out: int = 0
    blocks_swapped_in: int = 0
