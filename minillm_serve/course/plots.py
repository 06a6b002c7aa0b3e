"""One look for every picture of the course.

Colours are named by what they mean (`COLORS["wasted"]`), from the palette of Okabe and Ito
(2008, "Color Universal Design"), which stays apart for the common kinds of colour blindness.
A picture has labelled axes with units and a title that states the finding:

    with plots.style():
        fig, ax = plots.figure()
        ax.plot(batch, tokens_per_s, color=plots.COLORS["model"], label="roofline model")
        plots.measured(ax, measured_batch, measured_tokens_per_s)
        plots.label(ax, x="batch size B", y="tokens per second",
                    title="Throughput stops growing at B = 64")

Figures are made without pyplot: nothing is registered globally, so nothing leaks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, Locator, MaxNLocator

from .render import to_png

BLUE, ORANGE, GREEN, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, YELLOW = "#56B4E9", "#CC79A7", "#F0E442"
INK, GREY, PALE = "#1F2933", "#8A939C", "#E4E7EB"

# Meaning -> colour. Chapters use the names, so that one thing has one colour in all of them.
COLORS: Mapping[str, str] = MappingProxyType(
    {
        "useful": BLUE,
        "reserved": ORANGE,
        "wasted": VERMILLION,
        "free": PALE,
        "weights": GREY,
        "activations": PURPLE,
        "kv": BLUE,
        "shared": GREEN,
        "ours": BLUE,
        "peer": ORANGE,
        "baseline": GREY,
        "model": BLUE,
        "measured": INK,
        "limit": VERMILLION,
        "prediction": PURPLE,
        "prefill": SKY,
        "decode": BLUE,
        "waiting": YELLOW,
        "accepted": GREEN,
        "rejected": VERMILLION,
        "compute": PURPLE,
        "bandwidth": SKY,
    }
)

CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILLION, INK)

WIDTH, HEIGHT, DPI = 8.6, 4.1, 110
"""Inches, inches, dots per inch: 946 x 451 pixels, what Lab shows whole on a small laptop."""

_RC: Any = {  # matplotlib types the keys one by one; it checks them by itself
    "figure.figsize": (WIDTH, HEIGHT),
    "figure.dpi": DPI,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "font.family": "DejaVu Sans",  # shipped with matplotlib: the same everywhere
    "font.size": 10.5,
    "axes.titlesize": 12.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.labelsize": 10.5,
    "axes.edgecolor": "#7B8794",
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": "#52606D",
    "ytick.color": "#52606D",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E7EB",
    "grid.linewidth": 0.8,
    "lines.linewidth": 2.2,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "axes.prop_cycle": cycler(color=CYCLE),
}


@contextmanager
def style() -> Iterator[None]:
    """Draw with the course's look inside the block; the user's own settings return after it."""
    with mpl.rc_context(_RC):
        yield


class CourseFigure(Figure):
    """A figure that shows itself as a picture as the last line of a cell, pyplot or not."""

    def _repr_png_(self) -> bytes:
        return to_png(self)


def figure(
    rows: int = 1, columns: int = 1, *, width: float = WIDTH, height: float = HEIGHT, **grid: Any
) -> tuple[Figure, Any]:
    """Make a styled figure.

    Args:
        rows: Rows of axes.
        columns: Columns of axes.
        width: Inches.
        height: Inches.
        **grid: Passed on to `Figure.subplots` (`sharex`, `width_ratios`, ...).

    Returns:
        `(figure, axes)`: one `Axes`, or an array of them as `Figure.subplots` gives it.
    """
    with style():
        fig = CourseFigure(figsize=(width, height), dpi=DPI)
        fig.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1)
        return fig, fig.subplots(rows, columns, **grid)


def label(
    ax: Axes, *, x: str | None = None, y: str | None = None, title: str | None = None
) -> None:
    """Label the axes (with units) and state the finding as the title; add a legend if needed."""
    if x is not None:
        ax.set_xlabel(x)
    if y is not None:
        ax.set_ylabel(y)
    if title is not None:
        ax.set_title(title, loc="left", fontsize=12.5, fontweight="bold", color=INK, pad=10)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False)


def measured(
    ax: Axes, x: Any, y: Any, *, label: str = "measured on this machine", **line: Any
) -> Artist:
    """Lay measured points over a model's curve: dark diamonds with a white edge, never a line.

    Returns:
        The artist, to be passed to `mark`.
    """
    options: dict[str, Any] = {
        "marker": "D",
        "markersize": 8,
        "markeredgecolor": "white",
        "markeredgewidth": 1.2,
        "linestyle": "none",
        "color": COLORS["measured"],
        "zorder": 5,
        "label": label,
    }
    (points,) = ax.plot(x, y, **{**options, **line})
    return points


def mark(artist: Artist | Iterable[Artist], *symbols: str) -> None:
    """Say which symbols of the formula govern this part of the drawing.

    A `FormulaExperiment` lights the part when one of these symbols, or its control, is pointed at.

    Args:
        artist: One artist, or several (a bar container, a list).
        *symbols: Keys of the experiment's `symbols`.

    Raises:
        ValueError: No symbol was given.
    """
    if not symbols:
        raise ValueError("mark(artist) needs at least one symbol: mark(bar, 'N')")
    for one in [artist] if isinstance(artist, Artist) else artist:
        one.set_gid("sym-" + "+".join(symbols))


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def human_bytes(count: float, digits: int = 3) -> str:
    """Format a number of bytes in binary units: `human_bytes(524288) == '512 KiB'`.

    Args:
        count: Bytes.
        digits: Significant digits kept.
    """
    size, unit = float(count), 0
    while abs(size) >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    # 1000..1023 would turn into 1.02e+03 with three significant digits.
    text = f"{size:.0f}" if abs(size) >= 1000 else f"{size:.{digits}g}"
    return f"{text} {_UNITS[unit]}"


class BinaryLocator(Locator):
    """Ticks at round numbers of binary units: 64, 128, 192 KiB; never 58.6 KiB.

    Args:
        scale: Bytes in the unit whose multiples are to be round (5, 10, 20 GiB); None steps by
            powers of two, which are round in every unit.
    """

    def __init__(self, scale: int | None = None) -> None:
        self.scale = scale

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """Ticks that cover `[vmin, vmax]`, five or so."""
        if self.scale is not None:
            ticks = MaxNLocator(6).tick_values(vmin / self.scale, vmax / self.scale)
            return [float(tick) * self.scale for tick in ticks]
        step = 2.0 ** math.ceil(math.log2(max(vmax - vmin, 5.0) / 5))
        first = math.floor(vmin / step)
        return [index * step for index in range(first, math.ceil(vmax / step) + 1)]

    def __call__(self) -> Sequence[float]:
        """Ticks for the axis as it is now."""
        assert self.axis is not None  # matplotlib sets it before it asks
        return self.tick_values(*self.axis.get_view_interval())


def bytes_axis(axis: Axis, unit: str = "auto") -> None:
    """Let an axis that counts bytes speak in binary units.

    Args:
        axis: `ax.xaxis` or `ax.yaxis`.
        unit: `"auto"` (each tick in its own best unit) or one of B, KiB, MiB, GiB, TiB, PiB, which
            then belongs into the axis's label.

    Raises:
        ValueError: `unit` is none of these.
    """
    if unit not in ("auto", *_UNITS):
        raise ValueError(f"unit={unit!r} is not 'auto' or one of {', '.join(_UNITS)}")
    scale = None if unit == "auto" else 1024 ** _UNITS.index(unit)
    if axis.get_scale() == "linear":
        axis.set_major_locator(BinaryLocator(scale))
    if scale is None:
        axis.set_major_formatter(FuncFormatter(lambda value, _: human_bytes(value)))
    else:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / scale:g}"))
