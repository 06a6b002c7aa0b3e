"""Three users and what they were promised: solved for by formula, tried in the simulator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minillm_serve.course import plots
from minillm_serve.sim import HARDWARE, MODELS
from minillm_serve.sim.arrivals import Arrival, Poisson, open_loop
from minillm_serve.sim.cost import CostModel
from minillm_serve.sim.lengths import LogNormal, Uniform
from minillm_serve.sim.metrics import SLO
from minillm_serve.sim.outcome import Outcome
from minillm_serve.sim.simulation import Simulation
from minillm_serve.sim.slo import OperatingPoint, Traffic, mean_step, solve

SYSTEM = "Llama-3-8B on an A100 80GB"
COST = CostModel(HARDWARE["A100 80GB"], MODELS["Llama-3-8B"])
#: Questions about a document: long prompts, answers of a paragraph.
PROMPTS, ANSWERS = Uniform(800, 1600), LogNormal(150, 0.6, high=600)
TRAFFIC = Traffic(PROMPTS.mean, ANSWERS.mean)
#: People a second, more than any setting can serve: a server that is full all the time.
CROWD = 14.0


@dataclass(frozen=True, slots=True)
class User:
    """What somebody was promised.

    Attributes:
        slo: seconds to the first token, and seconds a token.
        gap: seconds that typing may stop.
    """

    slo: SLO
    gap: float


USERS: dict[str, User] = {
    "voice": User(SLO(ttft=0.5, tpot=0.030), 0.060),
    "chat": User(SLO(ttft=1.0, tpot=0.100), 0.300),
    "offline": User(SLO(), math.inf),
}
COLORS = {"voice": plots.ORANGE, "chat": plots.BLUE, "offline": plots.GREEN}


def kv_tokens(cost: CostModel, share: float = 0.9) -> int:
    """Tokens of KV that fit beside the weights, a share of the memory being ours.

    (0.9 is vLLM's default, `gpu_memory_utilization`; the rest is for what a step computes with.)
    """
    room = cost.hardware.memory_bytes * share - cost.model.weight_bytes(cost.weight_bits)
    return max(0, int(room // cost.model.kv_bytes_per_token(cost.kv_bits / 8)))


def people(rate: float, count: int, seed: int = 3) -> list[Arrival]:
    """So many of them, at so many a second."""
    return list(islice(open_loop(Poisson(rate), PROMPTS, ANSWERS, seed=seed), count))


def serve(
    arrivals: Sequence[Arrival], batch: int, budget: int, *, max_wait: float = math.inf
) -> Outcome:
    """Serves them with these settings.

    Args:
        arrivals: in order of time.
        batch: `max_num_seqs`.
        budget: `max_num_batched_tokens`.
        max_wait: whoever has waited so long to begin has left [s].
    """
    simulation = Simulation(
        COST,
        num_blocks=kv_tokens(COST) // 16,
        max_num_seqs=batch,
        max_num_batched_tokens=max(budget, batch),
        max_wait=max_wait,
    )
    return simulation.run(arrivals)


@lru_cache(maxsize=8)
def point(name: str) -> OperatingPoint:
    """The solver's settings for one of `USERS`."""
    user = USERS[name]
    return solve(COST, TRAFFIC, user.slo, kv_tokens=kv_tokens(COST), gap=user.gap)


def goodput(
    name: str, batches: Sequence[int], count: int = 300, *, rate: float = CROWD
) -> dict[int, float]:
    """Batch -> people a second who got what `name` was promised, on a server that is full.

    Budget and door are the solver's; only the batch is turned.
    """
    slo, chosen, crowd = USERS[name].slo, point(name), people(rate, count)
    return {
        batch: serve(crowd, batch, chosen.max_num_batched_tokens, max_wait=chosen.max_wait).goodput(
            slo
        )
        for batch in batches
    }


def under_load(rates: Sequence[float], seconds: float = 30.0) -> dict[float, Outcome]:
    """Rate -> what became of the people of some seconds, if the batch has no limit but memory."""
    return {rate: serve(people(rate, round(rate * seconds)), 512, 2048) for rate in rates}


def draw_load(seen: Mapping[float, Outcome]) -> Figure:
    """The batch that comes about by itself, and the time of a token, over the rate of arrivals."""
    fig, (batch, time) = plots.figure(1, 2, height=4.0)
    line = mean_step(COST, TRAFFIC)
    limit = line.ceiling / TRAFFIC.output
    rates = np.linspace(0.2, 0.93 * limit, 80)
    settles = [line.settles_at(rate * TRAFFIC.output) for rate in rates]
    times = [1e3 * line.seconds(B) for B in settles]
    batch.plot(rates, settles, color=plots.COLORS["model"], label=r"$B = \lambda \, n \, t(B)$")
    time.plot(rates, times, color=plots.COLORS["model"], label="formula")
    little = [_mean_inside(one) for one in seen.values()]
    plots.measured(batch, list(seen), little, label="simulated")
    medians = [1e3 * float(np.nanmedian(one.tpot)) for one in seen.values()]
    plots.measured(time, list(seen), medians, label="simulated, median")
    for name, user in USERS.items():
        if 1e3 * user.slo.tpot < 1.1 * max(times):
            time.axhline(1e3 * user.slo.tpot, color=plots.COLORS["limit"], lw=1.3, ls="--")
            time.text(0, 1e3 * user.slo.tpot, f" {name}", va="bottom", color=plots.COLORS["limit"])
    for ax in (batch, time):
        ax.axvline(limit, color=plots.COLORS["limit"], lw=1.3, ls=":")
        ax.set(xlim=(0, 1.04 * limit), ylim=(0, None))
        ax.title.set_fontsize(11.5)
    x = "people a second, λ"
    plots.label(batch, x=x, y="batch B", title="The crowd sets the batch ...")
    plots.label(time, x=x, y="ms a token (TPOT)", title="... and the batch sets the pace")
    batch.legend(loc="upper left", frameon=False)
    time.legend(loc="center left", frameon=False)
    return fig


def _mean_inside(outcome: Outcome) -> float:
    """How many were being answered at a time, on average: time that they took over time."""
    return float((outcome.tpot * (outcome.output_tokens - 1)).sum() / outcome.makespan)


def draw_goodput(found: Mapping[str, Mapping[int, float]]) -> Figure:
    """People served as promised over the batch, for each kind of user, with the solver's choice."""
    fig, axes = plots.figure(1, len(found), height=3.9, sharey=True)
    top = 1.1 * max(max(series.values()) for series in found.values())
    for ax, (name, series) in zip(axes, found.items(), strict=True):
        _draw_one(ax, name, series)
        ax.set_ylim(0, top)
    axes[0].set_ylabel("people/s served as promised")
    return fig


def _draw_one(ax: Axes, name: str, series: Mapping[int, float]) -> None:
    batches, chosen = sorted(series), point(name).max_num_seqs
    ax.plot(batches, [series[b] for b in batches], "o-", ms=5, color=COLORS[name])
    ax.axvline(chosen, color=plots.INK, lw=1.4, ls=":")
    left = chosen > 100
    ax.text(
        chosen, 0.4, f" solver: {chosen} ", ha="right" if left else "left", color=plots.INK,
        fontsize=9.5,
    )  # fmt: skip
    ax.set_xscale("log", base=2)
    round_ones = [b for b in batches if b != chosen]
    ax.set_xticks(round_ones, [str(b) for b in round_ones], fontsize=9)
    ax.minorticks_off()
    slo = USERS[name].slo
    promise = f"{1e3 * slo.tpot:.0f} ms a token" if slo.tpot < math.inf else "no hurry"
    plots.label(ax, x="max_num_seqs", title=f"{name}: {promise}")
    ax.title.set_fontsize(11)
