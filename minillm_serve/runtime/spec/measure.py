"""What steps and drafts cost on this machine: measured before the engine serves anybody."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import NamedTuple

from torch import Tensor

from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.core.request import Sequence
from minillm_serve.core.speculation import Curve, StepCosts
from minillm_serve.runtime.device import working_on
from minillm_serve.runtime.inputs import StepInputs
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.made_up import made_up_sequences
from minillm_serve.runtime.spec.drafter import Drafter, Proposal
from minillm_serve.runtime.torch_executor import TorchExecutor

#: Rows of the steps that are timed, and sequences of the drafter's passes.
SIZES = (1, 2, 4, 8, 16, 32)
#: Up to this size everything is timed, however slow the machine.
LEAST = 4
#: Tokens of each sequence.
CONTEXT = 128
#: Most drafts of a sequence.
DRAFTS = 3
#: How often everything up to that size is timed, and all that is larger; the shortest time counts.
#: (One user's steps are where drafts pay most, and the quickest to time.)
ROUNDS, ROUNDS_OF_LARGE = 5, 2

#: Seconds by size.
Times = dict[int, float]


class Trial(NamedTuple):
    """Something to be timed.

    Attributes:
        kind: what it is.
        size: rows of a step, or sequences that get drafts.
        run: does it.
    """

    kind: str
    size: int
    run: Callable[[], object]


def measure_costs(
    executor: TorchExecutor,
    *,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    max_len: int,
    seconds: float = 0.8,
    clock: Callable[[], float] = perf_counter,
) -> StepCosts:
    """Times steps with and without drafts, and the drafter, at growing sizes.

    Everything runs on the engine's own executor, in blocks that belong to nobody yet. What is read
    and written there is nonsense, but takes as long as sense. Other processes can only add to a
    time: so the shortest of several counts, and a `Curve` never falls.

    Args:
        executor: with a drafter; it serves nobody yet.
        max_num_seqs: no step has more sequences.
        max_num_batched_tokens: no step has more rows.
        max_len: no sequence gets longer.
        seconds: about how long it may take, the first run of everything aside. On a slow machine
            large sizes are left out; what they cost is then concluded from the smaller ones.
        clock: the time in seconds.
    """
    drafts = min(DRAFTS, max_len - 1)
    length = min(CONTEXT, max_len - drafts)
    block_size = executor.kv_cache.block_size
    width = -(-(length + drafts) // block_size)
    count = min(max_num_seqs, SIZES[-1], executor.kv_cache.num_blocks // width)
    sequences = made_up_sequences(count, length, width)
    trials = list(_trials(executor, sequences, drafts, max_num_batched_tokens))
    with working_on(executor.device):
        _touch(executor, count * width)
        shortest = _shortest(trials, seconds, clock)
    return _costs(shortest, drafts, recorded=executor.graphs is not None)


def _touch(executor: TorchExecutor, num_blocks: int) -> None:
    """Writes zeros where there are zeros: memory of a CPU is there once it has been written to."""
    caches = [executor.kv_cache, executor.drafter.kv_cache if executor.drafter else None]
    for cache in caches:
        for tensor in (*cache.k, *cache.v) if cache is not None else ():
            tensor[:num_blocks].zero_()


def _trials(
    executor: TorchExecutor, sequences: list[Sequence], drafts: int, most_rows: int
) -> Iterator[Trial]:
    """Everything that is timed, by size."""
    drafter = executor.drafter
    assert drafter is not None

    def step(count: int, num_drafts: int) -> None:
        with _drafting_by(executor, _ForNothing(drafter)):
            executor.submit(Batch(_items(sequences[:count], num_drafts))).wait()

    def propose(count: int, num_drafts: int) -> None:
        drafter.propose(list(_items(sequences[:count], num_drafts)))

    for size in SIZES:
        if size <= min(len(sequences), most_rows):
            yield Trial("plain", size, partial(step, size, 0))
            yield Trial("one draft", size, partial(propose, size, 1))
            yield Trial("all drafts", size, partial(propose, size, drafts))
        count = -(-size // (drafts + 1))
        each = size // count
        if each > 1 and count <= len(sequences) and size <= most_rows:
            yield Trial("verify", count * each, partial(step, count, each - 1))


def _items(sequences: list[Sequence], num_drafts: int) -> tuple[ScheduledSequence, ...]:
    return tuple(
        ScheduledSequence(sequence, len(sequence) - 1, 1, True).with_room(num_drafts)
        for sequence in sequences
    )


def _shortest(trials: list[Trial], seconds: float, clock: Callable[[], float]) -> dict[str, Times]:
    """The shortest time of each trial, by kind and size.

    The first run of each counts for nothing, not even for the time that there is: it compiles (on a
    CPU for each number of rows), allocates, and shows the drafter the sequences.
    """
    best: dict[str, Times] = {trial.kind: {} for trial in trials}
    began = clock()
    for number in range(ROUNDS):
        for trial in trials:
            times = best[trial.kind]
            spent, large = clock() - began, trial.size > LEAST
            if number == 0 and large and spent > seconds / 2:
                break
            if number > 0 and (trial.size not in times or spent > 2 * seconds):
                break
            if number >= ROUNDS_OF_LARGE and (large or spent > seconds):
                break
            if number == 0:
                began += _timed(trial, clock)
            taken = _timed(trial, clock)
            times[trial.size] = min(taken, times.get(trial.size, taken))
    return best


def _timed(trial: Trial, clock: Callable[[], float]) -> float:
    now = clock()
    trial.run()
    return clock() - now


def _costs(shortest: dict[str, Times], drafts: int, *, recorded: bool) -> StepCosts:
    """Makes curves of times.

    Args:
        shortest: of each kind and size.
        drafts: of each sequence in "all drafts".
        recorded: plain steps are recorded, as on a GPU. Otherwise a row is a row, and costs no
            more as a draft than as a sequence of its own.
    """
    plain, first = shortest["plain"], shortest["one draft"]
    verify = shortest.get("verify", plain)
    if not recorded:
        verify = {1: plain[1]} | {n: min(taken, plain.get(n, taken)) for n, taken in verify.items()}
    later, at_least = {}, 0.0
    for size, taken in shortest["all drafts"].items():
        # A difference of two times may be disturbed in either way; more rows never take less.
        at_least = max(at_least, (taken - first[size]) / max(1, drafts - 1))
        later[size] = at_least
    return StepCosts(
        plain=Curve(plain.items()),
        verify=Curve(verify.items()),
        draft=Curve((later if drafts > 1 else first).items()),
        first_draft=Curve(first.items()),
    )


class _ForNothing:
    """Stands in for a drafter while steps are timed: its drafts take no time.

    What the real one has to look at it sees, since that is part of every step.
    """

    def __init__(self, drafter: Drafter) -> None:
        self.kv_cache: KVCache | None = drafter.kv_cache
        self._drafter = drafter

    def propose(self, items: list[ScheduledSequence]) -> Proposal:
        return Proposal([[0] * item.num_drafts for item in items])

    def observe(self, batch: Batch, inputs: StepInputs, hidden: Tensor) -> None:
        self._drafter.observe(batch, inputs, hidden)


@contextmanager
def _drafting_by(executor: TorchExecutor, drafter: Drafter) -> Iterator[None]:
    own, executor.drafter = executor.drafter, drafter
    try:
        yield
    finally:
        executor.drafter = own
