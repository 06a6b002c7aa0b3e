"""Hash map and tree: what each promise of the protocol means, one by one."""

import sys
from struct import pack

import pytest

from minillm_serve.core import PREFIX_CACHES, HashPrefixCache, InvariantViolation, Namespace

OURS = Namespace(model="m")
A, B, C, D = (list(range(start, start + 4)) for start in (10, 20, 30, 40))  # a block of tokens each


@pytest.fixture(params=PREFIX_CACHES)
def cache(request):
    return PREFIX_CACHES[request.param](4)


def publish(cache, tokens, table, namespace=OURS):
    return cache.publish(tokens, table, len(tokens), namespace)


def test_the_longest_cached_beginning_is_found_in_whole_blocks(cache):
    assert publish(cache, A + B + C[:3], [5, 2, 7]) == [5, 2]
    assert cache.match(A + B + C, OURS) == [5, 2]
    assert cache.match(A + B[:3], OURS) == [5]
    assert cache.match(A + C, OURS) == [5]
    assert cache.match(B + A, OURS) == []
    assert cache.match([], OURS) == []


def test_a_prompt_that_is_all_cached_leaves_its_last_block_to_compute_b01(cache):
    """B01: whoever asks leaves the last token out, and with it the last of the whole blocks."""
    prompt = A + B
    publish(cache, prompt, [0, 1])
    assert cache.match(prompt[:-1], OURS) == [0]


def test_a_longer_prompt_hits_all_of_a_shorter_one_b02(cache):
    """B02: blocks that are published again, after a full hit, make no second entry."""
    publish(cache, A + B, [0, 1])
    for _ in range(2):
        assert publish(cache, A + B, [0, 1]) == []
    assert cache.num_cached == 2
    assert cache.match(A + B + C, OURS) == [0, 1]
    assert publish(cache, A + B + C, [0, 1, 2]) == [2]


def test_only_blocks_that_are_written_to_the_end_are_published(cache):
    assert cache.publish(A + B + C, [0, 1, 2], 11, OURS) == [0, 1]
    assert cache.publish(A + B + C, [0, 1, 2], 3, OURS) == []
    assert cache.match(A + B + C, OURS) == [0, 1]


def test_tokens_without_a_block_are_not_published(cache):
    assert cache.publish(A + B + C, [0, 1], 12, OURS) == [0, 1]
    assert cache.match(A + B + C, OURS) == [0, 1]
    assert cache.clear() == [1, 0]


def test_what_is_cached_in_other_blocks_stays_and_new_blocks_go_behind_it(cache):
    publish(cache, A, [0])
    assert publish(cache, A + B, [5, 6]) == [6]
    assert 5 not in cache
    assert cache.match(A + B, OURS) == [0, 6]
    cache.lock(6)
    assert cache.evict(9) == []
    assert cache.num_evictable == 0


def test_an_evicted_block_is_found_under_its_new_tokens_only_b03_b05(cache):
    """B03, B05: refilled, evicted and refilled again, it never answers to what it held before."""
    publish(cache, A, [0])
    for old, new in ((A, B), (B, C), (C, A)):
        assert cache.evict(1) == [0]
        assert 0 not in cache
        assert cache.match(old, OURS) == []
        publish(cache, new, [0])
        assert cache.match(old, OURS) == []
        assert cache.match(new, OURS) == [0]


def test_the_leaf_whose_last_use_is_longest_ago_goes_first(cache):
    publish(cache, A + B, [0, 1])
    publish(cache, A + C, [0, 2])
    publish(cache, D, [3])
    cache.match(A + B, OURS)
    assert cache.evict(4) == [2, 3, 1, 0]


def test_a_match_refreshes_no_more_than_it_found(cache):
    publish(cache, A + B + C, [0, 1, 2])
    publish(cache, D, [3])
    cache.match(A + D, OURS)
    assert cache.evict(3) == [2, 1, 3]


def test_a_block_was_in_use_until_it_is_unlocked(cache):
    publish(cache, A, [0])
    cache.lock(0)
    publish(cache, B, [1])
    cache.unlock(0)
    assert cache.evict(2) == [1, 0]


def test_a_lock_keeps_the_block_and_all_before_it_b04(cache):
    """B04: a block that somebody uses is never handed out for new content."""
    publish(cache, A + B + C, [0, 1, 2])
    cache.lock(1)
    cache.lock(1)
    assert cache.evict(9) == [2]
    cache.unlock(1)
    assert cache.evict(9) == []
    assert (cache.num_cached, cache.num_evictable) == (2, 0)
    cache.unlock(1)
    assert cache.clear() == [1, 0]


def test_locked_and_evictable_blocks_add_up_across_a_split_b16(cache):
    """B16: 1..8, then 1..4 and 9..12, both paths locked and unlocked."""
    first, second = list(range(1, 9)), [1, 2, 3, 4, 9, 10, 11, 12]
    publish(cache, first, [0, 1])
    cache.lock(1)
    publish(cache, second, [0, 2])
    assert (cache.num_cached, cache.num_evictable) == (3, 1)
    assert cache.evict(9) == [2]  # the lock on 1 was not lost when its run was cut in two
    publish(cache, second, [0, 2])
    cache.lock(2)
    assert (cache.num_cached, cache.num_evictable) == (3, 0)
    cache.unlock(1)
    assert (cache.num_cached, cache.num_evictable) == (3, 1)
    assert cache.evict(9) == [1]
    cache.unlock(2)
    assert (cache.num_cached, cache.num_evictable) == (2, 2)


def test_a_withdrawn_block_takes_everything_behind_it_along(cache):
    publish(cache, A + B + C, [0, 1, 2])
    publish(cache, A + B + D, [0, 1, 3])
    cache.lock(2)
    assert sorted(cache.withdraw(1)) == [1, 2, 3]
    assert cache.withdraw(2) == []
    assert cache.match(A + B + C, OURS) == [0]
    assert (cache.num_cached, cache.num_evictable) == (1, 1)
    with pytest.raises(InvariantViolation, match="block 2 is unlocked more often"):
        cache.unlock(2)


def test_namespaces_never_meet_b19(cache):
    """B19: a salt of 'x' is no adapter, no model and no KV dtype of 'x'."""
    spaces = [
        Namespace(),
        *(Namespace(**{f: "x"}) for f in ("model", "kv_dtype", "adapter", "salt")),
    ]
    for block, space in enumerate(spaces):
        assert cache.match(A, space) == []
        assert publish(cache, A, [block], space) == [block]
    assert [cache.match(A, space) for space in spaces] == [[0], [1], [2], [3], [4]]
    assert cache.match(A, Namespace(salt="None")) == []
    assert cache.match(A, Namespace(salt="")) == []
    assert cache.match(A, Namespace(salt="\ud800")) == []  # no Unicode, and yet a string


def test_a_namespace_leaves_nothing_behind(cache):
    """Or a million salts, each used once, would fill the memory."""
    space = Namespace(salt="once")
    references = sys.getrefcount(space)
    publish(cache, A + B, [0, 1], space)
    cache.clear()
    cache.match(A, space)
    assert sys.getrefcount(space) == references


@pytest.mark.parametrize("function", [lambda data: b"", lambda data: bytes([len(data) % 2])])
def test_a_poor_hash_function_costs_hits_and_never_gives_a_wrong_block_b17(function):
    """B17: tokens and parent are compared on a hit."""
    cache = HashPrefixCache(4, function)
    assert publish(cache, A + B, [0, 1])[:1] == [0]
    assert cache.match(A + B, OURS)[:1] == [0]
    for tokens in (B + A, C + D, A[::-1] + B):
        assert cache.match(tokens, OURS) == []
    assert cache.match(A + B, Namespace(salt="x")) == []
    publish(cache, C + D, [2, 3])
    assert not {0, 1} & set(cache.match(C + D, OURS))
    held = {0, 1, 2, 3} - {block for block in range(4) if block not in cache}
    assert set(cache.clear()) == held


def test_the_parent_is_compared_as_well_b17():
    """B17: equal tokens under one digest, yet behind other ones: another prefix."""
    cache = HashPrefixCache(4, lambda data: b"B" if pack("<4q", *B) in data else data)
    publish(cache, A + B, [0, 1])
    publish(cache, C, [2])
    assert cache.match(C + B, OURS) == [2]
    assert publish(cache, C + B, [2, 3]) == []
    assert cache.match(A + B, OURS) == [0, 1]


def test_what_should_not_be_asked_is_refused_and_changes_nothing(cache):
    publish(cache, A + B, [0, 1])
    cache.lock(1)
    with pytest.raises(InvariantViolation, match="block 7 is not indexed"):
        cache.lock(7)
    with pytest.raises(InvariantViolation, match="block 0 is unlocked more often than locked"):
        cache.unlock(0)
    with pytest.raises(InvariantViolation, match="block 1 is indexed already"):
        publish(cache, C + D, [2, 1])
    assert 2 not in cache
    assert cache.match(A + B, OURS) == [0, 1]
    assert (cache.num_cached, cache.num_evictable) == (2, 0)


def test_a_chain_may_be_as_long_as_it_likes(cache):
    tokens = list(range(80_000))
    table = list(range(20_000))
    assert publish(cache, tokens, table) == table
    cache.lock(19_999)
    cache.unlock(19_999)
    assert cache.match(tokens, OURS) == table
    assert cache.evict(2) == [19_999, 19_998]
    assert len(cache.withdraw(1)) == 19_997
