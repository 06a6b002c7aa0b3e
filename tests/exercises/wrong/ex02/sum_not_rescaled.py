"""Block by block, with a new maximum but the old running sum.

Reason: all that was summed before must be rescaled
"""

import math

import torch


def paged_attention(q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, *, scale):
    _, kv_heads, size, dim = k_cache.shape
    group = q.shape[1] // kv_heads
    out = torch.empty_like(q)
    for s, length in enumerate(seq_lens.tolist()):
        begin, end = query_start_loc[s : s + 2].tolist()
        for row in range(begin, end):
            seen = length - end + row + 1
            for head in range(q.shape[1]):
                best, total, sum_of_values = float("-inf"), 0.0, torch.zeros(dim)
                for first in range(0, seen, size):
                    block, held = int(block_tables[s, first // size]), min(size, seen - first)
                    k = k_cache[block, head // group, :held].float()
                    v = v_cache[block, head // group, :held].float()
                    scores = k @ q[row, head].float() * scale
                    new_best = max(best, float(scores.max()))
                    weights = torch.exp(scores - new_best)
                    shrink = math.exp(best - new_best)
                    total = total + float(weights.sum())
                    sum_of_values = sum_of_values * shrink + weights @ v
                    best = new_best
                out[row, head] = sum_of_values / total
    return out
