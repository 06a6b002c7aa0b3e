"""`minillm-serve bench linear`: one product, by every way of reading few bytes that is here."""

import time
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarks.report import Comparison, parser
from minillm_serve.models.codes import find_codes
from minillm_serve.models.quantized import quantize
from minillm_serve.models.tiled import TiledWeight

#: Outputs and columns of the embedded model's products.
SHAPES = ((960, 576), (576, 576), (3072, 576), (576, 1536), (49152, 576))
ROWS = (1, 8, 32, 64, 256)

Product = Callable[[Tensor], Tensor]


def main(argv: Sequence[str]) -> int:
    """Measures; every way starts and ends with float32, so rounding rows is part of it."""
    options = parser("linear", __doc__)
    options.add_argument("--quick", action="store_true", help="one small shape, to try it out")
    chosen = options.parse_args(argv)
    for outputs, columns in SHAPES[1:2] if chosen.quick else SHAPES:
        weight = torch.randn(outputs, columns) * 0.05
        products = {name: make for name, make in ways(weight).items() if _runs(make, columns)}
        for rows in ROWS[:2] if chosen.quick else ROWS:
            x = torch.randn(rows, columns)
            times = {name: _times(product, x, chosen.repeat) for name, product in products.items()}
            title = f"{outputs} x {columns}, {rows} row(s)"
            result = Comparison(title, "us", times, higher_is_better=False)
            print(result.table())
            if chosen.output:
                stem = f"{chosen.output.stem}_{outputs}x{columns}_{rows}"
                result.save(chosen.output.with_stem(stem))
    return 0


def ways(weight: Tensor) -> dict[str, Product]:
    """Products with a weight, by name; ours first."""
    eight, four = (TiledWeight.of(quantize(weight, scheme)) for scheme in ("int8", "int4"))
    coded = find_codes(quantize(weight, "int4").expand())
    found: dict[str, Product] = {"ours, int8": eight.linear, "ours, int4": four.linear}
    if coded is not None:
        found["ours, 4-bit codes in float32"] = coded.linear
    relaid = weight.t().contiguous().t()
    return {
        **found,
        "float32": lambda x: F.linear(x, relaid),
        "bfloat16": _bfloat16(weight),
        "torch, int8 dynamic": _dynamic(weight),
        "torch, bf16 x int8": _int8_packed(weight),
        "torch, bf16 x int4": _int4_packed(weight),
        "torch._int_mm": _int_mm(weight),
    }


def _bfloat16(weight: Tensor) -> Product:
    narrow = weight.bfloat16()
    return lambda x: F.linear(x.bfloat16(), narrow).float()


def _dynamic(weight: Tensor) -> Product:
    """One scale for all rows: a row's result depends on its neighbours."""
    steps = weight.abs().amax(1) / 127
    zeros = torch.zeros(len(weight), dtype=torch.long)
    codes = torch.quantize_per_channel(weight, steps, zeros, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(codes, None)
    return lambda x: torch.ops.quantized.linear_dynamic(x, packed)


def _int8_packed(weight: Tensor) -> Product:
    steps = weight.abs().amax(1) / 127
    codes, narrow = (weight / steps[:, None]).round().to(torch.int8), steps.bfloat16()
    return lambda x: torch.ops.aten._weight_int8pack_mm(x.bfloat16(), codes, narrow).float()


def _int4_packed(weight: Tensor) -> Product:
    groups = weight.view(len(weight), -1, 32)
    low = groups.amin(2)
    steps = (groups.amax(2) - low) / 15
    codes = ((groups - low[..., None]) / steps[..., None]).round().clamp(0, 15).flatten(1)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.int(), 2)
    pairs = torch.stack([steps, low + 8 * steps], dim=2).transpose(0, 1).contiguous().bfloat16()
    product = torch.ops.aten._weight_int4pack_mm_for_cpu
    return lambda x: product(x.bfloat16(), packed, 32, pairs).float()


def _int_mm(weight: Tensor) -> Product:
    """One scale a row, which costs the embedded model 4 % of perplexity."""
    steps = weight.abs().amax(1) / 127
    codes = (weight / steps[:, None]).round().to(torch.int8).t().contiguous()

    def product(x: Tensor) -> Tensor:
        scale = x.abs().amax(1, keepdim=True) / 127
        return torch._int_mm((x / scale).round().to(torch.int8), codes) * scale * steps

    return product


def _runs(product: Product, columns: int) -> bool:
    """Whether this torch has it, on this processor."""
    try:
        product(torch.randn(2, columns))
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
    return True


def _times(product: Product, x: Tensor, repeat: int) -> list[float]:
    """Microseconds: the best of some calls, so many times; what is slower was disturbed."""
    with torch.inference_mode():
        product(x)
        return [1e6 * min(_call(product, x) for _ in range(9)) for _ in range(repeat)]


def _call(product: Product, x: Tensor) -> float:
    began = time.perf_counter()
    product(x)
    return time.perf_counter() - began
