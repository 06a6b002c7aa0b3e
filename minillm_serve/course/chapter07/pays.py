"""Where drafts pay: pictures of what steps bring over what they cost, here and on a card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minillm_serve.core import DraftLengths, StepRecord
from minillm_serve.course import plots
from minillm_serve.sim import ModelShape
from minillm_serve.sim.arrivals import Arrival
from minillm_serve.sim.cost import CostModel
from minillm_serve.sim.simulation import Simulation
from minillm_serve.sim.speculation import Seconds, speedup

#: Rows of the output head that a trained head reads on a card, as in FR-Spec and EAGLE-3 (2025).
DRAFT_VOCABULARY = 32_768
ALPHAS = [i / 100 for i in range(0, 101, 2)]
COLORS = {"n-gram": plots.ORANGE, "early exit": plots.PURPLE, "trained head": plots.BLUE}
MARKERS = "osD"


def share_of(model: ModelShape, num_layers: int, vocabulary: int | None = None) -> float:
    """What some layers of a model and some rows of its output head move, as a share of the whole.

    Args:
        model: the whole.
        num_layers: layers that a drafter runs.
        vocabulary: rows of the output head that it reads; all by default.
    """
    small = replace(model, num_layers=num_layers, vocab_size=vocabulary or model.vocab_size)
    return small.matmul_parameters / model.matmul_parameters


def simulated(
    cost: CostModel,
    batch: int,
    lengths: DraftLengths | None,
    *,
    acceptance: float,
    draft_cost: float,
    context: int = 512,
) -> float:
    """Tokens a second of the real engine over a stopwatch, while all are being answered.

    Args:
        cost: of the model on a card.
        batch: sequences, all there from the beginning (B).
        lengths: how many drafts each gets; None for none.
        acceptance: chance that a draft is kept, if all before it were [alpha].
        draft_cost: of a pass of the drafter, as a share of a step.
        context: tokens of a prompt.
    """
    steps, tokens = list[StepRecord](), max(64, 1024 // batch)
    simulation = Simulation(
        cost,
        num_blocks=batch * (context + tokens + 16) // 16 + batch,
        max_num_seqs=batch,
        max_num_batched_tokens=max(2048, 16 * batch),
        draft_lengths=lengths,
        acceptance=acceptance,
        draft_cost=draft_cost,
        on_step=steps.append,
    )
    served = simulation.run([Arrival(0.0, context, tokens)] * batch)
    # All have read their prompts, and nobody has left yet.
    begun = max(served.ttft)
    whole = [s for s in steps if s.began >= begun and s.num_scheduled == batch]
    return sum(s.num_sampled for s in whole) / sum(s.ended - s.began for s in whole)


def draw_alpha(
    ours: Mapping[str, Seconds],
    points: Mapping[tuple[str, str], tuple[float, float]],
    card: Mapping[str, Seconds],
    name: str,
    k: int,
) -> Figure:
    """Speedup over alpha for one user: here with measured points, and on a card.

    Args:
        ours: drafter -> what steps cost here.
        points: kind of text and drafter -> alpha and speedup, measured.
        card: as `ours`, on a card.
        name: of the card and what runs on it.
        k: drafts a step.
    """
    fig, axes = plots.figure(1, 2, height=4.2, sharey=True)
    for ax, sides in zip(axes, (ours, card), strict=True):
        for drafter, seconds in sides.items():
            ys = [speedup(alpha, k, seconds) for alpha in ALPHAS]
            ax.plot(ALPHAS, ys, color=COLORS[drafter], label=drafter)
        _break_even_line(ax)
        ax.set(xlim=(-0.02, 1.02), ylim=(0, k + 1.2))
    kinds = list(dict.fromkeys(kind for kind, _ in points))
    for (kind, drafter), (alpha, faster) in points.items():
        axes[0].plot(
            alpha, faster, MARKERS[kinds.index(kind)], ms=8, color=COLORS[drafter], mec="white",
            mew=1.2, zorder=5,
        )  # fmt: skip
    for kind, marker in zip(kinds, MARKERS, strict=False):
        axes[0].plot([], [], marker, ms=7, color=plots.INK, label=kind)
    most = max(faster for _, faster in points.values())
    x = "share of guesses that are right, alpha"
    title = f"Here, k = {k}: measured up to {most:.1f} times"
    plots.label(axes[0], x=x, y="speed / speed without drafts", title=title)
    plots.label(axes[1], x=x, title=f"{name}, k = {k}")
    for ax in axes:
        ax.title.set_fontsize(11.5)
        ax.legend(loc="upper left", fontsize=9, frameon=False)
    return fig


def draw_batch(
    ours: Seconds,
    points: Mapping[str, Mapping[int, float]],
    card: Seconds,
    dots: Mapping[str, Mapping[int, float]],
    name: str,
    *,
    k: int,
    alphas: Sequence[float] = (0.5, 0.7, 0.9),
) -> Figure:
    """Speedup over the batch size: here with measured points, and on a card.

    Args:
        ours: what steps cost here.
        points: name of a run -> B -> speedup, measured.
        card: as `ours`, on a card.
        dots: as `points`, simulated.
        name: of the card and what runs on it.
        k: drafts a step.
        alphas: a curve for each.
    """
    fig, axes = plots.figure(1, 2, height=4.0, sharey=True)
    sizes = ([1, 2, 4, 8, 16, 32], [1, 2, 4, 8, 16, 32, 64, 128, 256])
    for ax, seconds, batches in zip(axes, (ours, card), sizes, strict=True):
        for alpha, color in zip(alphas, (plots.SKY, plots.BLUE, plots.GREEN), strict=True):
            ys = [speedup(alpha, k, seconds, B) for B in batches]
            ax.plot(batches, ys, color=color, label=f"alpha = {alpha}")
        _break_even_line(ax)
        ax.set_xscale("log", base=2)
        ax.set_xticks(batches, [f"{B}" for B in batches])
    for ax, runs, how in zip(axes, (points, dots), ("measured", "simulated"), strict=True):
        for (who, found), marker in zip(runs.items(), "Ds", strict=False):
            faster = list(found.values())
            plots.measured(ax, list(found), faster, label=f"{who}, {how}", marker=marker)
    axes[0].set_ylim(0, 4.8)
    plots.label(axes[0], x="sequences B", y="speed / speed without drafts", title=f"Here, k = {k}")
    plots.label(axes[1], x="sequences B", title=f"{name}, k = {k}")
    for ax in axes:
        ax.title.set_fontsize(11.5)
        ax.legend(loc="upper right", fontsize=9, frameon=False)
    return fig


def _break_even_line(ax: Axes) -> None:
    ax.axhline(1, color=plots.COLORS["limit"], ls="--", lw=1.4)
