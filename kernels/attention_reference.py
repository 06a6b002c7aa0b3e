"""What the attention kernels compute, in a few plain lines of torch that take float64 too."""

import math

import torch
from torch import Tensor


def attend_pages(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start_loc: Tensor,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Causal attention of rows over the blocks of their sequences: what both kernels compute.

    Args:
        q: [T, H, D]; sequence s has rows query_start_loc[s] .. query_start_loc[s+1]-1, which are
            the last of its seq_lens[s] tokens.
        k_cache: [num_blocks, H_kv, P, D].
        v_cache: same.
        block_tables: [S, W].
        seq_lens: [S].
        query_start_loc: [S+1].
        scale: multiplies the scores.
        window: most tokens that a row sees, its own included; None for all.
        softcap: scores become softcap * tanh(scores / softcap); None for no cap.

    Returns:
        [T, H, D] in q's dtype, and the logarithm of each row's sum of e^score, [T, H]; of a row
        that sees nothing, 0 and -inf. Worked out in float32, or in float64 where q is that.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    out, lse = torch.zeros_like(q), q.new_full(q.shape[:2], -math.inf, dtype=wide)
    starts = query_start_loc.tolist()
    for s, length in enumerate(seq_lens.tolist()):
        rows = slice(starts[s], starts[s + 1])
        if length == 0 or rows.start == rows.stop:
            continue
        group = q.shape[1] // k_cache.shape[1]
        k, v = (gather(cache, block_tables[s], length).to(wide) for cache in (k_cache, v_cache))
        k, v = (x.repeat_interleave(group, dim=0) for x in (k, v))
        scores = q[rows].to(wide).transpose(0, 1) @ k.mT * scale  # [H, rows, length]
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        position = torch.arange(length, device=q.device)
        own = position[length - (rows.stop - rows.start) :, None]
        hidden = position > own
        if window is not None:
            hidden |= position <= own - window
        scores = scores.masked_fill(hidden, -math.inf)
        out[rows] = (scores.softmax(-1) @ v).transpose(0, 1).to(q.dtype)
        lse[rows] = scores.logsumexp(-1).T
    return out, lse


def gather(cache: Tensor, table: Tensor, length: int) -> Tensor:
    """The first `length` positions of one sequence, out of their blocks: [H_kv, length, D]."""
    size = cache.shape[2]
    blocks = cache[table[: -(-length // size)].long()]  # [blocks, H_kv, P, D]
    return blocks.transpose(0, 1).flatten(1, 2)[:, :length]


def merge(part_o: Tensor, part_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Attention over a union of keys, from that over its parts: what `combine_splits` computes.

    Args:
        part_o: [parts, ..., D].
        part_lse: [parts, ...]; -inf for an empty part.

    Returns:
        [..., D] and [...].
    """
    weights = part_lse.softmax(0).nan_to_num(0.0)  # all parts empty: no weight anywhere
    return (weights[..., None] * part_o).sum(0), part_lse.logsumexp(0)
