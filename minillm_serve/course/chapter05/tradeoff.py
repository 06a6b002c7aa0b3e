"""Every budget's price: the longest gap of those who type, the first token of who comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minillm_serve.core import EngineCore
from minillm_serve.course import plots
from minillm_serve.course.chapter05 import stall
from minillm_serve.course.chapter05.stall import Scene
from minillm_serve.sim.cost import CostModel, Work


@dataclass(frozen=True, slots=True)
class Tradeoff:
    """Scenes that differ in the budget alone.

    Attributes:
        scenes: budget -> what happened.
    """

    scenes: Mapping[int, Scene]

    @property
    def gaps(self) -> list[float]:
        """The longest gap for each budget [s]."""
        return [scene.longest_gap for scene in self.scenes.values()]

    @property
    def firsts(self) -> list[float]:
        """The newcomer's first token for each budget [s]."""
        return [scene.ttft for scene in self.scenes.values()]


def simulate(cost: CostModel, budgets: Sequence[int], users: int, prompt: int) -> Tradeoff:
    """By a cost model."""
    return Tradeoff({c: stall.simulated(cost, c, users, [prompt]) for c in budgets})


def measure(engine: EngineCore, budgets: Sequence[int], users: int, prompt: int) -> Tradeoff:
    """On a real engine, idle, whose budget is turned from scene to scene and put back at last.

    Raises:
        ValueError: a budget is larger than the one that the engine was sized for.
    """
    scheduler = engine.scheduler
    most = scheduler.max_num_batched_tokens
    if max(budgets) > most:
        raise ValueError(
            f"budgets={list(budgets)}: the engine was built for {most} tokens a step at most; "
            "build it with a larger max_num_batched_tokens"
        )
    scenes = {}
    try:
        for budget in budgets:
            scheduler.max_num_batched_tokens = budget
            scenes[budget] = stall.play(engine, users, [prompt])
    finally:
        scheduler.max_num_batched_tokens = most
    return Tradeoff(scenes)


def fit(cost: CostModel, scene: Scene) -> CostModel:
    """Both constants of a cost model from two points: a usual decode step, and the longest step.

    Args:
        cost: with the machine's measured bandwidth and arithmetic.
        scene: on a real engine, with a budget that takes the whole prompt at once.
    """
    steps = scene.steps()
    decoding = sorted(steps[1 : scene.came_at_step], key=_seconds)  # the first reads the prompts
    return cost.fitted([decoding[len(decoding) // 2], max(steps, key=_seconds)])


def _seconds(step: tuple[Work, float]) -> float:
    return step[1]


def draw(left: Tradeoff, title: str, model: Tradeoff, real: Tradeoff) -> Figure:
    """A card by its data sheet, and this machine: measured over a fitted model."""
    fig, axes = plots.figure(1, 2, height=4.0)
    _draw_model(axes[0], left)
    plots.label(axes[0], x="budget C (tokens a step)", y="ms", title=title)
    _draw_model(axes[1], model)
    budgets = list(real.scenes)
    for values, role in ((real.gaps, "decode"), (real.firsts, "prefill")):
        seen = [1e3 * value for value in values]
        plots.measured(
            axes[1], budgets, seen, color=plots.COLORS[role], markeredgecolor=plots.INK,
            label="measured" if role == "decode" else "_",
        )  # fmt: skip
    axes[1].set_ylim(0, 1.25e3 * max(*real.firsts, *model.firsts))
    plots.label(axes[1], x="budget C (tokens a step)", title="SmolLM2-135M on this machine")
    return fig


def _draw_model(ax: Axes, found: Tradeoff) -> None:
    budgets = list(found.scenes)
    for values, role, name in (
        (found.firsts, "prefill", "the newcomer's TTFT"),
        (found.gaps, "decode", "longest gap of who types"),
    ):
        seen = [1e3 * value for value in values]
        ax.plot(budgets, seen, color=plots.COLORS[role], label=name)
    ax.set_xscale("log", base=2)
    ax.set_xticks(budgets, [f"{budget:,}" for budget in budgets], fontsize=9)
    ax.minorticks_off()
    ax.set_ylim(0, 1.15e3 * max(found.firsts))


def draw_lanes(scenes: Mapping[str, Scene]) -> Figure:
    """A row of token ticks for each scene: one who types, and the newcomer, on one time axis."""
    fig, axes = plots.figure(
        len(scenes), 1, height=1.4 + 1.35 * len(scenes), sharex=True, squeeze=False
    )
    for ax, (name, scene) in zip(axes[:, 0], scenes.items(), strict=True):
        typist, newcomer = scene.typists[0], scene.newcomers[0]
        ax.barh(0, newcomer.ttft, height=0.6, color=plots.COLORS["prefill"])
        for y, log in ((1, typist), (0, newcomer)):
            ax.vlines(log.times, y - 0.3, y + 0.3, color=plots.COLORS["decode"], lw=1.8)
        ax.set_yticks([1, 0], ["one who types", "the newcomer"])
        ax.set(ylim=(-0.5, 1.5))
        ax.grid(axis="y", visible=False)
        said = f"longest gap {1e3 * scene.longest_gap:.0f} ms, first token after {scene.ttft:.2f} s"
        plots.label(ax, title=f"{name}: {said}")
    axes[-1, 0].set_xlabel("seconds after the long prompt came")
    return fig
