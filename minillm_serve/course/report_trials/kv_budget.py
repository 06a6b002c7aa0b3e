"""Memories for models with and without grouped heads; then conversations move in."""

from __future__ import annotations

import random
from itertools import count
from typing import Any

from minillm_serve.core import BlockManager, BlockPool, Request, Sequence
from minillm_serve.course.report_card import Counters, Measure, Trial
from minillm_serve.models.config import ModelConfig
from minillm_serve.parts import Part
from minillm_serve.runtime.sizing import kv_block_bytes, num_kv_blocks
from minillm_serve.sim.presets import LLAMA_2_7B, LLAMA_3_8B, QWEN2_5_7B, SMOLLM2_135M
from minillm_serve.sim.shapes import ModelShape

SEED = 0


def trial(yours: Any) -> Trial:
    """Memories for models with and without grouped heads; then conversations move in."""
    return Trial(
        trace=f"{len(_memories())} memories for 4 models (seed {SEED})",
        naive=every_query_head,
        naive_is="keeps keys and values for every query head",
        reference=num_kv_blocks,
        measures=(
            Measure("right", "=", len(_memories())),
            Measure("blocks", "="),
            Measure("memory used", ">=", 0.99, format=".1%"),
            Measure("users at once", ">="),
            Measure("bytes too many", "=", 0),
        ),
        count=_count_budget,
        work=lambda budget: [budget(config, **memory) for config, memory in _memories() * 20],
    )


def every_query_head(
    config: ModelConfig, *, kv_cache_memory: int, block_size: int, dtype_bytes: int
) -> int:
    """A budget that knows nothing of grouped heads: safe and wasteful."""
    token = 2 * config.num_layers * config.num_heads * config.head_dim * dtype_bytes
    return kv_cache_memory // (token * block_size)


def _memories() -> list[tuple[ModelConfig, dict[str, int]]]:
    draw, memories = random.Random(SEED), []
    for shape in (SMOLLM2_135M, LLAMA_2_7B, LLAMA_3_8B, QWEN2_5_7B):
        for dtype_bytes in (2, 4, 2):
            memory = {
                "kv_cache_memory": draw.randrange(2**30, 2**34),
                "block_size": draw.choice((16, 32)),
                "dtype_bytes": dtype_bytes,
            }
            memories.append((_config(shape), memory))
    return memories


def _config(shape: ModelShape) -> ModelConfig:
    return ModelConfig.from_hf(
        {
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": shape.vocab_size,
            "hidden_size": shape.hidden_size,
            "intermediate_size": shape.intermediate_size,
            "num_hidden_layers": shape.num_layers,
            "num_attention_heads": shape.num_heads,
            "num_key_value_heads": shape.num_kv_heads,
            "head_dim": shape.head_dim,
        }
    )


def _count_budget(part: Part) -> Counters:
    found = {"right": 0, "blocks": 0, "memory used": 0.0, "users at once": 0, "bytes too many": 0}
    for config, memory in _memories():
        with part.blame():
            blocks = part.value(config, **memory)
        part.expect(isinstance(blocks, int) and blocks >= 1, f"returned {blocks!r} blocks")
        size, room = memory["block_size"], memory["kv_cache_memory"]
        fit = num_kv_blocks(config, **memory)
        taken = blocks * kv_block_bytes(config, block_size=size, dtype_bytes=memory["dtype_bytes"])
        found["right"] += blocks == fit
        found["blocks"] += blocks
        found["memory used"] += min(taken / room, 1) / len(_memories())
        found["users at once"] += _users(min(blocks, fit), size)
        found["bytes too many"] += max(0, taken - room)
    return found


def _users(num_blocks: int, block_size: int) -> int:
    """How many conversations of 100 to 4000 tokens move in before the first has to wait."""
    draw, manager = random.Random(SEED), BlockManager(BlockPool(num_blocks), block_size)
    for users in count():
        sequence = Sequence(Request(request_id=str(users), prompt_token_ids=()))
        if not manager.grow(sequence, draw.randrange(100, 4001)):
            return users
    raise AssertionError("count() does not end")
