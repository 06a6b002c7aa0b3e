"""Attention on a CPU: Numba for few rows, reading blocks in place; torch for longer slices."""

from dataclasses import dataclass

import numba
import numpy as np
import torch
from torch import Tensor

from minillm_serve.kernels.cpu_attention import kv_write, paged_decode
from minillm_serve.runtime.attention.base import AttentionMetadata, Capabilities
from minillm_serve.runtime.attention.torch_backend import Slice, TorchAttention

#: Rows of one sequence up to which blocks are read in place, once for each row. More rows have
#: enough arithmetic to pay for copying their context together once and multiplying matrices.
MAX_ROWS_IN_PLACE = 8
#: A window that nothing reaches, where there is none: the kernel takes an integer.
NO_WINDOW = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class CpuPlan:
    """Rows of a step, sorted by how they are attended.

    Attributes:
        rows: [B] int64, rows that are attended in place.
        sequences: [B] int64, the sequence of each.
        lengths: [B] int64, tokens that each sees.
        block_tables: [S, W] int32.
        prefills: longer slices, attended one by one.
    """

    rows: np.ndarray
    sequences: np.ndarray
    lengths: np.ndarray
    block_tables: np.ndarray
    prefills: list[Slice]


class CpuAttention(TorchAttention):
    """The fastest on a CPU. A long slice has enough arithmetic to pay for copying its context."""

    name = "cpu"
    capabilities = Capabilities(
        devices=frozenset({"cpu"}), dtypes=frozenset({torch.float32}), window=True
    )

    def __init__(self) -> None:
        _share_threads()

    def plan(self, metadata: AttentionMetadata) -> CpuPlan:  # type: ignore[override]
        """Sorts rows by length and deals them out, so that each thread gets as much to read."""
        starts = metadata.query_start_loc.numpy().astype(np.int64)
        counts = np.diff(starts)
        in_place = counts <= MAX_ROWS_IN_PLACE
        sequences = np.repeat(np.nonzero(in_place)[0], counts[in_place])
        rows = np.nonzero(np.repeat(in_place, counts))[0]
        # A sequence's last row sees all of it, the row before one token less, and so on.
        lengths = metadata.seq_lens.numpy()[sequences] - (starts[sequences + 1] - 1 - rows)
        order = _spread(np.argsort(-lengths, kind="stable"))
        return CpuPlan(
            rows=rows[order],
            sequences=sequences[order],
            lengths=lengths[order],
            block_tables=metadata.block_tables.numpy(),
            prefills=[
                Slice(int(s), int(starts[s]), int(starts[s + 1])) for s in np.nonzero(~in_place)[0]
            ],
        )

    def write(
        self, k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor
    ) -> None:
        """See `AttentionBackend.write`."""
        kv_write(k.numpy(), v.numpy(), slot_mapping.numpy(), k_cache.numpy(), v_cache.numpy())

    def run(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        metadata: AttentionMetadata,
        plan: CpuPlan,  # type: ignore[override]
        *,
        scale: float,
        window: int | None,
    ) -> Tensor:
        """See `AttentionBackend.run`."""
        out = torch.empty(q.shape, dtype=q.dtype)
        for piece in plan.prefills:
            self.attend_slice(q, k_cache, v_cache, metadata, piece, scale, window, out)
        if len(plan.rows):
            (_, kv_heads, _, dim), heads = k_cache.shape, q.shape[1]
            paged_decode(dim, heads // kv_heads)(
                q.numpy(),
                k_cache.numpy(),
                v_cache.numpy(),
                plan.block_tables,
                plan.rows,
                plan.sequences,
                plan.lengths,
                np.float32(scale),
                np.int64(NO_WINDOW if window is None else window),
                out.numpy(),
            )
        return out


def _share_threads() -> None:
    """Gives Numba as many threads as torch has.

    The two share one OpenMP, and Numba starts its own threads by setting that library's number for
    the whole process: unless it is set back, torch is left with a number that nobody chose.
    """
    threads = torch.get_num_threads()
    most: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    numba.set_num_threads(min(threads, most))
    torch.set_num_threads(threads)


def _spread(order: np.ndarray) -> np.ndarray:
    """Deals a sorted list out to the threads, to and fro, and lays their hands end to end.

    The kernel's parallel loop gives every thread a contiguous share.
    """
    threads = torch.get_num_threads()
    hands: list[list[int]] = [[] for _ in range(threads)]
    for index, entry in enumerate(order.tolist()):
        turn, seat = divmod(index, threads)
        hands[seat if turn % 2 == 0 else threads - 1 - seat].append(entry)
    return np.array([entry for hand in hands for entry in hand], dtype=np.int64)
