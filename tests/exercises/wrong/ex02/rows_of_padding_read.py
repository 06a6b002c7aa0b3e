"""Takes the whole row of the table, whose padding names block 0.

Reason: it reads
"""

import torch


def paged_attention(q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, *, scale):
    _, kv_heads, _, _ = k_cache.shape
    out = torch.empty_like(q)
    for s, length in enumerate(seq_lens.tolist()):
        begin, end = query_start_loc[s : s + 2].tolist()
        table = block_tables[s].long()
        k = k_cache[table].transpose(1, 2).flatten(0, 1).float()
        v = v_cache[table].transpose(1, 2).flatten(0, 1).float()
        k = k.repeat_interleave(q.shape[1] // kv_heads, dim=1)
        v = v.repeat_interleave(q.shape[1] // kv_heads, dim=1)
        scores = torch.einsum("rhd,lhd->hrl", q[begin:end].float(), k) * scale
        position = torch.arange(length - (end - begin), length)
        later = (torch.arange(len(k)) > position[:, None]) & (torch.arange(len(k)) < length)
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        out[begin:end] = torch.einsum("hrl,lhd->rhd", weights, v)
    return out
