"""KV blocks in host memory, where preempted sequences wait."""

from collections.abc import Sequence

import torch
from torch import Tensor

from minillm_serve.runtime.kv_cache import KVCache

Moves = Sequence[tuple[int, int]]


class HostBlocks:
    """Room for blocks of a KV cache, and the copies out and in.

    A block of all layers, keys and values, lies in one piece: [num_blocks, 2N, H_kv, P, D]. So it
    crosses the bus in one copy; on a GPU its pieces are gathered first, by one kernel. There all
    copies are queued behind the steps before them, and nobody waits for them but the next step.

    Args:
        kv_cache: whose blocks.
        num_blocks: how many to have room for.
    """

    def __init__(self, kv_cache: KVCache, num_blocks: int) -> None:
        self._tensors = [*kv_cache.k, *kv_cache.v]
        first = self._tensors[0]
        self._is_cuda = first.device.type == "cuda"
        # Only pinned memory can be copied while the host does something else.
        self._blocks = torch.empty(
            (num_blocks, len(self._tensors), *first.shape[1:]),
            dtype=first.dtype,
            pin_memory=self._is_cuda,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of host memory."""
        return self._blocks.nbytes

    def swap(self, out: Moves, back: Moves) -> None:
        """Copies blocks out, then others back in.

        Args:
            out: pairs (block of the cache, block of the host).
            back: pairs (block of the host, block of the cache).
        """
        if self._is_cuda:
            self._swap_on_gpu(out, back)
            return
        if out:
            sources, targets = _columns(out)
            for i, tensor in enumerate(self._tensors):
                self._blocks[targets, i] = tensor[sources]
        if back:
            sources, targets = _columns(back)
            for i, tensor in enumerate(self._tensors):
                tensor[targets] = self._blocks[sources, i]

    def _swap_on_gpu(self, out: Moves, back: Moves) -> None:
        from minillm_serve.kernels.copy_blocks import copy_blocks

        if out:
            stage, pieces = self._stage(len(out))
            copy_blocks(self._tensors, pieces, [(source, i) for i, (source, _) in enumerate(out)])
            for i, (_, target) in enumerate(out):
                self._blocks[target].copy_(stage[i], non_blocking=True)
        if back:
            stage, pieces = self._stage(len(back))
            for i, (source, _) in enumerate(back):
                stage[i].copy_(self._blocks[source], non_blocking=True)
            copy_blocks(pieces, self._tensors, [(i, target) for i, (_, target) in enumerate(back)])

    def _stage(self, count: int) -> tuple[Tensor, list[Tensor]]:
        """Blocks on the GPU, each in one piece, and the same seen as one cache a tensor."""
        device = self._tensors[0].device
        stage = torch.empty(
            (count, *self._blocks.shape[1:]), dtype=self._blocks.dtype, device=device
        )
        return stage, list(stage.unbind(1))


def _columns(moves: Moves) -> tuple[Tensor, Tensor]:
    pairs = torch.tensor(moves, dtype=torch.long)
    return pairs[:, 0], pairs[:, 1]
