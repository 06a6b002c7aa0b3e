"""The engine without a model: real scheduling over real block tables, in microseconds a step.

Where a model would write keys and values, the executor here writes which tokens they would be of,
and where attention would read them it reads that back. So a wrong table, a block that two
sequences hold by mistake, or one that the prefix cache took for another, is found at the very
token, and named.
"""

import zlib
from collections.abc import Callable, Iterable, Sequence
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
    FinishedStep,
    InvariantViolation,
    MakePrefixCache,
    MakeScheduler,
    PrefixStats,
    Request,
    SamplingParams,
    ScheduledSequence,
    Scheduler,
    SequenceOutput,
    StepRecord,
    StepResult,
)
from minillm_serve.core import Sequence as TokenSequence

VOCAB = 1000


class Visit(NamedTuple):
    """Somebody who comes at a step, brings a prompt and wants an answer of a known length."""

    step: int
    prompt: tuple[int, ...]
    output_len: int
    cache_salt: str | None = None


def words(speaker: int, count: int) -> tuple[int, ...]:
    """The first so many tokens of somebody who speaks like nobody else."""
    return tuple(zlib.crc32(f"{speaker} {i}".encode()) % VOCAB for i in range(count))


def answer(prompt: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The first so many tokens of what anybody is answered to this prompt, without a salt."""
    tokens, digests = list(prompt), list[int]()
    for _ in range(count):
        _continue(digests, tokens[len(digests) :], None)
        tokens.append(digests[-1] % VOCAB)
    return tuple(tokens[len(prompt) :])


#: More than the default pool holds at once: somebody has to wait, or to give way.
VISITS = (
    Visit(0, words(0, 5), 9),
    Visit(0, words(1, 1), 12),
    Visit(1, words(2, 13), 4),
    Visit(2, words(3, 8), 8),
    Visit(9, words(4, 3), 2),
)


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What a rehearsal showed.

    Attributes:
        steps: one record a step.
        lengths: output tokens of each visit.
        leaked: blocks that somebody's table still named at the end.
        preemptions: how often somebody lost their blocks.
        prompt_tokens: tokens of prompts that were computed; again, if it was done again.
        prefix: what the prefix cache was good for.
    """

    steps: list[StepRecord]
    lengths: list[int]
    leaked: int
    preemptions: int
    prompt_tokens: int
    prefix: PrefixStats


def rehearse(
    visits: Sequence[Visit] = VISITS,
    *,
    pool: Callable[[int], BlockAllocator] = BlockPool,
    scheduler: MakeScheduler = ContinuousScheduler,
    prefix_cache: MakePrefixCache | None = None,
    num_blocks: int = 8,
    block_size: int = 4,
    max_num_seqs: int = 4,
    max_num_batched_tokens: int = 8,
) -> Rehearsed:
    """Serves the visits with some pool, scheduler and prefix cache, every invariant checked.

    Raises:
        InvariantViolation: the books contradict themselves, or a sequence read another's tokens.
        EngineStalled: nothing more happens, though somebody still waits.
    """
    cache = None if prefix_cache is None else prefix_cache(block_size)
    blocks = BlockManager(pool(num_blocks), block_size, prefix_cache=cache)
    memory, steps = Memory(num_blocks, block_size), list[StepRecord]()
    policy = scheduler(
        blocks,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_len=blocks.capacity,
    )
    engine = _engine(policy, memory, steps)
    lengths = _serve(engine, visits)
    return Rehearsed(
        steps,
        lengths,
        blocks.num_used,
        policy.num_preemptions,
        memory.prompt_tokens,
        blocks.stats,
    )


def _engine(policy: Scheduler, memory: "Memory", steps: list[StepRecord]) -> EngineCore:
    """Checks everything after every step; its clock goes on by one whenever it is read."""
    capacity, clock = policy.blocks.capacity, count()
    return EngineCore(
        policy,
        memory,
        Admission(max_model_len=capacity, pool_tokens=capacity, vocab_size=VOCAB),
        clock=lambda: float(next(clock)),
        on_step=steps.append,
        debug_invariants=True,
    )


def _serve(engine: EngineCore, visits: Sequence[Visit]) -> list[int]:
    lengths, coming = [0] * len(visits), sorted(enumerate(visits), key=lambda pair: pair[1].step)
    most = 10 * sum(len(visit.prompt) + visit.output_len for visit in visits)
    for step in count():
        while coming and (coming[0][1].step <= step or not engine.has_unfinished):
            index, visit = coming.pop(0)
            params = SamplingParams(max_tokens=visit.output_len, temperature=0)
            engine.add_request(
                Request(
                    request_id=str(index),
                    prompt_token_ids=visit.prompt,
                    params=params,
                    cache_salt=visit.cache_salt,
                )
            )
        if not engine.has_unfinished:
            return lengths
        if step > most:
            raise EngineStalled(f"{len(visits)} requests are not served after {most} steps")
        for update in engine.step():
            lengths[int(update.request_id)] += len(update.new_token_ids)
    raise AssertionError("count() does not end")


class Written(NamedTuple):
    """What stands in a slot instead of keys and values.

    Keys and values follow from all tokens up to their own, so these do, too.
    """

    digest: int
    position: int
    request_id: str


class Memory:
    """An executor whose KV cache holds what its keys and values would be of.

    Attributes:
        prompt_tokens: tokens of prompts that were computed so far.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.slots: list[list[Written | None]] = [[None] * block_size for _ in range(num_blocks)]
        self.prompt_tokens = 0
        self._digests: dict[TokenSequence, list[int]] = {}

    def submit(self, batch: Batch) -> FinishedStep:
        """Copies blocks, writes the new tokens, then reads the whole context of everybody."""
        copied = [(list(self.slots[source]), target) for source, target in batch.blocks_to_copy]
        for slots, target in copied:
            self.slots[target] = slots
        for item in batch.scheduled:
            self._write(item)
        return FinishedStep(StepResult(tuple(self._read(item) for item in batch.scheduled)))

    def _write(self, item: ScheduledSequence) -> None:
        sequence, digests = item.sequence, self._digests_of(item)
        for position in range(item.start, item.end):
            block, row = self._place(item, position)
            name = sequence.request.request_id
            self.slots[block][row] = Written(digests[position], position, name)
        self.prompt_tokens += max(0, min(item.end, sequence.num_prompt_tokens) - item.start)

    def _read(self, item: ScheduledSequence) -> SequenceOutput:
        name, digests = item.sequence.request.request_id, self._digests_of(item)
        for position in range(item.end):
            block, row = self._place(item, position)
            found = self.slots[block][row]
            if found is None or found.digest != digests[position]:
                raise InvariantViolation(
                    f"request {name} reads its position {position} from block {block}, row {row}, "
                    f"which holds {_told(found)}"
                )
        return SequenceOutput((digests[item.end - 1] % VOCAB,) if item.samples else ())

    def _place(self, item: ScheduledSequence, position: int) -> tuple[int, int]:
        return item.sequence.block_table[position // self.block_size], position % self.block_size

    def _digests_of(self, item: ScheduledSequence) -> list[int]:
        sequence = item.sequence
        digests = self._digests.setdefault(sequence, [])
        unknown = sequence.token_ids[len(digests) : item.end]
        _continue(digests, unknown, sequence.request.cache_salt)
        return digests


def _continue(digests: list[int], tokens: Iterable[int], cache_salt: str | None) -> None:
    """Appends, for each token, a number that stands for all tokens up to it, and for the salt."""
    before = digests[-1] if digests else zlib.crc32(repr(cache_salt).encode())
    for token in tokens:
        before = (before * 1_000_003 + token + 1) % (2**61 - 1)
        digests.append(before)


def _told(written: Written | None) -> str:
    if written is None:
        return "nothing"
    return f"position {written.position} of request {written.request_id}"
