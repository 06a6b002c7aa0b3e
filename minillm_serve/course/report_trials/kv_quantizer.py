"""Keys and values as a model makes them, with what spoils a scale that is shared."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from minillm_serve.course.report_card import Counters, Measure, Trial
from minillm_serve.parts import Part
from minillm_serve.parts.kv_quantizer import WatchedQuantizer
from minillm_serve.runtime.kv_conformance import allowed_error, make_rows
from minillm_serve.runtime.kv_quantizer import Int8Quantizer

SEED = 0
TOKENS, KV_HEADS, DIM = 512, 4, 64


def trial(yours: Any) -> Trial:
    """Rows of all kinds, then attention scores over a long context."""
    kinds = list(make_rows(SEED))
    return Trial(
        trace=f"{len(kinds)} kinds of rows and {TOKENS:,} keys (seed {SEED})",
        naive=OneScale,
        naive_is="has one scale for all tokens and heads",
        reference=Int8Quantizer,
        measures=(
            Measure("kinds right", "=", len(kinds)),
            Measure("error, % of a step", "<=", slack=0.02, format=".1f"),
            Measure("lean, % of a step", "<=", 1.0, format=".1f"),
            Measure("bytes a number", "<=", format=".4f"),
        ),
        count=_count,
        work=lambda quantizer: quantizer().quantize(_keys()),
    )


class OneScale(Int8Quantizer):
    """Right where all rows are alike, and wrong wherever one of them is large."""

    def quantize(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """By the largest magnitude of all."""
        scale = x.abs().max().clamp(min=1e-30) / 127
        return (x / scale).round().to(torch.int8), scale.expand(x.shape[:-1]).contiguous()


def _count(part: Part) -> Counters:
    quantizer = WatchedQuantizer(part)
    right = 0
    with part.trial("a round trip"):
        for _, x in make_rows(SEED):
            codes, scales = quantizer.quantize(x)
            error = (codes.float() * scales[..., None] - x).abs()
            right += bool((error <= allowed_error(x, torch.int8)).all())
        x = _keys()
        codes, scales = quantizer.quantize(x)
    step = x.abs().amax(-1, keepdim=True) / 127
    error = (codes.float() * scales[..., None] - x) / step
    lean = torch.stack([error.mean(), (error * x.sign()).mean()]).abs().max()
    return {
        "kinds right": right,
        "error, % of a step": 100 * error.square().mean().sqrt().item(),
        "lean, % of a step": 100 * lean.item(),
        "bytes a number": (codes.nbytes + scales.nbytes) / x.numel(),
    }


@cache
def _keys() -> Tensor:
    """Tokens and heads of different sizes, as a model has them."""
    draw = torch.Generator().manual_seed(SEED)
    sizes = torch.rand(TOKENS, KV_HEADS, 1, generator=draw) * 4 - 2
    return torch.randn(TOKENS, KV_HEADS, DIM, generator=draw) * sizes.exp()
