"""Plausible wrong parts, each with what is said about it before anything is served."""

from minillm_serve.core import Batch, ScheduledSequence, Scheduler
from tests.llm.parts_right import MyAdmission, MyBlockPool, MyScheduler, my_attention, my_decode


def ignores_grouping(config, *, kv_cache_memory, block_size, dtype_bytes):
    token = 2 * config.num_layers * config.head_dim * dtype_bytes  # of a single KV head
    return kv_cache_memory // (token * block_size)


def divides(config, *, kv_cache_memory, block_size, dtype_bytes):
    return kv_cache_memory / block_size


def finds_no_room(config, *, kv_cache_memory, block_size, dtype_bytes):
    return 0


def is_a_stub(config, *, kv_cache_memory, block_size, dtype_bytes):
    raise RuntimeError("implement kv_budget")


def takes_other_names(config, memory, block_size, dtype_bytes):
    return 1


class ForgetsRelease(MyBlockPool):
    def release(self, block):
        super().release(block)
        self.counts[block] += 1


class FreesShared(MyBlockPool):
    def release(self, block):
        super().release(block)
        self.counts[block] = 0


class HandsOutTwice(MyBlockPool):
    def allocate(self, count):
        super().allocate(count)
        return [0] * count


class TakesSomeAndFails(MyBlockPool):
    def allocate(self, count):
        while count > self.num_free > 0:
            super().allocate(1)
        return super().allocate(count)


class GivesFewer(MyBlockPool):
    def allocate(self, count):
        return super().allocate(min(count, self.num_free))


class AllowsDoubleFree(MyBlockPool):
    def release(self, block):
        self.counts[block] = max(0, self.counts[block] - 1)


class RunsOverItsEnd(MyBlockPool):
    def allocate(self, count):
        if count > self.num_free:
            return [self.counts.index(0) for _ in range(count) if self.counts[99] == 0]
        return super().allocate(count)


class CountsFromOne(MyBlockPool):
    def allocate(self, count):
        return [block + 1 for block in super().allocate(count)]


class HasNoAcquire(MyBlockPool):
    acquire = None


class NamesItN(MyBlockPool):
    def allocate(self, n):
        return super().allocate(n)


class ReturnsATuple(MyBlockPool):
    def allocate(self, count):
        return tuple(super().allocate(count))


def forgets_scale(q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, *, scale):
    return my_attention(q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, scale=1.0)


def is_not_causal(q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, *, scale):
    rows = query_start_loc.diff()
    tables, lengths = (x.repeat_interleave(rows, dim=0) for x in (block_tables, seq_lens))
    return my_decode(q, k_cache, v_cache, tables, lengths, scale=scale)


def groups_wrong(q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, *, scale):
    k_cache, v_cache = (cache.flip(1) for cache in (k_cache, v_cache))
    return my_attention(q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, scale=scale)


def reads_whole_blocks(q, k_cache, v_cache, block_tables, seq_lens, *, scale):
    size = k_cache.shape[2]
    full = -(-seq_lens // size) * size
    return my_decode(q, k_cache, v_cache, block_tables, full, scale=scale)


def returns_rows_only(q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, *, scale):
    out = my_attention(q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, scale=scale)
    return out.flatten(1)


def returns_doubles(q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, *, scale):
    out = my_attention(q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, scale=scale)
    return out.double()


def returns_nothing(q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, *, scale):
    my_attention(q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, scale=scale)


class SchedulesNobody(MyScheduler):
    def schedule(self):
        return Batch(())


class ReturnsAList(MyScheduler):
    def schedule(self):
        return list(super().schedule().scheduled)


class ForgetsBlocks(MyScheduler):
    def schedule(self):
        batch = super().schedule()
        self.blocks.release(batch.scheduled[0].sequence)
        return batch


class GoesOverBudget(MyScheduler):
    def schedule(self):
        (item,) = super().schedule().scheduled
        sequence = item.sequence
        self.blocks.grow(sequence, len(sequence))
        return Batch((ScheduledSequence(sequence, item.start, sequence.num_uncomputed, True),))


class HasNoSchedule(Scheduler):
    pass


class IsNoScheduler:
    def schedule(self):
        return Batch(())


class LetsAllIn(MyAdmission):
    def check(self, request):
        return None


class LetsNobodyIn(MyAdmission):
    def check(self, request):
        super().check(request)
        self.max_len = 0
        super().check(request)


class AnswersNo(MyAdmission):
    def check(self, request):
        return 0 < len(request.prompt_token_ids) < self.max_len


class PromisesTooMuch(MyAdmission):
    def __init__(self, *, max_model_len, pool_tokens, vocab_size):
        super().__init__(
            max_model_len=max_model_len, pool_tokens=pool_tokens, vocab_size=vocab_size
        )
        self.max_len = max_model_len + 1


class HasNoLimits(MyAdmission):
    def __init__(self):
        pass


#: (slot, part, what the error says after the part's name)
WRONG = [
    ("kv_budget", ignores_grouping, r"returned \d+ blocks, which take \d+ bytes .*is 1048576"),
    ("kv_budget", divides, r"returned 65536\.0, expected a whole number of blocks"),
    ("kv_budget", finds_no_room, "returned 0 blocks, expected at least 1"),
    ("kv_budget", is_a_stub, "raised RuntimeError: implement kv_budget"),
    ("kv_budget", takes_other_names, r"has kv_budget\(config, memory, .*expected .*\(config, \*"),
    ("kv_budget", 17, "is of type int: give a function"),
    ("block_pool", ForgetsRelease, r"has ref_count\(1\) 2, expected 1"),
    ("block_pool", FreesShared, r"has num_free 2 after release\(1\), expected 1"),
    ("block_pool", HandsOutTwice, r"returned a block twice from allocate\(3\): \[0, 0, 0\]"),
    ("block_pool", TakesSomeAndFails, r"has num_free 0 after allocate\(2\) found too few"),
    ("block_pool", GivesFewer, r"from allocate\(2\) with 1 blocks free, expected OutOfBlocks"),
    ("block_pool", AllowsDoubleFree, r"accepted release\(1\) of a free block"),
    ("block_pool", RunsOverItsEnd, r"raised IndexError in allocate\(2\): list index out of range"),
    ("block_pool", CountsFromOne, r"raised InvariantViolation in release\(3\): free"),
    ("block_pool", HasNoAcquire, r"has no acquire\(block\)"),
    ("block_pool", NamesItN, r"has allocate\(n\), expected allocate\(count\)"),
    ("block_pool", ReturnsATuple, r"returned \(0, 1, 2\) from allocate\(3\), expected a list"),
    ("block_pool", MyBlockPool(4), "is of type MyBlockPool: give a class, which"),
    ("attention", forgets_scale, r"out\[1, 0, 0\] is .*, expected .*: position 2 of sequence 1"),
    ("attention", is_not_causal, r"out\[0, 0, 0\] .*position 0 of sequence 0.*in a mixed step"),
    ("attention", groups_wrong, r"out\[0, 0, 0\] is .* query head 0 on KV head 0"),
    ("attention", {"decode": reads_whole_blocks}, r"out\[0, 0, 0\] .*whose length is 1, .*decode"),
    ("attention", returns_rows_only, r"returned shape \[5, 96\] and torch.float32, expected q's"),
    ("attention", returns_doubles, r"returned shape \[5, 6, 16\] and torch.float64, expected q's"),
    ("attention", returns_nothing, "returned a NoneType, expected a tensor"),
    ("attention", my_decode, r"has attention\(.*seq_lens, \*, scale\), expected .*query_start_loc"),
    (
        "attention",
        {"prefill": my_decode},
        r"has the keys \['prefill'\], expected {'decode': function}",
    ),
    ("attention", MyBlockPool, "is neither a function, nor"),
    ("scheduler", SchedulesNobody, "failed a rehearsal: 2 sequences are unfinished and"),
    ("scheduler", ReturnsAList, r"returned \[.*\] from schedule, expected a Batch"),
    ("scheduler", ForgetsBlocks, r"failed an invariant of what it scheduled: has blocks for 0"),
    ("scheduler", GoesOverBudget, r"failed an invariant .*: \d+ tokens exceed the budget of 8"),
    ("scheduler", HasNoSchedule, r"does not implement schedule\(\)"),
    ("scheduler", IsNoScheduler, "is no subclass of minillm_serve.core.Scheduler"),
    ("admission", LetsAllIn, "let in what cannot be served: request 'empty' has an empty prompt"),
    ("admission", LetsNobodyIn, "refused a prompt of one token: a prompt of 1 tokens, sorry"),
    ("admission", AnswersNo, "returned False from check: raise RequestRefused to refuse"),
    ("admission", PromisesTooMuch, "has max_len 9, expected from 2 to 8 tokens"),
    ("admission", HasNoLimits, r"has __init__\(\), expected __init__\(\*, max_model_len"),
]
