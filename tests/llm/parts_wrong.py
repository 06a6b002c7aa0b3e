"""Plausible wrong parts, each with what is said about it before anything is served."""

from minillm_serve.core import Accept, Batch, Queue, Refuse, ScheduledSequence, Scheduler
from tests.llm.parts_right import (
    MyAdmission,
    MyBlockPool,
    MyPrefixCache,
    MyScheduler,
    my_attention,
    my_decode,
)


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


class KeepsEvictedNames(MyPrefixCache):
    def match(self, token_ids, namespace):
        self.ever = {**getattr(self, "ever", {}), **self.blocks}
        known = [p for p in self.beginnings(token_ids, namespace) if p in self.ever]
        return [self.ever[prefix] for prefix in known]


class PublishesBeforeItIsWritten(MyPrefixCache):
    def publish(self, token_ids, block_table, num_written, namespace):
        return super().publish(token_ids, block_table, len(token_ids), namespace)


class ForgetsNamespaces(MyPrefixCache):
    def beginnings(self, token_ids, namespace):
        return super().beginnings(token_ids, None)


class HashesEachBlockAlone(MyPrefixCache):
    def match(self, token_ids, namespace):
        starts, found = range(0, len(token_ids) - self.block_size + 1, self.block_size), []
        for start in starts:
            own = tuple(token_ids[start : start + self.block_size])
            alike = [b for (n, t), b in self.blocks.items() if n == namespace and t[start:] == own]
            found += alike[:1]
        return found


class MatchesHalfBlocks(MyPrefixCache):
    def match(self, token_ids, namespace):
        found = super().match(token_ids, namespace)
        rest = tuple(token_ids[len(found) * self.block_size :])
        begun = (namespace, tuple(token_ids))
        return found + [self.blocks[p] for p in self.behind(begun) if rest][:1]


class EvictsWhatIsLocked(MyPrefixCache):
    def leaves(self):
        return [prefix for prefix in self.blocks if len(self.behind(prefix)) == 1]


class LocksOneBlockOnly(MyPrefixCache):
    def held(self):
        return {prefix for prefix, block in self.blocks.items() if self.locks.get(block)}


class EvictsRootsFirst(MyPrefixCache):
    def evict(self, count):
        loose = [prefix for prefix in self.blocks if prefix not in self.held()]
        return [self.blocks.pop(prefix) for prefix in loose[:count]]


class EvictsOneAtATime(MyPrefixCache):
    def evict(self, count):
        return super().evict(min(count, 1))


class NeverCountsLocks(MyPrefixCache):
    def lock(self, block):
        super().lock(block)
        self.locks[block] = 1


class WithdrawsOneBlock(MyPrefixCache):
    def withdraw(self, block):
        return [self.blocks.pop(self.prefix_of(block))] if block in self else []


class IndexesTwice(MyPrefixCache):
    def publish(self, token_ids, block_table, num_written, namespace):
        prefixes = self.beginnings(token_ids[:num_written], namespace)
        self.blocks.update(zip(prefixes, block_table, strict=False))
        self.use(block_table)
        return list(block_table[: len(prefixes)])


class HasNoWithdraw(MyPrefixCache):
    withdraw = None


class CallsThemTokens(MyPrefixCache):
    def match(self, tokens, namespace):
        return super().match(tokens, namespace)


class IsBuiltFromNothing(MyPrefixCache):
    def __init__(self):
        super().__init__(16)


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


class RefusesTheFirst(MyAdmission):
    def admit(self, request, load):
        return Refuse(retry_after=1.0) if load.num_waiting < 3 else Accept()


class ForgetsWhoLeft(MyAdmission):
    inside = 0

    def admit(self, request, load):
        self.inside += 1
        return Accept() if self.inside < 2 else Refuse(retry_after=1.0)


class AnswersYes(MyAdmission):
    def admit(self, request, load):
        return True


class NeverEnds(MyAdmission):
    def admit(self, request, load):
        return Queue(at_most=-1.0)


class NeverSaysGoodbye(MyAdmission):
    leave = None


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
    (
        "prefix_cache",
        KeepsEvictedNames,
        r"returned \[7, 8, 9\] from a match of 6 tokens: block 7 is not indexed",
    ),
    (
        "prefix_cache",
        PublishesBeforeItIsWritten,
        r"returned \[0, 1, 2\] from publish\(.*, 5\), expected \[0, 1\]",
    ),
    (
        "prefix_cache",
        ForgetsNamespaces,
        r"block 0 holds something else, and what .* has not been publ",
    ),
    (
        "prefix_cache",
        HashesEachBlockAlone,
        r"returned \[1\] from a match of 6 tokens: block 1 holds something",
    ),
    (
        "prefix_cache",
        MatchesHalfBlocks,
        r"returned \[0, 1\] from a match of 3 tokens: block 1 holds som",
    ),
    ("prefix_cache", EvictsWhatIsLocked, r"returned block 2 from evict\(2\), which is locked"),
    ("prefix_cache", LocksOneBlockOnly, r"has num_evictable 2 after lock\(2\), expected 0"),
    (
        "prefix_cache",
        EvictsRootsFirst,
        r"returned block 4 from evict\(2\) before those behind it: \[5, 6\]",
    ),
    ("prefix_cache", EvictsOneAtATime, r"returned \[9\] from evict\(2\), expected 2 blocks"),
    ("prefix_cache", NeverCountsLocks, r"has num_evictable 3 after unlock\(1\), expected 1"),
    ("prefix_cache", WithdrawsOneBlock, r"returned \[0\] from withdraw\(0\), expected \[0, 1\]"),
    (
        "prefix_cache",
        IndexesTwice,
        r"returned \[0, 1, 2\] from publish\(.*, 6\), expected \[2\], or fe",
    ),
    ("prefix_cache", HasNoWithdraw, r"has no withdraw\(block\)"),
    ("prefix_cache", CallsThemTokens, r"has match\(tokens, namespace\), expected match\(token_ids"),
    ("prefix_cache", IsBuiltFromNothing, r"has __init__\(\), expected __init__\(block_size\)"),
    ("prefix_cache", MyPrefixCache(4), "is of type MyPrefixCache: give a class, which"),
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
    ("admission", RefusesTheFirst, r"returned Refuse\(.* though the engine is idle"),
    ("admission", ForgetsWhoLeft, r"returned Refuse\(.* though the engine is idle"),
    ("admission", AnswersYes, r"returned True from admit, expected Accept\(\), Queue\(at_most"),
    ("admission", NeverEnds, r"raised ValueError in admit: Queue\.at_most=-1\.0"),
    ("admission", NeverSaysGoodbye, r"has no leave\(request_id\)"),
    ("admission", HasNoLimits, r"has __init__\(\), expected __init__\(\*, max_model_len"),
]
