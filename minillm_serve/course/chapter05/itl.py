"""Experiment: ITL under a long prompt. One budget, two people who want opposite things of it."""
# ruff: noqa: N803 - arguments have the names of the course's symbols

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minillm_serve.course import controls, plots
from minillm_serve.course.chapter05 import counters, stall
from minillm_serve.course.chapter05.stall import Scene
from minillm_serve.course.chapter05.systems import PAIRS, START, brief, cost_of
from minillm_serve.course.formula import Symbol
from minillm_serve.course.linked import FormulaExperiment
from minillm_serve.course.predict import Predict
from minillm_serve.sim.cost import Work

BUDGETS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
CHOICES = ["sooner", "up to half as long again", "about eight times as long"]


@lru_cache(maxsize=256)
def scene(C: int, L: int, B: int, system: str) -> Scene:
    """B users type, and somebody comes with L tokens; the budget is C tokens a step."""
    return stall.simulated(cost_of(system), C, B, [L])


def num_chunks(C: int, L: int, B: int) -> int:
    """Steps in which a prompt of L tokens is read beside B users who type.

    Raises:
        ValueError: the budget leaves no token for the prompt.
    """
    if C <= B:
        raise ValueError(f"C={C}: {B} who type leave nothing of it; give more than {B}")
    return -(-L // (C - B))


def full_step(C: int, L: int, B: int, system: str) -> float:
    """Seconds of the dearest step of the scene: a full chunk, at the end of the prompt [t_C]."""
    chunk = min(L, C - B)
    # Some have typed a few tokens more than others, who were still reading their own prompts.
    ahead = num_chunks(C, B * stall.TYPIST_PROMPT, B)
    context = stall.TYPIST_PROMPT + stall.BEFORE + ahead + num_chunks(C, L, B)
    pairs = chunk * (L - chunk) + chunk * (chunk + 1) // 2
    return cost_of(system).seconds(
        Work(B + 1, B + chunk, B + 1, B * context + L, B * context + pairs)
    )


def first_token(C: int, L: int, B: int, system: str) -> float:
    """Seconds to the newcomer's first token, if every step were as dear as the last [TTFT]."""
    return max(1, L / (C - B)) * full_step(C, L, B, system)


def experiment() -> FormulaExperiment:
    """The experiment, ready for the last line of a cell."""
    start = knobs()
    return FormulaExperiment(
        draw,
        {
            "C": controls.powers_of_two("budget C", 64, 8192, start["C"], unit="tokens"),
            "L": controls.powers_of_two("new prompt L", 256, 8192, start["L"], unit="tokens"),
            "B": controls.integer("users typing B", 1, 32, start["B"]),
            "system": controls.choice("system", list(PAIRS), START),
        },
        title="ITL under a long prompt",
        formula=r"\text{gap} \leq t_C \qquad "
        r"\text{TTFT} \approx \max(1, \frac{L}{C - B}) \cdot t_C",
        symbols={
            "t": Symbol("t_C", "time of a step of C tokens", "What everybody feels", control="C"),
            "L": Symbol("L", "tokens of the new prompt"),
            "C": Symbol("C", "budget: most tokens in a step"),
            "B": Symbol("B", "users who type", "A token of the budget each, before all else"),
        },
        live=lambda **now: {"t": brief(full_step(**now))},
        result=lambda **now: brief(first_token(**now)),
        describe=describe,
        predict=_question(**start),
    )


def _question(C: int, L: int, B: int, system: str) -> Predict:
    """What an eighth of the budget does to the newcomer."""
    before, after = scene(C, L, B, system), scene(C // 8, L, B, system)
    ratio = after.ttft / before.ttft
    later = CHOICES[0] if ratio < 1 else CHOICES[1] if ratio < 1.5 else CHOICES[2]
    return Predict(
        f"{B} users type, and somebody comes with {L:,} tokens. With a budget of {C:,} everybody's "
        f"typing stops for {brief(before.longest_gap)}. Now the budget is an eighth of that, "
        f"{C // 8}. The newcomer waits for the first token ...",
        answer=later,
        choices=CHOICES,
        explain=f"{brief(after.ttft)} instead of {brief(before.ttft)}, since all chunks together "
        "are as much arithmetic as before: what is new is that every chunk reads all weights once "
        f"more. And the longest gap falls to {brief(after.longest_gap)}.",
    )


def describe(C: int, L: int, B: int, system: str) -> str:
    """What the picture shows, in words."""
    seen = scene(C, L, B, system)
    return (
        f"{system}, {B} typing at {brief(seen.usual_gap)} a token. Reading {L:,} tokens takes "
        f"{num_chunks(C, L, B)} steps: the longest gap is {brief(seen.longest_gap)} (at most "
        f"{brief(full_step(C, L, B, system))} by the formula), with {seen.most_work_between:,} "
        f"tokens computed in it, and the newcomer's first token comes after {brief(seen.ttft)}."
    )


def draw(C: int, L: int, B: int, system: str) -> Figure:
    """Both timelines, and below them what other budgets would do."""
    fig, axes = plots.figure(2, 2, height=6.0, height_ratios=[1.1, 1])
    grid = axes[0, 0].get_gridspec()
    for ax in axes[0]:
        ax.remove()
    _draw_lanes(fig.add_subplot(grid[0, :]), scene(C, L, B, system), C)
    others = {budget: scene(budget, L, B, system) for budget in BUDGETS if budget > B}
    gaps = {budget: one.longest_gap for budget, one in others.items()}
    firsts = {budget: one.ttft for budget, one in others.items()}
    bound = [full_step(budget, L, B, system) for budget in others]
    about = [first_token(budget, L, B, system) for budget in others]
    _draw_curve(axes[1, 0], gaps, bound, C, "decode")
    _draw_curve(axes[1, 1], firsts, about, C, "prefill")
    return fig


def _draw_lanes(ax: Axes, seen: Scene, C: int) -> None:
    """The tokens of one who types, with the longest gap; chunks and tokens of the newcomer."""
    typist, newcomer = seen.typists[0], seen.newcomers[0]
    left = -4 * seen.usual_gap
    right = min(newcomer.times[-1], newcomer.ttft + 5 * seen.usual_gap)
    for y, log in ((1, typist), (0, newcomer)):
        times = [1e3 * t for t in log.times if left <= t <= right]
        ticks = ax.vlines(times, y - 0.3, y + 0.3, color=plots.COLORS["decode"], lw=1.8)
        plots.mark(ticks, "B" if y else "L")
    _draw_gap(ax, typist.times)
    for began, ended in _chunks(seen):
        bar = ax.barh(
            0, 1e3 * (ended - began), left=1e3 * began, height=0.6,
            color=plots.COLORS["prefill"], edgecolor="white", lw=0.8,
        )  # fmt: skip
        plots.mark(bar, "C", "L")
    ax.axvline(0, color=plots.GREY, lw=1.2, ls=":")
    ax.text(0, 1.62, " the long prompt comes", color="#52606D", fontsize=9, va="center")
    ax.set_yticks([1, 0], ["one who\ntypes", "the\nnewcomer"])
    ax.set(ylim=(-0.5, 1.8), xlim=(1e3 * left, 1e3 * right))
    ax.grid(axis="y", visible=False)
    title = f"C = {C:,}: a gap of {brief(seen.longest_gap)}, and a first token after"
    plots.label(ax, x="ms after the newcomer came", title=f"{title} {brief(seen.ttft)}")


def _draw_gap(ax: Axes, times: tuple[float, ...]) -> None:
    pairs = [(a, b) for a, b in pairwise(times) if b > 0]
    before, after = max(pairs, key=lambda pair: pair[1] - pair[0])
    band = ax.barh(
        1, 1e3 * (after - before), left=1e3 * before, height=0.6,
        color=plots.COLORS["limit"], alpha=0.55, lw=0,
    )  # fmt: skip
    plots.mark(band, "t", "C")


def _chunks(seen: Scene) -> list[tuple[float, float]]:
    """From when to when each chunk of the newcomer's prompt was read."""
    ran = [(a - seen.began, b - seen.began) for a, b in seen.record.ran()]
    name = "newcomer-0"
    first = counters.token_steps(seen.record, name, seen.prompts[name])[0]
    return ran[seen.came_at_step : first + 1]


def _draw_curve(
    ax: Axes, values: dict[int, float], formula: list[float], C: int, role: str
) -> None:
    """Seconds over the budget, by the scheduler and by the formula, and the one that was chosen."""
    budgets, seen = list(values), [1e3 * value for value in values.values()]
    typing = role == "decode"
    (line,) = ax.plot(budgets, seen, "o-", ms=5, color=plots.COLORS[role], label="scheduler")
    plots.mark(line, *(("t", "B") if typing else ("L", "B")))
    (theory,) = ax.plot(
        budgets, [1e3 * value for value in formula], ls=(0, (2, 2)), lw=1.6, zorder=4,
        color=plots.COLORS["limit"], label="formula: at most" if typing else "formula: about",
    )  # fmt: skip
    plots.mark(theory, "t")
    plots.mark(ax.axvline(C, color=plots.INK, lw=1.4, ls=":"), "C")
    (dot,) = ax.plot([C], [1e3 * values[C]], "D", ms=9, mec="white", color=plots.INK, zorder=5)
    plots.mark(dot, "C")
    ax.set_xscale("log", base=2)
    ax.set_xticks(budgets, [f"{budget:,}" for budget in budgets], fontsize=8.5)
    ax.minorticks_off()
    ax.set_ylim(0, 1.12 * max(seen))
    title = "Longest gap of who types" if typing else "First token of the newcomer"
    plots.label(ax, x="budget C (tokens a step)", y="ms", title=title)


def knobs(**changes: Any) -> dict[str, Any]:
    """The experiment's settings at the start, with changes; for tests and text."""
    return {"C": 4096, "L": 4096, "B": 8, "system": START, **changes}
