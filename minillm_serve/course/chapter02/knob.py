"""Block size as a knob: what small blocks save in memory, and what their long tables cost."""
# ruff: noqa: N803, N806 - arguments have the names of the course's symbols

from __future__ import annotations

from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minillm_serve.course import controls, plots
from minillm_serve.course.chapter02.indirection import BLOCK_SIZES, Times, ratios
from minillm_serve.course.chapter02.traffic import CHAT, MIXES, WARM_UP, watch
from minillm_serve.course.formula import Symbol
from minillm_serve.course.linked import FormulaExperiment
from minillm_serve.course.predict import Predict

#: Backend -> how its curve is drawn, and what it does.
LOOKS = {
    "cpu": ("o-", plots.BLUE, "reads in place (cpu)"),
    "triton": ("s-", plots.GREEN, "reads in place (triton)"),
    "torch": ("^-", plots.ORANGE, "copies first (torch)"),
}
FORMULA = r"\text{waste} \approx \frac{(P - 1) / 2}{L + (P - 1) / 2}"
SYMBOLS = {
    "P": Symbol("P", "tokens a block", "The last block is half empty on average"),
    "L": Symbol("L", "tokens of a sequence in memory, on average", control="mix"),
}
CHOICES = ["about half", "about the same", "about twice as much"]


def half_a_block(P: int, L: float) -> float:
    """Share of the held slots without a token, if all fillings of a last block are as likely.

    Args:
        P: tokens a block.
        L: tokens of a sequence in memory, on average.
    """
    slack = (P - 1) / 2
    return slack / (L + slack)


def seen_waste(mix: str, P: int) -> float:
    """The same as a full server shows it, after its warm-up."""
    ledgers = [moment.ledger for moment in watch("paged", mix, P)[WARM_UP:]]
    held = sum(ledger.useful + ledger.reserved + ledger.internal for ledger in ledgers)
    return 1 - sum(ledger.useful for ledger in ledgers) / held


def mean_length(mix: str) -> float:
    """Tokens of a sequence in memory on average, in blocks of one."""
    moments = watch("paged", mix, 1)[WARM_UP:]
    return sum(m.ledger.useful for m in moments) / sum(m.running for m in moments)


def experiment(times: Times) -> FormulaExperiment:
    """The experiment, ready for the last line of a cell.

    Args:
        times: of `indirection.measure`, as committed or just taken.
    """
    return FormulaExperiment(
        lambda P, mix: draw(times, P, mix),
        {
            "P": controls.powers_of_two("block size P", 1, 256, 16, unit="tokens"),
            "mix": controls.choice("people", list(MIXES), CHAT),
        },
        title="Block size is a knob",
        formula=FORMULA,
        symbols=SYMBOLS,
        live=lambda P, mix: {"L": f"{mean_length(mix):.0f}"},
        result=lambda P, mix: f"{half_a_block(P, mean_length(mix)):.1%}",
        describe=lambda P, mix: describe(times, P, mix),
        predict=Predict(
            "Blocks of 16 waste a few percent. Blocks of 32 waste ...",
            answer=CHOICES[2],
            choices=CHOICES,
            explain="Half of a last block is empty, and that is twice as much. With blocks as long "
            "as the conversations it stops: nobody can waste more than all.",
        ),
    )


def describe(times: Times, P: int, mix: str) -> str:
    """What the picture shows, in words."""
    L = mean_length(mix)
    said = (
        f"Blocks of {P}: {half_a_block(P, L):.1%} of the held memory is empty by the formula, "
        f"{seen_waste(mix, P):.1%} in the full server; a table of {L / P:.0f} entries a sequence"
        if P <= L
        else f"Blocks of {P} are longer than most conversations: {seen_waste(mix, P):.1%} of the "
        f"held memory is empty"
    )
    slower = "; ".join(
        f"{LOOKS[name][2]}: {found[P]:.2f} times as long as without a table"
        for name, found in ratios(times).items()
        if P in found
    )
    return f"{said}. {slower}." if slower else f"{said}."


def draw(times: Times, P: int, mix: str) -> Figure:
    """Waste, length of the table, and time, over the block size."""
    fig, (waste, table, time) = plots.figure(1, 3, height=3.7, width_ratios=[1.15, 0.85, 1.15])
    L = mean_length(mix)
    _draw_waste(waste, mix, L, P)
    entries = [-(-L // size) for size in BLOCK_SIZES]
    plots.mark(table.plot(BLOCK_SIZES, entries, "o-", ms=4, color=plots.PURPLE)[0], "L")
    table.set_yscale("log", base=2)
    table.set_yticks([1, 4, 16, 64, 256], ["1", "4", "16", "64", "256"])
    title = f"Table: {-(-L // P):.0f} entries"
    plots.label(table, x="block size P", y="entries a sequence", title=title)
    _draw_times(time, times, f"Time: {_times_at(times, P)}")
    for ax in (waste, table, time):
        _block_axis(ax)
        plots.mark(ax.axvline(P, color=plots.INK, lw=1.4, ls=":"), "P")
    return fig


def _draw_waste(ax: Axes, mix: str, L: float, P: int) -> None:
    curve = [100 * half_a_block(size, L) for size in BLOCK_SIZES]
    (line,) = ax.plot(BLOCK_SIZES, curve, color=plots.COLORS["model"], label="half a block")
    plots.mark(line, "L", "P")
    seen = [100 * seen_waste(mix, size) for size in BLOCK_SIZES]
    plots.measured(ax, BLOCK_SIZES, seen, label="full server", markersize=6)
    ax.set_ylim(0, 1.15 * max(*curve, *seen))
    plots.label(
        ax, x="block size P", y="held and empty (%)", title=f"Waste: {seen_waste(mix, P):.0%}"
    )
    _legend(ax, "upper left")


def _times_at(times: Times, P: int) -> str:
    """Every backend's price at one block size, in a few characters."""
    found = [f"{at[P]:.1f} ×" for at in ratios(times).values() if P in at]
    return ", ".join(found) or "not measured here"


def _draw_times(ax: Axes, times: Times, title: str) -> None:
    for name, found in ratios(times).items():
        style, color, label = LOOKS[name]
        ax.plot(list(found), list(found.values()), style, ms=4, color=color, label=label)
    ax.axhline(1, color=plots.GREY, lw=1.2, ls="--")
    ax.set_ylim(0, None)
    plots.label(ax, x="block size P", y="time / time in contiguous memory", title=title)
    _legend(ax, "best")


def _legend(ax: Axes, place: Literal["upper left", "best"]) -> None:
    """Readable over whatever lies below it."""
    ax.legend(loc=place, fontsize=9, frameon=True, framealpha=0.85, edgecolor="none")


def _block_axis(ax: Axes) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xticks([1, 4, 16, 64, 256], ["1", "4", "16", "64", "256"])


def draw_indirection(times: Times) -> Figure:
    """Only the times: the price of looking up where a block lies."""
    fig, ax = plots.figure(height=3.6)
    _draw_times(ax, times, f"In blocks of 16: {_times_at(times, 16)}")
    _block_axis(ax)
    return fig
