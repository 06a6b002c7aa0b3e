"""The right answers to ex01, and the wrong ones that are easily given."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from minillm_serve.course.exercises.exercise import Case, Raises
from minillm_serve.models.config import ModelConfig


def token_bytes(config: ModelConfig, dtype_bytes: float, scale_bytes: float = 0) -> float:
    """2 * N * H_kv * (D * bytes + scale)."""
    vectors = 2 * config.num_layers * config.num_kv_heads
    return float(vectors * (config.head_dim * dtype_bytes + scale_bytes))


def sequence_bytes(
    config: ModelConfig, num_tokens: int, dtype_bytes: float, scale_bytes: float = 0
) -> float:
    """Layer by layer: a window bounds what a layer keeps."""
    layer = token_bytes(config, dtype_bytes, scale_bytes) / config.num_layers
    kept = [min(num_tokens, window or num_tokens) for window in config.sliding_windows]
    return layer * sum(kept)


def concurrency(config: ModelConfig, memory: int, num_tokens: int, **kind: float) -> int:
    """Whole conversations."""
    return math.floor(memory / sequence_bytes(config, num_tokens, **kind))


def budget(
    config: ModelConfig, kv_cache_memory: int, block_size: int, dtype_bytes: int
) -> int | Raises:
    """Whole blocks; every layer of our engine's pool holds every token, window or not."""
    block = int(block_size * token_bytes(config, dtype_bytes))
    if kv_cache_memory < block:
        return Raises(ValueError, (str(kv_cache_memory), str(block)))
    return kv_cache_memory // block


Mistakes = Callable[[Case], Mapping[str, float]]


def mistaken(mistakes: Mistakes) -> Callable[[Case, Any, Any], str | None]:
    """Makes an `explain`: the first mistake that leads to the value that was got."""

    def explain(case: Case, expected: Any, got: Any) -> str | None:
        if isinstance(got, bool) or not isinstance(got, int | float):
            return None
        for reason, value in mistakes(case).items():
            if math.isclose(got, value, rel_tol=1e-9, abs_tol=1e-9) and value != expected:
                return reason
        return None

    return explain


def token_mistakes(case: Case) -> dict[str, float]:
    """Ways to miscount the bytes of one token."""
    config, dtype_bytes = case["config"], case["dtype_bytes"]
    scale = case.get("scale_bytes", 0)
    right = token_bytes(config, dtype_bytes, scale)
    plain = token_bytes(config, dtype_bytes)
    vectors = 2 * config.num_layers * config.num_kv_heads
    return {
        "these are the query heads: only keys and values are cached, and there are H_kv of each":
            right * config.num_heads / config.num_kv_heads,
        "half of it is missing: a token leaves a key and a value": right / 2,
        "this is one layer: each of the N layers keeps its own": right / config.num_layers,
        "head_dim is a number of its own in the config, not hidden_size / H":
            right * config.hidden_size / config.num_heads / config.head_dim,
        "the scales are missing: every key and every value brings one": plain,
        "one scale a token is too few: every key and value of every head and layer has its own":
            plain + scale,
        "one scale a head is too few: keys and values have their own": plain + vectors * scale / 2,
        "half a byte was rounded away: dtype_bytes may be 0.5":
            vectors * (config.head_dim * int(dtype_bytes) + scale),
    }  # fmt: skip


def sequence_mistakes(case: Case) -> dict[str, float]:
    """Ways to miscount what one conversation holds."""
    config, tokens = case["config"], case["num_tokens"]
    one = token_bytes(config, case["dtype_bytes"], case.get("scale_bytes", 0))
    windows = [window for window in config.sliding_windows if window is not None]
    found = {"this ignores the windows: a layer with one holds at most that many": one * tokens}
    if windows:
        found["a conversation shorter than the window fills only a part of it"] = sum(
            one / config.num_layers * (window or tokens) for window in config.sliding_windows
        )
        found["not every layer has a window: `sliding_windows` has one entry a layer"] = one * min(
            tokens, windows[0]
        )
    return found


def concurrency_mistakes(case: Case) -> dict[str, float]:
    """Ways to miscount conversations."""
    config, tokens, memory = case["config"], case["num_tokens"], case["memory"]
    kind = {"dtype_bytes": case["dtype_bytes"], "scale_bytes": case.get("scale_bytes", 0)}
    each = sequence_bytes(config, tokens, **kind)
    return {
        "part of a conversation is none: round down": math.ceil(memory / each),
        "part of a conversation is none: round down, do not round": round(memory / each),
        "part of a conversation is none: give whole ones": memory / each,
        "these are tokens, not conversations":
            math.floor(memory / token_bytes(config, **kind)),
        "this ignores the windows: a layer with one holds at most that many":
            math.floor(memory / (token_bytes(config, **kind) * tokens)),
    }  # fmt: skip


def budget_mistakes(case: Case) -> dict[str, float]:
    """Ways to miscount blocks."""
    config, memory = case["config"], case["kv_cache_memory"]
    size, dtype_bytes = case["block_size"], case["dtype_bytes"]
    one = size * token_bytes(config, dtype_bytes)
    if memory < one:
        return {"no block fits: an engine without blocks must not start, so raise a ValueError": 0}
    kept = sum(min(size, window or size) for window in config.sliding_windows)
    bounded = kept * token_bytes(config, dtype_bytes) / config.num_layers
    return {
        "these are tokens: a block holds block_size of them": memory // (one // size),
        "the last block would not fit: round down": math.ceil(memory / one),
        "a block is whole or it is not there: return an int": memory / one,
        "our engine's pool keeps every token in every layer, window or not": memory // bounded,
    }
