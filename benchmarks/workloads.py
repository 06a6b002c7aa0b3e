"""The workloads that all systems are measured on, made from a seed."""

import random
from dataclasses import dataclass

#: Ids are drawn from the middle of the vocabulary, away from special tokens and rare tails.
LOWEST_ID, HIGHEST_ID = 1_000, 40_000


@dataclass(frozen=True, slots=True)
class Job:
    """A prompt, and how many tokens are generated for it, EOS or not."""

    prompt: list[int]
    output_len: int


def w1(count: int = 64, seed: int = 0) -> list[Job]:
    """Mixed lengths, all there at time 0: prompts of 32..256 tokens, outputs of 16..256."""
    draw = random.Random(seed)
    jobs = []
    for _ in range(count):
        prompt_len, output_len = draw.randint(32, 256), draw.randint(16, 256)
        jobs.append(Job(_ids(draw, prompt_len), output_len))
    return jobs


def w2(count: int = 48, seed: int = 0, prefix_len: int = 512) -> list[Job]:
    """One shared prefix, 16..64 tokens of each request's own, 32 out."""
    draw = random.Random(seed)
    prefix = _ids(draw, prefix_len)
    return [Job(prefix + _ids(draw, draw.randint(16, 64)), 32) for _ in range(count)]


def single(seed: int = 0) -> list[Job]:
    """One user: a prompt of 128 tokens, 128 out."""
    return [Job(_ids(random.Random(seed), 128), 128)]


def _ids(draw: random.Random, count: int) -> list[int]:
    return [draw.randint(LOWEST_ID, HIGHEST_ID) for _ in range(count)]
