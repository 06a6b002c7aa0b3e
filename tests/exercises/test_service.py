"""The judges of ex04 and ex05: right schedulers pass; of a wrong step they say who and why."""

import random
from typing import Any

import pytest

from minillm_serve.core import Batch, BlockManager, ContinuousScheduler, Priority, ScheduledSequence
from minillm_serve.course.exercises import answers_ex05, cases_ex05
from minillm_serve.course.exercises import service_rules as rules
from minillm_serve.course.exercises.evidence import carried
from minillm_serve.course.exercises.exercise import Case, CheckFailed
from minillm_serve.course.exercises.registry import load
from minillm_serve.course.exercises.service import Guest, answer_alone, serve, service
from minillm_serve.course.exercises.service_replay import replay, timetable
from minillm_serve.course.exercises.service_table import Timetable

ALL_RULES = (
    rules.by_rank,
    rules.seats_filled,
    rules.whole_fit,
    rules.all_served,
    rules.gaps_bounded,
    rules.last_gives_way,
    rules.nobody_in_vain,
    rules.few_preemptions,
    rules.no_slower,
)
TIGHT = service(Guest(0, 7, 12), Guest(0, 7, 12), num_blocks=6)


def refused(scheduler: Any, case: Case, *some: rules.Rule) -> CheckFailed:
    """What the judge says."""
    with pytest.raises(CheckFailed) as found:
        rules.judged(*some)(case, carried(serve(scheduler, case)))
    return found.value


@pytest.mark.parametrize("seed", range(5))
def test_the_engines_own_scheduler_passes_every_case_by_all_rules(seed: int) -> None:
    for part in (load("ex04").part("step"), load("ex05").part("fair")):
        for check in part.checks:
            for case in check.cases(random.Random(seed)):
                rules.judged(*ALL_RULES)(case, carried(serve(ContinuousScheduler, case)))


def test_everybody_is_answered_as_if_alone() -> None:
    """B32: also who was preempted and computes prompt and answer again."""
    found = replay(TIGHT, carried(serve(ContinuousScheduler, TIGHT)))
    assert found.preemptions == 1
    got = [step["tokens"].get("Bo") for step in serve(ContinuousScheduler, TIGHT)["steps"]]
    assert [token for token in got if token is not None] == answer_alone(1, Guest(0, 7, 12))


def test_a_token_of_somebody_elses_keys_is_told_from_the_right_one() -> None:
    got = carried(serve(ContinuousScheduler, TIGHT))
    got["steps"][2]["tokens"]["Bo"] += 1
    with pytest.raises(CheckFailed, match=r"^step 2: token 1 of Bo's answer is not the one"):
        replay(TIGHT, got)


def test_a_schedule_is_a_table_of_who_computed_what() -> None:
    case = service(Guest(0, 3, 3), Guest(0, 9, 2), Guest(1, 2, 2), seats=2)
    table = timetable(ContinuousScheduler, case)
    assert table.text().splitlines()[:4] == [
        "step  0  1  2  3  4",
        "Ada   3  1  1",
        "Bo    5  4  1",
        "Cy       ~  ~  2  1",
    ]
    assert "<pre>step" in table.html()


class Patched(ContinuousScheduler):
    """The engine's own, and afterwards one thing in the batch is changed."""

    def change(self, items: list[ScheduledSequence], gone: list[Any]) -> None:
        raise AssertionError("each test says what")

    def schedule(self) -> Batch:
        batch = super().schedule()
        items, gone = list(batch.scheduled), list(batch.preempted)
        self.change(items, gone)
        return Batch(tuple(items), tuple(gone))


def test_b28_whoever_gave_way_is_not_in_the_batch() -> None:
    class Kept(Patched):
        def change(self, items: list[ScheduledSequence], gone: list[Any]) -> None:
            items += [ScheduledSequence.of(sequence, 1) for sequence in gone]

    failure = refused(Kept, TIGHT)
    assert "Bo gave way in this step, and is in the batch all the same" in failure.message
    assert isinstance(failure.drawing, Timetable)
    assert "1x" in failure.drawing.text()


def test_b35_an_empty_slice_is_named() -> None:
    class Empty(Patched):
        def change(self, items: list[ScheduledSequence], gone: list[Any]) -> None:
            first = items[0].sequence
            items[0] = ScheduledSequence.of(first, 0)

    assert refused(Empty, TIGHT).message.startswith("step 0: Ada gets an empty slice")


@pytest.mark.parametrize(("step", "said"), [(1, "wrong position"), (9, "past the end")])
def test_a_slice_that_is_not_the_next_one_is_named(step: int, said: str) -> None:
    class Shifted(Patched):
        steps = 0

        def change(self, items: list[ScheduledSequence], gone: list[Any]) -> None:
            first = items[0]
            if self.steps == step == 1:
                items[0] = ScheduledSequence(first.sequence, first.start - 1, 1, False)
            elif self.steps == step:
                items[0] = ScheduledSequence(first.sequence, first.start, 3, False)
            self.steps += 1

    assert said in refused(Shifted, service(Guest(0, 5, 12))).message


class FirstChunkOnly(ContinuousScheduler):
    """B31: lets in with blocks for one budget of tokens."""

    def schedule(self) -> Batch:
        made, gone = [], []
        budget = self.max_num_batched_tokens
        for sequence in list(self.running):
            num_tokens = min(sequence.num_uncomputed, budget)
            if not num_tokens or sequence not in self.running:
                continue
            while sequence in self.running and not self.blocks.grow(
                sequence, sequence.num_computed + num_tokens
            ):
                gone.append(self.running[-1])
                self.preempt(self.running[-1])
            if sequence in self.running:
                made.append(ScheduledSequence.of(sequence, num_tokens))
                budget -= num_tokens
        while not gone and self.waiting and budget and len(self.running) < self.max_num_seqs:
            sequence = self.waiting.head()
            num_tokens = min(len(sequence), budget)
            if not self.blocks.grow(sequence, num_tokens):
                break
            self.admit(sequence)
            made.append(ScheduledSequence.of(sequence, num_tokens))
            budget -= num_tokens
        return Batch(tuple(made), tuple(gone))


def test_b31_admission_by_the_first_chunk_thrashes() -> None:
    case = service(Guest(0, 8, 16), Guest(1, 28, 2), Guest(1, 28, 2), num_blocks=9)
    assert (
        "blocks for its first slice only" in refused(FirstChunkOnly, case, rules.whole_fit).message
    )
    failure = refused(FirstChunkOnly, case, rules.few_preemptions)
    assert failure.got > 1
    assert "compute again what it has thrown away" in failure.message


def test_b46_nobody_gives_way_while_blocks_are_free() -> None:
    class Nervous(ContinuousScheduler):
        def schedule(self) -> Batch:
            if len(self.running) < 2 or self.num_preemptions:
                return super().schedule()
            first, last = self.running
            self.preempt(last)
            self.blocks.grow(first, len(first))
            return Batch((ScheduledSequence.of(first, 1),), (last,))

    case = service(Guest(0, 4, 9), Guest(0, 4, 9), num_blocks=30)
    assert "Bo gives way in vain" in refused(Nervous, case, rules.nobody_in_vain).message


def test_a_scheduler_that_leaves_seats_empty_is_too_slow() -> None:
    class OneAtATime(ContinuousScheduler):
        def __init__(self, blocks: BlockManager, **limits: Any) -> None:
            super().__init__(blocks, **{**limits, "max_num_seqs": 1})

    case = service(*(Guest(0, 3, 8) for _ in range(4)), budget=16)
    assert "a free seat" in refused(OneAtATime, case, rules.seats_filled).message
    assert "too many steps" in refused(OneAtATime, case, rules.no_slower).message


def test_a_gap_is_counted_in_tokens_of_others() -> None:
    class PromptsFirst(ContinuousScheduler):
        def schedule(self) -> Batch:
            reading = [s for s in self.running if s.num_uncomputed > 1]
            if not reading:
                return super().schedule()
            num_tokens = min(reading[0].num_uncomputed, self.max_num_batched_tokens)
            return Batch((ScheduledSequence.of(reading[0], num_tokens),))

    case = service(Guest(0, 2, 12), Guest(2, 30, 2), ageing=8)
    failure = refused(PromptsFirst, case, rules.gaps_bounded)
    assert "Ada is typing and stalls" in failure.message
    assert failure.message.startswith("step 4: ")


def test_work_that_is_thrown_away_for_ever_comes_to_an_end() -> None:
    class Sisyphus(ContinuousScheduler):
        def schedule(self) -> Batch:
            gone = list(self.running)
            for sequence in gone:
                self.preempt(sequence)
            other = next(sequence for sequence in self.waiting if sequence not in gone)
            self.blocks.grow(other, len(other))
            self.admit(other)
            return Batch((ScheduledSequence.of(other, 8),), tuple(gone))

    failure = refused(Sisyphus, service(Guest(0, 20, 2), Guest(0, 20, 2)))
    assert "we stopped to wait: Ada and Bo still had no whole answer" in failure.message
    assert (failure.expected, failure.got) == ("2 tokens for Ada", "0 tokens")


def test_an_empty_batch_while_somebody_waits_is_named() -> None:
    class Idle(ContinuousScheduler):
        def schedule(self) -> Batch:
            return Batch(())

    failure = refused(Idle, service(Guest(0, 2, 2)))
    assert failure.message == "step 0: the batch is empty, though tokens are missing for Ada"


def test_nobody_is_passed_more_often_than_ageing_allows() -> None:
    """However many more important ones keep coming."""
    for case in cases_ex05.streams(random.Random(0)):
        ranks = answers_ex05.rank_all(Priority, case)
        answers_ex05.judge_ranks(case, ranks)
        for number, priority in enumerate(case["priorities"]):
            for lower in range(-2, priority):
                passing = sum(
                    other == lower and ranks[later] < ranks[number]
                    for later, other in enumerate(case["priorities"])
                    if later > number
                )
                assert passing <= case["ageing"] * (priority - lower)


def test_evidence_that_was_made_up_is_no_service() -> None:
    honest = carried(serve(ContinuousScheduler, TIGHT))
    short = {"steps": honest["steps"][:3], "error": None}
    for forged in (None, 7, [], {"steps": 3}, {"steps": [{}], "error": None}, short):
        with pytest.raises(CheckFailed):
            replay(TIGHT, forged)
