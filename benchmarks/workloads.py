"""The workloads that all systems are measured on, made from a seed."""

import random
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minillm_serve.sim.lengths import LogNormal

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


def chat(count: int = 64, seed: int = 0) -> list[Job]:
    """Conversations: most are short, a few very long, up to 1,024 tokens on either side.

    The means are ShareGPT's, 161 in and 338 out (PagedAttention, Kwon et al., 2023, section 6);
    that the spread is log-normal, and as wide as the mean, is an assumption.
    """
    rng = np.random.default_rng(seed)
    lengths = [LogNormal(mean, high=1024).sample(rng, count).tolist() for mean in (161, 338)]
    return of_lengths(zip(*lengths, strict=True), seed)


def of_lengths(lengths: Iterable[tuple[int, int]], seed: int = 0) -> list[Job]:
    """Random prompts of so many tokens, with answers of so many."""
    draw = random.Random(seed)
    return [Job(_ids(draw, prompt_len), output_len) for prompt_len, output_len in lengths]


def _ids(draw: random.Random, count: int) -> list[int]:
    return [draw.randint(LOWEST_ID, HIGHEST_ID) for _ in range(count)]
