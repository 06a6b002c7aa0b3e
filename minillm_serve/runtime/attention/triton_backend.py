"""Attention by Triton kernels: blocks are read where they lie, whatever a slice's length."""

from dataclasses import dataclass, field
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
from minillm_serve.runtime.attention.cascade import (
    CascadeCosts,
    SharedPrefix,
    member_tiles,
    shared_tokens,
)
from minillm_serve.runtime.device import has_triton, upload
from minillm_serve.runtime.kv_cache import KVScales

#: Two further launches a layer. An H200 would read 50 MB meanwhile, of one layer's keys and values:
#: of Llama-3-8B 12 thousand tokens.
CASCADE = CascadeCosts(readers=1, row=16, step=12_000)


@dataclass(frozen=True, slots=True)
class TritonPlan:
    """Shared prefixes, where the kernels find them.

    Attributes:
        prefixes: see `AttentionMetadata`; one or more.
        shared_lens: [S] int32, tokens of each sequence's shared prefix; 0 where there is none.
    """

    prefixes: tuple[SharedPrefix, ...]
    shared_lens: Tensor
    _tiles: dict[int, Tensor] = field(default_factory=dict)

    def tiles(self, most: int) -> Tensor:
        """Tiles of up to `most` sequences, cut once for all layers; see `member_tiles`."""
        if most not in self._tiles:
            tiles = member_tiles(self.prefixes, most)
            (self._tiles[most],) = upload([tiles], self.shared_lens.device)
        return self._tiles[most]


class TritonAttention(AttentionBackend):
    """The fastest on a GPU. On a CPU it runs in Triton's interpreter: to check, not to use.

    Nothing in here looks into a tensor on the host, so that decode steps can be recorded.
    """

    name = "triton"
    capabilities = Capabilities(
        devices=frozenset({"cpu", "cuda"}),
        dtypes=frozenset({torch.float32, torch.float16, torch.bfloat16}),
        window=True,
        kv_dtypes=frozenset({torch.int8, torch.float8_e4m3fn}),
        can_be_recorded=True,
        cascade=CASCADE,
    )

    def __init__(self) -> None:
        # Here and not above: there is no Triton for macOS and Windows, where all else works.
        from minillm_serve.kernels.cascade_decode import cascade_decode, sequences_per_tile
        from minillm_serve.kernels.kv_write import kv_write
        from minillm_serve.kernels.paged_decode import paged_decode
        from minillm_serve.kernels.paged_prefill import paged_prefill
        from minillm_serve.kernels.rope_cache_write import rope_cache_write, rotation_table

        self._kv_write, self._decode, self._prefill = kv_write, paged_decode, paged_prefill
        self._rope_cache_write, self._rotation_table = rope_cache_write, rotation_table
        self._cascade, self._sequences_per_tile = cascade_decode, sequences_per_tile

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

    def plan(self, metadata: AttentionMetadata) -> TritonPlan | None:
        """Uploads who shares what, if anybody does: never in a step that is recorded."""
        prefixes = metadata.shared_prefixes
        if not prefixes:
            return None
        tokens = shared_tokens(prefixes, metadata.num_sequences)
        (shared_lens,) = upload([tokens], metadata.seq_lens.device)
        return TritonPlan(prefixes, shared_lens)

    def write(
        self,
        k: Tensor,
        v: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        slot_mapping: Tensor,
        scales: KVScales | None = None,
    ) -> None:
        """See `AttentionBackend.write`."""
        self._kv_write(k, v, k_cache, v_cache, slot_mapping, *(scales or ()))

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
            scales: KVScales | None,
        ) -> Tensor:
            norm: dict[str, Any] = {}
            if qk_norm is not None:
                norm = {"norm_weight": qk_norm.weight, "eps": qk_norm.eps}
            return self._rope_cache_write(
                qkv, positions, slot_mapping, table, k_cache, v_cache, **norm, **_named(scales)
            )

        return write

    def run(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        metadata: AttentionMetadata,
        plan: TritonPlan | None,
        *,
        scale: float,
        window: int | None,
        scales: KVScales | None = None,
    ) -> Tensor:
        """See `AttentionBackend.run`: one kernel for single rows, one for all longer slices."""
        given = (q, k_cache, v_cache, metadata.block_tables, metadata.seq_lens)
        starts, are_single = metadata.query_start_loc, metadata.max_query_len == 1
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        # Of single rows alone, row s is sequence s.
        decode: dict[str, Any] = {
            "scale": scale,
            "out": out,
            "max_seq_len": metadata.max_seq_len,
            "query_start_loc": None if are_single else starts,
            **_named(scales),
        }
        if plan is not None and metadata.cascades(window):
            group = q.shape[1] // k_cache.shape[1]
            members = plan.tiles(self._sequences_per_tile(q.shape[2], group, q.dtype, q.device))
            longest = max(prefix.num_tokens for prefix in plan.prefixes)
            self._cascade(*given, members, plan.shared_lens, max_shared_len=longest, **decode)
        elif are_single or metadata.num_sequences > 1:
            self._decode(*given, window=window, **decode)
        if not are_single:
            rest = {"scale": scale, "window": window, "out": out, **_named(scales)}
            self._prefill(*given, starts, min_query_len=2, **rest)
        return out


def _named(scales: KVScales | None) -> dict[str, Tensor]:
    """As the kernels' launchers take them."""
    return {} if scales is None else {"k_scale": scales.k, "v_scale": scales.v}
