"""The attention protocol: what a backend is given, and what it must return."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from minillm_serve.models.layers import RMSNorm
from minillm_serve.models.transformer import CacheArrays, FusedAttend, OpenAttend
from minillm_serve.runtime.attention.cascade import CascadeCosts, SharedPrefix
from minillm_serve.runtime.kv_cache import KVCache, KVScales
from minillm_serve.runtime.kv_quantizer import QUANTIZERS, KVQuantizer, as_bits


@dataclass(frozen=True, slots=True)
class AttentionMetadata:
    """Which rows of a step belong to which sequence, and where their context lies.

    A step's S sequences are laid end to end, without padding, in T rows. Sequence s has rows
    query_start_loc[s] .. query_start_loc[s+1]-1, which are the LAST of its seq_lens[s] tokens.

    Attributes:
        query_start_loc: [S+1] int32.
        seq_lens: [S] int32; tokens of each sequence that are in the cache, this step's included.
        block_tables: [S, W] int32; rows are padded with 0, a valid block, which is never used.
        slot_mapping: [T] int64; the slot that each row's key and value go to.
        max_query_len: the most rows of any sequence.
        max_seq_len: the longest of seq_lens.
        shared_prefixes: groups of sequences whose first blocks may be read once for all. A hint:
            the result is the same without it.
    """

    query_start_loc: Tensor
    seq_lens: Tensor
    block_tables: Tensor
    slot_mapping: Tensor
    max_query_len: int
    max_seq_len: int
    shared_prefixes: tuple[SharedPrefix, ...] = ()

    @property
    def num_sequences(self) -> int:
        """S."""
        return len(self.seq_lens)

    def cascades(self, window: int | None) -> bool:
        """Whether a layer with this window may use the hint: if the window hides nothing yet.

        Behind a window each row sees another stretch, of which little is shared.
        """
        return bool(self.shared_prefixes) and (window is None or window >= self.max_seq_len)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do; anything else is refused by name before the engine starts.

    Attributes:
        devices: types of devices.
        dtypes: of queries and cache.
        kv_dtypes: that the cache may have instead: codes with scales, see `kv_quantizer`.
        window: whether it knows sliding windows.
        can_be_recorded: whether `plan`, `write` and `run` may become part of a CUDA graph: they
            never look at what is in a tensor, only at its shape and at the metadata's numbers.
        cascade: what reading shared prefixes once costs it; None: it does not know how to, and
            nobody looks for them.
    """

    devices: frozenset[str]
    dtypes: frozenset[torch.dtype]
    window: bool
    kv_dtypes: frozenset[torch.dtype] = frozenset()
    can_be_recorded: bool = False
    cascade: CascadeCosts | None = None


class RotatingWriter(Protocol):
    """Norms and rotates queries and keys, and stores keys and values as `write` does."""

    def __call__(
        self,
        qkv: Tensor,
        positions: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        slot_mapping: Tensor,
        qk_norm: RMSNorm | None,
        scales: KVScales | None,
    ) -> Tensor:
        """Writes one layer.

        Args:
            qkv: [T, H + 2 H_kv, D], as it is projected.
            positions: [T] int64.
            k_cache: [num_blocks, H_kv, P, D], written.
            v_cache: same.
            slot_mapping: [T] int64, where each row goes.
            qk_norm: of query and key heads, if the model takes it.
            scales: of the caches, written; None if they hold no codes.

        Returns:
            The queries [T, H, D].
        """
        ...


class AttentionBackend(ABC):
    """Causal attention of a step's rows over the blocks of their sequences.

    Row r of sequence s stands at position p = seq_lens[s] - (rows of s) + r and sees positions
    max(0, p - window + 1) .. p. Query heads h with the same h // (H / H_kv) share a KV head.
    """

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]

    @classmethod
    def find_obstacle(cls, device: torch.device) -> str | None:
        """Why the backend cannot run on this machine, with the remedy; None if it can."""
        return None

    def plan(self, metadata: AttentionMetadata) -> Any:
        """Prepares, once a step, whatever all layers can share."""
        return None

    def write(
        self,
        k: Tensor,
        v: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        slot_mapping: Tensor,
        scales: KVScales | None = None,
    ) -> None:
        """Stores the keys and values of a step's rows in one layer's cache.

        Args:
            k: [T, H_kv, D].
            v: [T, H_kv, D].
            k_cache: [num_blocks, H_kv, P, D], written.
            v_cache: same.
            slot_mapping: [T] int64, where each row goes.
            scales: of the caches, written, if they hold codes: ours, see `kv_quantizer`.
        """
        if scales is not None:
            store_codes(k, v, k_cache, v_cache, slot_mapping, scales, QUANTIZERS[k_cache.dtype])
            return
        size = k_cache.shape[2]
        block, offset = slot_mapping // size, slot_mapping % size
        k_cache[block, :, offset] = k.to(k_cache.dtype)
        v_cache[block, :, offset] = v.to(v_cache.dtype)

    def rotating_writer(self, frequencies: Tensor, length: int) -> RotatingWriter | None:
        """Takes more than `write` in one go, if this backend can; None if it cannot.

        Args:
            frequencies: [D/2] float32, the model's.
            length: no position reaches it.
        """
        return None

    def arrays(
        self,
        kv_cache: KVCache,
        metadata: AttentionMetadata,
        plan: Any,
        *,
        scale: float,
        windows: tuple[int | None, ...],
    ) -> CacheArrays | None:
        """What kernels need that attend by themselves, as this backend would; None if none can.

        Args: see `PagedAttention`.
        """
        return None

    @abstractmethod
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
        scales: KVScales | None = None,
    ) -> Tensor:
        """Attends.

        Args:
            q: [T, H, D].
            k_cache: [num_blocks, H_kv, P, D] of one layer; the step's own keys are in it already.
            v_cache: same shape.
            metadata: of the step.
            plan: what `plan` returned for it.
            scale: multiplies the scores.
            window: see the class; None sees everything.
            scales: of the caches, if they hold codes: a number is code * scale.

        Returns:
            [T, H, D], in q's dtype.
        """


class PagedAttention(OpenAttend):
    """One step's attention, as the model sees it: store the new keys and values, then attend.

    Args:
        backend: does the work.
        kv_cache: of all layers.
        metadata: of the step.
        scale: multiplies the scores, 1 / sqrt(D) as a rule.
        windows: sliding window of each layer, None where there is none.
    """

    def __init__(
        self,
        backend: AttentionBackend,
        kv_cache: KVCache,
        metadata: AttentionMetadata,
        *,
        scale: float,
        windows: tuple[int | None, ...],
    ) -> None:
        self.backend = backend
        self.kv_cache = kv_cache
        self.metadata = metadata
        self.scale = scale
        self.windows = windows
        self.plan = backend.plan(metadata)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends in one layer: q [T, H, D], k and v [T, H_kv, D] -> [T, H, D]."""
        cache, slots = self.kv_cache, self.metadata.slot_mapping
        given, scales = (k, v, cache.k[layer], cache.v[layer], slots), cache.scales(layer)
        if cache.quantizer is not None and scales is not None:
            store_codes(*given, scales, cache.quantizer)
        else:
            self.backend.write(*given, scales)
        return self.run(layer, q)

    def arrays(self) -> CacheArrays | None:
        """See `OpenAttend`."""
        return self.backend.arrays(
            self.kv_cache, self.metadata, self.plan, scale=self.scale, windows=self.windows
        )

    def run(self, layer: int, q: Tensor) -> Tensor:
        """Attends to what is stored already: q [T, H, D] -> [T, H, D]."""
        return self.backend.run(
            q,
            self.kv_cache.k[layer],
            self.kv_cache.v[layer],
            self.metadata,
            self.plan,
            scale=self.scale,
            window=self.windows[layer],
            scales=self.kv_cache.scales(layer),
        )


def store_codes(
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    scales: KVScales,
    quantizer: KVQuantizer,
) -> None:
    """`AttentionBackend.write` of codes and scales, by any quantizer."""
    size = k_cache.shape[2]
    block, offset = slot_mapping // size, slot_mapping % size
    for x, cache, scale in ((k, k_cache, scales.k), (v, v_cache, scales.v)):
        codes, steps = quantizer.quantize(x)
        as_bits(cache)[block, :, offset] = as_bits(codes)
        scale[block, :, offset] = steps


class FusedPagedAttention(FusedAttend):
    """The same from the projection on, for backends that have a `rotating_writer`.

    Args:
        paged: attends.
        positions: [T] int64, of the step.
        write: the writer.
    """

    def __init__(self, paged: PagedAttention, positions: Tensor, write: RotatingWriter) -> None:
        self.paged = paged
        self.positions = positions
        self.write = write

    def attend_qkv(self, layer: int, qkv: Tensor, qk_norm: RMSNorm | None) -> Tensor:
        """See `FusedAttend`."""
        cache, slots = self.paged.kv_cache, self.paged.metadata.slot_mapping
        given = (qkv, self.positions, cache.k[layer], cache.v[layer], slots, qk_norm)
        q = self.write(*given, cache.scales(layer))
        return self.paged.run(layer, q)
