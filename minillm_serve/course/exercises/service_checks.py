"""What every step must satisfy, whatever the policy: else an answer is wrong or memory is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from minillm_serve.course.exercises.service_books import Moment, Row, Service, listed


def check_step(service: Service, moment: Moment, entry: Mapping[str, Any]) -> None:
    """Compares a step with the books, before it is noted in them.

    Raises:
        CheckFailed: naming who was treated how.
    """
    _check_preempted(service, moment)
    for name, start, num_tokens, samples in entry["slices"]:
        _check_slice(service, moment, service.rows[name], (start, num_tokens, samples))
    names = [name for name, *_ in entry["slices"]]
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise service.fail(
            f"{twice[0]} is in the batch twice: who is admitted joins self.running at once, and "
            "gets one slice, where it is admitted"
        )
    _check_limits(service, moment)
    _check_blocks(service, moment)


def _check_preempted(service: Service, moment: Moment) -> None:
    lost = [name for name in moment.before if name not in moment.running]
    if silent := [name for name in lost if name not in moment.preempted]:
        raise service.fail(
            f"{silent[0]} lost its blocks and is missing from Batch.preempted",
            expected=lost,
            got=list(moment.preempted),
        )
    if false := [name for name in moment.preempted if name not in moment.before]:
        raise service.fail(f"{false[0]} is in Batch.preempted, and was not even running")
    if false := [name for name in moment.preempted if name in moment.running]:
        raise service.fail(
            f"{false[0]} is in Batch.preempted, and runs all the same: self.preempt(sequence) "
            "takes its seat and its blocks, and it stays outside for the rest of the step"
        )
    for name, table in moment.running.items():
        row = service.rows[name]
        if table[: len(row.table)] != row.table:
            raise service.fail(
                f"{name} runs on, but its blocks were taken away, and what it had computed lies "
                "in them: only self.preempt(sequence) takes blocks, and takes the seat as well",
                expected=f"a block table that begins with {row.table}",
                got=table,
            )


def _check_slice(service: Service, moment: Moment, row: Row, piece: tuple[int, int, bool]) -> None:
    (start, num_tokens, samples), name, missing = piece, row.name, row.missing
    if name not in moment.running:
        raise service.fail(_why_not_running(moment, row))
    if num_tokens < 1:
        raise service.fail(f"{name} gets an empty slice, of {num_tokens} tokens: leave it out")
    if start != row.computed:
        raise service.fail(
            f"{name}'s slice starts at the wrong position", expected=row.computed, got=start
        )
    if num_tokens > missing:
        raise service.fail(
            f"{name}'s slice goes past the end of its tokens",
            expected=f"at most the {missing} that are missing",
            got=num_tokens,
        )
    if samples != (num_tokens == missing):
        raise service.fail(
            f"{name}'s slice has the wrong `samples`: build it by ScheduledSequence.of",
            expected=num_tokens == missing,
            got=samples,
        )
    holds = len(moment.running[name]) * service.case["block_size"]
    if start + num_tokens > holds:
        raise service.fail(
            f"{name} computes up to its token {start + num_tokens}, and has blocks for {holds}: "
            "self.blocks.grow(sequence, ...) comes before the slice",
            expected=f"blocks for {start + num_tokens} tokens",
            got=moment.running[name],
        )


def _why_not_running(moment: Moment, row: Row) -> str:
    name = row.name
    if name in moment.preempted:
        return (
            f"{name} gave way in this step, and is in the batch all the same: its blocks are "
            "free, and whoever gets them writes over what it reads"
        )
    if row.state == "waiting":
        return f"{name} is in the batch, but still in the queue: self.admit(sequence) is missing"
    return f"{name} is in the batch, but does not run: its answer has ended"


def _check_limits(service: Service, moment: Moment) -> None:
    case, total = service.case, sum(moment.slices.values())
    if total > case["budget"]:
        raise service.fail(
            f"the batch has {total} tokens, and the budget is {case['budget']}: each slice leaves "
            "less for the next, also for those who come in",
            expected=f"at most {case['budget']} tokens",
            got=dict(moment.slices),
        )
    if len(moment.running) > case["seats"]:
        raise service.fail(
            f"{len(moment.running)} sequences run, and there are {case['seats']} seats "
            "(max_num_seqs)",
            expected=f"at most {case['seats']}",
            got=list(moment.running),
        )


def _check_blocks(service: Service, moment: Moment) -> None:
    case, holders = service.case, dict[int, list[str]]()
    for name, table in moment.running.items():
        for block in table:
            holders.setdefault(block, []).append(name)
        needed = -(-service.rows[name].length // case["block_size"])
        if len(table) > needed:
            raise service.fail(
                f"{name} holds more blocks than it has tokens for: others lack them",
                expected=f"at most {needed}",
                got=table,
            )
    for block, names in holders.items():
        if len(set(names)) > 1:
            raise service.fail(
                f"block {block} is in the tables of {listed(dict.fromkeys(names))}: one writes "
                "over what the other reads"
            )
    named = len(holders)
    if named + moment.free > case["num_blocks"]:
        raise service.fail(
            "blocks were freed that a running sequence still uses: the next one who asks gets "
            "them, and writes over what it reads",
            expected=f"{case['num_blocks'] - named} free blocks",
            got=moment.free,
        )
    if named + moment.free < case["num_blocks"]:
        lost = case["num_blocks"] - named - moment.free
        raise service.fail(f"{lost} blocks are neither free nor in the table of anybody who runs")
