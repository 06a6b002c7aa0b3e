"""Keys and values rounded on their way into the cache: any number of bits, any layer, any head.

The engine keeps 8 bits. To know what fewer would cost, or which layer minds most, numbers are
rounded and stored as floats: attention reads what it would read if codes and scales lay there.
(`tests/quality` holds this against the engine's own int8 and fp8 cache.)
"""

from collections.abc import Callable, Collection

import torch
from torch import Tensor

from minillm_serve.quality.reading import Store
from minillm_serve.runtime.kv_quantizer import KVQuantizer

#: [T, H_kv, D] -> the same, rounded.
Rounding = Callable[[Tensor], Tensor]


def by_row(bits: int) -> Rounding:
    """Whole numbers from -(2^(bits-1) - 1) on, with a scale for each token and head.

    With 8 bits that is what `kv_cache_dtype="int8"` does.

    Raises:
        ValueError: fewer than 2 bits have no code beside 0.
    """
    largest = _largest(bits)
    return lambda x: _to_steps(x, x.abs().amax(-1, keepdim=True) / largest)


def by_tensor(bits: int) -> Rounding:
    """One scale for all that a step writes: what a scale for each token is better than."""
    largest = _largest(bits)
    return lambda x: _to_steps(x, x.abs().amax() / largest)


def by_floor(bits: int) -> Rounding:
    """As `by_row`, but down instead of to the nearest."""
    largest = _largest(bits)

    def rounding(x: Tensor) -> Tensor:
        steps = x.abs().amax(-1, keepdim=True) / largest
        return (x / torch.where(steps > 0, steps, 1)).floor() * steps

    return rounding


def by_quantizer(quantizer: KVQuantizer) -> Rounding:
    """There and back by an engine's quantizer."""
    return lambda x: quantizer.dequantize(*quantizer.quantize(x)).to(x.dtype)


def storing(
    rounding: Rounding,
    *,
    layers: Collection[int] | None = None,
    head: int | None = None,
    keys: bool = True,
    values: bool = True,
) -> Store:
    """What `Reader.store` takes: rounds some of the keys and values, and leaves the others.

    Args:
        rounding: of what is rounded.
        layers: of these layers; None: of all.
        head: of this KV head; None: of all.
        keys: whether keys are rounded.
        values: whether values are.
    """

    def store(layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if layers is not None and layer not in layers:
            return k, v
        return _some(k, keys), _some(v, values)

    def _some(x: Tensor, wanted: bool) -> Tensor:
        if not wanted:
            return x
        if head is None:
            return rounding(x)
        changed = x.clone()
        changed[:, head : head + 1] = rounding(x[:, head : head + 1])
        return changed

    return store


def _largest(bits: int) -> int:
    if bits < 2:
        raise ValueError(f"bits={bits}: a sign and a number take 2 at least")
    return int(2 ** (bits - 1)) - 1


def _to_steps(x: Tensor, steps: Tensor) -> Tensor:
    return (x / torch.where(steps > 0, steps, 1)).round() * steps
