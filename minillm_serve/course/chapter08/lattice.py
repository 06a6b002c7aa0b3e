"""One row of keys, and the values that each kind of code has for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from minillm_serve import LLM
from minillm_serve.course import plots
from minillm_serve.quality.reading import Reader
from minillm_serve.runtime.kv_quantizer import QUANTIZERS


def read_keys(llm: LLM, token_ids: Sequence[int]) -> tuple[list[Tensor], list[Tensor]]:
    """All keys and all values of a text, as they go into the cache.

    Returns:
        For each layer [L, H_kv, D], twice.
    """
    keys: dict[int, list[Tensor]] = {}
    values: dict[int, list[Tensor]] = {}

    def note(layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys.setdefault(layer, []).append(k.clone())
        values.setdefault(layer, []).append(v.clone())
        return k, v

    Reader.of(llm, store=note).read(token_ids)
    k, v = ([torch.cat(found[n]) for n in sorted(found)] for found in (keys, values))
    return k, v


def levels(kv_dtype: torch.dtype) -> np.ndarray[Any, Any]:
    """All values that a code can stand for, with the scale 1."""
    codes = torch.arange(256).to(torch.uint8).view(kv_dtype).float()
    return np.unique(codes[codes.isfinite()].numpy())


def draw_codes(row: Tensor, shown: int = 16) -> Figure:
    """The first numbers of a row on the steps of int8 and of fp8, and how far each is moved.

    Args:
        row: [D].
        shown: numbers drawn.
    """
    fig, axes = plots.figure(2, 2, height=4.4, sharex=True, height_ratios=(2, 1))
    for column, (dtype, quantizer) in enumerate(QUANTIZERS.items()):
        codes, scales = quantizer.quantize(row[None, None])
        back = quantizer.dequantize(codes, scales)[0, 0]
        name = "int8" if dtype == torch.int8 else "fp8 e4m3"
        _draw_levels(axes[0, column], levels(dtype) * scales.item(), row[:shown], name)
        off = (back - row)[:shown].numpy()
        axes[1, column].bar(range(shown), off, 0.7, color=plots.COLORS["wasted"])
        axes[1, column].set_xticks(range(0, shown, 4))
        plots.label(axes[1, column], x="place in the row", y="error" if not column else None)
    most = max(abs(limit) for ax in axes[1] for limit in ax.get_ylim())
    for ax in axes[1]:
        ax.set_ylim(-most, most)
    axes[0, 0].set_ylabel("value")
    return fig


def _draw_levels(ax: Axes, steps: np.ndarray[Any, Any], row: Tensor, name: str) -> None:
    ax.hlines(steps, -0.8, len(row) - 0.2, color=plots.PALE, lw=0.7)
    ax.plot(range(len(row)), row.numpy(), "o", ms=5, color=plots.COLORS["kv"])
    ax.grid(visible=False)
    edge = 1.15 * float(row.abs().max())
    ax.set_ylim(-edge, edge)
    plots.label(ax, title=f"{name}: {'even' if name == 'int8' else 'fine near 0, coarse far off'}")
    ax.title.set_fontsize(11)


def draw_spread(keys: Tensor, values: Tensor, layer: int) -> Figure:
    """How large keys and values are, number by number of a head, over all tokens.

    Args:
        keys: [L, H_kv, D] of one layer.
        values: likewise.
        layer: its number.
    """
    fig, axes = plots.figure(1, 2, height=3.2, sharey=True)
    for ax, x, what in ((axes[0], keys, "Keys"), (axes[1], values, "Values")):
        head = x[:, 0].abs()
        ax.fill_between(
            range(head.shape[1]), head.quantile(0.95, dim=0), color=plots.COLORS["free"], step="mid"
        )
        ax.step(range(head.shape[1]), head.median(0).values, where="mid", color=plots.COLORS["kv"])
        share = float(head.median(0).values.max() / head.median())
        plots.label(
            ax, x="place in the row", title=f"{what}: the largest is {share:.0f} x the usual"
        )
        ax.title.set_fontsize(11)
    axes[0].set_ylabel(f"magnitude, layer {layer}, head 0")
    return fig
