"""The stages on a real GPU, beside their floor; without one, the reason why there are no times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from minillm_serve.course.chapter03.shown import Shown, table
from minillm_serve.course.chapter03.stages import STAGES
from minillm_serve.kernels.launch import is_interpreted
from minillm_serve.kernels.paged_decode import paged_decode

#: One layer of Llama-3-8B.
HEADS, KV_HEADS, DIM, BLOCK = 32, 8, 128, 16
NO_GPU = (
    "**No GPU here**, so there are no times. The interpreter performs one operation of one program "
    "after the other, in numpy: how long that takes depends on the number of operations and says "
    "nothing about a GPU. What can be said without one is above: bytes, instructions, registers."
)


def times(batch: int = 16, context: int = 8192) -> Shown:
    """Times every stage and the shipped kernel on one layer, or says why not.

    Args:
        batch: sequences.
        context: tokens of each, a multiple of the block size.
    """
    if is_interpreted(STAGES[0].kernel):
        return Shown(NO_GPU)
    from triton.testing import do_bench

    blocks = batch * context // BLOCK
    shape = (blocks, KV_HEADS, BLOCK, DIM)
    kind: dict[str, Any] = {"dtype": torch.bfloat16, "device": "cuda"}
    k_cache, v_cache = torch.randn(shape, **kind), torch.randn(shape, **kind)
    tables = torch.randperm(blocks, device="cuda").int().view(batch, -1)
    lens = torch.full((batch,), context, dtype=torch.int32, device="cuda")
    inputs = (torch.randn(batch, HEADS, DIM, **kind), k_cache, v_cache, tables, lens)
    scale = DIM**-0.5

    def stage_call(number: int) -> Callable[[], Any]:
        return lambda: STAGES[number - 1].attend(*inputs, scale=scale, num_splits=4)

    calls = {stage.title: stage_call(stage.number) for stage in STAGES}
    calls["as shipped"] = lambda: paged_decode(*inputs, scale=scale, max_seq_len=context)
    # A copy reads one of the caches and writes the other: as many bytes as reading both.
    spare = torch.empty_like(k_cache)
    floor = do_bench(lambda: spare.copy_(k_cache))
    found = {name: do_bench(call) for name, call in calls.items()}
    rows = [[name, f"{1e3 * ms:,.0f}", f"{ms / floor:.1f}"] for name, ms in found.items()]
    return table(["one layer", "µs", "× the time of copying as many bytes"], rows)
