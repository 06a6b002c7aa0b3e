"""ex09's plans in the simulator: servers, crowds and promises, and how many got what they were."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from minillm_serve.core import StepRecord
from minillm_serve.course.exercises.exercise import Case, CheckFailed
from minillm_serve.sim import HARDWARE, MODELS
from minillm_serve.sim.arrivals import Poisson, open_loop
from minillm_serve.sim.cost import CostModel
from minillm_serve.sim.lengths import Uniform
from minillm_serve.sim.metrics import SLO
from minillm_serve.sim.simulation import Simulation
from minillm_serve.sim.slo import Traffic, full_step, mean_step, solve

PEOPLE, BLOCK, MOST = 260, 16, 4096
#: Of the best goodput that is known, so much is asked for.
SHARE = 0.85
#: What the settings that are known to be good keep back of a promise.
HEADROOMS = (0.03, 0.05, 0.08, 0.12)
SYSTEMS = (
    ("Llama-3-8B", "A100 40GB"),
    ("Llama-3-8B", "L4"),
    ("Llama-2-7B", "A100 80GB"),
    ("Qwen3-8B", "H100 SXM"),
)


@dataclass(frozen=True, slots=True)
class Served:
    """What a plan did to a crowd.

    Attributes:
        goodput: people a second who got what they were promised.
        longest_step: the dearest step, and so somebody's longest gap [s].
        late: share of the answered whose first token came too late.
        slow: share of the answered whose tokens came too slowly.
    """

    goodput: float
    longest_step: float
    late: float
    slow: float


@lru_cache(maxsize=256)  # a class is graded on the same few cases
def serve(cost: CostModel, traffic: Traffic, slo: SLO, batch: int, budget: int) -> Served:
    """Lets more people come than can be served; who has waited half of the TTFT leaves."""
    prompts = Uniform(round(0.5 * traffic.prompt), round(1.5 * traffic.prompt))
    answers = Uniform(round(0.5 * traffic.output), round(1.5 * traffic.output))
    rate = 1.5 * mean_step(cost, traffic).ceiling / traffic.output
    steps: list[StepRecord] = []
    simulation = Simulation(
        cost,
        num_blocks=PEOPLE * 1000 // BLOCK,  # memory is not what it is to be short of
        block_size=BLOCK,
        max_num_seqs=batch,
        max_num_batched_tokens=budget,
        max_wait=slo.ttft / 2,
        on_step=steps.append,
    )
    seen = simulation.run(islice(open_loop(Poisson(rate), prompts, answers, seed=1), PEOPLE))
    return Served(
        seen.goodput(slo),
        max(step.ended - step.began for step in steps),
        float((seen.ttft > slo.ttft).mean()) if len(seen) else 1.0,
        float((seen.tpot > slo.tpot).mean()) if len(seen) else 1.0,
    )


def promised_cases(rng: random.Random) -> list[Case]:
    """Promises that can be kept."""
    return [_case(rng) for _ in range(2)]


def slow_cases(rng: random.Random) -> list[Case]:
    """A token that comes later than promised even to somebody alone."""
    case = _case(rng)
    alone = mean_step(case["cost"], case["traffic"]).seconds(1)
    return [{**case, "slo": SLO(case["slo"].ttft, 0.8 * alone)}]


def jerky_cases(rng: random.Random) -> list[Case]:
    """A gap that no budget keeps: shorter than a step that reads the weights."""
    case = _case(rng)
    return [{**case, "gap": 0.9 * mean_step(case["cost"], case["traffic"]).fixed}]


def _case(rng: random.Random) -> Case:
    """A server, and a promise that lies above twice its floor."""
    model, card = rng.choice(SYSTEMS)
    cost = CostModel(HARDWARE[card], MODELS[model])
    traffic = Traffic(float(rng.randrange(200, 500, 20)), float(rng.randrange(40, 80, 4)))
    line = mean_step(cost, traffic)
    batch = round(line.half * rng.uniform(1.0, 1.6))
    tpot = round(line.seconds(batch + 0.5), 5)
    budget = batch + rng.randint(250, 500)
    gap = round(max(full_step(cost, traffic, batch, budget), 1.2 * tpot), 5)
    slo = SLO(ttft=round(60 * tpot, 2), tpot=tpot)
    return {"cost": cost, "traffic": traffic, "slo": slo, "gap": gap}


def described(case: Case) -> str:
    """A case in one line."""
    cost, traffic, slo = case["cost"], case["traffic"], case["slo"]
    return (
        f"{cost.model.name} on {cost.hardware.name}, prompts of {traffic.prompt:.0f} and answers "
        f"of {traffic.output:.0f} tokens; promised: first token {1e3 * slo.ttft:.0f} ms, a token "
        f"{1e3 * slo.tpot:.2f} ms, longest gap {1e3 * case['gap']:.2f} ms"
    )


def best_known(case: Case) -> tuple[float, int, int]:
    """Goodput, batch and budget of the best of some careful settings."""
    tried = []
    for headroom in HEADROOMS:
        found = solve(**case, kv_tokens=10**9, headroom=headroom, most=MOST)
        batch, budget = found.max_num_seqs, found.max_num_batched_tokens
        tried.append((_served(case, batch, budget).goodput, batch, budget))
    return max(tried)


def _served(case: Case, batch: int, budget: int) -> Served:
    return serve(case["cost"], case["traffic"], case["slo"], batch, budget)


def judge_plan(case: Case, got: Any) -> None:
    """The plan's goodput beside the best that is known, and nobody's typing stops for too long.

    Raises:
        CheckFailed: saying what the crowd met with.
    """
    batch, budget = _read(got)
    seen, (best, _, _) = _served(case, batch, budget), best_known(case)
    gap, slo = case["gap"], case["slo"]
    if seen.longest_step > gap:
        raise CheckFailed(
            f"somebody's typing stopped for {1e3 * seen.longest_step:.2f} ms, and "
            f"{1e3 * gap:.2f} ms were promised: that is a step of up to {budget} tokens"
        )
    if seen.goodput >= SHARE * best:
        return
    share = f"{seen.goodput:.2f} people/s got what they were promised, and {best:.2f} could have"
    if seen.slow > 0.12:
        raise CheckFailed(
            f"{share}: with {batch} at once a token takes too long for {seen.slow:.0%} of the "
            f"answered ({1e3 * slo.tpot:.2f} ms were promised)"
        )
    line, traffic = mean_step(case["cost"], case["traffic"]), case["traffic"]
    if budget - batch < batch * traffic.prompt / traffic.output:
        raise CheckFailed(
            f"{share}: a budget of {budget} beside {batch} who type leaves {budget - batch} tokens "
            "a step for prompts, so there are never so many inside"
        )
    raise CheckFailed(
        f"{share}: with {batch} at once a step takes {1e3 * line.seconds(batch):.2f} ms of "
        f"{1e3 * slo.tpot:.2f} that are bearable, and people are turned away"
    )


def _read(got: Any) -> tuple[int, int]:
    """Batch and budget.

    Raises:
        CheckFailed: that is not what was returned, or nobody could be served so.
    """
    if not isinstance(got, list | tuple) or len(got) != 2:
        raise CheckFailed("give two numbers: (max_num_seqs, max_num_batched_tokens)", got=got)
    batch, budget = got
    for name, value in (("max_num_seqs", batch), ("max_num_batched_tokens", budget)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise CheckFailed(f"{name} is a whole number, an int", got=value)
    if batch < 1:
        raise CheckFailed(f"with max_num_seqs={batch} nobody is served", got=batch)
    if not batch < budget <= MOST:
        raise CheckFailed(
            f"max_num_batched_tokens={budget}: beside {batch} who type a prompt must get a token, "
            f"and no step computes more than {MOST}",
            got=budget,
        )
    return batch, budget
