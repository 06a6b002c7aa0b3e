"""`minillm-serve bench record`: what a schedule record adds to the steps of a simulation."""

import random
import time
from collections.abc import Sequence
from itertools import count

from benchmarks.report import Comparison, parser, positive
from minillm_serve.core import ScheduleRecord
from minillm_serve.sim import HARDWARE, MODELS
from minillm_serve.sim.arrivals import Arrival
from minillm_serve.sim.cost import CostModel
from minillm_serve.sim.simulation import Simulation

COST = CostModel(HARDWARE["H200 SXM"], MODELS["Llama-3-8B"], overhead_s=1e-4)


def main(argv: Sequence[str]) -> int:
    """Times the same simulated crowd with and without a record, step by step."""
    options = parser("record", __doc__)
    options.add_argument("--running", type=positive, nargs="+", default=[16, 64, 256])
    chosen = options.parse_args(argv)
    times: dict[str, list[float]] = {}
    for _ in range(chosen.repeat):
        for running in chosen.running:
            for name, is_on in (("off", False), ("on", True)):
                spent = seconds_a_step(running, is_on) * 1e6
                times.setdefault(f"{running} running, {name}", []).append(spent)
    result = Comparison(
        "a simulated step, record off and on", "us a step", times, higher_is_better=False
    )
    print(result.table())
    for running in chosen.running:
        # Whatever else ran on this machine only ever added time: the least is the truest.
        off, on = (min(times[f"{running} running, {name}"]) for name in ("off", "on"))
        print(f"  {running:4} running: the record takes {on / off - 1:.1%} of a step")
    if chosen.output:
        result.save(chosen.output)
    return 0


def seconds_a_step(running: int, is_on: bool) -> float:
    """Processor time of a mean step in which newcomers' prompts are read beside the decoding."""
    draw = random.Random(0)
    crowd = sorted(
        Arrival(draw.random(), draw.randint(5, 200), draw.randint(50, 350))
        for _ in range(3 * running)
    )
    steps = count()
    simulation = Simulation(
        COST,
        num_blocks=64 * running,
        max_num_seqs=running,
        on_step=lambda _: next(steps),
        stride=False,
    )
    if is_on:
        simulation.engine.record = ScheduleRecord(simulation.engine.scheduler)
    began = time.thread_time()
    simulation.run(crowd)
    return (time.thread_time() - began) / next(steps)
