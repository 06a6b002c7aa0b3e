"""The engine end to end, with random weights in the shapes of real models, beside transformers."""

import inspect
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from benchmarks.gpu.models import SHAPES, Pair, make_engine, make_pair
from benchmarks.gpu.roofs import find_roof
from benchmarks.gpu.session import Session
from benchmarks.workloads import Job
from minillm_serve.core import EngineCore, Request, SamplingParams

Tokens = list[list[int]]
#: Runs jobs to their end; the tokens of each.
System = Callable[[list[Job]], Tokens]

#: Our engine in different gears; the first is what runs on a GPU if nobody asks for another.
GEARS: dict[str, dict[str, Any]] = {
    "ours": {"async_scheduling": True},
    "ours, plain loop": {"async_scheduling": False},
    "ours, no graphs": {"async_scheduling": True, "enforce_eager": True},
    "ours, torch attention": {"async_scheduling": False, "backend": "torch"},
}


def ours(engine: EngineCore) -> System:
    """This engine, from token ids to token ids."""

    def run(jobs: list[Job]) -> Tokens:
        for number, job in enumerate(jobs):
            params = SamplingParams(temperature=0, max_tokens=job.output_len, ignore_eos=True)
            engine.add_request(
                Request(request_id=str(number), prompt_token_ids=tuple(job.prompt), params=params)
            )
        tokens: Tokens = [[] for _ in jobs]
        while engine.has_unfinished:
            for update in engine.step():
                tokens[int(update.request_id)] += update.new_token_ids
        return tokens

    return run


def static_batch(pair: Pair) -> System:
    """transformers' `generate`: all jobs in one batch, padded on the left."""

    def run(jobs: list[Job]) -> Tokens:
        longest, steps = max(len(job.prompt) for job in jobs), jobs[0].output_len
        ids = torch.zeros(len(jobs), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, job in enumerate(jobs):
            ids[row, longest - len(job.prompt) :] = torch.tensor(job.prompt)
            mask[row, longest - len(job.prompt) :] = 1
        with torch.inference_mode():
            out = pair.theirs.generate(
                ids.to(pair.device),
                attention_mask=mask.to(pair.device),
                max_new_tokens=steps,
                min_new_tokens=steps,
                do_sample=False,
                pad_token_id=0,
            )
        return out[:, longest:].tolist()

    return run


def continuous_batch(pair: Pair) -> System:
    """transformers' continuous batching, as it configures itself on a GPU."""
    known = inspect.signature(ContinuousBatchingConfig).parameters
    small = {"num_blocks": 8, "max_batch_tokens": 128} if pair.device.type == "cpu" else {}
    config = ContinuousBatchingConfig(**{key: small[key] for key in small if key in known})

    def run(jobs: list[Job]) -> Tokens:
        generation = GenerationConfig(
            max_new_tokens=jobs[0].output_len, do_sample=False, eos_token_id=-1, pad_token_id=0
        )
        with torch.inference_mode():
            answers = pair.theirs.generate_batch(
                [job.prompt for job in jobs],
                generation_config=generation,
                continuous_batching_config=config,
            )
        return [list(answer.generated_tokens) for answer in answers.values()]

    return run


def make_jobs(count: int, longest: int, output_len: int, vocabulary: int) -> list[Job]:
    """Prompts of random ids and of longest/8 .. longest tokens; the longest comes first."""
    draw = random.Random(0)
    lengths = [longest, *(draw.randint(-(-longest // 8), longest) for _ in range(count - 1))]
    return [
        Job([draw.randrange(vocabulary) for _ in range(length)], output_len) for length in lengths
    ]


def small(session: Session) -> None:
    """The section on a small model, and whether both libraries say the same."""
    name = "tiny" if session.dry else "Qwen3-0.6B"
    session.attempt("engine", f"{name}, float32: the tokens", lambda: _same(session, name))
    _compare(session, name, "small")


def large(session: Session) -> None:
    """The section on a large model."""
    _compare(session, "tiny" if session.dry else "Llama-3-8B", "large")


def _same(session: Session, name: str) -> dict[str, Any]:
    """Greedy tokens of every gear in float32, beside those of transformers."""
    pair = make_pair(SHAPES[name], session.device, torch.float32)
    jobs = make_jobs(3, 5 if session.dry else 100, 3 if session.dry else 16, 97)
    # One by one: rows of a padded batch are rounded otherwise than the same rows alone.
    want = [static_batch(pair)([job])[0] for job in jobs]
    remarks = []
    for gear, options in GEARS.items():
        got = ours(make_engine(pair, max_num_seqs=4, **options))(jobs)
        if got != want:
            near = [_agreement(a, b) for a, b in zip(got, want, strict=True)]
            raise ArithmeticError(f"{gear}: only the first {near} tokens agree with transformers'")
        remarks.append(gear)
    return {"remarks": [f"as transformers': {', '.join(remarks)}"]}


def _compare(session: Session, name: str, kind: str) -> None:
    """Many users at once and one alone, in every gear and beside transformers."""
    pairs: list[Pair] = []

    def load() -> dict[str, Any]:
        dtype = torch.float32 if session.dry else torch.bfloat16
        pairs.append(make_pair(SHAPES[name], session.device, dtype))
        return {"remarks": [f"{pairs[0].num_bytes / 1e9:.2f} GB of weights a step"]}

    session.attempt("engine", f"{name} ({kind}): random weights", load)
    if not pairs:
        return
    many = (4, 24, 4) if session.dry else (64, 512, 128)
    alone = (1, 8, 4) if session.dry else (1, 128, 128)
    for title, size in (("many users", many), ("one user", alone)):
        jobs = make_jobs(*size, pairs[0].ours.config.vocab_size)
        race = _Race(session, pairs[0], jobs, slow=kind == "small" and len(jobs) > 1)
        for system, make in race.systems().items():
            item = f"{name} ({kind}), {title}: {system}"
            session.attempt("engine", item, partial(race.run, system, make))


class _Race:
    """Some systems on the same jobs, one after the other; the slow ones only if there is time."""

    def __init__(self, session: Session, pair: Pair, jobs: list[Job], *, slow: bool) -> None:
        self.session, self.pair, self.jobs, self.slow = session, pair, jobs, slow
        self.seconds: dict[str, float] = {}
        self.tokens: dict[str, Tokens] = {}

    def systems(self) -> dict[str, Callable[[], System]]:
        """What takes part, and how it is built."""
        seqs = len(self.jobs)
        made: dict[str, Callable[[], System]] = {}
        for gear, options in GEARS.items():
            if self.slow or "backend" not in options:
                made[gear] = partial(_ours, self.pair, seqs, options)
        made["transformers generate"] = partial(static_batch, self.pair)
        if seqs > 1:
            made["transformers continuous batching"] = partial(continuous_batch, self.pair)
        return made

    def run(self, name: str, make: Callable[[], System]) -> dict[str, Any]:
        """Times one system, after a short run that compiles and loads what it needs."""
        system, count = make(), sum(job.output_len for job in self.jobs)
        system([Job(job.prompt, min(job.output_len, 4)) for job in self.jobs])
        began = time.perf_counter()
        tokens = system(self.jobs)
        seconds = time.perf_counter() - began
        if [len(t) for t in tokens] != [job.output_len for job in self.jobs]:
            raise ArithmeticError(f"gave {[len(t) for t in tokens]} tokens: not comparable")
        self.seconds[name], self.tokens[name] = seconds, tokens
        figures = self._figures(name, seconds, count)
        if self.session.dry:
            figures = {"remarks": figures["remarks"]}
        return figures

    def _figures(self, name: str, seconds: float, count: int) -> dict[str, Any]:
        figures: dict[str, Any] = {"tokens_per_s": count / seconds, "remarks": []}
        if len(self.jobs) == 1:
            floor = find_roof(self.session.device).floor_ms(self.pair.num_bytes, 0)
            figures |= {"ms_per_token": 1e3 * seconds / count, "floor_ms": floor}
            figures["roof_share"] = floor / figures["ms_per_token"]
        if name == "ours":
            return figures
        if "ours" in self.seconds:
            # How many times as fast this one is as ours: below 1 where we win.
            figures["faster_than"] = {"ours": self.seconds["ours"] / seconds}
            pairs = zip(self.tokens["ours"], self.tokens[name], strict=True)
            same = [_agreement(a, b) for a, b in pairs]
            figures["remarks"] = [f"{sum(same) / count:.0%} of the tokens before the first parting"]
        return figures


def _ours(pair: Pair, max_num_seqs: int, options: dict[str, Any]) -> System:
    return ours(make_engine(pair, max_num_seqs=max_num_seqs, **options))


def _agreement(one: list[int], other: list[int]) -> int:
    """How many tokens are the same before the first that differs."""
    parted = [i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
    return parted[0] if parted else len(one)
