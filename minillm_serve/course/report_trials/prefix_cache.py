"""Users of three system prompts: some all ask the same, some come back with a second question."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from minillm_serve.core import InvariantViolation, MakePrefixCache, Namespace, RadixPrefixCache
from minillm_serve.course.report_card import Counters, Measure, Trial
from minillm_serve.course.report_trials.crowd import SLOTS
from minillm_serve.parts import Part
from minillm_serve.parts.prefix import fit_prefix_cache
from minillm_serve.parts.rehearsal import Rehearsed, Visit, answer, rehearse, words

SEED, BLOCKS, USERS = 0, 64, 60


def trial(yours: Any) -> Trial:
    """What many ask, and conversations of two questions; each after one of 3 system prompts."""
    return Trial(
        trace=f"{len(visits())} prompts that begin in 3 ways, with {BLOCKS} blocks (seed {SEED})",
        naive=CachesNothing,
        naive_is="caches nothing",
        reference=RadixPrefixCache,
        measures=(
            Measure("users served", "=", len(visits())),
            Measure("prompt tokens computed", "<=", slack=0.03),
            Measure("hit rate", ">=", slack=0.03, format=".0%"),
            Measure("evictions", "<=", slack=0.03),
            Measure("cached blocks", ">=", slack=0.03),
        ),
        count=_count,
        work=_churn,
    )


class CachesNothing:
    """Indexes no block, so that none is ever found."""

    num_cached = num_evictable = 0

    def __init__(self, block_size: int) -> None:
        pass

    def __contains__(self, block: int) -> bool:
        return False

    def match(self, token_ids: Sequence[int], namespace: Namespace) -> list[int]:
        """See `PrefixCache`."""
        return []

    def publish(
        self,
        token_ids: Sequence[int],
        block_table: Sequence[int],
        num_written: int,
        namespace: Namespace,
    ) -> list[int]:
        """See `PrefixCache`."""
        return []

    def lock(self, block: int) -> None:
        """See `PrefixCache`."""
        raise InvariantViolation(f"block {block} is not indexed")

    def unlock(self, block: int) -> None:
        """See `PrefixCache`."""
        raise InvariantViolation(f"block {block} is not locked")

    def evict(self, count: int) -> list[int]:
        """See `PrefixCache`."""
        return []

    def withdraw(self, block: int) -> list[int]:
        """See `PrefixCache`."""
        return []

    def clear(self) -> list[int]:
        """See `PrefixCache`."""
        return []


def visits() -> list[Visit]:
    """Every second user asks one of four questions; the others' own ones are followed by another.

    A second prompt is all that was said before, and some more.
    """
    draw, coming = random.Random(SEED), list[Visit]()
    for user in range(USERS):
        step, length = 4 * user + draw.randrange(4), draw.randrange(2, 16)
        if user % 2:
            topic = draw.randrange(4)
            coming.append(Visit(step, words(-1 - topic % 3, 26) + words(-9 - topic, 20), 2))
            continue
        prompt = words(-1 - draw.randrange(3), 26) + words(user, draw.randrange(1, 14))
        again = prompt + answer(prompt, length) + words(USERS + user, draw.randrange(1, 9))
        coming.append(Visit(step, prompt, length))
        coming.append(Visit(step + draw.randrange(20, 40), again, draw.randrange(2, 12)))
    return coming


def serve_all(prefix_cache: MakePrefixCache | None) -> Rehearsed:
    """Serves everybody, without a model."""
    return rehearse(
        visits(),
        prefix_cache=prefix_cache,
        num_blocks=BLOCKS,
        block_size=4,
        max_num_seqs=SLOTS,
        max_num_batched_tokens=32,
    )


def _count(part: Part) -> Counters:
    watched = fit_prefix_cache(part, None)
    with part.trial("the trace"):
        served = serve_all(watched)
    right = sum(n == v.output_len for n, v in zip(served.lengths, visits(), strict=True))
    return {
        "users served": right,
        "prompt tokens computed": served.prompt_tokens,
        "hit rate": served.prefix.hit_rate,
        "evictions": served.prefix.num_evicted,
        "cached blocks": served.prefix.num_cached,
    }


def _churn(make: MakePrefixCache) -> None:
    """128 prompts of 12 blocks, half of which they share with others, come and go in 128 blocks."""
    draw, cache, free, namespace = random.Random(SEED), make(4), list(range(128)), Namespace()
    for prompt in range(128):
        tokens = words(-1 - draw.randrange(5), 24) + words(prompt, 24)
        table = cache.match(tokens, namespace)
        missing = 12 - len(table)
        for block in table[-1:]:
            cache.lock(block)
        free += cache.evict(missing - len(free))
        table, held = table + [free.pop() for _ in range(missing)], table[-1:]
        cache.publish(tokens, table, len(tokens), namespace)
        free += [block for block in table if block not in cache]
        for block in held:
            cache.unlock(block)
