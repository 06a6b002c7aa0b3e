"""Schedulers at work: the real engine around a model that can be counted on, and a log of it.

The model's memory holds token ids in the slots that block tables name, and its next token is a
function of all that it reads there. So a wrong table, a block that two share, a position computed
twice or not at all changes an answer. What comes back is plain data; `service_books` judges it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

from minillm_serve.core import (
    Admission,
    Batch,
    BlockManager,
    BlockPool,
    EngineCore,
    FinishedStep,
    Priority,
    Request,
    SamplingParams,
    ScheduledSequence,
    Scheduler,
    SequenceOutput,
    StepResult,
)
from minillm_serve.course.exercises.evidence import raised
from minillm_serve.course.exercises.exercise import Case, Raised

VOCABULARY = 97
NAMES = (
    *("Ada", "Bo", "Cy", "Dee", "Eli", "Fay", "Gus", "Hal", "Ida", "Jo", "Kim", "Lou", "Max"),
    *("Nia", "Oz", "Pia", "Quin", "Ray", "Sol", "Tea", "Uma", "Vic", "Wes", "Xi", "Yan", "Zoe"),
)


class Guest(NamedTuple):
    """Somebody who comes before a step, brings a prompt and wants an answer of a known length."""

    step: int
    prompt_len: int
    output_len: int
    priority: int = 0


class NoBatch(Exception):
    """`schedule` returned something else."""


def name_of(number: int) -> str:
    """What a guest is called, by the order of coming."""
    again = number // len(NAMES)
    return NAMES[number % len(NAMES)] + (str(again + 1) if again else "")


def prompt_of(number: int, guest: Guest) -> list[int]:
    """Everybody brings another prompt."""
    return [(31 * number + 7 * position) % VOCABULARY for position in range(guest.prompt_len)]


def request_of(number: int, guest: Guest) -> Request:
    """What a guest asks of the engine."""
    return Request(
        request_id=name_of(number),
        prompt_token_ids=tuple(prompt_of(number, guest)),
        params=SamplingParams(max_tokens=guest.output_len, temperature=0),
        priority=guest.priority,
    )


def next_token(tokens: Sequence[int]) -> int:
    """A function of every token and its position."""
    state = 7
    for token in tokens:
        state = (state * 31 + token + 1) % 1_000_003
    return state % VOCABULARY


def answer_alone(number: int, guest: Guest) -> list[int]:
    """What a guest is answered by a model that serves nobody else."""
    tokens = prompt_of(number, guest)
    for _ in range(guest.output_len):
        tokens.append(next_token(tokens))
    return tokens[guest.prompt_len :]


def service(
    *guests: Guest,
    seats: int = 4,
    budget: int = 8,
    num_blocks: int = 64,
    ageing: float | None = None,
) -> Case:
    """A case.

    Args:
        guests: in the order of coming.
        seats: max_num_seqs.
        budget: max_num_batched_tokens.
        num_blocks: of 4 tokens each.
        ageing: of the `Priority` by which guests are ranked; None ranks by order of coming.
    """
    return {
        "guests": list(guests),
        "seats": seats,
        "budget": budget,
        "num_blocks": num_blocks,
        "block_size": 4,
        "ageing": ageing,
    }


def serve(answer: Any, case: Case) -> dict[str, Any]:
    """The learner's side: everybody is served, and each step is noted down."""
    steps: list[dict[str, Any]] = []
    error: Raised | None = None
    try:
        _run(_engine(_watched(answer, steps), case), case, steps)
    except NotImplementedError:
        raise
    except Exception as fault:
        error = raised(fault)
    return {"steps": steps, "error": error}


def _watched(answer: Any, steps: list[dict[str, Any]]) -> type[Scheduler]:
    class Watched(answer):
        def schedule(self) -> Batch:
            batch = super().schedule()
            if not isinstance(batch, Batch):
                raise NoBatch(f"schedule returned {batch!r}, and should return a Batch")
            if not all(isinstance(item, ScheduledSequence) for item in batch.scheduled):
                raise NoBatch(f"a Batch holds ScheduledSequences, not {batch.scheduled!r}")
            steps[-1].update(_noted(self, batch))
            return batch

    return Watched


def _noted(scheduler: Scheduler, batch: Batch) -> dict[str, Any]:
    """What was decided, and how the books stand before it is done."""
    return {
        "slices": [
            [s.sequence.request.request_id, s.start, s.num_tokens, s.samples]
            for s in batch.scheduled
        ],
        "preempted": [s.request.request_id for s in batch.preempted],
        "running": [[s.request.request_id, list(s.block_table)] for s in scheduler.running],
        "waiting": [s.request.request_id for s in scheduler.waiting],
        "free": scheduler.blocks.pool.num_free,
    }


def _engine(scheduler: type[Scheduler], case: Case) -> EngineCore:
    blocks, ticks = BlockManager(BlockPool(case["num_blocks"]), case["block_size"]), count()
    policy = {} if case["ageing"] is None else {"policy": Priority(case["ageing"])}
    built = scheduler(
        blocks,
        max_num_seqs=case["seats"],
        max_num_batched_tokens=case["budget"],
        max_len=blocks.capacity,
        **policy,
    )
    return EngineCore(
        built,
        _Model(case["num_blocks"], case["block_size"]),
        Admission(
            max_model_len=blocks.capacity, pool_tokens=blocks.capacity, vocab_size=VOCABULARY
        ),
        clock=lambda: float(next(ticks)),
        debug_invariants=True,
    )


def longest(case: Case) -> int:
    """Steps after which we stop to wait: many more than any right schedule takes."""
    return 3 * sum(guest.prompt_len + guest.output_len for guest in case["guests"]) + 50


def _run(engine: EngineCore, case: Case, steps: list[dict[str, Any]]) -> None:
    coming = deque(enumerate(case["guests"]))
    for step in range(longest(case)):
        came = []
        while coming and (coming[0][1].step <= step or not engine.has_unfinished):
            number, guest = coming.popleft()
            came.append(name_of(number))
            engine.add_request(request_of(number, guest))
        if not engine.has_unfinished:
            return
        steps.append({"came": came})
        updates = engine.step()
        steps[-1]["tokens"] = {u.request_id: u.new_token_ids[0] for u in updates}


def let_in(scheduler: Scheduler, budget: int) -> list[ScheduledSequence]:
    """Who waits comes in, in order, with blocks for all tokens: for steps that are ours in part."""
    made = list[ScheduledSequence]()
    while scheduler.waiting and budget and len(scheduler.running) < scheduler.max_num_seqs:
        sequence = scheduler.waiting.head()
        if not scheduler.blocks.grow(sequence, len(sequence)):
            break
        scheduler.admit(sequence)
        num_tokens = min(sequence.num_uncomputed, budget)
        made.append(ScheduledSequence.of(sequence, num_tokens))
        budget -= num_tokens
    return made


class _Model:
    """An executor whose KV cache holds the tokens themselves; -1 is what nobody has written."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.slots = [[-1] * block_size for _ in range(num_blocks)]

    def submit(self, batch: Batch) -> FinishedStep:
        """Writes the new tokens of everybody, then reads the whole context of those who sample."""
        size = self.block_size
        for item in batch.scheduled:
            for p in range(item.start, item.end):
                block = item.sequence.block_table[p // size]
                self.slots[block][p % size] = item.sequence.token_ids[p]
        return FinishedStep(StepResult(tuple(self._output(item) for item in batch.scheduled)))

    def _output(self, item: ScheduledSequence) -> SequenceOutput:
        if not item.samples:
            return SequenceOutput()
        size, table = self.block_size, item.sequence.block_table
        read = [self.slots[table[p // size]][p % size] for p in range(item.end)]
        return SequenceOutput((next_token(read),))
