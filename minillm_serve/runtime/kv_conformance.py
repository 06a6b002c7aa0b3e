"""Whether a quantizer stores keys and values: a few round trips, and what may be lost in them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from minillm_serve.runtime.kv_quantizer import LARGEST, KVQuantizer

TOKENS, KV_HEADS, DIM = 24, 2, 64
#: What rounding in float32 may add to the error that a code itself makes.
SLACK = 1.01
#: Of many errors, each of up to half a step, the mean is this share of a step at most.
MOST_BIAS = 0.05


class NanWatch(TorchDispatchMode):
    """Sees NaN that a conversion to integers would hide: what it becomes is nobody's promise.

    Attributes:
        operation: the first that made any; "" if none did.
    """

    operation = ""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for made in tree_leaves(out):
            is_number = isinstance(made, Tensor) and made.is_floating_point()
            if is_number and not self.operation and made.float().isnan().any():
                self.operation = str(func.overloadpacket).rsplit(".", 1)[-1]
        return out


class Rows(NamedTuple):
    """Keys or values, and what is special about them, as the middle of a sentence.

    Attributes:
        kind: as in "loses too much of ...".
        x: [T, H_kv, D] float32.
    """

    kind: str
    x: Tensor


def make_rows(seed: int = 0) -> Iterator[Rows]:
    """Rows as models make them, and rows that divide, overflow or round wrongly."""
    draw = torch.Generator().manual_seed(seed)
    shape = (TOKENS, KV_HEADS, DIM)
    x = torch.randn(shape, generator=draw)
    yield Rows("normal numbers", x)
    yield Rows("zeros", torch.zeros(shape))
    yield Rows("rows of zeros among others", x * (torch.arange(TOKENS) % 3 > 0)[:, None, None])
    yield Rows("numbers that are all 100", torch.full(shape, 100.0))
    yield Rows("numbers that are all -100", torch.full(shape, -100.0))
    yield Rows("numbers that are 1e-7 apart", 1 + 1e-7 * torch.arange(DIM).expand(shape))
    yield Rows("tiny numbers", x * 1e-20)
    yield Rows("tokens of different sizes", x * torch.logspace(-4, 4, TOKENS)[:, None, None])
    yield Rows("heads of different sizes", x * torch.tensor([1.0, 1e3])[:, None])
    yield Rows("a channel that is large in all tokens", x * (1 + 50 * (torch.arange(DIM) == 7)))


def allowed_error(x: Tensor, dtype: torch.dtype) -> Tensor:
    """How far off each number [..., D] may be read back: half a step of its row's own scale."""
    step = x.abs().amax(-1, keepdim=True) / LARGEST[dtype]
    if dtype == torch.int8:
        return SLACK * step / 2
    # e4m3's steps grow with the number: 1/8 of its power of two, from 2^-9 on.
    return SLACK * torch.maximum(x.abs() / 16, step * 2**-10)


def find_quantizer_fault(quantizer: KVQuantizer) -> str | None:
    """Puts rows through a quantizer.

    Returns:
        What it does wrong, as the end of a sentence that begins with it; None if nothing.
    """
    if fault := _find_bias(quantizer):
        return fault
    for kind, x in make_rows():
        with NanWatch() as watch:
            codes, scales = quantizer.quantize(x)
        if watch.operation:
            return f"makes NaN of {kind}, by {watch.operation}"
        if not scales.isfinite().all():
            return f"makes the scale {_first(scales, ~scales.isfinite()):g} of {kind}"
        if codes.float().abs().max() > LARGEST[quantizer.dtype]:
            return f"makes a code beyond {LARGEST[quantizer.dtype]:g} of {kind}"
        got = codes.float() * scales[..., None]
        allowed = allowed_error(x, quantizer.dtype)
        off = ~((got - x).abs() <= allowed)
        if off.any():
            return (
                f"loses too much of {kind}: {_first(x, off):.6g} comes back as code * scale = "
                f"{_first(got, off):.6g}, and may be off by {_first(allowed, off):.2g}"
            )
        if not torch.allclose(quantizer.dequantize(codes, scales), got, rtol=1e-6, atol=0):
            return "dequantizes to something else than code * scale"
    return _find_company(quantizer)


def _find_bias(quantizer: KVQuantizer) -> str | None:
    """Errors must not lean to one side: a sum over many tokens would grow with them."""
    x = torch.randn(64, 8, 64, generator=torch.Generator().manual_seed(1))
    codes, scales = quantizer.quantize(x)
    error = (codes.float() * scales[..., None] - x) / allowed_error(x, quantizer.dtype) / 2
    for side, away in (("up", error), ("away from zero", error * x.sign())):
        bias = away.mean().item()
        if abs(bias) > MOST_BIAS:
            where = side if bias > 0 else {"up": "down"}.get(side, "towards zero")
            return f"rounds {where}: numbers are off by {abs(bias):.2f} of a step on average"
    return None


def _find_company(quantizer: KVQuantizer) -> str | None:
    """A token is stored the same whatever is stored beside it, be it NaN."""
    x = torch.randn(4, 2, 64, generator=torch.Generator().manual_seed(2))
    alone = quantizer.quantize(x[:1])
    for kind, beside in (("large numbers", x[1:] * 1e4), ("NaN", x[1:] * torch.nan)):
        together = quantizer.quantize(torch.cat([x[:1], beside]))
        for one, other in zip(alone, together, strict=True):
            if not torch.equal(one.float(), other[:1].float()):
                return f"stores a token otherwise where {kind} are stored beside it"
    return None


def _first(x: Tensor, where: Tensor) -> float:
    return x.expand(where.shape)[where][0].item()
