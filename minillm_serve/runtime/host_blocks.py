"""KV blocks in host memory, where preempted sequences wait."""

from collections.abc import Sequence

import torch
from torch import Tensor

from minillm_serve.runtime.kv_cache import KVCache

Moves = Sequence[tuple[int, int]]


class HostBlocks:
    """Room for blocks of a KV cache, and the copies out and in.

    A block of all layers, keys and values, lies in one piece, and behind it its scales, if it has
    any: so it crosses the bus in one copy. On a GPU its pieces are gathered first, by one kernel.
    There all copies are queued behind the steps before them, and nobody waits for them but the next
    step.

    Args:
        kv_cache: whose blocks.
        num_blocks: how many to have room for.
    """

    def __init__(self, kv_cache: KVCache, num_blocks: int) -> None:
        self._groups = kv_cache.groups
        self._device = kv_cache.k[0].device
        self._is_cuda = self._device.type == "cuda"
        size = sum(tensor[0].nbytes for tensors in self._groups for tensor in tensors)
        # Only pinned memory can be copied while the host does something else.
        self._blocks = torch.empty((num_blocks, size), dtype=torch.uint8, pin_memory=self._is_cuda)

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
        for tensors, pieces in zip(self._groups, self._pieces(self._blocks), strict=True):
            for tensor, piece in zip(tensors, pieces, strict=True):
                if out:
                    sources, targets = _columns(out)
                    piece[targets] = tensor[sources]
                if back:
                    sources, targets = _columns(back)
                    tensor[targets] = piece[sources]

    def _swap_on_gpu(self, out: Moves, back: Moves) -> None:
        from minillm_serve.kernels.copy_blocks import copy_blocks

        if out:
            stage = self._stage(len(out))
            moves = [(source, i) for i, (source, _) in enumerate(out)]
            for tensors, pieces in zip(self._groups, self._pieces(stage), strict=True):
                copy_blocks(tensors, pieces, moves)
            for i, (_, target) in enumerate(out):
                self._blocks[target].copy_(stage[i], non_blocking=True)
        if back:
            stage = self._stage(len(back))
            for i, (source, _) in enumerate(back):
                stage[i].copy_(self._blocks[source], non_blocking=True)
            moves = [(i, target) for i, (_, target) in enumerate(back)]
            for tensors, pieces in zip(self._groups, self._pieces(stage), strict=True):
                copy_blocks(pieces, tensors, moves)

    def _stage(self, count: int) -> Tensor:
        """Room for blocks on the GPU, each in one piece."""
        shape = (count, self._blocks.shape[1])
        return torch.empty(shape, dtype=torch.uint8, device=self._device)

    def _pieces(self, blocks: Tensor) -> list[list[Tensor]]:
        """Blocks in one piece each, [n, bytes], seen as one cache a tensor: like `groups`."""
        pieces, begin = [], 0
        for tensors in self._groups:
            first = tensors[0]
            end = begin + len(tensors) * first[0].nbytes
            whole = blocks[:, begin:end].view(first.dtype)
            pieces.append(list(whole.view(-1, len(tensors), *first.shape[1:]).unbind(1)))
            begin = end
        return pieces


def _columns(moves: Moves) -> tuple[Tensor, Tensor]:
    pairs = torch.tensor(moves, dtype=torch.long)
    return pairs[:, 0], pairs[:, 1]
