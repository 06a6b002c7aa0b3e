"""ex06's judges: what they expect is right, and what they say about a wrong answer is so."""

import random
from typing import Any

import pytest

from minillm_serve.core import HashPrefixCache, Namespace, RadixPrefixCache
from minillm_serve.course.exercises import answers_ex06 as answers
from minillm_serve.course.exercises import engine_ex06 as engine
from minillm_serve.course.exercises import keeping_ex06 as keeping
from minillm_serve.course.exercises import scripts_ex06 as scripts
from minillm_serve.course.exercises import trees_ex06 as trees
from minillm_serve.course.exercises.evidence import carried
from minillm_serve.course.exercises.ex06_radix_cache import EXERCISE
from minillm_serve.course.exercises.exercise import Check, CheckFailed
from minillm_serve.course.exercises.scripts_ex06 import evict, lock, match, publish, script

CACHES = [RadixPrefixCache, HashPrefixCache]
SCRIPTED = [c for part in EXERCISE.parts for c in part.checks if c.run is scripts.play]
TOKENS = list(range(10, 22))


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("check", SCRIPTED, ids=lambda check: check.name)
def test_the_engines_own_caches_pass_every_script(check: Check, cache: type) -> None:
    """B04, B16: after every call the same blocks are indexed, and as many evictable."""
    for seed in range(5):
        for case in check.cases(random.Random(seed)):
            answers.judge_script(case, carried(scripts.play(cache, case)))


@pytest.mark.parametrize("cache", CACHES)
def test_the_engines_own_caches_serve_everybody(cache: type) -> None:
    for seed in range(3):
        for made in (engine.twin_cases, engine.crowd_cases):
            for case in made(random.Random(seed)):
                engine.judge_service(case, carried(engine.serve(cache, case)))


def test_every_crowd_has_hits_and_evictions() -> None:
    for seed in range(5):
        (case,) = engine.crowd_cases(random.Random(seed))
        roomy = {**case, "num_blocks": 1000}
        tight, free = (engine.serve(RadixPrefixCache, one) for one in (case, roomy))
        assert 0 < tight["hits"] < free["hits"]


def test_random_scripts_hold_all_kinds_of_calls_and_none_that_must_be_refused() -> None:
    for seed in range(5):
        small, large = keeping.random_cases(random.Random(seed))
        assert {call.method for call in large["calls"]} == {
            "match",
            "publish",
            "lock",
            "unlock",
            "evict",
            "withdraw",
        }
        for case in (small, large):
            assert not any(entry["refused"] for entry in scripts.play(RadixPrefixCache, case))


class Doctored:
    """Our cache, and a lie about one method."""

    def __init__(self, method: str, told: Any) -> None:
        self.method, self.told = method, told

    def __call__(self, block_size: int) -> Any:
        told, method = self.told, self.method

        class Lying(RadixPrefixCache):
            pass

        setattr(Lying, method, lambda self, *arguments: told)
        return Lying(block_size)


def said(case: Any, cache: Any) -> CheckFailed:
    with pytest.raises(CheckFailed) as failure:
        answers.judge_script(case, carried(scripts.play(cache, case)))
    return failure.value


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ([5, 6, 8], "and the next one would count as computed, too"),
        ([3], "block 3 was never indexed"),
        ([2], "is of another namespace"),
        ([6], "block 6 holds"),
        ([5], "it finds 1 blocks, and 2 are cached"),
        (None, "it should return a list of blocks"),
        ([5.0, 6], "it should return a list of blocks"),
    ],
)
def test_b01_what_match_returns_wrong_is_named(told: Any, reason: str) -> None:
    case = script(
        publish(TOKENS, [5, 6, 8]),
        publish(TOKENS, [2], 4, Namespace(salt="x")),
        match(TOKENS[:11]),
    )
    failure = said(case, Doctored("match", told))
    assert reason in failure.message
    assert failure.message.startswith("call 3, match(")


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ([6], "goes before block 7, which is behind it"),
        ([5], "is locked, or one behind it is"),
        ([9], "was used after block 7"),
        ([2], "block 2 is not indexed"),
        ([], "though nobody locks 7"),
        ([7, 6], "1 blocks were asked for"),
    ],
)
def test_b03_what_is_evicted_wrong_is_named(told: list[int], reason: str) -> None:
    turned = TOKENS[:3:-1]
    case = script(publish(TOKENS, [5, 6, 7]), publish(turned, [8, 9]), lock(5), evict(1))
    assert reason in said(case, Doctored("evict", told)).message


def test_evidence_that_was_made_up_is_no_log() -> None:
    case = script(match([1]))
    made_up: list[Any] = [None, [], 7, [{}], [{"got": []}], [1], ["x"]]
    for forged in made_up:
        with pytest.raises(CheckFailed):
            answers.judge_script(case, forged)
        with pytest.raises(CheckFailed):
            trees.judge_growth(trees.tree_case(([1, 2], [0]), size=2), forged)
        with pytest.raises(CheckFailed):
            engine.judge_service(engine.twin_cases(random.Random(0))[0], forged)
