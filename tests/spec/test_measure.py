"""What steps and drafts cost: measured within the engine's limits, in nobody's way, and in time."""

from types import SimpleNamespace

import pytest
import torch

from minillm_serve.core import AdaptiveLengths
from minillm_serve.core.batch import SequenceOutput, StepResult
from minillm_serve.core.executor import FinishedStep
from minillm_serve.runtime.forward import Forward
from minillm_serve.runtime.spec.draft_model import DraftModelDrafter
from minillm_serve.runtime.spec.drafter import Proposal
from minillm_serve.runtime.spec.eagle import EagleDrafter
from minillm_serve.runtime.spec.early_exit import EarlyExitDrafter
from minillm_serve.runtime.spec.measure import CONTEXT, LEAST, SIZES, measure_costs
from minillm_serve.runtime.spec.ngram import NgramDrafter
from minillm_serve.sim.executor import SimClock
from tests.models.tiny import VOCAB
from tests.spec.by_hand import (
    NUM_BLOCKS,
    ByHand,
    P,
    assert_all_greedy,
    make_cache,
    make_head,
    make_model,
    make_sequence,
    make_similar,
)


class Machine:
    """An executor and a drafter that take known times: a fixed one, and one for each row.

    Args:
        fixed: seconds of a step; `recorded` takes its place where every sequence has one row.
        row: seconds of a row.
        a_pass: seconds of a drafting pass, and the same again for each 10 sequences.
        hiccup: so many times something takes a second longer.
        compiling: seconds that are added when a step has so many rows, or a pass so many sequences,
            for the first time.
    """

    def __init__(
        self, *, fixed=0.01, row=0.001, recorded=None, a_pass=0.002, hiccup=0, compiling=0
    ):
        self.clock = SimClock()
        self.fixed, self.row, self.recorded, self.a_pass = fixed, row, recorded, a_pass
        self.hiccup = hiccup
        self.compiling, self.compiled = compiling, set()
        self.kv_cache = SimpleNamespace(block_size=16, num_blocks=2000, k=[], v=[])
        self.device = torch.device("cpu")
        self.graphs = recorded
        self.drafter = self
        self.batches = []

    def submit(self, batch):
        self.batches.append(batch)
        items = list(batch.scheduled)
        for item in items:
            if item.num_drafts:
                assert self.drafter is not self
                assert self.drafter.propose([item]).token_ids == [[0] * item.num_drafts]
        plain = all(item.num_tokens == 1 for item in items)
        fixed = self.recorded if plain and self.recorded is not None else self.fixed
        self._compile("step", batch.num_tokens)
        self._take(fixed + self.row * batch.num_tokens)
        self.drafter.observe(batch, None, None)
        return FinishedStep(StepResult((SequenceOutput(),) * len(items)))

    def propose(self, items):
        counts = [item.num_drafts for item in items]
        self._compile("pass", len(items))
        self._take(max(counts) * self.a_pass * (1 + len(items) / 10))
        return Proposal([[0] * count for count in counts])

    def observe(self, batch, inputs, hidden):
        self.observed = batch

    def measure(self, **options):
        limits = {"max_num_seqs": 64, "max_num_batched_tokens": 2048, "max_len": 4096}
        return measure_costs(self, **limits | options, clock=self.clock)

    def _compile(self, *what):
        if what not in self.compiled:
            self.compiled.add(what)
            self.clock.advance(self.compiling)

    def _take(self, seconds):
        if self.hiccup and len(self.batches) % 3 == 2:
            self.hiccup -= 1
            seconds += 1.0
        self.clock.advance(seconds)


def test_times_are_told_apart():
    machine = Machine()
    costs = machine.measure(seconds=10)
    for sequences, drafting in ((1, []), (64, []), (1, [1, 1, 1]), (7, [7, 3]), (40, [40, 9])):
        rows = sequences + sum(drafting)
        passes = sum(0.002 * (1 + count / 10) for count in drafting)
        assert costs.seconds(rows, drafting) == pytest.approx(0.01 + 0.001 * rows + passes)
    assert machine.drafter is machine
    assert machine.observed is machine.batches[-1]


def test_a_step_that_is_not_recorded_is_known_to_take_longer():
    costs = Machine(recorded=0.002, row=0.0001).measure(seconds=10)
    assert costs.seconds(4) == pytest.approx(0.0024)
    assert costs.seconds(8, [4]) == pytest.approx(0.0108 + 0.0028, rel=0.01)


def test_what_disturbs_some_of_the_runs_is_left_out():
    costs, undisturbed = (Machine(hiccup=count).measure(seconds=60) for count in (8, 0))
    for rows, drafting in ((1, []), (24, []), (64, []), (4, [1, 1, 1]), (24, [8, 8]), (64, [32])):
        assert costs.seconds(rows, drafting) == pytest.approx(undisturbed.seconds(rows, drafting))


def test_what_is_compiled_meanwhile_is_in_no_time_and_leaves_nothing_out():
    costs, compiled = (Machine(compiling=seconds).measure() for seconds in (7.0, 0))
    for kind in ("plain", "verify", "draft", "first_draft"):
        found, usual = (dict(getattr(each, kind).points) for each in (costs, compiled))
        assert found == pytest.approx(usual)


@pytest.mark.parametrize(("seconds", "largest"), [(0.0, LEAST), (0.6, 16), (5.0, SIZES[-1])])
def test_it_takes_about_as_long_as_it_may(seconds, largest):
    machine = Machine(fixed=0.02, row=0.002)
    costs = machine.measure(seconds=seconds)
    assert costs.plain.points[-1][0] == largest
    assert costs.seconds(100) == pytest.approx(0.22)
    a_round = sum(3 * (0.02 + 0.002 * size) for size in SIZES if size <= LEAST)
    assert machine.clock.now < max(2 * seconds, 0.5) + 3 * a_round


def test_an_engine_with_tight_limits_is_measured_within_them():
    for limits in (
        {"max_num_seqs": 1},
        {"max_num_batched_tokens": 1},
        {"max_num_batched_tokens": 3, "max_num_seqs": 2},
        {"max_len": 2},
        {"max_len": 3, "max_num_seqs": 5},
        {"max_num_seqs": 12},
    ):
        machine = Machine()
        costs = machine.measure(**limits)
        most = {"max_num_seqs": 32, "max_num_batched_tokens": 32, "max_len": CONTEXT + 4} | limits
        for batch in machine.batches:
            assert len(batch.scheduled) <= most["max_num_seqs"]
            assert batch.num_tokens <= most["max_num_batched_tokens"]
            assert all(item.end <= most["max_len"] for item in batch.scheduled)
        assert costs.plain(1) == pytest.approx(0.011)


def test_no_two_sequences_share_blocks_and_all_blocks_are_there():
    machine = Machine()
    machine.kv_cache.num_blocks = 100
    machine.measure()
    for batch in machine.batches:
        tables = [item.sequence.block_table for item in batch.scheduled]
        blocks = [block for table in tables for block in table]
        assert len(blocks) == len(set(blocks)) <= 100
        assert max(blocks) < 100
        assert all(item.end <= 16 * len(item.sequence.block_table) for item in batch.scheduled)


def make_drafter(name, model):
    if name == "ngram":
        return lambda forward: NgramDrafter()
    if name == "early_exit":
        return lambda forward: EarlyExitDrafter(forward, 1)
    if name == "eagle":
        head = make_head(model)
        cache = make_cache(head.config)
        return lambda forward: EagleDrafter(
            head, model.embedding, cache, forward.backend, vocab_size=VOCAB
        )
    small = make_similar(model)
    return lambda forward: DraftModelDrafter(
        Forward(small, make_cache(small.config), forward.backend), VOCAB
    )


@pytest.mark.parametrize("name", ["ngram", "early_exit", "eagle", "draft_model"])
def test_every_drafter_is_measured_and_drafts_on_as_if_nothing_had_been(name):
    model = make_model()
    engine = ByHand(model, make_drafter(name, model))
    watched = engine.drafter
    costs = measure_costs(
        engine.executor,
        max_num_seqs=8,
        max_num_batched_tokens=32,
        max_len=NUM_BLOCKS * P,
        seconds=0.2,
    )
    assert watched.proposed
    assert engine.executor.drafter is watched
    assert costs.plain(1) > 0
    assert costs.plain.points[0][0] == 1
    assert all(len(drafts) <= room for _, room, drafts in watched.proposed)
    assert costs.of_pass(0)(1) > 0
    assert AdaptiveLengths(4, costs).choose({}, 0) == {}
    sequences = [make_sequence([3, 1, 4, 1, 5, 9], name=str(i)) for i in range(3)]
    engine.run_at_random(sequences, seed=0)
    assert_all_greedy(model, sequences)
