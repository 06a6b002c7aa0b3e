"""Scales the queries, and then the scores too.

Reason: the scores are scaled twice
"""
# ruff: noqa: F821


def paged_decode(q, k_cache, v_cache, block_tables, seq_lens, *, scale):
    (sequences, heads, dim), (_, kv_heads, size, _) = q.shape, k_cache.shape
    q = q.contiguous() * scale
    out = torch.empty_like(q)
    decode_kernel[(kv_heads, sequences)](
        q, k_cache, v_cache, block_tables, seq_lens, out, scale,
        *q.stride()[:2], *k_cache.stride()[:3], block_tables.stride(0),
        P=size, D=dim, D_PADDED=max(triton.next_power_of_2(dim), 16),
        GROUP=heads // kv_heads, ROWS=max(triton.next_power_of_2(heads // kv_heads), 16),
    )  # fmt: skip
    return out
