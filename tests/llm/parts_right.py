"""Parts as learners write them: right, plain, and with nothing of the engine's own in them."""

import torch

from minillm_serve.core import (
    Batch,
    InvariantViolation,
    OutOfBlocks,
    RequestRefused,
    ScheduledSequence,
    Scheduler,
    SequenceStatus,
)


def my_kv_budget(config, *, kv_cache_memory, block_size, dtype_bytes):
    token = 2 * config.num_layers * config.num_kv_heads * config.head_dim * dtype_bytes
    return kv_cache_memory // (token * block_size)


class MyBlockPool:
    """Counts alone: a free block is one whose count is 0, the lowest goes out first."""

    def __init__(self, num_blocks):
        self.counts = [0] * num_blocks

    @property
    def num_blocks(self):
        return len(self.counts)

    @property
    def num_free(self):
        return self.counts.count(0)

    def allocate(self, count):
        free = [block for block, references in enumerate(self.counts) if references == 0]
        if count > len(free):
            raise OutOfBlocks(f"{len(free)} free")
        for block in free[:count]:
            self.counts[block] = 1
        return free[:count]

    def acquire(self, block):
        if self.counts[block] == 0:
            raise InvariantViolation("free")
        self.counts[block] += 1

    def release(self, block):
        if self.counts[block] == 0:
            raise InvariantViolation("free")
        self.counts[block] -= 1

    def ref_count(self, block):
        return self.counts[block]


def my_attention(q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, *, scale):
    out = torch.empty_like(q)
    for s, length in enumerate(seq_lens.tolist()):
        begin, end = query_start_loc[s : s + 2].tolist()
        k, v = (gather(cache, block_tables[s], length) for cache in (k_cache, v_cache))
        group = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
        scores = torch.einsum("qhd,lhd->hql", q[begin:end], k) * scale
        position = torch.arange(length, device=q.device)
        hidden = position > position[length - (end - begin) :, None]
        scores = scores.masked_fill(hidden, float("-inf"))
        out[begin:end] = torch.einsum("hql,lhd->qhd", scores.softmax(-1), v)
    return out


def my_decode(q, k_cache, v_cache, block_tables, seq_lens, *, scale):
    starts = torch.arange(len(q) + 1, device=q.device)
    return my_attention(q, k_cache, v_cache, block_tables, seq_lens, starts, scale=scale)


def gather(cache, table, length):
    """[length, H_kv, D] of one sequence."""
    size = cache.shape[2]
    blocks = cache[table[: -(-length // size)].long()]
    return blocks.transpose(1, 2).flatten(0, 1)[:length]


class MyScheduler(Scheduler):
    """One sequence at a time, all of it at once, as far as the budget goes."""

    def schedule(self):
        if not self.running and not self.waiting:
            return Batch(())
        if not self.running:
            sequence = self.waiting.head()
            self.waiting.remove(sequence)
            self.running.append(sequence)
            sequence.status = SequenceStatus.RUNNING
        (sequence,) = self.running
        num_tokens = min(sequence.num_uncomputed, self.max_num_batched_tokens)
        start = sequence.num_computed
        self.blocks.grow(sequence, start + num_tokens)
        samples = start + num_tokens == len(sequence)
        return Batch((ScheduledSequence(sequence, start, num_tokens, samples),))


class MyAdmission:
    def __init__(self, *, max_model_len, pool_tokens, vocab_size):
        self.max_len = min(max_model_len, pool_tokens)
        self.vocab_size = vocab_size

    def check(self, request):
        prompt = request.prompt_token_ids
        if not 0 < len(prompt) < self.max_len:
            raise RequestRefused(f"a prompt of {len(prompt)} tokens, sorry")
        if not all(0 <= token < self.vocab_size for token in prompt):
            raise RequestRefused("unknown token")


RIGHT = {
    "kv_budget": my_kv_budget,
    "block_pool": MyBlockPool,
    "attention": my_attention,
    "scheduler": MyScheduler,
    "admission": MyAdmission,
}
