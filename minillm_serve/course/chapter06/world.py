"""A small world with a real engine in it: people who chat twice, all behind one system prompt.

Engine, scheduler, block manager and prefix cache are those that serve; instead of a model there is
the executor of `parts.rehearsal`, which notes which tokens each slot holds, and checks whatever is
read.
"""

from __future__ import annotations

import copy
import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from minillm_serve.core import (
    PREFIX_CACHES,
    Admission,
    BlockManager,
    BlockPool,
    ContinuousScheduler,
    EngineCore,
    Namespace,
    PrefixCache,
    Request,
    SamplingParams,
)
from minillm_serve.core import Sequence as TokenSequence
from minillm_serve.parts.rehearsal import VOCAB, Memory, words

#: Steps that are looked at, and most people who come within them.
STEPS, MOST_USERS = 60, 10
#: Tokens of a question, and steps between two newcomers, and between an answer and the next
#: question.
QUESTION, GAP, PAUSE = 5, 3, 6
#: Tokens that a step may compute; never the limit here.
PLENTY = 4096

Tokens = tuple[int, ...]


class Watched:
    """A prefix cache that somebody looks at: it does what the one inside does.

    Attributes:
        prefixes: indexed block -> all tokens up to its end.
        evicted: tokens up to their ends, of blocks that were evicted since `evicted` was cleared.
    """

    def __init__(self, cache: PrefixCache, block_size: int) -> None:
        self.cache, self.block_size = cache, block_size
        self.prefixes: dict[int, Tokens] = {}
        self.evicted: list[Tokens] = []
        self.match, self.lock, self.unlock = cache.match, cache.lock, cache.unlock

    @property
    def num_cached(self) -> int:
        """See `PrefixCache`."""
        return self.cache.num_cached

    @property
    def num_evictable(self) -> int:
        """See `PrefixCache`."""
        return self.cache.num_evictable

    def __contains__(self, block: int) -> bool:
        return block in self.cache

    def publish(
        self,
        token_ids: Sequence[int],
        block_table: Sequence[int],
        num_written: int,
        where: Namespace,
    ) -> list[int]:
        """See `PrefixCache`."""
        new = self.cache.publish(token_ids, block_table, num_written, where)
        last = num_written // self.block_size
        for number, block in zip(range(last - len(new), last), new, strict=True):
            self.prefixes[block] = tuple(token_ids[: (number + 1) * self.block_size])
        return new

    def evict(self, count: int) -> list[int]:
        """See `PrefixCache`."""
        gone = self.cache.evict(count)
        self.evicted += [self.prefixes.pop(block) for block in gone]
        return gone

    def withdraw(self, block: int) -> list[int]:
        """See `PrefixCache`."""
        gone = self.cache.withdraw(block)
        for one in gone:
            del self.prefixes[one]
        return gone

    def clear(self) -> list[int]:
        """See `PrefixCache`."""
        gone = self.cache.clear()
        for block in gone:
            del self.prefixes[block]
        return gone

    def next_to_go(self) -> list[int]:
        """All blocks that may be evicted, in the order in which they would be."""
        return copy.deepcopy(self.cache).evict(self.cache.num_evictable)


@dataclass(frozen=True, slots=True)
class Running:
    """Somebody who is being answered.

    Attributes:
        name: who, as in "3" or "3b", which is their second question.
        tokens: those whose KV is in memory.
        blocks: where.
    """

    name: str
    tokens: Tokens
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """The world after a step.

    Attributes:
        running: who is being answered.
        num_waiting: who is not yet, for want of blocks.
        prefixes: indexed block -> all tokens up to its end.
        next_to_go: blocks that may be evicted, first to last.
        evicted: tokens up to their ends, of blocks that the step evicted.
        num_live: blocks that somebody's table names.
        num_evicted: blocks evicted so far.
        computed: prompt tokens computed so far.
        found: prompt tokens that were cached so far.
    """

    running: tuple[Running, ...]
    num_waiting: int
    prefixes: dict[int, Tokens]
    next_to_go: tuple[int, ...]
    evicted: tuple[Tokens, ...]
    num_live: int
    num_evicted: int
    computed: int
    found: int

    @property
    def named(self) -> Counter[int]:
        """Block -> tables that name it."""
        return Counter(block for one in self.running for block in one.blocks)


@dataclass(slots=True)
class World:
    """An engine, and those who come to it.

    Args:
        cache: a key of `PREFIX_CACHES`, or None.
        num_blocks: of the pool.
        block_size: tokens a block (P).
    """

    cache: str | None
    num_blocks: int
    block_size: int
    engine: EngineCore = field(init=False)
    memory: Memory = field(init=False)
    watched: Watched | None = field(init=False)

    def __post_init__(self) -> None:
        made = PREFIX_CACHES[self.cache](self.block_size) if self.cache else None
        self.watched = Watched(made, self.block_size) if made else None
        blocks = BlockManager(
            BlockPool(self.num_blocks), self.block_size, prefix_cache=self.watched
        )
        self.memory = Memory(self.num_blocks, self.block_size)
        scheduler = ContinuousScheduler(
            blocks, max_num_seqs=64, max_num_batched_tokens=PLENTY, max_len=blocks.capacity
        )
        admission = Admission(
            max_model_len=blocks.capacity, pool_tokens=blocks.capacity, vocab_size=VOCAB
        )
        self.engine = EngineCore(scheduler, self.memory, admission, clock=lambda: 0.0)

    def ask(self, name: str, prompt: Tokens, output_len: int) -> None:
        """Puts a question to the engine.

        Raises:
            RequestRefused: it is longer than the whole pool.
        """
        params = SamplingParams(temperature=0, max_tokens=output_len)
        self.engine.add_request(Request(request_id=name, prompt_token_ids=prompt, params=params))

    def step(self) -> list[tuple[str, Tokens]]:
        """Runs a step; gives who has got a whole answer, and all tokens up to its end."""
        if self.watched:
            self.watched.evicted.clear()
        updates = self.engine.step()
        done = [update for update in updates if update.finish_reason is not None]
        return [(update.request_id, tuple(update.sequence.token_ids)) for update in done]

    def serve(self, prompts: Iterable[Tokens], output_len: int = 1) -> None:
        """Answers questions one after another."""
        for number, prompt in enumerate(prompts):
            self.ask(str(number), prompt, output_len)
            while self.engine.has_unfinished:
                self.step()

    def look(self) -> Moment:
        """What there is to see now."""
        scheduler, watched = self.engine.scheduler, self.watched
        stats = self.engine.prefix_stats
        return Moment(
            running=tuple(map(_seen, scheduler.running)),
            num_waiting=len(scheduler.waiting),
            prefixes=dict(watched.prefixes) if watched else {},
            next_to_go=tuple(watched.next_to_go()) if watched else (),
            evicted=tuple(watched.evicted) if watched else (),
            num_live=stats.num_live,
            num_evicted=stats.num_evicted,
            computed=self.memory.prompt_tokens,
            found=stats.hits,
        )


def _seen(sequence: TokenSequence) -> Running:
    known = tuple(sequence.token_ids[: sequence.num_computed])
    return Running(sequence.request.request_id, known, tuple(sequence.block_table))


def answer_len(user: int, turn: int) -> int:
    """Tokens of an answer: 9 to 16, different from one to the next."""
    return 9 + (5 * user + 3 * turn) % 8


@functools.lru_cache(maxsize=64)
def chat(
    cache: str | None, users: int, shared: int, block_size: int, num_blocks: int
) -> tuple[Moment, ...]:
    """`STEPS` moments of people who ask, read the answer, and ask once more.

    Args:
        cache: a key of `PREFIX_CACHES`, or None.
        users: how many come.
        shared: tokens of the system prompt in front of everything (S).
        block_size: tokens a block (P).
        num_blocks: of the pool.
    """
    world, system = World(cache, num_blocks, block_size), words(-1, shared)
    coming = {GAP * user: [(f"{user + 1}", system)] for user in range(users)}
    moments = []
    for now in range(STEPS):
        for name, history in coming.pop(now, []):
            user, turn = int(name.rstrip("b")), int(name.endswith("b"))
            question = words(10 * user + turn, QUESTION)
            world.ask(name, history + question, answer_len(user, turn))
        for name, said in world.step():
            if not name.endswith("b"):
                coming.setdefault(now + PAUSE, []).append((f"{name}b", said))
        moments.append(world.look())
    return tuple(moments)
