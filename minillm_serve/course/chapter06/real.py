"""What is done with the real model: crowds, samples, a talk, and a curious tenant."""
# ruff: noqa: N803 - arguments have the names of the course's symbols

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from statistics import median
from time import perf_counter
from typing import Any

from minillm_serve import LLM, SamplingParams
from minillm_serve.core import PREFIX_CACHES, Namespace, Request, StepRecord
from minillm_serve.course.chapter06.desk import rules, said

Prompt = Sequence[int]


@dataclass(frozen=True, slots=True)
class Crowd:
    """What came of people who asked at the same moment.

    Attributes:
        token_ids: of each answer.
        ttft: of each, in seconds.
        cached: tokens of each prompt that were found.
        seconds: until the last answer was there.
        blocks: most that block tables named before anybody had ended, counted once each.
        lengths: tokens of each that were in memory then.
        decode_step: seconds of a step in which all of them got a token and nothing else was done,
            the median.
        hit_rate: share of all prompt tokens that were found.
    """

    token_ids: list[list[int]]
    ttft: list[float]
    cached: list[int]
    seconds: float
    blocks: int
    lengths: list[int]
    decode_step: float
    hit_rate: float


def serve(llm: LLM, prompts: Sequence[Prompt], max_tokens: int = 24) -> Crowd:
    """Serves people who all come at once, beginning with an empty prefix cache."""
    held, decodes = [(0, list[int]())], list[float]()

    def look(step: StepRecord) -> None:
        if not step.finished:
            lengths = [sequence.num_computed for sequence in llm.engine.scheduler.running]
            held.append((step.blocks_used, lengths))
        if step.num_tokens == step.num_sampled == len(prompts):
            decodes.append(step.ended - step.began)

    llm.reset_prefix_cache()
    llm.engine.on_step, began = look, perf_counter()
    outputs = llm.generate([list(p) for p in prompts], greedy(max_tokens), use_tqdm=False)
    llm.engine.on_step, seconds = None, perf_counter() - began
    blocks, lengths = max(held)
    return Crowd(
        token_ids=[list(output.outputs[0].token_ids) for output in outputs],
        ttft=[output.metrics.ttft or 0.0 for output in outputs],
        cached=[output.num_cached_tokens for output in outputs],
        seconds=seconds,
        blocks=blocks,
        lengths=lengths,
        decode_step=median(decodes) if decodes else nan,
        hit_rate=llm.prefix_stats.hit_rate,
    )


def greedy(max_tokens: int) -> SamplingParams:
    """So many tokens, the likeliest each time."""
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)


def common_prefix(prompts: Sequence[Prompt]) -> int:
    """Tokens that all of them begin with."""
    count = 0
    for column in zip(*prompts, strict=False):
        if len(set(column)) > 1:
            break
        count += 1
    return count


def blocks_held(lengths: Sequence[int], S: int, P: int) -> int:
    """The formula: blocks of sequences that share their first tokens.

    Args:
        lengths: tokens of each sequence in memory (L_i).
        S: tokens that they share; 0 if nothing is shared.
        P: tokens a block.
    """
    return S // P + sum(-(-length // P) - S // P for length in lengths)


@dataclass(frozen=True, slots=True)
class Tables:
    """Block tables of one request's answers after a step, and who else names the blocks.

    Attributes:
        step: counted from 1.
        tables: one an answer that is running, by its number.
        references: of each block in them; the index counts as one.
    """

    step: int
    tables: dict[int, list[int]]
    references: dict[int, int]


def sample(llm: LLM, prompt: Prompt, n: int, max_tokens: int) -> list[Tables]:
    """Has several answers written to one prompt; looks at their block tables after each step."""
    engine, found = llm.engine, list[Tables]()
    params = SamplingParams(n=n, temperature=1.0, seed=0, max_tokens=max_tokens, ignore_eos=True)
    engine.add_request(Request(request_id="samples", prompt_token_ids=tuple(prompt), params=params))
    while engine.has_unfinished:
        engine.step()
        running = engine.scheduler.running
        tables = {sequence.index: list(sequence.block_table) for sequence in running}
        named = sorted({block for table in tables.values() for block in table})
        counts = {block: engine.scheduler.blocks.pool.ref_count(block) for block in named}
        found.append(Tables(len(found) + 1, tables, counts))
    return found


@dataclass(frozen=True, slots=True)
class Turn:
    """One question of a conversation, and its answer.

    Attributes:
        prompt: tokens of everything so far.
        cached: of these, found.
        ttft: in seconds.
        token_ids: of the answer.
    """

    prompt: int
    cached: int
    ttft: float
    token_ids: list[int]


def talk(llm: LLM, questions: Sequence[str], max_tokens: int = 20) -> list[Turn]:
    """A conversation, which is sent whole at each turn, as a chat client does."""
    llm.reset_prefix_cache()
    messages, turns = rules(), list[Turn]()
    for question in questions:
        messages.append(said(question))
        (output,) = llm.chat(messages, greedy(max_tokens), use_tqdm=False)
        answer = output.outputs[0]
        messages.append({"role": "assistant", "content": answer.text})
        turns.append(
            Turn(
                len(output.prompt_token_ids),
                output.num_cached_tokens,
                output.metrics.ttft or 0.0,
                list(answer.token_ids),
            )
        )
    return turns


def probe(llm: LLM, guesses: Sequence[Prompt], salt: str | None) -> list[tuple[int, float]]:
    """Asks once for each guess, under some tenant's salt; tokens found and TTFT of each."""
    found = []
    for guess in guesses:
        (output,) = llm.generate([list(guess)], greedy(1), cache_salt=salt, use_tqdm=False)
        found.append((output.num_cached_tokens, output.metrics.ttft or 0.0))
    return found


def strangers(count: int, length: int, S: int, seed: int = 0) -> list[list[int]]:
    """Prompts of random tokens that have their first S in common."""
    draw = random.Random(seed)
    shared = [draw.randint(1_000, 40_000) for _ in range(S)]
    return [shared + [draw.randint(1_000, 40_000) for _ in range(length - S)] for _ in range(count)]


def bookkeeping(name: str, prompts: Sequence[Prompt], P: int) -> float:
    """Seconds a prompt that an index takes when nothing is ever found.

    Each prompt is looked up, indexed, locked, unlocked and evicted again.

    Args:
        name: a key of `PREFIX_CACHES`.
        prompts: all different.
        P: tokens a block.
    """
    cache, nobody = PREFIX_CACHES[name](P), Namespace()
    tables = [list(range(len(prompt) // P)) for prompt in prompts]
    began = perf_counter()
    for prompt, table in zip(prompts, tables, strict=True):
        cache.match(prompt[:-1], nobody)
        new = cache.publish(prompt, table, len(prompt), nobody)
        cache.lock(new[-1])
        cache.unlock(new[-1])
        cache.evict(len(new))
    return (perf_counter() - began) / len(prompts)


def keys_of(llm: LLM, tokens: Prompt, number: int) -> list[Any]:
    """The keys of one block of a cached sequence, a tensor [H_kv, P, D] a layer.

    Args:
        llm: has served these tokens already.
        tokens: from the start of the sequence.
        number: which block of it, from 0.
    """
    shared = llm.engine.scheduler.blocks.shared
    assert shared.cache is not None
    block = shared.cache.match(tokens, shared.namespace)[number]
    return [layer[block].clone() for layer in llm.kv_cache.k]
