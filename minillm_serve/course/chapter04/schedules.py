"""Schedules: the engine's three schedulers over a stopwatch, and what their records tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from minillm_serve.core import (
    ContinuousScheduler,
    DynamicScheduler,
    MakeScheduler,
    ScheduleRecord,
    StaticScheduler,
)
from minillm_serve.sim import HARDWARE, MODELS
from minillm_serve.sim.arrivals import Arrival, Poisson, open_loop
from minillm_serve.sim.cost import CostModel
from minillm_serve.sim.lengths import Fixed, Lengths
from minillm_serve.sim.outcome import Outcome
from minillm_serve.sim.simulation import Simulation

SCHEDULERS: dict[str, MakeScheduler] = {
    "static": StaticScheduler,
    "dynamic": DynamicScheduler,
    "continuous": ContinuousScheduler,
}

_PLENTY = 1_000_000  # blocks, or tokens a step: not what this chapter is about


@dataclass(frozen=True)
class Schedule:
    """What ran when, and for whom.

    Prompts are read in one step each, at whose end the first token is there. So every row of every
    step writes a token, and counting rows is counting tokens.

    Attributes:
        record: the engine's own.
        arrivals: request id -> seconds, on the record's clock.
    """

    record: ScheduleRecord
    arrivals: dict[str, float]

    @property
    def tokens(self) -> int:
        """Tokens that were written."""
        return sum(self.record.num_rows)

    @property
    def began(self) -> float:
        """When the first request came."""
        return min(self.arrivals.values())

    @property
    def seconds(self) -> float:
        """From the first arrival to the last token."""
        return max(self.record.ended) - self.began

    @property
    def throughput(self) -> float:
        """Tokens a second, waiting included."""
        return self.tokens / self.seconds

    @property
    def busy_share(self) -> float:
        """Share of the slots at work, averaged over time from the first arrival to the last token.

        `ScheduleRecord.slot_utilisation` averages over steps: time without a step, in which a batch
        waits to be filled, does not count there. Here it does.
        """
        rows = zip(self.record.num_rows, self.record.ran(), strict=True)
        busy = sum(count * (ended - began) for count, (began, ended) in rows)
        return busy / (self.record.num_slots * self.seconds)

    @property
    def num_dragged(self) -> int:
        """Idle cells in rows of a fixed batch whose sequence had ended."""
        return sum(self.record.num_idle)

    def times(self) -> dict[str, tuple[float, float]]:
        """Request id -> when it began and ended, in seconds after the first arrival."""
        ran = list(self.record.ran())
        found: dict[str, tuple[float, float]] = {}
        for span in self.record.spans():
            first, last = ran[span.first_step][0], ran[span.end_step - 1][1]
            first = found.get(span.request_id, (first, last))[0]
            found[span.request_id] = first, last
        return {name: (a - self.began, b - self.began) for name, (a, b) in found.items()}


def card(hardware: str = "A100 80GB", model: str = "Llama-2-7B") -> CostModel:
    """What prices a step; keys of `sim.HARDWARE` and `sim.MODELS`."""
    return CostModel(HARDWARE[hardware], MODELS[model])


def crowd(
    people: int, gap: float, answers: Lengths, *, prompt: int = 64, seed: int = 0
) -> list[Arrival]:
    """People who come independently of each other.

    Args:
        people: how many.
        gap: mean seconds between two of them; 0: all come at once.
        answers: how long their answers are, as in `theory.spread(mean, cv)`.
        prompt: tokens of each prompt.
        seed: of everything drawn. Another spread stretches the same draws.
    """
    stream = open_loop(Poisson(1 / gap if gap else 1.0), Fixed(prompt), answers, seed=seed)
    came = list(islice(stream, people))
    return came if gap else at_once([a.output_tokens for a in came], prompt)


def at_once(lengths: Sequence[int], prompt: int = 1) -> list[Arrival]:
    """Everybody in the same moment: answers of these lengths."""
    return [Arrival(0.0, prompt, int(n), user) for user, n in enumerate(lengths)]


def run(
    scheduler: str,
    people: Iterable[Arrival],
    batch: int,
    *,
    delay: float | None = None,
    cost: CostModel | None = None,
    num_blocks: int = _PLENTY,
) -> tuple[Schedule, Outcome]:
    """Serves people with a real engine over a stopwatch.

    Args:
        scheduler: a key of `SCHEDULERS`.
        people: in order of arrival.
        batch: slots (B).
        delay: `max_queue_delay` of a dynamic batch; by default the scheduler's own.
        cost: prices a step; by default `card()`.
        num_blocks: KV blocks.

    Raises:
        ValueError: there is no such scheduler.
    """
    if scheduler not in SCHEDULERS:
        raise ValueError(f"scheduler={scheduler!r}: choose from {', '.join(SCHEDULERS)}")
    made = SCHEDULERS[scheduler]
    if delay is not None and scheduler == "dynamic":
        made = partial(DynamicScheduler, max_queue_delay=delay)
    simulation = Simulation(
        cost or card(),
        num_blocks=num_blocks,
        max_num_seqs=batch,
        max_num_batched_tokens=_PLENTY,
        scheduler=made,
    )
    record = simulation.engine.record = ScheduleRecord(simulation.engine.scheduler)
    came = list(people)
    outcome = simulation.run(came)
    return Schedule(record, {str(i): a.time for i, a in enumerate(came)}), outcome


def steps(scheduler: str, lengths: Sequence[int], batch: int) -> int:
    """Steps that a scheduler takes for answers of these lengths, asked for all at once."""
    return len(run(scheduler, at_once(lengths), batch)[0].record)
