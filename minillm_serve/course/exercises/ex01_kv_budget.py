"""ex01: bytes of KV cache, conversations that fit, and the engine's budget (slot `kv_budget`)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from minillm_serve.course.exercises import answers_ex01 as answers
from minillm_serve.course.exercises import cases_ex01 as cases
from minillm_serve.course.exercises.exercise import Case, Check, Exercise, Part, Raises


def _token(case: Case) -> float:
    return answers.token_bytes(**case)


def _sequence(case: Case) -> float:
    return answers.sequence_bytes(**case)


def _concurrency(case: Case) -> int:
    return answers.concurrency(**case)


def _budget(case: Case) -> int | Raises:
    return answers.budget(**case)


def _checks(
    expected: Callable[[Case], Any],
    mistakes: answers.Mistakes,
    *named: tuple[str, float, Callable[[random.Random], list[Case]]],
) -> tuple[Check, ...]:
    """Checks that differ in nothing but their cases."""
    return tuple(
        Check(
            name,
            points,
            made,
            expected=expected,
            explain=answers.mistaken(mistakes),
            describe=cases.described,
            rtol=1e-9,
        )
        for name, points, made in named
    )


BYTES = Part(
    id="bytes",
    answer="kv_bytes_per_token",
    checks=_checks(
        _token,
        answers.token_mistakes,
        ("counts a key and a value in every layer and head", 1, cases.multi_head_cases),
        ("counts KV heads where there are fewer of them (GQA)", 1, cases.grouped_cases),
        ("takes head_dim from the config", 1, cases.head_dim_cases),
        ("counts half bytes, and a scale for each key and value", 1, cases.quantized_cases),
    ),
    hints=(
        "Count vectors first: how many keys and how many values does one token leave behind, over "
        "all layers and heads? Then ask how many bytes one such vector takes.",
        "A token leaves one key and one value in each of the N layers for each of the H_kv heads: "
        "2 * N * H_kv vectors. Queries are not kept.",
        "A vector takes head_dim * dtype_bytes, and scale_bytes more for its own scale.",
    ),
)

SEQUENCE = Part(
    id="sequence",
    answer="kv_bytes_per_sequence",
    checks=_checks(
        _sequence,
        answers.sequence_mistakes,
        ("multiplies by the tokens where there is no window", 1, cases.full_sequence_cases),
        ("holds at most a window of tokens in a layer that has one", 1, cases.windowed_cases),
        ("looks at each layer's own window", 1, cases.mixed_cases),
    ),
    hints=(
        "Ask each layer by itself how many tokens it still needs.",
        "config.sliding_windows has one entry a layer: None, or the number of tokens that a query "
        "sees, itself included. What is further back is never read again.",
        "Sum over layers: min(num_tokens, window), or num_tokens where there is none; times the "
        "bytes of one token in one layer.",
    ),
)

CONCURRENCY = Part(
    id="concurrency",
    answer="max_concurrency",
    checks=_checks(
        _concurrency,
        answers.concurrency_mistakes,
        ("counts whole conversations", 1, cases.concurrency_cases),
        ("counts them with windows and scales, down to none", 1, cases.crowded_cases),
    ),
    hints=(
        "You have written everything that you need: how much does one conversation take?",
        "Divide and round down; the result is an int. math.floor(a / b) makes one, and so does "
        "int(a // b).",
    ),
)

BUDGET = Part(
    id="budget",
    answer="kv_budget",
    checks=_checks(
        _budget,
        answers.budget_mistakes,
        ("gives whole blocks, down to a single one", 1, cases.budget_cases),
        (
            "keeps every token in every layer, as our engine's pool does",
            1,
            cases.windowed_budget_cases,
        ),
        (
            "refuses a memory without room for a block, and says how much one takes",
            1,
            cases.refused_cases,
        ),
    ),
    hints=(
        "How many bytes is one block? It holds block_size tokens, in all layers.",
        "Windows do not matter here: a block is the same size in every layer of our pool, and "
        "stays until its conversation ends.",
        "block = int(block_size * kv_bytes_per_token(...)); if kv_cache_memory < block: raise "
        "ValueError with both numbers in its text; else kv_cache_memory // block.",
    ),
)

EXERCISE = Exercise(
    id="ex01",
    name="kv_budget",
    title="How many blocks, how many users",
    chapter="01",
    parts=(BYTES, SEQUENCE, CONCURRENCY, BUDGET),
    slot="kv_budget",
    hidden_points=6,
)
