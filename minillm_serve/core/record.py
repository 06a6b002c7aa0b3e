"""What ran when: the schedule of an engine, kept small enough to leave it on."""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.core.metrics import StepRecord
from minillm_serve.core.request import Sequence, SequenceStatus
from minillm_serve.core.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Span:
    """Steps, one after the other, in each of which a sequence computed as many tokens.

    Attributes:
        request_id: whose.
        first_step: the first of them, counted from 0.
        num_steps: how many.
        start: the first position computed.
        num_tokens: computed in each step: 1 if it was decoding.
        num_blocks: that it held in the first step.
        slot: the row of the batch that it had: the lowest that was free when it came in.
    """

    request_id: str
    first_step: int
    num_steps: int
    start: int
    num_tokens: int
    num_blocks: int
    slot: int

    @property
    def end_step(self) -> int:
        """The step after the last of them."""
        return self.first_step + self.num_steps

    def blocks_in(self, step: int, block_size: int) -> int:
        """Blocks that it held in one of these steps."""
        last = self.start + (step - self.first_step + 1) * self.num_tokens
        return max(self.num_blocks, -(-last // block_size))


@dataclass(frozen=True, slots=True)
class Preemption:
    """A sequence lost its blocks to make room for a step; `swapped` if they were copied out."""

    request_id: str
    step: int
    swapped: bool


class ScheduleRecord:
    """Every step of an engine, and which sequence computed what in it.

        engine.record = ScheduleRecord(engine.scheduler)

    While a sequence decodes, one step is like the next: position after position, a token each. So
    what is kept is not steps times sequences but spans, and a step in which nothing changes costs
    two numbers. Times are seconds of the engine's clock.

    Args:
        scheduler: of the engine that is recorded.

    Attributes:
        num_slots: sequences that could run at once.
        block_size: tokens a block (P).
        began: when each step was scheduled.
        ended: when its results were in; the same as `began` for a step that failed.
        num_rows: sequences that computed something in it.
        num_idle: rows that a fixed batch dragged along although their sequence had ended.
        blocks_used: blocks that were referenced.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.num_slots = scheduler.max_num_seqs
        self.block_size = scheduler.blocks.block_size
        self.began, self.ended = array("d"), array("d")
        self.num_rows, self.num_idle, self.blocks_used = array("q"), array("q"), array("q")
        self._scheduler = scheduler
        self._names: dict[int, str] = {}
        # One column an attribute of `Span`; `_sequences` are keys of `_names`.
        self._sequences, self._firsts, self._counts = array("q"), array("q"), array("q")
        self._starts, self._tokens, self._blocks = array("q"), array("q"), array("q")
        self._steady: list[Sequence] = []  # who ran in the last step, if all of them decoded
        self._decoding: set[Sequence] = set()
        self._open: dict[Sequence, int] = {}  # the rows of the spans of those who are decoding
        self._drafting: dict[Sequence, int] = {}  # and of those who have room for drafts, just now
        self._preemptions: list[tuple[int, int, bool]] = []  # sequence, step, swapped

    def __len__(self) -> int:
        """Steps."""
        return len(self.began)

    def begin(self, batch: Batch, seen: StepRecord) -> int:
        """Notes a step that begins, before the sequences advance.

        Returns:
            Its number, to be named when it ends.
        """
        step = len(self.began)
        self.began.append(seen.began)
        self.ended.append(seen.began)
        self.num_rows.append(seen.num_scheduled)
        self.num_idle.append(seen.num_idle)
        self.blocks_used.append(seen.blocks_used)
        running = self._scheduler.running
        all_decode = seen.num_tokens == seen.num_scheduled == len(running)
        if not all_decode or running != self._steady:
            self._note_changes(step, batch, seen.num_tokens)
            self._steady = list(running) if all_decode else []
        for sequence in batch.preempted:
            swapped = sequence.status is SequenceStatus.SWAPPED
            self._preemptions.append((self._number(sequence), step, swapped))
        return step

    def end(self, step: int, now: float, verified: Iterable[ScheduledSequence] = ()) -> None:
        """Notes that a step has ended.

        Args:
            step: its number.
            now: when.
            verified: those of its slices that had room for drafts, with the drafts that were made.
        """
        self.ended[step] = now
        for item in verified:
            self._tokens[self._drafting[item.sequence]] = item.num_tokens

    def repeat(self, ends: Iterable[float]) -> None:
        """Notes steps that are like the last one, a token further each, given when they end."""
        for now in ends:
            self.began.append(self.ended[-1])
            self.ended.append(now)
            for column in (self.num_rows, self.num_idle, self.blocks_used):
                column.append(column[-1])
        self.blocks_used[-1] = self._scheduler.blocks.num_used

    def preemptions(self) -> list[Preemption]:
        """Who lost their blocks, and when."""
        return [Preemption(self._names[s], step, swap) for s, step, swap in self._preemptions]

    def spans(self) -> list[Span]:
        """Everything that was computed, in order of steps: the bars of a Gantt chart."""
        slots = self._slots()
        rows = sorted(range(len(self._firsts)), key=self._order)
        return [
            Span(
                self._names[self._sequences[row]],
                self._firsts[row],
                self._count(row),
                self._starts[row],
                self._tokens[row],
                self._blocks[row],
                slots[row],
            )
            for row in rows
        ]

    def cells(self) -> list[list[str | None]]:
        """Whose token each slot computed in each step, [slots][steps]; None where it was idle."""
        spans = self.spans()
        num_slots = max([self.num_slots, *(span.slot + 1 for span in spans)])
        table: list[list[str | None]] = [[None] * len(self) for _ in range(num_slots)]
        for span in spans:
            row = table[span.slot]
            row[span.first_step : span.end_step] = [span.request_id] * span.num_steps
        return table

    @property
    def idle_cells(self) -> int:
        """Slots in which nothing was computed, summed over steps."""
        return self.num_slots * len(self) - sum(self.num_rows)

    @property
    def slot_utilisation(self) -> float:
        """Share of slots, over all steps, in which something was computed; 0 without steps."""
        return sum(self.num_rows) / (self.num_slots * len(self)) if len(self) else 0.0

    def ran(self) -> Iterator[tuple[float, float]]:
        """From when to when each step ran: a step that was scheduled early waits for its turn."""
        free = float("-inf")
        for began, ended in zip(self.began, self.ended, strict=True):
            yield max(began, free), max(ended, free)
            free = max(ended, free)

    def _note_changes(self, step: int, batch: Batch, num_tokens: int) -> None:
        """Opens and closes spans, so that those are open who are decoding."""
        self._drafting.clear()
        decoding = {item.sequence for item in batch.scheduled}
        for item in _readers(batch, num_tokens):
            row = self._add_span(step, item.sequence, item.num_tokens)
            self._counts[row] = 1
            decoding.remove(item.sequence)
            if item.num_drafts:
                self._drafting[item.sequence] = row
        for sequence in decoding ^ self._decoding:
            if sequence in decoding:
                self._open[sequence] = self._add_span(step, sequence, 1)
            else:
                row = self._open.pop(sequence)
                self._counts[row] = step - self._firsts[row]
        self._decoding = decoding

    def _add_span(self, step: int, sequence: Sequence, num_tokens: int) -> int:
        """Its row. It goes on until its count is set."""
        self._sequences.append(self._number(sequence))
        self._firsts.append(step)
        self._counts.append(0)
        self._starts.append(sequence.num_computed)
        self._tokens.append(num_tokens)
        self._blocks.append(len(sequence.block_table))
        return len(self._firsts) - 1

    def _number(self, sequence: Sequence) -> int:
        number = sequence.rank[1]
        self._names[number] = sequence.request.request_id
        return number

    def _order(self, row: int) -> tuple[int, int]:
        return self._firsts[row], self._sequences[row]

    def _count(self, row: int) -> int:
        return self._counts[row] or len(self) - self._firsts[row]

    def _slots(self) -> list[int]:
        """The slot of each span. A sequence keeps its slot until it ends or is preempted."""
        thrown_out: defaultdict[int, list[int]] = defaultdict(list)
        for sequence, step, _ in self._preemptions:
            thrown_out[sequence].append(step)
        stays: dict[tuple[int, int], list[int]] = {}
        for row, sequence in enumerate(self._sequences):
            turn = sum(step <= self._firsts[row] for step in thrown_out.get(sequence, ()))
            stays.setdefault((sequence, turn), []).append(row)
        slots, free, leaving = [0] * len(self._firsts), list[int](), list[tuple[int, int]]()
        opened = 0
        for rows in sorted(stays.values(), key=lambda rows: self._order(rows[0])):
            while leaving and leaving[0][0] <= self._firsts[rows[0]]:
                heappush(free, heappop(leaving)[1])
            if not free:
                heappush(free, opened)
                opened += 1
            slot = heappop(free)
            heappush(leaving, (max(self._firsts[row] + self._count(row) for row in rows), slot))
            for row in rows:
                slots[row] = slot
        return slots


def _readers(batch: Batch, num_tokens: int) -> list[ScheduledSequence]:
    """Those who compute more than one token. (They tend to come last, which makes this short.)"""
    readers, surplus = [], num_tokens - len(batch.scheduled)
    for item in reversed(batch.scheduled):
        if surplus == 0:
            break
        if item.num_tokens > 1:
            readers.append(item)
            surplus -= item.num_tokens - 1
    return readers
