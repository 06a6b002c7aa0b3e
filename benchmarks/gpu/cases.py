"""All kernels that the check knows. One more takes a function in a `*_work.py` and an entry."""

from functools import partial

import torch

from benchmarks.gpu import accept_work as speculation
from benchmarks.gpu import attention_work as attention
from benchmarks.gpu import pointwise_work as pointwise
from benchmarks.gpu import quantized_work as quantized
from benchmarks.gpu import sampling_work as sampling
from benchmarks.gpu.case import Case, Goal

#: Heads of SmolLM2-135M, 3 of which share one, and heads whose size is no power of two.
SMALL_HEADS = {"heads": 9, "kv_heads": 3, "dim": 64}
ODD_HEADS = {"heads": 7, "kv_heads": 1, "dim": 80, "block_size": 4}
RAGGED = (1, 15, 16, 17, 130)
LONG = (1, 700, 33, 2048)

CASES: tuple[Case, ...] = (
    Case(
        "paged_decode",
        "64 users of 8k tokens",
        attention.decode,
        timed={"lengths": (8192,) * 64},
        checked=(
            {"lengths": RAGGED, **SMALL_HEADS},
            {"lengths": RAGGED, **ODD_HEADS, "window": 9},
            {"lengths": LONG},
        ),
        goal=Goal(share=0.70),
    ),
    Case(
        "paged_decode, split",
        "1 user of 32k tokens",
        attention.decode,
        timed={"lengths": (32768,)},
        checked=({"lengths": (600,), "heads": 4, "kv_heads": 2, "dim": 16}, {"lengths": (9000,)}),
        goal=Goal(share=0.45),
    ),
    *(
        Case(
            f"paged_decode, KV {kind}",
            "64 users of 8k tokens",
            partial(attention.decode_codes, kind=kind),
            timed={"lengths": (8192,) * 64},
            checked=(
                {"lengths": RAGGED, **SMALL_HEADS},
                {"lengths": RAGGED, **ODD_HEADS},
                {"lengths": LONG},
            ),
            goal=Goal(times=1 / 0.7, peer="paged_decode"),
        )
        for kind in ("int8", "fp8")
    ),
    Case(
        "cascade_decode",
        "32 users, 8k shared tokens",
        attention.cascade,
        timed={"shared_blocks": 512, "own": (128,) * 32},
        checked=(
            {"shared_blocks": 2, "own": (1, 16, 37), **SMALL_HEADS},
            {"shared_blocks": 5, "own": (3,) * 9, **ODD_HEADS},
            {"shared_blocks": 64, "own": (1, 700, 33, 128) * 8},
        ),
        goal=Goal(times=3, peer="paged_decode"),
    ),
    Case(
        "paged_prefill",
        "a prompt of 8k tokens",
        attention.prefill,
        timed={"lengths": (8192,), "rows": (8192,)},
        checked=(
            {"lengths": (40,), "rows": (40,), **SMALL_HEADS},
            {"lengths": (20, 9, 41, 5), "rows": (2, 3, 40, 5), **ODD_HEADS, "window": 9},
            {"lengths": (700, 257, 64), "rows": (700, 31, 64)},
        ),
        goal=Goal(share=0.45),
    ),
    Case(
        "rope_cache_write",
        "8k tokens",
        pointwise.rotate_and_write,
        timed={"tokens": 8192},
        checked=(
            {"tokens": 5, **SMALL_HEADS},
            {"tokens": 37, "heads": 7, "kv_heads": 1, "dim": 80, "norm": True},
            {"tokens": 300, "norm": True},
        ),
        goal=Goal(times=1.5, peer="torch"),
    ),
    Case(
        "kv_write",
        "8k tokens",
        pointwise.write,
        timed={"tokens": 8192},
        checked=({"tokens": 5, "kv_heads": 3, "dim": 64}, {"tokens": 300}),
        goal=Goal(share=0.80),
    ),
    Case(
        "rms_norm of heads",
        "8k tokens",
        pointwise.rms_norm,
        timed={"tokens": 8192, "heads": 24, "dim": 128},
        checked=({"tokens": 3, "heads": 5, "dim": 80}, {"tokens": 100, "heads": 24, "dim": 128}),
        goal=Goal(share=0.80),
    ),
    Case(
        "add_rms_norm",
        "8k tokens",
        pointwise.add_rms_norm,
        timed={"tokens": 8192, "width": 4096},
        checked=({"tokens": 3, "width": 576}, {"tokens": 100, "width": 4096}),
        goal=Goal(share=0.80),
    ),
    Case(
        "silu_mul",
        "8k tokens",
        pointwise.activation,
        timed={"tokens": 8192, "width": 14336},
        checked=({"tokens": 3, "width": 80}, {"tokens": 100, "width": 14336}),
        goal=Goal(share=0.85),
    ),
    Case(
        "w8a16",
        "4 rows, 14336 x 4096",
        quantized.product,
        timed={"scheme": "int8", "rows": 4, "outputs": 14336, "columns": 4096},
        checked=(
            {"scheme": "int8", "rows": 3, "outputs": 70, "columns": 160},
            {"scheme": "int8", "rows": 100, "outputs": 1536, "columns": 576},
            {"scheme": "int8", "rows": 1, "outputs": 4096, "columns": 14336},
        ),
        goal=Goal(times=1.2, peer="torch, 16 bits"),
    ),
    Case(
        "w4a16",
        "4 rows, 14336 x 4096",
        quantized.product,
        timed={"scheme": "int4", "rows": 4, "outputs": 14336, "columns": 4096},
        checked=(
            {"scheme": "int4", "rows": 3, "outputs": 70, "columns": 160},
            {"scheme": "int4", "rows": 100, "outputs": 1536, "columns": 576},
            {"scheme": "int4", "rows": 1, "outputs": 4096, "columns": 14336},
        ),
        goal=Goal(times=2, peer="torch, 16 bits"),
    ),
    Case(
        "argmax",
        "64 rows",
        sampling.highest,
        timed={"rows": 64, "vocabulary": 128256},
        checked=({"rows": 2, "vocabulary": 300}, {"rows": 16, "vocabulary": 151936}),
        goal=Goal(times=3, peer="torch.sort"),
    ),
    Case(
        "sample",
        "64 rows",
        sampling.draws,
        timed={"rows": 64, "vocabulary": 128256},
        checked=({"rows": 4, "vocabulary": 300}, {"rows": 64, "vocabulary": 49152}),
        goal=Goal(times=3, peer="torch.sort"),
    ),
    Case(
        "accept",
        "64 users, 5 drafts each",
        speculation.accepts,
        timed={"rows": 64, "drafts": 5, "vocab": 128256},
        checked=(
            {"rows": 3, "drafts": 1, "vocab": 300},
            {"rows": 7, "drafts": 4, "vocab": 49152},
        ),
        goal=Goal(times=2, peer="torch"),
        dtypes=(torch.float32,),
    ),
    Case(
        "copy_blocks",
        "256 blocks of 32 layers",
        pointwise.move_blocks,
        timed={"blocks": 256, "layers": 32},
        checked=(
            {"blocks": 3, "layers": 2, "kv_heads": 2, "dim": 16, "block_size": 4},
            {"blocks": 40, "layers": 3},
        ),
        goal=Goal(share=0.80),
    ),
)
