"""`minillm-serve bench record`: what a schedule record takes of a simulated step."""

import random
import time
from collections.abc import Iterable, Sequence

from benchmarks.report import Comparison, parser, positive
from minillm_serve.core import Batch, ScheduledSequence, ScheduleRecord, StepRecord
from minillm_serve.sim import HARDWARE, MODELS
from minillm_serve.sim.arrivals import Arrival
from minillm_serve.sim.cost import CostModel
from minillm_serve.sim.simulation import Simulation

COST = CostModel(HARDWARE["H200 SXM"], MODELS["Llama-3-8B"], overhead_s=1e-4)


def main(argv: Sequence[str]) -> int:
    """Times the steps of a simulated crowd, and within them what their record takes.

    (Less what timing nothing takes in the same places.)
    """
    options = parser("record", __doc__)
    options.add_argument("--running", type=positive, nargs="+", default=[16, 64, 256])
    chosen = options.parse_args(argv)
    times: dict[str, list[float]] = {}
    for _ in range(chosen.repeat):
        for running in chosen.running:
            for name, seconds in zip(("step", "record"), measured(running), strict=True):
                times.setdefault(f"{running} running, {name}", []).append(seconds * 1e6)
    result = Comparison(
        "a simulated step, and its record", "us a step", times, higher_is_better=False
    )
    for running in chosen.running:
        step, record = (result.medians[f"{running} running, {name}"] for name in ("step", "record"))
        print(
            f"{running:4} running: a step takes {step:.1f} us, of which its record takes "
            f"{record:.1f} us, {record / step:.1%}"
        )
    if chosen.output:
        result.save(chosen.output)
    return 0


class Nothing:
    """A record that keeps nothing: what it seems to cost is what timing it does."""

    def begin(self, batch: Batch, seen: StepRecord) -> int:
        """See `ScheduleRecord`."""
        return 0

    def end(self, step: int, now: float, verified: Iterable[ScheduledSequence] = ()) -> None:
        """See `ScheduleRecord`."""


class Timed:
    """Knows what the class behind it costs."""

    seconds = 0.0

    def begin(self, batch: Batch, seen: StepRecord) -> int:
        """See `ScheduleRecord`."""
        began = time.perf_counter()
        step: int = super().begin(batch, seen)  # type: ignore[misc]
        self.seconds += time.perf_counter() - began
        return step

    def end(self, step: int, now: float, verified: Iterable[ScheduledSequence] = ()) -> None:
        """See `ScheduleRecord`."""
        began = time.perf_counter()
        super().end(step, now, verified)  # type: ignore[misc]
        self.seconds += time.perf_counter() - began


class TimedRecord(Timed, ScheduleRecord):
    """The record, timed."""


class TimedNothing(Timed, Nothing):
    """Nothing, timed."""


def measured(running: int) -> tuple[float, float]:
    """Seconds of a mean step, and of its record; newcomers' prompts are read beside decoding."""
    draw = random.Random(0)
    crowd = sorted(
        Arrival(draw.random(), draw.randint(5, 200), draw.randint(50, 350))
        for _ in range(3 * running)
    )
    simulation = Simulation(
        COST, num_blocks=64 * running, max_num_seqs=running, on_step=lambda _: None
    )
    record, nothing = TimedRecord(simulation.engine.scheduler), TimedNothing()
    simulation.engine.record = record
    began = time.perf_counter()
    simulation.run(crowd)
    step = (time.perf_counter() - began) / len(record)
    for _ in range(len(record)):
        nothing.end(nothing.begin(Batch(()), StepRecord(0.0, 0.0, 0, 0, 0, 0, 0, 0, 0, 0)), 0.0)
    return step, (record.seconds - nothing.seconds) / len(record)
