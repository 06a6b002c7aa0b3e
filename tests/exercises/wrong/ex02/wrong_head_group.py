"""Deals KV heads out in turn, h % H_kv, instead of in groups.

Reason: and should read KV head
"""

import torch


def paged_attention(q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, *, scale):
    _, kv_heads, size, _ = k_cache.shape
    out = torch.empty_like(q)
    for s, length in enumerate(seq_lens.tolist()):
        begin, end = query_start_loc[s : s + 2].tolist()
        table = block_tables[s, : -(-length // size)].long()
        k = k_cache[table].transpose(1, 2).flatten(0, 1)[:length].float()
        v = v_cache[table].transpose(1, 2).flatten(0, 1)[:length].float()
        k = k.repeat(1, q.shape[1] // kv_heads, 1)
        v = v.repeat(1, q.shape[1] // kv_heads, 1)
        scores = torch.einsum("rhd,lhd->hrl", q[begin:end].float(), k) * scale
        position = torch.arange(length - (end - begin), length)
        later = torch.arange(length) > position[:, None]
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        out[begin:end] = torch.einsum("hrl,lhd->rhd", weights, v)
    return out
