"""Which sequences read a prefix together: found in block tables, and only where it pays."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minillm_serve.core import Batch, Request, SamplingParams, ScheduledSequence, Sequence
from minillm_serve.runtime.attention.cascade import (
    CascadeCosts,
    SharedPrefix,
    find_shared_prefixes,
    member_tiles,
    shared_tokens,
)
from minillm_serve.runtime.attention.registry import BACKENDS
from minillm_serve.runtime.inputs import build_inputs

P = 4
FREE = CascadeCosts(readers=1, row=0, step=0)


def find(tables, lengths, rows=None, costs=FREE):
    width = max(map(len, tables))
    padded = np.array([[*table, *[0] * (width - len(table))] for table in tables], np.int32)
    starts = np.cumsum([0, *(rows or [1] * len(tables))]).astype(np.int32)
    return find_shared_prefixes(
        padded, starts, np.array(lengths, np.int32), block_size=P, costs=costs
    )


def test_a_common_beginning_is_found_up_to_the_first_block_that_differs():
    found = find([[7, 2, 9, 4], [7, 2, 9, 5, 8], [3, 6], [7, 2, 9, 1]], [14, 17, 8, 16])
    assert found == (SharedPrefix((0, 1, 3), 3, P),)
    assert found[0].num_tokens == 12


def test_something_is_left_to_every_row():
    """The block that a row's own token is in is not shared, even if tables say so."""
    assert find([[7, 2, 9], [7, 2, 9]], [12, 12]) == (SharedPrefix((0, 1), 2, P),)
    assert find([[7, 2, 9], [7, 2, 9]], [13, 9]) == (SharedPrefix((0, 1), 2, P),)
    assert find([[7], [7]], [4, 4]) == ()


def test_nothing_is_found_where_nothing_is_shared():
    assert find([[1, 2], [3, 2], [4, 2]], [8, 8, 8]) == ()
    assert find([[1, 2]], [8]) == ()


def test_ids_behind_a_fork_do_not_count_though_they_are_equal():
    assert find([[1, 5, 3, 4], [1, 6, 3, 4]], [16, 16]) == (SharedPrefix((0, 1), 1, P),)


def test_padding_behind_a_table_is_not_taken_for_a_block():
    """Tables are filled up with 0, which is a block like any other."""
    assert find([[1], [1], [1, 0, 2]], [4, 3, 12]) == ()
    assert find([[1, 5], [1], [1, 0, 2]], [8, 4, 12]) == (SharedPrefix((0, 2), 1, P),)


def test_slices_of_prompts_are_left_out():
    tables = [[7, 2, 9], [7, 2, 8], [7, 2, 6], [7, 2, 5]]
    assert find(tables, [12] * 4, rows=[1, 3, 1, 2]) == (SharedPrefix((0, 2), 2, P),)


def test_a_group_is_split_where_that_saves_more():
    """All share one block; two and two of them six more."""
    tables = [[1, *range(10, 16), 90 + i] for i in range(2)]
    tables += [[1, *range(20, 26), 80 + i] for i in range(2)]
    assert find(tables, [30] * 4) == (SharedPrefix((0, 1), 7, P), SharedPrefix((2, 3), 7, P))
    short = [[*table[:2], table[-1]] for table in tables]
    assert find(short, [10] * 4) == (SharedPrefix((0, 1), 2, P), SharedPrefix((2, 3), 2, P))
    many = [[1, 2, 3, 40 + i // 2, 60 + i] for i in range(6)]
    assert find(many, [18] * 6) == (SharedPrefix((0, 1, 2, 3, 4, 5), 3, P),)


def test_a_prefix_longer_than_one_look_at_the_tables_is_found_whole():
    prefix = list(range(100, 200))
    tables = [[*prefix, 1], [*prefix, 2], [*prefix[:70], 3]]
    assert find(tables, [101 * P, 101 * P, 71 * P]) == (SharedPrefix((0, 1, 2), 70, P),)
    assert find(tables[:2], [101 * P] * 2) == (SharedPrefix((0, 1), 100, P),)


def test_a_chain_of_ever_longer_contexts_is_not_searched_for_ever():
    """Each of 300 sequences goes on one block further with all that follow: a fork apiece."""
    tables = [[*range(1, s + 2), 1000 + s] for s in range(300)]
    found = find(tables, [len(table) * P for table in tables])
    assert len(found) == 1
    assert len(found[0].sequences) > 200


@pytest.mark.parametrize(
    ("costs", "pays"),
    [
        (CascadeCosts(readers=1, row=0, step=0), True),
        (CascadeCosts(readers=1, row=0, step=15), True),  # two readers saved, of two blocks: 16
        (CascadeCosts(readers=1, row=0, step=16), False),
        (CascadeCosts(readers=1, row=5, step=0), True),
        (CascadeCosts(readers=1, row=6, step=0), False),
        (CascadeCosts(readers=3, row=0, step=0), False),
    ],
)
def test_prefixes_that_save_less_than_they_cost_are_not_shared(costs, pays):
    found = find([[7, 2, 9], [7, 2, 8], [7, 2, 6]], [9, 10, 11], costs=costs)
    assert found == ((SharedPrefix((0, 1, 2), 2, P),) if pays else ())


@st.composite
def steps(draw):
    """Tables out of few blocks, so that many begin alike."""
    count = draw(st.integers(1, 8))
    blocks = st.lists(st.integers(0, 2), min_size=1, max_size=5)
    tables = [draw(blocks) for _ in range(count)]
    lengths = [draw(st.integers(1, len(table) * P)) for table in tables]
    rows = [draw(st.sampled_from([1, 1, 1, 2])) for _ in tables]
    costs = CascadeCosts(draw(st.integers(1, 2)), draw(st.integers(0, 5)), draw(st.integers(0, 30)))
    return tables, lengths, rows, costs


@given(steps())
def test_no_other_choice_of_groups_saves_more(step):
    tables, lengths, rows, costs = step
    found = find(tables, lengths, rows, costs)
    members = [s for prefix in found for s in prefix.sequences]
    assert len(members) == len(set(members))
    for prefix in found:
        assert len({tuple(tables[s][: prefix.num_blocks]) for s in prefix.sequences}) == 1
        assert all(rows[s] == 1 and lengths[s] > prefix.num_tokens for s in prefix.sequences)
        assert len(prefix.sequences) > 1
    saved = sum(costs.saved(len(one.sequences), one.num_tokens) for one in found)
    best = most_saved([s for s, n in enumerate(rows) if n == 1], 0, tables, lengths, costs)
    assert saved == (best if best > costs.step else 0)


def most_saved(members, depth, tables, lengths, costs):
    """The same search, block by block and without a bound."""
    together = costs.saved(len(members), depth * P) if depth and len(members) > 1 else 0.0
    going_on = [s for s in members if (lengths[s] - 1) // P > depth]
    apart = sum(
        most_saved(
            [s for s in going_on if tables[s][depth] == block], depth + 1, tables, lengths, costs
        )
        for block in {tables[s][depth] for s in going_on}
    )
    return max(together, apart, 0.0)


def test_groups_are_cut_into_even_tiles():
    prefixes = [SharedPrefix((4, 7, 8, 9, 2), 3, P), SharedPrefix((1, 3), 1, P)]
    want = [[4, 7, 8, -1], [9, 2, -1, -1], [1, 3, -1, -1]]
    assert member_tiles(prefixes, 4).tolist() == want
    assert shared_tokens(prefixes, 10).tolist() == [0, 4, 12, 4, 12, 0, 0, 12, 12, 12]


def running(tables, length):
    """Sequences in the middle of decoding."""
    batch = []
    for table in tables:
        request = Request(
            request_id=str(table[-1]),
            prompt_token_ids=(1,) * length,
            params=SamplingParams(temperature=0),
        )
        sequence = Sequence(request)
        sequence.block_table, sequence.num_computed = table, length - 1
        batch.append(ScheduledSequence(sequence, length - 1, 1, True))
    return Batch(tuple(batch))


def test_a_step_tells_its_backend_only_if_that_can_make_use_of_it():
    batch = running([[7, 2, 9], [5, 1, 6], [7, 2, 8]], 11)
    options = {"block_size": P, "device": torch.device("cpu")}
    assert build_inputs(batch, **options).attention.shared_prefixes == ()
    told = build_inputs(batch, **options, cascade=FREE).attention.shared_prefixes
    assert told == (SharedPrefix((0, 2), 2, P),)
    dear = replace(FREE, step=1000)
    assert build_inputs(batch, **options, cascade=dear).attention.shared_prefixes == ()


def test_which_backends_read_a_shared_prefix_once():
    can = {name for name, backend in BACKENDS.items() if backend.capabilities.cascade is not None}
    assert can == {"cpu", "torch", "triton"}
