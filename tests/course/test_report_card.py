"""The report card: what it counts, what it wants, and what it says of a part that fails."""

import re
from itertools import count

import pytest
import torch

from minillm_serve.course.report_card import Measure, report_card
from minillm_serve.course.report_trials import TRIALS
from minillm_serve.course.report_trials.attention import ReadCounter
from minillm_serve.parts import SLOTS
from tests.llm.parts_right import RIGHT, MyPrefixCache, my_attention, my_decode
from tests.llm.parts_wrong import (
    FreesShared,
    GoesOverBudget,
    LetsAllIn,
    LocksOneBlockOnly,
    groups_wrong,
    ignores_grouping,
    is_a_stub,
    is_not_causal,
    returns_doubles,
)
from tests.spec.rules import WRONG

ROUNDS = {"rounds": 1}


class EvictsTheNewest(MyPrefixCache):
    def use(self, blocks):
        self.now -= 2
        super().use(blocks)


def card(slot, part):
    """Without real time: every piece of work takes a second."""
    ticks = count()
    return report_card(slot, part, rounds=1, clock=lambda: float(next(ticks)))


def test_every_slot_has_a_report_card():
    assert set(TRIALS) == set(SLOTS)


@pytest.mark.parametrize("slot", TRIALS)
def test_the_engine_s_own_part_reaches_every_target(slot):
    reference = TRIALS[slot](None).reference
    told = card(slot, reference)
    assert told.passed
    assert told.counters["yours"] == told.counters["reference"]
    assert set(told.met) == {measure.name for measure in told.trial.measures}


@pytest.mark.parametrize(
    "slot",
    ["kv_budget", "prefix_cache", "attention", "kv_quantizer", "scheduler", "admission", "accept"],
)
def test_the_naive_part_misses_a_target(slot):
    told = card(slot, TRIALS[slot](None).naive)
    assert not told.passed
    assert told.error == ""


@pytest.mark.parametrize(
    "slot",
    ["kv_budget", "block_pool", "prefix_cache", "attention", "kv_quantizer", "admission", "accept"],
)
def test_a_learner_s_right_part_passes(slot):
    assert card(slot, RIGHT[slot]).passed


def test_a_decode_function_is_tried_on_decodes():
    told = card("attention", {"decode": my_decode})
    assert told.passed
    assert "a step of 8 rows of 8 sequences" in repr(told)


@pytest.mark.parametrize("slot", TRIALS)
def test_the_text_is_the_same_every_time_but_for_the_times(slot):
    first, second = card(slot, RIGHT[slot]), card(slot, RIGHT[slot])
    assert repr(first) == repr(second)
    measured = report_card(slot, RIGHT[slot], **ROUNDS)
    times = re.compile(r" +[\d.]+x$| +time$", re.MULTILINE)
    assert times.sub("", repr(measured)) == times.sub("", repr(first))


def test_the_table_reads_like_this():
    assert repr(card("kv_budget", ignores_grouping)) == (
        "kv_budget: tests.llm.parts_wrong.ignores_grouping on 12 memories for 4 models (seed 0)\n"
        "           right    blocks  memory used  users at once     bytes too many  time\n"
        "naive          3    19,289        43.1%            230                  0  1.0x\n"
        "yours          0   327,981       100.0%            775  1,341,113,718,893  1.0x\n"
        "reference     12    62,438       100.0%            775                  0  1.0x\n"
        "target      = 12  = 62,438      ≥ 99.0%          ≥ 775                = 0\n"
        "met            ✗         ✗            ✓              ✓                  ✗\n"
        "naive: keeps keys and values for every query head; reference: the engine's own; "
        "time: as a multiple of the reference's"
    )


@pytest.mark.parametrize(
    ("slot", "part", "missed"),
    [
        ("kv_budget", ignores_grouping, {"right", "blocks", "bytes too many"}),
        ("attention", is_not_causal, {"error below", "blocks read"}),
        ("attention", groups_wrong, {"error below"}),
        ("admission", LetsAllIn, {"let in", "harmful ones let in"}),
        ("prefix_cache", EvictsTheNewest, {"prompt tokens computed", "hit rate", "evictions"}),
        ("scheduler", RIGHT["scheduler"], {"steps", "tokens a step", "idle slots"}),
        ("accept", WRONG["picks again from p"], {"cases right", "p-value"}),
        ("accept", WRONG["tests against p"], {"cases right", "p-value", "tokens a step"}),
    ],
)
def test_what_a_part_does_badly_shows_in_its_column(slot, part, missed):
    told = card(slot, part)
    assert {name for name, met in told.met.items() if not met} >= missed
    assert not told.passed


@pytest.mark.parametrize(
    ("slot", "part", "message"),
    [
        ("kv_budget", is_a_stub, "raised RuntimeError: implement kv_budget"),
        ("kv_budget", lambda config, **memory: 0.5, "returned 0.5 blocks"),
        ("block_pool", FreesShared, "has num_free 2 after release(1), expected 1"),
        ("prefix_cache", LocksOneBlockOnly, "has num_evictable 2 after lock(2), expected 0"),
        ("scheduler", GoesOverBudget, "13 tokens exceed the budget of 8"),
        ("attention", returns_doubles, "torch.float64, expected q's"),
    ],
)
def test_a_part_that_fails_is_named_and_has_no_numbers(slot, part, message):
    told = card(slot, part)
    assert not told.passed
    assert message in told.error
    assert message in repr(told)
    assert told.counters["yours"] == {}
    assert set(told.ratios) == {"naive", "reference"}
    assert f"your {slot} (" in told._repr_html_()


def test_a_budget_beyond_all_bounds_is_only_a_number():
    told = card("kv_budget", lambda config, **memory: 10**15)
    assert told.counters["yours"]["users at once"] == 775
    assert told.counters["yours"]["bytes too many"] > 10**20


def test_html_shows_the_same_and_escapes_names():
    told = card("kv_budget", lambda config, **memory: 1)
    page = told._repr_html_()
    assert "&lt;lambda&gt;" in page
    assert "<lambda>" not in page
    assert page.count("<tr") == 6
    assert page.count("✗") == len([met for met in told.met.values() if not met])


def test_reads_that_torch_does_not_see_are_no_number():
    def leaves_torch(q, k_cache, v_cache, block_tables, seq_lens, *, scale):
        copies = (torch.from_numpy(cache.numpy().copy()) for cache in (k_cache, v_cache))
        return my_decode(q, *copies, block_tables, seq_lens, scale=scale)

    told = card("attention", {"decode": leaves_torch})
    assert told.counters["yours"]["blocks read"] is None
    assert told.passed


def test_a_row_that_reads_what_nobody_wrote_is_spoilt_b137():
    def masks_scores_alone(q, k_cache, v_cache, block_tables, seq_lens, *, scale):
        heads, group = torch.arange(q.shape[1]), q.shape[1] // k_cache.shape[1]
        k, v = (cache[block_tables.long()][:, :, heads // group] for cache in (k_cache, v_cache))
        k, v = (x.transpose(1, 2).flatten(2, 3) for x in (k, v))
        scores = torch.einsum("shd,shld->shl", q, k) * scale
        hidden = torch.arange(k.shape[2]) >= seq_lens[:, None, None]
        return torch.einsum("shl,shld->shd", scores.masked_fill(hidden, -1e30).softmax(-1), v)

    told = card("attention", {"decode": masks_scores_alone})
    assert told.met["error below"]
    assert told.counters["yours"]["rows spoilt"] > 0
    assert not told.passed


def test_reads_are_counted_in_bytes_through_every_view():
    cache, other = torch.ones(10, 4), torch.ones(10, 4)
    with ReadCounter(cache) as reads:
        cache[3:5].transpose(0, 1)  # a view reads nothing
        assert reads.num_bytes == 0
        cache[torch.tensor([1, 1, 7])]
        assert reads.num_bytes == 3 * 16
        cache[2:4] + other[2:4]
        assert reads.num_bytes == 5 * 16
        torch.cat([other[:1], cache[:1]])
        assert reads.num_bytes == 6 * 16
        other.sum()
    assert reads.num_bytes == 6 * 16


def test_times_are_the_best_of_all_rounds_and_multiples_of_the_reference():
    # naive, yours, reference in turns; two rounds; the second is better for all.
    spans = iter([9, 5, 4, 6, 3, 2])
    clock, now, began = [], 0.0, True

    def read():
        nonlocal now, began
        if not began:
            now += next(spans)
        began = not began
        clock.append(now)
        return now

    told = report_card("admission", RIGHT["admission"], rounds=2, clock=read)
    assert told.ratios == {"naive": 3.0, "yours": 1.5, "reference": 1.0}


@pytest.mark.parametrize(
    ("measure", "reference", "target", "good", "bad"),
    [
        (Measure("a", "=", 5), 9, 5, 5, 6),
        (Measure("a", "<=", slack=0.1), 200, 220, 220, 221),
        (Measure("a", ">=", slack=0.1), 200, 180, 180, 179),
        (Measure("a", ">="), 7, 7, 8, 6),
    ],
)
def test_targets_are_numbers_or_shares_of_the_reference(measure, reference, target, good, bad):
    assert measure.target(reference) == pytest.approx(target)
    assert measure.is_met(good, target)
    assert not measure.is_met(bad, target)


def test_a_slot_without_a_card_is_refused():
    with pytest.raises(ValueError, match="no report card for slot 'prefix'; choose from"):
        report_card("prefix", my_attention)
