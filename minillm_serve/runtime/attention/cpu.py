"""Attention on a CPU in Numba: blocks are read where they lie, whatever a slice's length."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from minillm_serve.kernels.cpu_attention import kv_write, paged_decode
from minillm_serve.kernels.cpu_cascade import shared_prefix
from minillm_serve.kernels.cpu_kv_codes import kind_of, kv_write_codes
from minillm_serve.kernels.cpu_prefill import paged_prefill, rows_per_tile
from minillm_serve.models.transformer import CacheArrays
from minillm_serve.runtime.attention.base import AttentionBackend, AttentionMetadata, Capabilities
from minillm_serve.runtime.attention.cascade import (
    CascadeCosts,
    SharedPrefix,
    member_tiles,
    shared_tokens,
)
from minillm_serve.runtime.kv_cache import KVCache, KVScales
from minillm_serve.runtime.threads import share_threads

#: Rows of one sequence up to which each reads its context alone. More rows share what is read.
MAX_ROWS_ALONE = 3
#: A window that nothing reaches, where there is none: the kernels take an integer.
NO_WINDOW = np.iinfo(np.int64).max
#: In the place of scales, where the cache holds numbers and not codes.
NO_SCALES = (np.zeros((1, 1, 1), np.float32),) * 2
#: A tile has all its lanes whether they are used or not, and is not shared out to several threads:
#: it takes as long as four rows. A row's state is as wide as some tokens.
CASCADE = CascadeCosts(readers=4, row=8, step=256)


@dataclass(frozen=True, slots=True)
class CpuCascade:
    """Shared prefixes, and what is left to each row then.

    Attributes:
        prefixes: see `AttentionMetadata`.
        tokens: [S] int32, of each sequence's shared prefix; 0 where there is none.
        alone: as in `CpuPlan`, but rows begin after the prefix.
    """

    prefixes: tuple[SharedPrefix, ...]
    tokens: np.ndarray
    alone: np.ndarray
    _tiles: dict[int, np.ndarray] = field(default_factory=dict)

    def tiles(self, most: int) -> np.ndarray:
        """Tiles of up to `most` sequences, cut once for all layers; see `member_tiles`."""
        if most not in self._tiles:
            self._tiles[most] = member_tiles(self.prefixes, most)
        return self._tiles[most]


@dataclass(frozen=True, slots=True)
class CpuPlan:
    """Rows of a step, sorted by how they are attended.

    Attributes:
        starts: [S+1] int64, the first row of each sequence.
        seq_lens: [S] int64.
        block_tables: [S, W] int32.
        alone: rows that read their context alone, [4, B] int64: row, sequence, tokens that it sees,
            tokens of these that it has seen already (none).
        longer: [L] int64, sequences with more rows.
        cascade: for layers that read shared prefixes once; None if there are none.
    """

    starts: np.ndarray
    seq_lens: np.ndarray
    block_tables: np.ndarray
    alone: np.ndarray
    longer: np.ndarray
    cascade: CpuCascade | None = None
    _tiles: dict[int, np.ndarray] = field(default_factory=dict)

    def tiles(self, most: int) -> np.ndarray:
        """Cuts the longer slices into tiles of up to `most` rows, once for all layers.

        Returns:
            [4, I] int64: sequence, first row, number of rows, tokens that the first row sees.
        """
        if most not in self._tiles:
            pieces = []
            for s in self.longer:
                end, length = self.starts[s + 1], self.seq_lens[s]
                for row in range(self.starts[s], end, most):
                    pieces.append((s, row, min(most, end - row), length - (end - 1 - row)))
            tiles = np.array(pieces, dtype=np.int64).reshape(-1, 4).T
            order = _spread(np.argsort(-tiles[3], kind="stable"))
            self._tiles[most] = np.ascontiguousarray(tiles[:, order])
        return self._tiles[most]


class CpuAttention(AttentionBackend):
    """The fastest on a CPU; float32 only."""

    name = "cpu"
    capabilities = Capabilities(
        devices=frozenset({"cpu"}),
        dtypes=frozenset({torch.float32}),
        window=True,
        kv_dtypes=frozenset({torch.int8, torch.float8_e4m3fn}),
        cascade=CASCADE,
    )

    def __init__(self) -> None:
        share_threads()

    def plan(self, metadata: AttentionMetadata) -> CpuPlan:
        """Sorts rows by length and deals them out, so that each thread gets as much to read."""
        starts = metadata.query_start_loc.numpy().astype(np.int64)
        seq_lens = metadata.seq_lens.numpy().astype(np.int64)
        prefixes, cascade = metadata.shared_prefixes, None
        if prefixes:
            tokens = shared_tokens(prefixes, len(seq_lens))
            cascade = CpuCascade(prefixes, tokens, _rows_alone(starts, seq_lens, tokens))
        return CpuPlan(
            starts=starts,
            seq_lens=seq_lens,
            block_tables=metadata.block_tables.numpy(),
            alone=_rows_alone(starts, seq_lens, np.zeros_like(seq_lens)),
            longer=np.nonzero(np.diff(starts) > MAX_ROWS_ALONE)[0],
            cascade=cascade,
        )

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
        new, caches = (k.numpy(), v.numpy(), slot_mapping.numpy()), _arrays(k_cache, v_cache)
        if scales is None:
            kv_write(*new, *caches)
        else:
            kv_write_codes(*new, *caches, *_arrays(*scales))

    def arrays(
        self,
        kv_cache: KVCache,
        metadata: AttentionMetadata,
        plan: CpuPlan,
        *,
        scale: float,
        windows: tuple[int | None, ...],
    ) -> CacheArrays | None:
        """See `AttentionBackend.arrays`: for rows that read their context alone, in float32."""
        first = kv_cache.k[0]
        if len(plan.longer) or plan.cascade is not None or first.dtype != torch.float32:
            return None
        caches = [(k.data_ptr(), v.data_ptr()) for k, v in zip(kv_cache.k, kv_cache.v, strict=True)]
        most = [NO_WINDOW if window is None else window for window in windows]
        return CacheArrays(
            np.array(caches, np.int64),
            (first.shape[0], first.shape[1], first.shape[2], first.shape[3]),
            metadata.slot_mapping.numpy(),
            plan.block_tables,
            plan.alone,
            scale,
            np.array(most, np.int64),
        )

    def run(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        metadata: AttentionMetadata,
        plan: CpuPlan,
        *,
        scale: float,
        window: int | None,
        scales: KVScales | None = None,
    ) -> Tensor:
        """See `AttentionBackend.run`."""
        out = torch.empty(q.shape, dtype=q.dtype)
        k_codes, v_codes = _arrays(k_cache, v_cache)
        steps = NO_SCALES if scales is None else _arrays(*scales)
        group, kind = q.shape[1] // k_cache.shape[1], kind_of(k_codes.dtype)
        shape = (q.shape[2], group, kind)
        cache = (q.numpy(), k_codes, v_codes, *steps, plan.block_tables)
        most = np.int64(NO_WINDOW if window is None else window)
        rest = (np.float32(scale), most, out.numpy())
        if len(plan.longer):
            paged_prefill(*shape)(*cache, *plan.tiles(rows_per_tile(group)), *rest)
        alone, begun = plan.alone, _begun(0, q)
        if plan.cascade is not None and metadata.cascades(window):
            alone, begun = plan.cascade.alone, _begun(len(plan.seq_lens), q)
            members = plan.cascade.tiles(rows_per_tile(group))
            prefix = (members, plan.starts, plan.cascade.tokens, np.float32(scale))
            shared_prefix(*shape)(*cache, *prefix, *begun)
        if alone.size:
            paged_decode(*shape)(*cache, *alone, *begun, *rest)
        return out


def _arrays(k: Tensor, v: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values as numpy has them: float8 as bare bytes."""
    if k.dtype == torch.float8_e4m3fn:
        k, v = k.view(torch.uint8), v.view(torch.uint8)
    return k.numpy(), v.numpy()


def _rows_alone(starts: np.ndarray, seq_lens: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """`CpuPlan.alone`, if the first shared[s] tokens of sequence s are seen to already."""
    counts = np.diff(starts)
    few = counts <= MAX_ROWS_ALONE
    sequences = np.repeat(np.nonzero(few)[0], counts[few])
    rows = np.nonzero(np.repeat(few, counts))[0]
    # A sequence's last row sees all of it, the row before one token less, and so on.
    lengths = seq_lens[sequences] - (starts[sequences + 1] - 1 - rows)
    begins = shared[sequences].astype(np.int64)
    order = _spread(np.argsort(begins - lengths, kind="stable"))
    return np.ascontiguousarray(np.stack([rows, sequences, lengths, begins])[:, order])


def _begun(num_sequences: int, q: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Room for what `shared_prefix` leaves to `paged_decode` of so many sequences."""
    heads, dim = q.shape[1:]
    shapes = ((num_sequences, heads, dim), (num_sequences, heads), (num_sequences, heads))
    totals, tops, sums = (np.empty(shape, np.float32) for shape in shapes)
    return totals, tops, sums


def _spread(order: np.ndarray) -> np.ndarray:
    """Deals a sorted list out to the threads, to and fro, and lays their hands end to end.

    The kernels' parallel loops give every thread a contiguous share.
    """
    threads = torch.get_num_threads()
    hands: list[list[int]] = [[] for _ in range(threads)]
    for index, entry in enumerate(order.tolist()):
        turn, seat = divmod(index, threads)
        hands[seat if turn % 2 == 0 else threads - 1 - seat].append(entry)
    return np.array([entry for hand in hands for entry in hand], dtype=np.int64)
