"""The committed measurements of `minillm-serve quality`, and their pictures."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from minillm_serve.course import plots
from minillm_serve.quality.tasks import TITLES

ROWS = Path("benchmarks/results/quality.json")
STUDIES = Path("benchmarks/results/quality_studies.json")
#: A divergence that is rounding errors of float32 alone.
EXACT = 1e-6


@dataclass(frozen=True)
class Record:
    """What was measured once, with care.

    Attributes:
        rows: of `minillm-serve quality`, the reference first.
        studies: of `minillm-serve quality --studies`.
        stamp: where the rows were measured.
    """

    rows: list[dict[str, Any]]
    studies: dict[str, Any]
    stamp: Mapping[str, Any]

    @classmethod
    def load(cls, folder: Path | None = None) -> Record:
        """Reads both files, in this folder or the nearest above it that has them.

        Raises:
            FileNotFoundError: there are none; says how to write them.
        """
        start = folder or Path.cwd()
        for place in (start, *start.resolve().parents):
            if (place / ROWS).is_file() and (place / STUDIES).is_file():
                rows = json.loads((place / ROWS).read_text("utf-8"))
                studies = json.loads((place / STUDIES).read_text("utf-8"))
                return cls(rows["rows"], studies, rows["stamp"])
        raise FileNotFoundError(
            f"{ROWS} and {STUDIES} are not here: write them with `minillm-serve quality --output "
            f"{ROWS}` and `minillm-serve quality --studies --output {STUDIES}`"
        )

    def kl(self, kv_bits: int, weight_bits: int) -> float:
        """Of the study bit by bit; 0 bits mean that nothing was rounded.

        Raises:
            ValueError: that pair was not measured.
        """
        for row in self.studies["bits"]:
            if (row["kv_bits"], row["weight_bits"]) == (kv_bits, weight_bits):
                return float(row["kl"])
        raise ValueError(f"kv_bits={kv_bits} with weight_bits={weight_bits} was not measured")

    def changed(self, kl: float) -> float:
        """Share of places where another token is likeliest, at the pair that moves as far."""
        rows = [row for row in self.studies["bits"] if row["kl"] > 0]
        nearest = min(rows, key=lambda row: abs(math.log(row["kl"] / kl)))
        return 1 - float(nearest["same_top"])


def draw_tasks(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """KL by kind of task, and the share of greedy answers that stays the reference's."""
    fig, axes = plots.figure(1, 2, height=3.9)
    kinds, told = list(TITLES), rows[1:]
    places, width = np.arange(len(told)), 0.26
    colors = (plots.BLUE, plots.ORANGE, plots.GREEN)
    for i, kind in enumerate(kinds):
        at = places + (i - 1) * width
        style = {"height": width * 0.9, "color": colors[i], "label": TITLES[kind]}
        axes[0].barh(at, [row["kinds"][kind]["kl"] for row in told], **style)
        axes[1].barh(at, [row["kinds"][kind]["agreed_share"] for row in told], **style)
    for ax in axes:
        ax.set_yticks(places, [row["name"] for row in told] if ax is axes[0] else [""] * len(told))
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
    axes[0].set_xscale("log")
    ticks = (0.0005, 0.001, 0.002, 0.005, 0.01)
    axes[0].set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[0].set_xticks([], minor=True)
    plots.label(axes[0], x="KL (nats a token)", title="What moves")
    plots.label(axes[1], x="share of tokens before the first difference", title="What is said")
    axes[1].set_xlim(0, 1)
    for ax in axes:
        ax.get_legend().remove()
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return fig


def draw_layers(studies: Mapping[str, Any]) -> Figure:
    """One layer at a time: its keys and values, its weights."""
    rows = studies["layers"]
    layers = [row["layer"] for row in rows]
    fig, axes = plots.figure(1, 2, height=3.3)
    for ax, name, color, what in (
        (axes[0], "kv", plots.COLORS["kv"], "KV"),
        (axes[1], "weights", plots.COLORS["weights"], "Weights"),
    ):
        found = [row[name] for row in rows]
        worst = int(np.argmax(found))
        ax.bar(layers, found, 0.8, color=color)
        ax.bar([layers[worst]], [found[worst]], 0.8, color=plots.COLORS["wasted"])
        times = found[worst] / float(np.median(found))
        title = f"{what}: layer {layers[worst]}, {times:.0f} x the usual"
        plots.label(ax, x="layer in 4 bits", y="KL (nats a token)", title=title)
        ax.title.set_fontsize(11)
        ax.grid(axis="x", visible=False)
    return fig


def draw_heads(studies: Mapping[str, Any]) -> Figure:
    """One KV head of one layer at a time, as a map."""
    rows = studies["heads"]
    layers, heads = (1 + max(row[name] for row in rows) for name in ("layer", "head"))
    grid = np.zeros((heads, layers))
    for row in rows:
        grid[row["head"], row["layer"]] = row["kv"]
    fig, ax = plots.figure(height=2.4)
    image = ax.imshow(grid, aspect="auto", cmap="Blues")
    ax.grid(visible=False)
    ax.set_yticks(range(heads))
    fig.colorbar(image, ax=ax, label="KL (nats)", pad=0.02)
    few = np.sort(grid.ravel())[::-1]
    share = few[: max(1, len(few) // 10)].sum() / few.sum()
    title = f"A tenth of the heads makes {share:.0%} of the loss (4 bits, one head at a time)"
    plots.label(ax, x="layer", y="KV head", title=title)
    ax.title.set_fontsize(11)
    return fig


def draw_algorithms(studies: Mapping[str, Any]) -> Figure:
    """Round to nearest beside AWQ and GPTQ."""
    rows = studies["algorithms"]
    grids = list(dict.fromkeys((row["bits"], row["group"]) for row in rows))
    ways = list(dict.fromkeys(row["way"] for row in rows))
    colors = {"nearest, as loaded": plots.PALE, "nearest": plots.GREY}
    fig, ax = plots.figure(height=3.4)
    for i, way in enumerate(ways):
        of_way = {(row["bits"], row["group"]): row["kl"] for row in rows if row["way"] == way}
        found = [of_way[grid] for grid in grids]
        color = colors.get(way, plots.BLUE if way == "AWQ" else plots.GREEN)
        at = np.arange(len(grids)) + (i - (len(ways) - 1) / 2) * 0.2
        shown = [kl if kl > EXACT else np.nan for kl in found]
        bars = ax.bar(at, shown, 0.18, color=color, label=way, edgecolor="#9AA5B1", lw=0.5)
        ax.bar_label(bars, [f"{kl:.2g}" if kl > EXACT else "" for kl in found], fontsize=8.5)
        for place, kl in zip(at, found, strict=True):
            if kl <= EXACT:
                ax.text(place, 0.02, "0", transform=ax.get_xaxis_transform(), ha="center")
    ax.set_xlim(-0.5, len(grids) - 0.5)
    ax.set_xticks(range(len(grids)), [f"{bits} bits, groups of {group}" for bits, group in grids])
    ax.grid(axis="x", visible=False)
    ax.margins(y=0.12)
    ax.set_yscale("log")
    nearest = [row["kl"] for row in rows if row["way"] == "nearest"]
    best = [min(row["kl"] for row in rows if row["way"] in ("AWQ", "GPTQ") and
            (row["bits"], row["group"]) == grid) for grid in grids]  # fmt: skip
    times = [a / b for a, b in zip(nearest, best, strict=True)]
    title = f"The same bits: the better way loses {min(times):.1f} to {max(times):.1f} times less"
    plots.label(ax, y="KL (nats a token)", title=title)
    ax.legend(fontsize=9, loc="upper left", ncols=2)
    return fig
