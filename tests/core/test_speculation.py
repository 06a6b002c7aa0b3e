"""How many drafts: what they bring against what they cost, and what becomes of a wrong guess."""

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minillm_serve.core import Request, Sequence
from minillm_serve.core.speculation import (
    AdaptiveLengths,
    Curve,
    FixedLengths,
    SpecCounter,
    SpecStats,
    StepCosts,
)
from minillm_serve.core.speculation.allot import Bill, allot
from minillm_serve.core.speculation.probing import SHARE, Patience, Probes
from minillm_serve.core.speculation.rates import Rates, Tally

#: About this project's machine: 14 ms for one row, and each further one takes a tenth of that.
ROWS = Curve([(1, 0.014), (2, 0.0152), (4, 0.018), (8, 0.024), (16, 0.036), (64, 0.110)])
CPU = StepCosts(plain=ROWS, verify=ROWS, draft=Curve([(1, 0.0012), (64, 0.008)]))
FREE_DRAFTS = StepCosts(plain=ROWS, verify=ROWS)
#: Rows cost next to nothing: a large model at small batches.
FLAT = StepCosts(plain=Curve([(1, 0.02), (512, 0.022)]), verify=Curve([(1, 0.02), (512, 0.022)]))
#: Every row costs as much as the first: drafts cannot pay, however good.
DEAR = StepCosts(plain=Curve([(1, 0.01), (2, 0.02)]), verify=Curve([(1, 0.01), (2, 0.02)]))


def sequences(count):
    return [Sequence(Request(request_id=str(i), prompt_token_ids=(1,))) for i in range(count)]


class World:
    """Steps that take what `costs` says, and drafts that are kept at given rates."""

    def __init__(self, lengths, costs, rates, *, most=5, seed=0):
        self.lengths, self.costs, self.most = lengths, costs, most
        self.draw = random.Random(seed)
        self.rates = dict(zip(sequences(len(rates)), rates, strict=True))
        self.tokens = self.num_drafts = 0
        self.seconds = 0.0

    def step(self):
        chosen = self.lengths.choose(dict.fromkeys(self.rates, self.most), 0)
        counts = [chosen.get(sequence, 0) for sequence in self.rates]
        drafting = [sum(count > depth for count in counts) for depth in range(self.most)]
        self.seconds += self.costs.seconds(len(counts) + sum(counts), drafting)
        self.num_drafts += sum(counts)
        for (sequence, rate), count in zip(self.rates.items(), counts, strict=True):
            kept = 0
            while kept < count and self.draw.random() < rate:
                kept += 1
            if count:
                self.lengths.note(sequence, count, kept)
            self.tokens += kept + 1
        return counts

    def run(self, steps):
        before = self.tokens, self.seconds
        for _ in range(steps):
            self.step()
        return (self.tokens - before[0]) / (self.seconds - before[1])


def rate(gains, lengths, bill):
    kept = sum(sum(own[:length]) for own, length in zip(gains, lengths, strict=True))
    return (len(gains) + kept) / bill.seconds(lengths)


# What was verified and kept


def test_a_verification_without_drafts_is_none():
    counter = SpecCounter()
    counter.add(0, 0)
    assert counter.stats == SpecStats()
    assert (counter.stats.acceptance_rate, counter.stats.mean_acceptance_length) == (0.0, 1.0)


def test_counts_are_vllms():
    counter = SpecCounter()
    for drafted, accepted in ((3, 3), (3, 1), (1, 0)):
        counter.add(drafted, accepted)
    assert counter.stats == SpecStats(3, 7, 4, (2, 1, 1))
    assert counter.stats.acceptance_rate == pytest.approx(4 / 7)
    assert counter.stats.mean_acceptance_length == pytest.approx(1 + 4 / 3)


def test_more_drafts_kept_than_there_were_is_refused():
    with pytest.raises(ValueError, match="num_accepted=2: expected from 0 to 1"):
        SpecCounter().add(1, 2)


def test_fixed_lengths_give_everybody_as_many_as_there_is_room_for():
    first, second = sequences(2)
    assert FixedLengths(3).choose({first: 5, second: 1}, 7) == {first: 3, second: 1}


@pytest.mark.parametrize("make", [FixedLengths, lambda count: AdaptiveLengths(count, CPU)])
def test_lengths_of_0_are_refused(make):
    with pytest.raises(ValueError, match="=0: expected at least 1"):
        make(0)


# What steps cost


def test_a_curve_is_straight_between_points_and_goes_on_beyond_them():
    curve = Curve([(8, 4.0), (2, 1.0), (4, 2.0)])
    assert [curve(rows) for rows in (0, 1, 2, 3, 4, 6, 8, 10)] == [0, 1, 1, 1.5, 2, 3, 4, 5]
    assert (Curve()(7), Curve([(4, 3.0)])(1), Curve([(4, 3.0)])(9)) == (0, 3, 3)


def test_a_time_that_more_rows_beat_was_disturbed_and_counts_as_no_longer_than_theirs():
    curve = Curve([(1, 1.0), (2, 9.0), (4, 3.0), (8, 4.0)])
    assert curve.points == ((1, 1.0), (2, 3.0), (4, 3.0), (8, 4.0))


@pytest.mark.parametrize("points", [[(0, 1.0)], [(2, 1.0), (2, 2.0)], [(1, -1.0)], [(1, 1e999)]])
def test_impossible_points_are_refused(points):
    with pytest.raises(ValueError, match="expected"):
        Curve(points)


times = st.floats(0.0, 10.0)
curves = st.lists(st.tuples(st.integers(1, 40), times), max_size=6, unique_by=lambda p: p[0])


@settings(deadline=None)
@given(curves, st.integers(1, 60))
def test_no_row_takes_less_than_the_least(points, rows):
    curve = Curve(points)
    assert curve(rows) >= curve(rows - 1) >= 0
    for more in range(rows, 80):
        assert curve(more + 1) - curve(more) >= curve.least_slope(rows) - 1e-9


def test_a_step_costs_what_its_sequences_rows_and_passes_do():
    costs = StepCosts(
        plain=Curve([(1, 1.0), (3, 3.0)]), verify=Curve([(1, 2.0), (9, 4.0)]),
        draft=Curve([(1, 0.5)]), first_draft=Curve([(1, 0.25)]),
    )  # fmt: skip
    assert costs.seconds(3) == costs.seconds(3, [0, 0]) == 3.0
    # Three sequences, of which one has two drafts and one has one.
    assert costs.switch == 0.25
    assert costs.seconds(6, [2, 1, 0]) == 3.0 + 0.25 + 0.75 + 0.25 + 0.5


def test_a_step_that_is_not_recorded_takes_longer_however_few_drafts_it_has():
    recorded = StepCosts(plain=Curve([(1, 1.0), (8, 1.0)]), verify=Curve([(2, 4.0), (64, 4.0)]))
    assert recorded.seconds(9, [1]) == 4.0
    assert StepCosts(plain=ROWS, verify=ROWS).switch == 0.0


# Who gets how many

falling = st.lists(st.floats(0.0, 1.0), max_size=3).map(lambda own: sorted(own, reverse=True))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(falling, min_size=1, max_size=3),
    st.lists(st.floats(0.0, 1.0), min_size=12, max_size=12),
    st.tuples(*[st.floats(0.0, 0.5)] * 3),
    st.integers(0, 5),
    st.sampled_from([0.0, 0.02]),
)
def test_no_other_allotment_is_better(gains, increments, draft, num_others, margin):
    total, points = 1.0, []
    for row, more in enumerate(increments, 1):
        total += more
        points.append((row, total))
    first, later, each = draft
    costs = StepCosts(
        plain=Curve([(rows, 0.9 * seconds) for rows, seconds in points]),  # so there is a switch
        verify=Curve(points),
        draft=Curve([(1, later + each), (2, later + 2 * each)]),
        first_draft=Curve([(1, first + each), (2, first + 2 * each)]),
    )
    bill = Bill(costs, len(gains), num_others, most=3)
    every = product(*(range(len(own) + 1) for own in gains))
    best = max(rate(gains, lengths, bill) for lengths in every)
    lengths = allot(gains, bill, margin=margin)
    if lengths:
        assert all(length <= len(own) for length, own in zip(lengths, gains, strict=True))
        assert rate(gains, lengths, bill) == pytest.approx(best)
        assert best > bill.rate * (1 + margin)
    else:
        assert best <= bill.rate * (1 + margin) * (1 + 1e-9)


def test_a_loss_on_the_way_is_accepted_for_the_gain_behind_it():
    # Two rows take twice as long as one, and four no longer than two.
    curve = Curve([(1, 1.0), (2, 2.0), (4, 2.0), (5, 9.0)])
    bill = Bill(StepCosts(curve, curve), 1, most=3)
    assert allot([[0.9, 0.8, 0.7]], bill) == [3]
    assert allot([[0.9]], bill) == []


def test_a_step_without_drafts_that_is_cheaper_by_itself_counts():
    # As on a GPU, where plain decode steps are recorded and others are not.
    recorded = StepCosts(plain=Curve([(1, 1.0)]), verify=Curve([(1, 3.0)]))
    assert allot([[0.9, 0.8]], Bill(recorded, 1, most=2)) == []
    assert allot([[0.9, 0.8, 0.7]], Bill(recorded, 1, most=3)) == [3]


def test_few_passes_serve_a_batch_in_which_one_sequence_could_use_many():
    costs = StepCosts(plain=FLAT.plain, verify=FLAT.verify, draft=Curve([(1, 0.011), (64, 0.012)]))
    easy = [0.95**j for j in range(1, 6)]
    lengths = allot([easy, *[[0.6, 0.1, 0, 0, 0]] * 7], Bill(costs, 8, most=5))
    assert lengths == [1] * 8


def test_a_prompt_that_is_read_makes_drafts_dear_only_where_rows_are():
    kink = Curve([(1, 1.0), (64, 1.1), (65, 2.0), (66, 2.9)])  # memory-bound, then compute-bound
    costs = StepCosts(kink, kink)
    assert allot([[0.8, 0.6]], Bill(costs, 1, 32, most=2)) == [2]
    assert allot([[0.8, 0.6]], Bill(costs, 1, 512, most=2)) == []


# How the adaptive lengths do


@pytest.mark.parametrize("costs", [CPU, FREE_DRAFTS, FLAT])
@pytest.mark.parametrize("count", [1, 4, 32])
@pytest.mark.parametrize("kept", [0.0, 0.3, 0.6, 0.9])
def test_they_come_near_the_best_fixed_length_none_included(costs, count, kept):
    class Nobody:
        def choose(self, rooms, others):
            return {}

        def note(self, *args):
            raise AssertionError

    steps = 1000 // count + 200
    fixed = [World(Nobody(), costs, [kept] * count).run(steps)]
    for number in range(1, 6):
        fixed.append(World(FixedLengths(number), costs, [kept] * count).run(steps))
    world = World(AdaptiveLengths(5, costs), costs, [kept] * count)
    world.run(100)
    assert world.run(steps) > 0.93 * max(fixed)


def test_the_easy_sequence_of_a_batch_drafts_and_the_others_do_not():
    world = World(AdaptiveLengths(5, CPU), CPU, [0.95, 0.1, 0.1, 0.1])
    world.run(300)
    counts = [world.step() for _ in range(100)]
    easy, *hard = [sum(column) / 100 for column in zip(*counts, strict=True)]
    assert easy > 2
    assert max(hard) < 0.1


def test_where_certain_drafts_would_not_pay_nobody_is_ever_probed():
    world = World(AdaptiveLengths(5, DEAR), DEAR, [1.0] * 4)
    world.run(2000)
    assert world.num_drafts == 0


@pytest.mark.parametrize("costs", [CPU, FREE_DRAFTS])
@pytest.mark.parametrize("count", [1, 4, 16])
def test_probes_of_hopeless_texts_take_less_than_their_share_of_the_time(costs, count):
    world = World(AdaptiveLengths(5, costs), costs, [0.0] * count)
    world.run(300)  # until the first guess is unlearnt
    before, drafts = world.seconds, world.num_drafts
    world.run(4000)
    plain = 4000 * costs.seconds(count)
    assert 0 < world.seconds - before - plain < 1.01 * SHARE * plain
    assert world.num_drafts > drafts


def test_a_sequence_that_fails_is_probed_ever_more_rarely_and_one_that_does_not_at_once():
    probes, patience, bill = Probes(), Patience(0), Bill(FREE_DRAFTS, 1, most=5)

    def steps_until_probed(num_accepted):
        before = probes.step
        while True:
            for _ in range(100):  # so that there is always enough on the account
                probes.begin(bill)
            probes.step += 1 - 100
            if probes.pick([patience], [0], bill):
                probes.settle(patience, 1, num_accepted)
                return probes.step - before

    waits = [steps_until_probed(kept) for kept in (0, 0, 0, 0, 0, 1, 1, 0, 0)]
    assert waits == [1, 8, 16, 32, 32, 32, 1, 1, 8]


@pytest.mark.parametrize("count", [1, 4])
def test_a_text_that_becomes_easy_is_noticed(count):
    world = World(AdaptiveLengths(5, CPU), CPU, [0.0] * count)
    world.run(500)
    world.rates = dict.fromkeys(world.rates, 0.95)
    world.run(400)
    assert sum(sum(world.step()) for _ in range(50)) > 50 * count


def test_a_text_that_becomes_hard_is_left_alone_soon():
    world = World(AdaptiveLengths(5, CPU), CPU, [0.95])
    world.run(200)
    world.rates = dict.fromkeys(world.rates, 0.0)
    world.run(80)
    assert sum(sum(world.step()) for _ in range(50)) < 5


def test_a_newcomer_is_judged_by_the_others():
    lengths = AdaptiveLengths(5, CPU)
    World(lengths, CPU, [0.05] * 4).run(200)
    (newcomer,) = sequences(1)
    assert lengths.choose({newcomer: 5}, 0).get(newcomer, 0) <= 1
    World(lengths, CPU, [0.95] * 4, seed=1).run(400)
    (newcomer,) = sequences(1)
    assert lengths.choose({newcomer: 5}, 0)[newcomer] > 1


def test_drafts_behind_the_first_wrong_one_say_nothing():
    rates = Rates(5)
    few, many = Tally(0, 0, 30), Tally(0, 0, 30)
    Rates(5).note(few, 1, 0)
    Rates(5).note(many, 5, 0)
    assert (few.above, few.below) == (many.above, many.below)
    assert rates.alpha(few) < rates.alpha(Tally(0, 0, 30))


def test_the_estimate_converges_to_the_share_that_is_kept():
    rates, own, draw = Rates(4), Tally(0, 0, 30), random.Random(0)
    seen = []
    for step in range(3000):
        kept = 0
        while kept < 4 and draw.random() < 0.7:
            kept += 1
        rates.note(own, 4, kept)
        if step > 200:
            seen.append(rates.gains(own))
    for place in range(4):
        mean = sum(gains[place] for gains in seen) / len(seen)
        assert mean == pytest.approx(0.7 ** (place + 1), abs=0.04)


def test_later_drafts_that_are_worse_than_the_first_are_known_to_be():
    rates, own, draw = Rates(3), Tally(0, 0, 30), random.Random(0)
    for _ in range(2000):
        kept = 0
        while kept < 3 and draw.random() < (0.8, 0.5, 0.2)[kept]:
            kept += 1
        rates.note(own, 3, kept)
    assert rates.gains(own) == pytest.approx([0.8, 0.4, 0.08], abs=0.15)


def test_a_drafter_that_has_no_guess_for_a_probe_is_asked_again_at_no_charge():
    lengths = AdaptiveLengths(5, FREE_DRAFTS)
    (sequence,) = sequences(1)
    while lengths.choose({sequence: 5}, 0) != {}:
        lengths.note(sequence, 1, 0)
    asked = [bool(lengths.choose({sequence: 5}, 0)) for _ in range(500)]
    assert sum(asked) > 400


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=6),
    st.sampled_from([CPU, FREE_DRAFTS, FLAT, DEAR]),
    st.integers(0, 300),
    st.integers(0, 99),
)
def test_nobody_gets_more_than_there_is_room_for(rooms, costs, num_others, seed):
    lengths, draw = AdaptiveLengths(5, costs), random.Random(seed)
    given_rooms = dict(zip(sequences(len(rooms)), rooms, strict=True))
    for _ in range(40):
        for sequence, length in lengths.choose(given_rooms, num_others).items():
            assert 1 <= length <= min(5, given_rooms[sequence])
            lengths.note(sequence, length, draw.randint(0, length))


def test_sequences_that_have_ended_leave_nothing_behind():
    lengths = AdaptiveLengths(5, CPU)
    world = World(lengths, CPU, [0.5] * 3)
    world.run(10)
    for sequence in world.rates:
        lengths.forget(sequence)
        lengths.forget(sequence)
    assert lengths.num_known == 0
