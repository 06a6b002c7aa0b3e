"""People are typing, and somebody comes with a long prompt: the same scene on any engine.

The engine may compute (`LLM(...).engine`) or only price what it would compute
(`Simulation(...).engine`); the scheduler is the same class, and so is the schedule.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from minillm_serve.core import EngineCore, Request, SamplingParams, ScheduleRecord
from minillm_serve.course.chapter05 import counters
from minillm_serve.sim.cost import CostModel, Work
from minillm_serve.sim.metrics import TokenLog
from minillm_serve.sim.simulation import Simulation

#: Of everybody who types: short, so that reading it is over in a moment.
TYPIST_PROMPT = 16
#: Tokens that everybody has typed when the long prompt comes, and that the newcomer types at last.
BEFORE, AFTER = 8, 8


@dataclass(frozen=True, slots=True)
class Scene:
    """What happened, in seconds after the newcomers came.

    Attributes:
        typists: tokens of those who were typing; their logs begin with the first of these.
        newcomers: tokens of those who came.
        token_ids: what everybody got, by request.
        record: what ran when.
        prompts: request -> tokens of its prompt.
        came_at_step: the first step in which newcomers could take part.
        began: the engine's clock when they came.
    """

    typists: tuple[TokenLog, ...]
    newcomers: tuple[TokenLog, ...]
    token_ids: dict[str, tuple[int, ...]]
    record: ScheduleRecord
    prompts: dict[str, int]
    came_at_step: int
    began: float

    @property
    def longest_gap(self) -> float:
        """The longest that anybody who was typing waited for a token, from then on [s]."""
        return max(gap for log in self.typists for gap in gaps_after(log))

    @property
    def usual_gap(self) -> float:
        """The median gap of those who were typing before anybody came [s]."""
        gaps = sorted(b - a for a, b in pairwise(t for t in self.typists[0].times if t <= 0))
        return gaps[len(gaps) // 2]

    @property
    def ttft(self) -> float:
        """When the last newcomer had a first token [s]."""
        return max(log.ttft for log in self.newcomers)

    @property
    def most_work_between(self) -> int:
        """Most tokens computed between two tokens of anybody who was typing."""
        names = [name for name in self.prompts if name.startswith("typist")]
        return max(
            max(counters.work_between(self.record, name, self.prompts[name])) for name in names
        )

    def steps(self) -> list[tuple[Work, float]]:
        """Work and seconds of every step."""
        ran = [ended - began for began, ended in self.record.ran()]
        return list(zip(counters.works(self.record, self.prompts), ran, strict=True))


def gaps_after(log: TokenLog) -> list[float]:
    """Gaps that end after the newcomers came, at time 0."""
    return [b - a for a, b in pairwise(log.times) if b > 0]


def play(
    engine: EngineCore, users: int, prompts: Sequence[int], *, after: int = AFTER, seed: int = 0
) -> Scene:
    """Lets users type, then newcomers come, and stops when all of them type.

    Prompts are random ids. (A simulated engine looks at lengths only.)

    Args:
        engine: idle; its record is replaced.
        users: how many are typing.
        prompts: length of each newcomer's prompt.
        after: tokens that each newcomer gets before the scene ends.
        seed: of the ids.

    Raises:
        ValueError: nobody types, or nobody comes, or there is not a token a step for each.
    """
    if users < 1 or not prompts:
        raise ValueError(f"users={users}, prompts={list(prompts)}: somebody must type, and come")
    budget, people = engine.scheduler.max_num_batched_tokens, users + len(prompts)
    if budget < people:
        raise ValueError(
            f"max_num_batched_tokens={budget}: {people} people who type take a token each in every "
            f"step; give at least {people}"
        )
    draw, stage = random.Random(seed), Stage(engine)
    typing = [stage.add(f"typist-{i}", TYPIST_PROMPT, draw) for i in range(users)]
    stage.run_until(typing, BEFORE)
    came_at, came = engine.clock(), len(stage.record)
    coming = [stage.add(f"newcomer-{i}", length, draw) for i, length in enumerate(prompts)]
    stage.run_until(coming, after)
    for name in (*typing, *coming):
        engine.abort(name)
    engine.record = None
    return Scene(
        tuple(stage.log(name, came_at) for name in typing),
        tuple(stage.log(name, came_at) for name in coming),
        {name: tuple(ids) for name, ids in stage.ids.items()},
        stage.record,
        stage.prompts,
        came,
        came_at,
    )


def simulated(cost: CostModel, budget: int, users: int, prompts: Sequence[int]) -> Scene:
    """The same scene, priced by a cost model.

    Args:
        cost: of a model on a machine.
        budget: tokens a step (`max_num_batched_tokens`).
        users: how many are typing.
        prompts: length of each newcomer's prompt.
    """
    # Nobody runs out of blocks here: that is another experiment.
    tokens = sum(prompts) + 1024 * (users + len(prompts))
    simulation = Simulation(cost, num_blocks=tokens // 16, max_num_batched_tokens=budget)
    return play(simulation.engine, users, prompts)


class Stage:
    """An engine, its record, and every token that it gives.

    Args:
        engine: idle; its record is replaced.

    Attributes:
        record: what runs when.
        prompts: request -> tokens of its prompt.
        ids: request -> the tokens that it has got.
    """

    def __init__(self, engine: EngineCore) -> None:
        self.engine = engine
        self.record = engine.record = ScheduleRecord(engine.scheduler)
        self.prompts: dict[str, int] = {}
        self.ids: dict[str, list[int]] = {}
        self._moments: dict[str, list[float]] = {}

    def add(self, name: str, length: int, draw: random.Random) -> str:
        """Somebody comes with a prompt of random ids, and types without end; gives the name."""
        ids = tuple(draw.randint(1_000, 40_000) for _ in range(length))
        params = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)
        self.engine.add_request(Request(request_id=name, prompt_token_ids=ids, params=params))
        self.prompts[name], self.ids[name], self._moments[name] = length, [], []
        return name

    def run_until(self, names: Sequence[str], tokens: int) -> None:
        """Runs steps until each of these has got so many tokens."""
        while min(len(self.ids[name]) for name in names) < tokens:
            for update in self.engine.step():
                self.ids[update.request_id] += update.new_token_ids
                now = self.engine.clock()
                self._moments[update.request_id] += [now] * len(update.new_token_ids)

    def log(self, name: str, zero: float) -> TokenLog:
        """When the tokens of a request came, in seconds after `zero`."""
        times = tuple(moment - zero for moment in self._moments[name])
        return TokenLog(min(0.0, times[0]), times)
