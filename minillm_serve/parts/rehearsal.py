"""The engine without a model: real scheduling over real block tables, in microseconds a step.

Where a model would write keys and values, the executor here writes whose token it is, and where
attention would read them it reads that back. So a wrong table, or a block that two sequences hold
by mistake, is found at the very token, and named.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from minillm_serve.core import (
    Admission,
    Batch,
    BlockAllocator,
    BlockManager,
    BlockPool,
    ContinuousScheduler,
    EngineCore,
    EngineStalled,
    InvariantViolation,
    MakeScheduler,
    Request,
    SamplingParams,
    ScheduledSequence,
    SequenceOutput,
    StepRecord,
    StepResult,
)

TOKEN = 7  # every token is this one: only its place matters


class Visit(NamedTuple):
    """Somebody who comes at a step, brings a prompt and wants an answer of a known length."""

    step: int
    prompt_len: int
    output_len: int


#: More than the default pool holds at once: somebody has to wait, or to give way.
VISITS = (Visit(0, 5, 9), Visit(0, 1, 12), Visit(1, 13, 4), Visit(2, 8, 8), Visit(9, 3, 2))


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What a rehearsal showed.

    Attributes:
        steps: one record a step.
        lengths: output tokens of each visit.
        leaked: blocks that were still referenced at the end.
        preemptions: how often somebody lost their blocks.
    """

    steps: list[StepRecord]
    lengths: list[int]
    leaked: int
    preemptions: int


def rehearse(
    visits: Sequence[Visit] = VISITS,
    *,
    pool: Callable[[int], BlockAllocator] = BlockPool,
    scheduler: MakeScheduler = ContinuousScheduler,
    num_blocks: int = 8,
    block_size: int = 4,
    max_num_seqs: int = 4,
    max_num_batched_tokens: int = 8,
) -> Rehearsed:
    """Serves the visits with some pool and some scheduler, every invariant checked.

    Raises:
        InvariantViolation: the books contradict themselves, or a sequence read another's tokens.
        EngineStalled: nothing more happens, though somebody still waits.
    """
    blocks, steps, clock = BlockManager(pool(num_blocks), block_size), list[StepRecord](), count()
    policy = scheduler(
        blocks,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_len=blocks.capacity,
    )
    admission = Admission(
        max_model_len=blocks.capacity, pool_tokens=blocks.capacity, vocab_size=TOKEN + 1
    )
    engine = EngineCore(
        policy,
        Memory(num_blocks, block_size),
        admission,
        clock=lambda: float(next(clock)),
        on_step=steps.append,
        debug_invariants=True,
    )
    lengths = _serve(engine, visits)
    leaked = num_blocks - blocks.pool.num_free
    return Rehearsed(steps, lengths, leaked, policy.num_preemptions)


def _serve(engine: EngineCore, visits: Sequence[Visit]) -> list[int]:
    lengths, coming = [0] * len(visits), sorted(enumerate(visits), key=lambda pair: pair[1].step)
    most = 10 * sum(visit.prompt_len + visit.output_len for visit in visits)
    for step in count():
        while coming and (coming[0][1].step <= step or not engine.has_unfinished):
            index, visit = coming.pop(0)
            params = SamplingParams(max_tokens=visit.output_len, temperature=0)
            engine.add_request(
                Request(
                    request_id=str(index),
                    prompt_token_ids=(TOKEN,) * visit.prompt_len,
                    params=params,
                )
            )
        if not engine.has_unfinished:
            return lengths
        if step > most:
            raise EngineStalled(f"{len(visits)} requests are not served after {most} steps")
        for update in engine.step():
            lengths[int(update.request_id)] += len(update.new_token_ids)
    raise AssertionError("count() does not end")


class Memory:
    """An executor whose KV cache holds, instead of keys and values, whose token lies where."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.slots: list[list[tuple[str, int] | None]] = [
            [None] * block_size for _ in range(num_blocks)
        ]

    def submit(self, batch: Batch) -> "Done":
        """Writes the new tokens, then reads the whole context of everybody."""
        for item in batch.scheduled:
            for position in range(item.start, item.end):
                block, row = self._place(item, position)
                self.slots[block][row] = (item.sequence.request.request_id, position)
        for item in batch.scheduled:
            self._read(item)
        outputs = (SequenceOutput((TOKEN,) if item.samples else ()) for item in batch.scheduled)
        return Done(StepResult(tuple(outputs)))

    def _place(self, item: ScheduledSequence, position: int) -> tuple[int, int]:
        return item.sequence.block_table[position // self.block_size], position % self.block_size

    def _read(self, item: ScheduledSequence) -> None:
        name = item.sequence.request.request_id
        for position in range(item.end):
            block, row = self._place(item, position)
            found = self.slots[block][row]
            if found != (name, position):
                holds = "nothing" if found is None else f"position {found[1]} of request {found[0]}"
                raise InvariantViolation(
                    f"request {name} reads its position {position} from block {block}, row {row}, "
                    f"which holds {holds}"
                )


@dataclass(frozen=True, slots=True)
class Done:
    """A step that has run."""

    result: StepResult

    def wait(self) -> StepResult:
        """The result, at once."""
        return self.result
