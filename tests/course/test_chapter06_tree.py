"""Chapter 06's small world and its experiment: what they show is what the engine does."""

from xml.etree import ElementTree

import pytest

from minillm_serve.core import Namespace, RadixPrefixCache
from minillm_serve.course.chapter06 import experiment, pools, tree, world
from minillm_serve.course.linked import FormulaExperiment

CROWDS = [(8, 16, 4, 48), (8, 16, 4, 24), (10, 18, 2, 64), (3, 0, 8, 30), (5, 31, 8, 40)]


@pytest.fixture
def widget() -> FormulaExperiment:
    made = experiment.experiment()
    assert made.panel is not None
    made.panel.give_up()
    return made


def symbols_of(svg: str) -> set[str]:
    """All that parts of a drawing are marked with."""
    root = ElementTree.fromstring(svg)
    return {name for e in root.iter() for name in e.get("data-sym", "").split()}


@pytest.mark.parametrize("cache", ["hash", "radix"])
@pytest.mark.parametrize(("users", "shared", "block_size", "pool"), CROWDS)
def test_the_blocks_held_are_those_of_the_formula_at_every_step(
    cache: str, users: int, shared: int, block_size: int, pool: int
) -> None:
    for moment in world.chat(cache, users, shared, block_size, pool):
        assert moment.num_live == experiment.formula(moment, shared, block_size)
        assert moment.num_live == len(moment.named)


@pytest.mark.parametrize(("users", "shared", "block_size", "pool"), CROWDS)
def test_both_indexes_keep_and_evict_the_same_blocks(
    users: int, shared: int, block_size: int, pool: int
) -> None:
    crowd = (users, shared, block_size, pool)
    assert world.chat("hash", *crowd) == world.chat("radix", *crowd)


def test_without_a_cache_nothing_is_shared_found_or_kept() -> None:
    for moment in world.chat(None, 8, 16, 4, 48):
        assert set(moment.named.values()) <= {1}
        assert moment.found == moment.num_evicted == len(moment.prefixes) == 0


def test_free_kept_and_live_blocks_never_exceed_the_pool_and_some_are_evicted() -> None:
    moments = world.chat("radix", 8, 16, 4, 40)
    assert all(m.num_live + len(m.next_to_go) <= 40 for m in moments)
    assert moments[-1].num_evicted == sum(len(m.evicted) for m in moments) > 20


def test_what_is_next_to_go_is_read_by_nobody_and_has_nothing_behind_it() -> None:
    seen = 0
    for moment in world.chat("radix", 8, 16, 4, 48):
        nodes = {node.block: node for node in tree.grow(moment, 4).walk()}
        for first in moment.next_to_go[:1]:
            assert first not in moment.named
            assert {child.kind for child in nodes[first].children} <= {"evicted"}
            seen += 1
    assert seen > 20


def test_whoever_asks_again_finds_the_answer_too() -> None:
    moments = world.chat("radix", 1, 16, 4, 64)
    said = 16 + world.QUESTION + world.answer_len(1, 0)
    written = said - 1  # nothing was read after the last token of the answer
    assert moments[-1].found == written // 4 * 4


def test_every_block_is_drawn_once_and_every_reader_at_the_end_of_a_table() -> None:
    for moment in world.chat("radix", 8, 16, 4, 48):
        nodes = [node for node in tree.grow(moment, 4).walk() if node.depth >= 0]
        drawn = [node.block for node in nodes if node.block is not None]
        assert sorted(drawn) == sorted({*moment.prefixes, *moment.named})
        assert len({(node.row, node.depth) for node in nodes}) == len(nodes)
        readers = {node.reader: node.block for node in nodes if node.reader}
        assert readers == {one.name: one.blocks[-1] for one in moment.running}


def test_the_outlined_runs_are_the_nodes_of_the_real_tree() -> None:
    cache = RadixPrefixCache(2)
    watched = world.Watched(cache, 2)
    for tokens, table in (((1, 1, 2, 2, 3, 3), [0, 1, 2]), ((1, 1, 4, 4), [0, 3])):
        watched.publish(tokens, table, len(tokens), Namespace())
    moment = world.Moment((), 0, dict(watched.prefixes), (), (), 0, 0, 0, 0)
    found = {(a.block, b.block) for a, b in tree.runs(tree.grow(moment, 2))}
    assert found == {(0, 0), (1, 2), (3, 3)}
    nodes = {(node.blocks[0], node.blocks[-1]) for node in cache._nodes.values()}
    assert found == nodes


def test_a_watched_cache_knows_the_tokens_of_whatever_is_indexed() -> None:
    watched = world.Watched(RadixPrefixCache(2), 2)
    watched.publish((1, 2, 3, 4, 5), [7, 9, 8], 5, Namespace())
    assert watched.prefixes == {7: (1, 2), 9: (1, 2, 3, 4)}
    assert watched.next_to_go() == [9, 7]
    assert watched.evict(1) == [9]
    assert watched.evicted == [(1, 2, 3, 4)]
    assert watched.withdraw(7) == [7]
    assert watched.prefixes == {}


@pytest.mark.parametrize("cache", ["hash", "radix"])
def test_the_experiment_draws_the_ends_of_all_its_controls(
    widget: FormulaExperiment, cache: str
) -> None:
    for changes in ({"step": 1}, {"step": 60, "users": 1}, {"S": 32, "P": 2}, {"pool": 24, "S": 0}):
        widget.reset()
        widget.set(cache=cache, **changes)
        assert widget.error is None


def test_each_symbol_is_a_part_of_the_drawing(widget: FormulaExperiment) -> None:
    assert symbols_of(widget.picture.svg) == {"S", "P", "B", "L"}


def test_one_step_of_any_slider_changes_the_picture(widget: FormulaExperiment) -> None:
    start = widget.values()
    beyond = {"step": 30, "users": 9, "S": 18, "P": 8, "pool": 49}
    first = widget.picture.svg
    for name, value in beyond.items():
        widget.set(**{**start, name: value})
        assert widget.picture.svg != first, name


def test_the_prediction_asks_for_what_the_picture_shows(widget: FormulaExperiment) -> None:
    assert widget.predict is not None
    answer = widget.predict.right_answer(widget.values())
    assert f"hold {answer} of" in widget.describe()
    assert widget.result().startswith(f"{answer} blocks")


def test_a_larger_pool_never_finds_less_and_turns_fall_off_a_cliff() -> None:
    for load in pools.LOADS:
        rates = [pools.hit_rate(load, size) for size in (24, 48, 96)]
        assert rates == sorted(rates)
    assert pools.hit_rate("in turns", pools.WORKING_SET - 4) == 0
    assert pools.hit_rate("in turns", pools.WORKING_SET + 8) > 0.75
    assert pools.hit_rate("at random", 48, "hash") == pools.hit_rate("at random", 48)
