"""What `python -m minillm_serve.aot` compiles of the attention kernels: the usual shapes."""

from dataclasses import replace
from typing import Any

import torch
from minillm_serve.kernels.attention_configs import (
    DecodeConfig,
    PrefillConfig,
    configure_cascade,
    configure_decode,
    configure_prefill,
)
from minillm_serve.kernels.attention_launch import padded, tile_constants
from minillm_serve.kernels.cascade_decode import cascade_decode_kernel
from minillm_serve.kernels.combine_splits import CHUNK, combine_kernel
from minillm_serve.kernels.compile_case import SHORT_NAMES, TARGETS, CompileCase
from minillm_serve.kernels.paged_decode import paged_decode_kernel
from minillm_serve.kernels.paged_prefill import paged_prefill_kernel

#: What kernels see of caches of codes: e4m3 as bare bytes.
CODES = {"int8": "i8", "fp8": "u8"}
#: A loop loads scales of a tile, a number a key: so many loads a thread at most.
SCALE_LOADS = 8
#: Query heads to a KV head, and the usual block.
GROUP, BLOCK = 4, 16
_BF16, _FP16, _FP32 = torch.bfloat16, torch.float16, torch.float32
#: (dtype, D, with a window and a soft cap?)
_SHAPES = (
    (_BF16, 128, False),
    (_FP16, 128, False),
    (_FP32, 64, False),
    (_BF16, 64, False),
    (_BF16, 80, False),
    (_BF16, 96, False),
    (_BF16, 256, False),
    (_BF16, 128, True),
    (_FP32, 256, True),
)
#: Those that shared prefixes are compiled for; no window is special about them.
_CASCADE_SHAPES = (*_SHAPES[:3], *_SHAPES[5:])


def compile_cases() -> list[CompileCase]:
    """What the launchers would choose."""
    cases = []
    for target in TARGETS:
        for shape in _SHAPES:
            cases.append(_decode_case(target, *shape, BLOCK))
            cases.append(_prefill_case(target, *shape))
            if shape in _CASCADE_SHAPES:
                cases.append(_cascade_case(target, *shape))
        cases.append(_decode_case(target, _BF16, 128, False, 128))
        cases.append(_after_prefix(_decode_case(target, _BF16, 128, False, BLOCK)))
        cases.append(_combine_case(target, 128))
        cases += [_coded(case, kind) for kind in CODES for case in _coded_cases(target)]
    return cases


def _coded_cases(target: str) -> list[CompileCase]:
    """Of those kernels that are compiled for codes, too; each stands for the others of its kind."""
    shape, wide = (_BF16, 128, False), (_BF16, 256, False)
    return [
        _decode_case(target, *shape, BLOCK, coded=True),
        _prefill_case(target, *shape, coded=True),
        _cascade_case(target, *shape, coded=True),
        _decode_case(target, _FP16, 64, False, BLOCK, coded=True),
        _prefill_case(target, *wide, coded=True),
    ]


def _coded(case: CompileCase, kind: str) -> CompileCase:
    """The same over a cache of codes."""
    given = {name: x for name, x in case.constexprs.items() if name not in ("ks_ptr", "vs_ptr")}
    pointers = {**case.pointers, **dict.fromkeys(("k_ptr", "v_ptr"), CODES[kind])}
    pointers |= dict.fromkeys(("ks_ptr", "vs_ptr"), "fp32")
    return replace(
        case,
        name=f"{case.name} {kind}",
        pointers=pointers,
        constexprs=given,
        index_loads=case.index_loads + SCALE_LOADS,
        # The compiler gives values a layout for the matrix units in which fewer lie together.
        load_bytes=4 if case.target.startswith("gfx") else 8,
    )


def _decode_case(
    target: str, dtype: torch.dtype, dim: int, is_special: bool, size: int, coded: bool = False
) -> CompileCase:
    """The usual launch is split; the special one is not, and writes its result itself."""
    config = configure_decode(dim, dtype, target, coded)
    case = _case("paged_decode", paged_decode_kernel, target, dtype, dim, is_special, size, config)
    return replace(
        case,
        pointers={
            **case.pointers,
            "o_ptr": SHORT_NAMES[dtype] if is_special else "fp32",
            "lse_ptr": "fp32",
        },
        scalars={**case.scalars, "num_splits": "i32", "stride_lse_split": "i32"},
        constexprs={
            **case.constexprs,
            **dict.fromkeys(("starts_ptr", "skip_ptr")),
            "IS_SPLIT": not is_special,
        },
        index_loads=2 * max(config.tile // size, 1),  # for keys, and perhaps again for values
    )


def _after_prefix(case: CompileCase) -> CompileCase:
    """Decode that begins where a shared prefix ends."""
    given = {name: value for name, value in case.constexprs.items() if name != "skip_ptr"}
    pointers = {**case.pointers, "skip_ptr": "i32"}
    name = f"{case.name} after a prefix"
    return replace(case, name=name, pointers=pointers, constexprs=given)


def _cascade_case(
    target: str, dtype: torch.dtype, dim: int, is_special: bool, coded: bool = False
) -> CompileCase:
    config = configure_cascade(dim, dtype, target, coded)
    case = _case(
        "cascade_decode", cascade_decode_kernel, target, dtype, dim, is_special, BLOCK, config
    )
    constexprs = {key: value for key, value in case.constexprs.items() if key != "HAS_WINDOW"}
    return replace(
        case,
        name=case.name.replace("window ", ""),
        pointers={
            **case.pointers,
            **dict.fromkeys(("members_ptr", "lens_ptr"), "i32"),
            **dict.fromkeys(("o_ptr", "lse_ptr"), "fp32"),
        },
        scalars={
            **dict.fromkeys(("scale", "softcap"), "fp32"),
            **dict.fromkeys(("num_splits", "stride_table", "stride_lse_split"), "i32"),
        },
        constexprs={**constexprs, "starts_ptr": None},
        index_loads=2 * max(config.tile // BLOCK, 1),
    )


def _prefill_case(
    target: str, dtype: torch.dtype, dim: int, is_special: bool, coded: bool = False
) -> CompileCase:
    config = configure_prefill(dim, dtype, target, coded)
    case = _case(
        "paged_prefill", paged_prefill_kernel, target, dtype, dim, is_special, BLOCK, config
    )
    return replace(
        case,
        pointers={**case.pointers, "o_ptr": SHORT_NAMES[dtype], "starts_ptr": "i32"},
        scalars={**case.scalars, "num_sequences": "i32", "min_query_len": "i32"},
        index_loads=4 * max(config.tile // BLOCK, 1) + 1,  # in two loops, and the search
    )


def _case(
    name: str,
    kernel: Any,
    target: str,
    dtype: torch.dtype,
    dim: int,
    is_special: bool,
    size: int,
    config: DecodeConfig | PrefillConfig,
) -> CompileCase:
    """What both kernels have in common; `is_special` is with a window and a soft cap."""
    short = SHORT_NAMES[dtype]
    return CompileCase(
        name=f"{name} {short} D={dim} P={size}{' window softcap' * is_special}",
        kernel=kernel,
        target=target,
        pointers={
            **dict.fromkeys(("q_ptr", "k_ptr", "v_ptr"), short),
            **dict.fromkeys(("table_ptr", "lens_ptr"), "i32"),
        },
        scalars={
            **dict.fromkeys(("scale", "softcap"), "fp32"),
            **dict.fromkeys(("window", "stride_table"), "i32"),
        },
        constexprs={
            **tile_constants(dim, size, GROUP, dtype, target),
            **config.constants(GROUP),
            **dict.fromkeys(("ks_ptr", "vs_ptr")),
            "HAS_WINDOW": is_special,
            "HAS_SOFTCAP": is_special,
        },
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        uses_dot=True,
    )


def _combine_case(target: str, dim: int) -> CompileCase:
    return CompileCase(
        name=f"combine_splits bf16 D={dim}",
        kernel=combine_kernel,
        target=target,
        pointers={"part_o_ptr": "fp32", "part_lse_ptr": "fp32", "o_ptr": "bf16", "lse_ptr": "fp32"},
        scalars=dict.fromkeys(("num_splits", "stride_part_lse_split"), "i32"),
        constexprs={"starts_ptr": None, "D": dim, "D_PADDED": padded(dim), "CHUNK": CHUNK},
        num_stages=3,
        index_loads=8,
    )
