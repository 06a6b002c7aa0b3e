"""Chapter 02's memories: nothing is held twice, nothing is lost, every slot is accounted for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minillm_serve.course.chapter02 import traffic
from minillm_serve.course.chapter02.memory import FirstFit, Paged, Reserving, Span, Talk
from minillm_serve.course.chapter02.traffic import (
    CHAT,
    LONGEST,
    MIXES,
    POLICIES,
    SIZE,
    Server,
    look,
    make_talks,
    open_server,
    watch,
)

each_policy = pytest.mark.parametrize("policy", POLICIES)
each_mix = pytest.mark.parametrize("mix", MIXES)


def test_first_fit_takes_the_first_hole_that_is_long_enough() -> None:
    memory = FirstFit(10)
    assert [memory.allocate(name, 2) for name in "abcd"] == [Span(2 * i, 2) for i in range(4)]
    memory.free("a")
    memory.free("c")
    assert memory.holes() == [Span(0, 2), Span(4, 2), Span(8, 2)]
    assert memory.allocate("e", 1) == Span(0, 1)
    assert memory.allocate("f", 2) == Span(4, 2)
    assert memory.holes() == [Span(1, 1), Span(8, 2)]


def test_first_fit_fails_with_enough_memory_free_in_pieces() -> None:
    memory = FirstFit(16)
    for name, length in (("a", 4), ("b", 3), ("c", 4), ("d", 3), ("e", 2)):
        memory.allocate(name, length)
    memory.free("b")
    memory.free("d")
    assert sum(hole.length for hole in memory.holes()) == 6
    assert memory.allocate("f", 5) is None
    assert "f" not in memory.pieces


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9)), max_size=60))
@settings(deadline=None)
def test_first_fit_pieces_and_holes_cover_the_memory_without_overlap(
    steps: list[tuple[bool, int]],
) -> None:
    memory, names = FirstFit(24), iter(range(1000))
    for take, length in steps:
        if take or not memory.pieces:
            memory.allocate(str(next(names)), length)
        else:
            memory.free(list(memory.pieces)[length % len(memory.pieces)])
        parts = sorted([*memory.pieces.values(), *memory.holes()])
        assert [part.start for part in parts] == [0, *(part.end for part in parts[:-1])]
        assert sum(part.length for part in parts) == 24


@each_policy
@each_mix
def test_every_slot_is_in_exactly_one_state_after_every_step(policy: str, mix: str) -> None:
    for moment in watch(policy, mix, 16):
        amounts = moment.ledger.amounts()
        assert sum(amounts) == SIZE
        assert min(amounts) >= 0


@each_policy
@pytest.mark.parametrize("block_size", [1, 16, 256])
def test_no_slot_is_held_twice_and_all_tokens_have_one(policy: str, block_size: int) -> None:
    server = open_server(policy, CHAT, block_size)
    for _ in range(60):
        moment = server.step()
    holders = server.holders()
    held = [slot for one in holders for span in one.spans for slot in range(span.start, span.end)]
    assert len(set(held)) == len(held)
    assert set(held) <= set(range(SIZE))
    for one in holders:
        assert sum(s.length for s in one.spans) == one.stored + one.reserved + one.wasted
    ledger = moment.ledger
    assert len(held) == ledger.useful + ledger.reserved + ledger.internal


@pytest.mark.parametrize("block_size", [1, 4, 16, 64])
def test_paged_memory_holds_at_most_the_rest_of_one_block_a_sequence(block_size: int) -> None:
    for holder in look("paged", CHAT, block_size, 150):
        assert holder.reserved + holder.wasted <= block_size - 1


def test_only_memory_in_one_piece_is_ever_stranded() -> None:
    assert max(m.ledger.external for m in watch("what is asked for")) > 0
    assert max(m.ledger.external for m in watch("paged")) == 0
    assert max(m.ledger.external for m in watch("the longest")) == 0  # all pieces are alike


def test_stranded_is_what_the_next_in_line_would_get_in_one_piece() -> None:
    memory = Reserving(10, lambda talk: talk.asked)
    for name, asked in (("a", 3), ("b", 4), ("c", 3)):
        assert memory.admit(name, Talk(1, 1, asked), 1)
    memory.release("a")
    memory.release("c")
    assert not memory.admit("d", Talk(1, 1, 5), 1)
    waiting = [Talk(1, 1, 5), Talk(1, 1, 1), Talk(1, 1, 9)]
    assert memory.stranded(iter(waiting)) == 6
    assert memory.stranded(iter(waiting[2:])) == 0


def test_the_oracle_wastes_nothing_and_still_holds_what_has_no_token_yet() -> None:
    found = traffic.shares(watch("the true length (oracle)"))
    assert found["internal"] == 0
    assert found["reserved"] > 0.1


def test_paging_holds_several_times_as_many_people_as_reserving_the_longest() -> None:
    few, many = (traffic.mean_running(watch(policy)) for policy in ("the longest", "paged"))
    assert few == SIZE // LONGEST
    assert many > 2 * few
    assert traffic.shares(watch("paged"))["useful"] > 0.9


def test_reserving_the_longest_is_paging_with_blocks_as_long() -> None:
    blocks = Server(Paged(SIZE, LONGEST), make_talks(CHAT))
    pieces = Server(Reserving(SIZE, lambda talk: LONGEST), make_talks(CHAT))
    for _ in range(150):
        assert blocks.step().ledger.amounts()[:3] == pieces.step().ledger.amounts()[:3]


def test_who_cannot_grow_goes_back_with_all_tokens_and_no_memory() -> None:
    server = Server(Paged(8, 4), [Talk(4, 9, 13), Talk(3, 9, 12), Talk(1, 9, 10)])
    server.step()
    assert [one.name for one in server.running] == ["1", "2"]
    moment = server.step()
    assert (moment.preemptions, [one.name for one in server.running]) == (1, ["1"])
    assert (server.waiting[0].name, server.waiting[0].stored) == ("2", 3)
    assert moment.ledger.free == 0


def test_no_talk_is_longer_than_what_it_asked_for_or_than_the_longest() -> None:
    for mix in MIXES:
        for talk in make_talks(mix):
            assert talk.prompt + talk.output <= talk.asked <= LONGEST


def test_the_same_seed_makes_the_same_people() -> None:
    assert make_talks(CHAT, seed=3) == make_talks(CHAT, seed=3) != make_talks(CHAT, seed=4)


def test_too_few_people_are_refused_rather_than_taken_for_free_memory() -> None:
    server = Server(Paged(SIZE, 16), make_talks(CHAT, count=3))
    with pytest.raises(ValueError, match="give more talks"):
        server.step()


@pytest.mark.parametrize(("policy", "mix"), [("lottery", CHAT), ("paged", "nobody")])
def test_unknown_names_are_refused_with_the_known_ones(policy: str, mix: str) -> None:
    with pytest.raises(ValueError, match="choose from"):
        open_server(policy, mix, 16)
