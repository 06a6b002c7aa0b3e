"""Many decode steps in one stride, for simulations.

While nobody comes, nobody ends and no block runs short, a scheduler decides the same at every step:
each running sequence computes one token. A simulation need not ask it each time.
"""

from itertools import repeat

from minillm_serve.core.request import Sequence
from minillm_serve.core.scheduler import Scheduler
from minillm_serve.core.scheduler.endings import tokens_left


def quiet_steps(scheduler: Scheduler) -> int:
    """Decode steps ahead in which no running sequence ends and the pool suffices for all.

    0 if anybody has something else to compute than one token, or if the scheduler does not say of
    itself that it goes on like that (`Scheduler.is_steady`). Whether somebody who waits would be
    let in is for the caller to know: not if the last step let nobody in and nothing has changed.
    """
    running = scheduler.running
    if not running or scheduler.leaving or not scheduler.is_steady or scheduler.speculation:
        return 0
    steps = min(_steps_left(scheduler, sequence) for sequence in running) - 1
    free = scheduler.blocks.num_available
    while steps > 0 and _num_missing(scheduler, steps) > free:
        steps //= 2
    return max(0, steps)


def coast(scheduler: Scheduler, steps: int, token: int) -> None:
    """Takes so many decode steps, at most `quiet_steps`, each of which samples `token` for all."""
    for sequence in scheduler.running:
        if not scheduler.blocks.grow(sequence, sequence.num_computed + steps):
            raise ValueError(f"steps={steps}: the pool has no blocks for so many")
        sequence.num_computed += steps
        sequence.num_written = sequence.num_computed
        sequence.token_ids.extend(repeat(token, steps))


def _steps_left(scheduler: Scheduler, sequence: Sequence) -> int:
    """Tokens until the sequence ends by its length; 0 if it is not decoding."""
    if sequence.num_uncomputed != 1 or sequence.num_under_way:
        return 0
    return tokens_left(sequence, scheduler.max_len)


def _num_missing(scheduler: Scheduler, steps: int) -> int:
    blocks = scheduler.blocks
    return sum(blocks.num_missing(s, s.num_computed + steps) for s in scheduler.running)
