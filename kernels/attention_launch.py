"""What the launchers of the attention kernels share: checks, and compile-time arguments."""

from typing import Any, NamedTuple

import torch
import triton.language as tl
from minillm_serve.kernels.kv_codes import LARGEST, as_codes
from minillm_serve.kernels.launch import (
    TRITON_TYPES,
    check_device,
    check_dtype,
    check_rows_dense,
    check_scales,
    check_shape,
    check_tensors,
    next_power_of_2,
)
from torch import Tensor

#: The smallest side of a tile that a matrix instruction takes.
MIN_SIDE = 16


def check_attention(
    kernel: object,
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start_loc: Tensor | None,
    out: Tensor | None,
) -> Tensor:
    """Checks everything that an attention kernel takes on trust.

    Returns:
        `out`, made if it was None.

    Raises:
        ValueError: a tensor cannot be read as it is; the message says which and what to do.
        RuntimeError: the kernel cannot run on this device.
    """
    out = torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out
    check_shape("q", q, None, None, None)
    rows, heads, dim = q.shape
    check_shape("k_cache", k_cache, None, None, None, dim)
    kv_heads, sequences = k_cache.shape[1], len(seq_lens)
    if heads % kv_heads:
        raise ValueError(
            f"{heads} query heads cannot share {kv_heads} KV heads: H must be a multiple of H_kv"
        )
    check_shape("v_cache", v_cache, *k_cache.shape)
    check_shape("block_tables", block_tables, sequences, None)
    check_shape("out", out, rows, heads, dim)
    indices = {"block_tables": block_tables, "seq_lens": seq_lens}
    if query_start_loc is not None:
        check_shape("query_start_loc", query_start_loc, sequences + 1)
        indices["query_start_loc"] = query_start_loc
    for name, tensor in indices.items():
        check_dtype(name, tensor, torch.int32)
        check_rows_dense(name, tensor)
    check_dtype("q", q, *TRITON_TYPES)
    check_dtype("out", out, q.dtype)
    for name, tensor in {"k_cache": k_cache, "v_cache": v_cache, "out": out}.items():
        check_rows_dense(name, tensor)
    check_rows_dense("q", q)
    check_tensors(kernel, q, k_cache=k_cache, v_cache=v_cache, out=out, **indices)
    return out


class Cache(NamedTuple):
    """Keys and values as the kernels take them, checked; scales only of codes."""

    k: Tensor
    v: Tensor
    k_scale: Tensor | None
    v_scale: Tensor | None

    @classmethod
    def check(
        cls,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        k_scale: Tensor | None,
        v_scale: Tensor | None,
    ) -> "Cache":
        """Checks that the caches are like q, or hold codes with scales.

        Raises:
            ValueError: saying what does not fit.
        """
        check_scales(k_cache, v_cache, k_scale, v_scale)
        for name, cache in {"k_cache": k_cache, "v_cache": v_cache}.items():
            check_dtype(name, cache, *([q.dtype] if k_scale is None else LARGEST))
        return cls(as_codes(k_cache), as_codes(v_cache), k_scale, v_scale)

    @property
    def is_coded(self) -> bool:
        """Whether the caches hold codes."""
        return self.k_scale is not None

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """In the kernels' order."""
        return (self.k, self.v, self.k_scale, self.v_scale)

    @property
    def strides(self) -> tuple[int, ...]:
        """Of blocks, heads and slots, keys' and values'; then of the scales' blocks and heads."""
        scales = (self.k_scale, self.v_scale)
        steps = [s for scale in scales for s in ((0, 0) if scale is None else scale.stride()[:2])]
        return (*self.k.stride()[:3], *self.v.stride()[:3], *steps)


def check_single_rows(q: Tensor, seq_lens: Tensor, query_start_loc: Tensor | None) -> None:
    """Raises ValueError unless each row has a sequence, or it is told whose they are."""
    if query_start_loc is None and len(q) != len(seq_lens):
        raise ValueError(
            f"{len(q)} rows for {len(seq_lens)} sequences: pass query_start_loc, which tells whose"
        )


def check_per_sequence(name: str, numbers: Tensor, seq_lens: Tensor) -> None:
    """Raises ValueError unless there is one int32 a sequence, where seq_lens [S] is."""
    check_shape(name, numbers, len(seq_lens))
    check_dtype(name, numbers, torch.int32)
    check_rows_dense(name, numbers)
    check_device(name, numbers, seq_lens)


def padded(head_dim: int) -> int:
    """D, rounded up to the size of a tile's side: a power of two, 16 or more."""
    return max(next_power_of_2(head_dim), MIN_SIDE)


def dot_precision(dtype: torch.dtype, target: str) -> str:
    """How a dot of fp32 operands is worked out; for narrower ones it says nothing.

    NVIDIA's tensor cores keep 11 bits of an fp32 factor. Three products of such parts ("tf32x3")
    give fp32's accuracy, still on tensor cores; AMD's matrix units take fp32 itself.
    """
    return "tf32x3" if dtype == torch.float32 and target.startswith("sm_") else "ieee"


def tile_constants(
    head_dim: int, block_size: int, group: int, dtype: torch.dtype, target: str
) -> dict[str, Any]:
    """The compile-time arguments that all attention kernels take.

    Args:
        head_dim: D.
        block_size: P.
        group: query heads that share a KV head, H / H_kv.
        dtype: of q and the cache.
        target: as `launch.target_of` says it.
    """
    return {
        "D": head_dim,
        "D_PADDED": padded(head_dim),
        "P": block_size,
        "GROUP": group,
        "COMPUTE": tl.float32 if target == "cpu" else TRITON_TYPES[dtype],
        "PRECISION": dot_precision(dtype, target),
    }
