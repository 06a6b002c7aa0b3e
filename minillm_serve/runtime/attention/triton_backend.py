"""Attention by Triton kernels: blocks are read where they lie, whatever a slice's length."""

from typing import Any

import torch
from torch import Tensor

from minillm_serve.models.layers import RMSNorm
from minillm_serve.runtime.attention.base import (
    AttentionBackend,
    AttentionMetadata,
    Capabilities,
    RotatingWriter,
)
from minillm_serve.runtime.device import has_triton


class TritonAttention(AttentionBackend):
    """The fastest on a GPU. On a CPU it runs in Triton's interpreter: to check, not to use.

    Nothing in here looks into a tensor on the host, so that decode steps can be recorded.
    """

    name = "triton"
    capabilities = Capabilities(
        devices=frozenset({"cpu", "cuda"}),
        dtypes=frozenset({torch.float32, torch.float16, torch.bfloat16}),
        window=True,
        can_be_recorded=True,
    )

    def __init__(self) -> None:
        # Here and not above: there is no Triton for macOS and Windows, where all else works.
        from minillm_serve.kernels.kv_write import kv_write
        from minillm_serve.kernels.paged_decode import paged_decode
        from minillm_serve.kernels.paged_prefill import paged_prefill
        from minillm_serve.kernels.rope_cache_write import rope_cache_write, rotation_table

        self._kv_write, self._decode, self._prefill = kv_write, paged_decode, paged_prefill
        self._rope_cache_write, self._rotation_table = rope_cache_write, rotation_table

    @classmethod
    def find_obstacle(cls, device: torch.device) -> str | None:
        """See `AttentionBackend.find_obstacle`."""
        if not has_triton():
            return "needs Triton, which is not installed (there is none for macOS and Windows)"
        from minillm_serve.kernels.canary import canary_kernel, explain_unrunnable

        if device.type == "cuda" and torch.version.hip is None:
            major, minor = torch.cuda.get_device_capability(device)
            if major < 8:
                return f"is made for capability 8.0 and above, this GPU has {major}.{minor}"
        return explain_unrunnable(canary_kernel, device.type)

    def write(
        self, k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor
    ) -> None:
        """See `AttentionBackend.write`."""
        self._kv_write(k, v, k_cache, v_cache, slot_mapping)

    def rotating_writer(self, frequencies: Tensor, length: int) -> RotatingWriter:
        """See `AttentionBackend.rotating_writer`."""
        table = self._rotation_table(frequencies, length)

        def write(
            qkv: Tensor,
            positions: Tensor,
            k_cache: Tensor,
            v_cache: Tensor,
            slot_mapping: Tensor,
            qk_norm: RMSNorm | None,
        ) -> Tensor:
            norm: dict[str, Any] = {}
            if qk_norm is not None:
                norm = {"norm_weight": qk_norm.weight, "eps": qk_norm.eps}
            return self._rope_cache_write(
                qkv, positions, slot_mapping, table, k_cache, v_cache, **norm
            )

        return write

    def run(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        metadata: AttentionMetadata,
        plan: Any,
        *,
        scale: float,
        window: int | None,
    ) -> Tensor:
        """See `AttentionBackend.run`: one kernel for single rows, one for all longer slices."""
        tables, lengths = metadata.block_tables, metadata.seq_lens
        starts, longest = metadata.query_start_loc, metadata.max_seq_len
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        options: dict[str, Any] = {"scale": scale, "window": window, "out": out}
        if metadata.max_query_len == 1:
            self._decode(q, k_cache, v_cache, tables, lengths, max_seq_len=longest, **options)
            return out
        if metadata.num_sequences > 1:
            self._decode(
                q,
                k_cache,
                v_cache,
                tables,
                lengths,
                query_start_loc=starts,
                max_seq_len=longest,
                **options,
            )
        self._prefill(q, k_cache, v_cache, tables, lengths, starts, min_query_len=2, **options)
        return out
