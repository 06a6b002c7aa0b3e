"""People who come, talk and leave: the same seeded ones for every way to hand out KV memory."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from minillm_serve.course.chapter02.memory import Memory, Paged, Reserving, Span, Talk
from minillm_serve.sim.lengths import Fixed, Lengths, LogNormal

#: Slots of the memory, and the longest conversation that is promised, in tokens.
SIZE, LONGEST = 4096, 512
STEPS = 400
#: Until the first people are gone, the memory does not look as it does in the long run.
WARM_UP = 100
#: What people ask for when they ask for a longest answer, in tokens: round numbers.
ROUND = (32, 64, 128, 256)

CHAT = "chat: short, a few long"
#: Mix -> lengths of prompts and of answers.
MIXES: MappingProxyType[str, tuple[Lengths, Lengths]] = MappingProxyType(
    {
        CHAT: (LogNormal(60, 1.0, high=256), LogNormal(120, 1.0, high=256)),
        "documents: long prompts": (LogNormal(240, 0.4, high=400), LogNormal(40, 0.8, high=112)),
        "all alike": (Fixed(64), Fixed(128)),
    }
)

#: How memory is handed out -> a fresh memory, given its size and the block size.
POLICIES: MappingProxyType[str, Callable[[int, int], Memory]] = MappingProxyType(
    {
        "the longest": lambda size, _: Reserving(size, lambda talk: LONGEST),
        "what is asked for": lambda size, _: Reserving(size, lambda talk: talk.asked),
        "the true length (oracle)": lambda size, _: Reserving(size, lambda talk: talk.final),
        "paged": Paged,
    }
)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where all slots of the memory are, in tokens.

    Attributes:
        useful: hold a token.
        reserved: held for a token that will come.
        internal: held, and never filled.
        external: free, and enough for those next in line, but in pieces.
        free: all others.
    """

    useful: int
    reserved: int
    internal: int
    external: int
    free: int

    def amounts(self) -> tuple[int, int, int, int, int]:
        """In the order of the attributes."""
        return self.useful, self.reserved, self.internal, self.external, self.free


@dataclass(frozen=True, slots=True)
class Holder:
    """A conversation that holds memory.

    Attributes:
        name: whose.
        stored: tokens in memory.
        reserved: slots that will have one.
        wasted: slots that never will: internal fragmentation.
        spans: where all of these are, in the order of the tokens.
    """

    name: str
    stored: int
    reserved: int
    wasted: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """The memory after a step.

    Attributes:
        ledger: where all of it is.
        running: conversations in it.
        finished: conversations that ended so far.
        preemptions: how often one lost its memory to an older one so far.
    """

    ledger: Ledger
    running: int
    finished: int
    preemptions: int


def make_talks(mix: str, count: int = 1000, seed: int = 0) -> list[Talk]:
    """Seeded conversations of at most `LONGEST` tokens.

    Everybody asks for a round number of output tokens that is enough, and often for too many.

    Raises:
        ValueError: there is no such mix.
    """
    if mix not in MIXES:
        raise ValueError(f"mix={mix!r}: choose from {', '.join(MIXES)}")
    draw = np.random.default_rng(seed)
    prompt, output = MIXES[mix]
    pairs = zip(_draw(prompt, draw, count), _draw(output, draw, count), strict=True)
    return [_talk(p, o, draw) for p, o in pairs]


def _draw(lengths: Lengths, draw: np.random.Generator, count: int) -> list[int]:
    return [int(length) for length in lengths.sample(draw, count)]


def _talk(prompt: int, output: int, draw: np.random.Generator) -> Talk:
    enough = [choice for choice in ROUND if choice >= output]
    asked = prompt + int(draw.choice(enough))
    return Talk(prompt, output, min(asked, LONGEST))


@dataclass(eq=False, slots=True)
class _Talking:
    """A conversation on its way through the server."""

    name: str
    talk: Talk
    stored: int = field(init=False)

    def __post_init__(self) -> None:
        self.stored = self.talk.prompt


class Server:
    """More people than it can take: whoever fits is let in, in order of arrival.

    A step gives everybody in memory a token. Where somebody cannot grow, the youngest goes back to
    the head of the line and starts again with all tokens that it had, as in our engine. (A prompt
    is read in one step: it is memory that is looked at here, not time.)

    Args:
        memory: where they keep their tokens.
        talks: who comes, in order.
    """

    def __init__(self, memory: Memory, talks: list[Talk]) -> None:
        self.memory = memory
        self.waiting = deque(_Talking(str(number), talk) for number, talk in enumerate(talks, 1))
        self.running: list[_Talking] = []
        self.finished = self.preemptions = 0

    def step(self) -> Moment:
        """A token for everybody; those who have all of theirs leave, and others are let in.

        Raises:
            ValueError: nobody waits any more, so the memory is not full for want of people.
        """
        self._grow_all()
        for one in [one for one in self.running if one.stored == one.talk.final]:
            self.memory.release(one.name)
            self.running.remove(one)
            self.finished += 1
        while self.waiting and self._admit(self.waiting[0]):
            self.running.append(self.waiting.popleft())
        if not self.waiting:
            raise ValueError("nobody waits any more: give more talks, or take fewer steps")
        return Moment(self.ledger(), len(self.running), self.finished, self.preemptions)

    def _admit(self, one: _Talking) -> bool:
        return self.memory.admit(one.name, one.talk, one.stored)

    def _grow_all(self) -> None:
        for one in list(self.running):
            while one in self.running and not self.memory.grow(one.name, one.stored + 1):
                victim = self.running.pop()
                self.memory.release(victim.name)
                self.waiting.appendleft(victim)
                self.preemptions += 1
            if one in self.running:
                one.stored += 1

    def ledger(self) -> Ledger:
        """Where all slots are now."""
        held = [self._held(one) for one in self.running]
        useful, reserved, internal = (sum(kinds) for kinds in zip(*held, strict=True))
        external = self.memory.stranded(one.talk for one in self.waiting)
        free = self.memory.size - useful - reserved - internal - external
        return Ledger(useful, reserved, internal, external, free)

    def _held(self, one: _Talking) -> tuple[int, int, int]:
        """Slots with a token, with one to come, and with none ever."""
        held = self.memory.held(one.name)
        needed = min(held, one.talk.final)
        return one.stored, needed - one.stored, held - needed

    def holders(self) -> tuple[Holder, ...]:
        """Who holds what, in order of admission."""
        return tuple(
            Holder(one.name, *self._held(one), self.memory.spans(one.name)) for one in self.running
        )


def open_server(policy: str, mix: str, block_size: int, seed: int = 0) -> Server:
    """A server of `SIZE` slots before its first step.

    Args:
        policy: a key of `POLICIES`.
        mix: a key of `MIXES`.
        block_size: tokens a block (P), where it is paged.
        seed: of the talks.

    Raises:
        ValueError: there is no such policy or mix.
    """
    if policy not in POLICIES:
        raise ValueError(f"policy={policy!r}: choose from {', '.join(POLICIES)}")
    return Server(POLICIES[policy](SIZE, block_size), make_talks(mix, seed=seed))


@functools.lru_cache(maxsize=64)
def watch(policy: str, mix: str = CHAT, block_size: int = 16) -> tuple[Moment, ...]:
    """`STEPS` moments of a full server; arguments as in `open_server`."""
    server = open_server(policy, mix, block_size)
    return tuple(server.step() for _ in range(STEPS))


@functools.lru_cache(maxsize=64)
def look(policy: str, mix: str, block_size: int, step: int) -> tuple[Holder, ...]:
    """Who holds what after `step` steps, 1 or more; else as in `open_server`."""
    server = open_server(policy, mix, block_size)
    for _ in range(step):
        server.step()
    return server.holders()


def shares(moments: tuple[Moment, ...]) -> dict[str, float]:
    """Mean share of the memory in each state after the warm-up, in the ledger's order."""
    amounts = np.array([moment.ledger.amounts() for moment in moments[WARM_UP:]], dtype=float)
    parts = amounts.mean(axis=0) / amounts[0].sum()
    return dict(zip(Ledger.__slots__, parts.tolist(), strict=True))


def mean_running(moments: tuple[Moment, ...]) -> float:
    """Conversations in memory after the warm-up, on average."""
    return float(np.mean([moment.running for moment in moments[WARM_UP:]]))
