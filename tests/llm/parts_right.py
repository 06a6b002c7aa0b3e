"""Parts as learners write them: right, plain, and with nothing of the engine's own in them."""

import math

import torch

from minillm_serve.core import (
    Accept,
    Batch,
    InvariantViolation,
    OutOfBlocks,
    Queue,
    Refuse,
    RequestRefused,
    ScheduledSequence,
    Scheduler,
    SequenceStatus,
)


def my_kv_budget(config, *, kv_cache_memory, block_size, dtype_bytes):
    token = 2 * config.num_layers * config.num_kv_heads * config.head_dim * dtype_bytes
    return int(kv_cache_memory // (token * block_size))


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


class MyPrefixCache:
    """A dict of whole prefixes; looks at all of them whenever it must choose."""

    def __init__(self, block_size):
        self.block_size = block_size
        self.blocks = {}  # (namespace, tokens) -> block
        self.locks = {}  # block -> how many
        self.used = {}  # block -> when
        self.now = 0

    @property
    def num_cached(self):
        return len(self.blocks)

    @property
    def num_evictable(self):
        return len(self.blocks) - len(self.held())

    def __contains__(self, block):
        return block in self.blocks.values()

    def beginnings(self, token_ids, namespace):
        ends = range(self.block_size, len(token_ids) + 1, self.block_size)
        return [(namespace, tuple(token_ids[:end])) for end in ends]

    def behind(self, prefix):
        space, tokens = prefix
        return [p for p in self.blocks if p[0] == space and p[1][: len(tokens)] == tokens]

    def held(self):
        """All that is locked: the prefixes of locked blocks, and their beginnings."""
        locked = [prefix for prefix, block in self.blocks.items() if self.locks.get(block)]
        return {p for namespace, tokens in locked for p in self.beginnings(tokens, namespace)}

    def match(self, token_ids, namespace):
        found = []
        for prefix in self.beginnings(token_ids, namespace):
            if prefix not in self.blocks:
                break
            found.append(self.blocks[prefix])
        self.use(found)
        return found

    def use(self, blocks):
        self.now += 1
        self.used.update((block, self.now) for block in blocks)

    def publish(self, token_ids, block_table, num_written, namespace):
        prefixes = self.beginnings(token_ids[:num_written], namespace)
        pairs = zip(prefixes, block_table, strict=False)
        new = {prefix: block for prefix, block in pairs if prefix not in self.blocks}
        if any(block in self for block in new.values()):
            raise InvariantViolation("indexed already")
        self.blocks.update(new)
        self.use(self.blocks[prefix] for prefix in prefixes)
        return list(new.values())

    def lock(self, block):
        if block not in self:
            raise InvariantViolation("not indexed")
        self.locks[block] = self.locks.get(block, 0) + 1

    def unlock(self, block):
        if not self.locks.get(block):
            raise InvariantViolation("not locked")
        self.locks[block] -= 1
        prefix = self.prefix_of(block)
        self.use(self.blocks[p] for p in self.beginnings(prefix[1], prefix[0]))

    def prefix_of(self, block):
        return next(prefix for prefix, known in self.blocks.items() if known == block)

    def leaves(self):
        inner = {(space, tokens[: -self.block_size]) for space, tokens in self.blocks}
        return list(set(self.blocks) - inner - self.held())

    def evict(self, count):
        evicted = []
        while len(evicted) < count and (leaves := self.leaves()):
            oldest = min(leaves, key=lambda prefix: self.used[self.blocks[prefix]])
            evicted.append(self.blocks.pop(oldest))
        return evicted

    def withdraw(self, block):
        if block not in self:
            return []
        gone = [self.blocks.pop(prefix) for prefix in self.behind(self.prefix_of(block))]
        for lost in gone:
            self.locks.pop(lost, None)
        return gone

    def clear(self):
        return self.evict(len(self.blocks))


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

    def admit(self, request, load):
        if load.num_waiting < load.max_num_seqs - load.num_running:
            return Accept()
        wait = load.waiting_tokens / (load.tokens_per_second or math.inf)
        if request.deadline is not None and load.now + wait > request.deadline:
            return Refuse(retry_after=max(1.0, wait), why="you would wait in vain")
        return Queue(at_most=3600.0)

    def leave(self, request_id):
        pass


def my_accept(p, q, drafts, lengths, draws):
    size, most = drafts.shape
    token_ids = torch.full((size, most + 1), -1)
    counts = torch.zeros(size, dtype=torch.int64)
    for s in range(size):
        kept = 0
        while kept < lengths[s]:
            draft = drafts[s, kept]
            if draws[s, kept, 0] * q[s, kept, draft] >= p[s, kept, draft]:
                break
            token_ids[s, kept] = draft
            kept += 1
        weights = p[s, kept]
        if kept < lengths[s]:
            left = (weights - q[s, kept]).clamp(min=0)
            weights = left if left.sum() > 0 else weights
        running = weights.double().cumsum(0)
        passed = (running > draws[s, kept, 1] * running[-1]).nonzero()
        token_ids[s, kept] = passed[0] if len(passed) else weights.nonzero()[-1]
        counts[s] = kept
    return token_ids, counts


class MyKVQuantizer:
    """Row by row, in plain arithmetic."""

    dtype = torch.int8

    def quantize(self, x):
        codes = torch.zeros(x.shape, dtype=torch.int8)
        scales = torch.zeros(x.shape[:2])
        for token in range(x.shape[0]):
            for head in range(x.shape[1]):
                largest = float(x[token, head].abs().max())
                if largest > 0:
                    scales[token, head] = largest / 127
                    codes[token, head] = (x[token, head] * (127 / largest)).round()
        return codes, scales

    def dequantize(self, codes, scales):
        return codes.float() * scales.unsqueeze(-1)


RIGHT = {
    "kv_budget": my_kv_budget,
    "block_pool": MyBlockPool,
    "prefix_cache": MyPrefixCache,
    "attention": my_attention,
    "kv_quantizer": MyKVQuantizer,
    "scheduler": MyScheduler,
    "admission": MyAdmission,
    "accept": my_accept,
}
