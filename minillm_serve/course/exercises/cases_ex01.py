"""Models and memories that the answers to ex01 are tried on."""

from __future__ import annotations

import random
from dataclasses import replace

from minillm_serve.course.exercises.answers_ex01 import sequence_bytes, token_bytes
from minillm_serve.course.exercises.exercise import Case
from minillm_serve.models.config import ModelConfig


def model(
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    *,
    hidden_size: int = 0,
    windows: tuple[int | None, ...] = (),
) -> ModelConfig:
    """A config of this shape, everything else as in a Llama; by default H * D wide."""
    raw = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 32000,
        "hidden_size": hidden_size or heads * head_dim,
        "intermediate_size": 11008,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
    }
    config = ModelConfig.from_hf(raw)
    return replace(config, sliding_windows=windows) if windows else config


def grouped(rng: random.Random) -> ModelConfig:
    """A model with fewer KV heads than query heads."""
    kv_heads = rng.choice((1, 2, 3, 4, 8))
    heads = kv_heads * rng.choice((2, 3, 4, 8))
    # Three layers or more: with two, one layer and one of key and value cannot be told apart.
    return model(rng.randint(3, 48), heads, kv_heads, rng.choice((32, 64, 128)))


def windowed(rng: random.Random, every: bool) -> ModelConfig:
    """One whose layers all have a window, or only some of them."""
    config, window = grouped(rng), rng.choice((128, 512, 1024, 4096))
    layers = range(config.num_layers)
    windows = tuple(window if every or layer % 3 else None for layer in layers)
    return replace(config, sliding_windows=windows)


def described(case: Case) -> str:
    """A case in one line, the config by what matters here."""
    words = []
    for name, value in case.items():
        if isinstance(value, ModelConfig):
            words.append(
                f"N={value.num_layers} H={value.num_heads} H_kv={value.num_kv_heads} "
                f"D={value.head_dim}{_windows_of(value)}"
            )
        else:
            words.append(f"{name}={value:,}" if isinstance(value, int) else f"{name}={value}")
    return ", ".join(words)


def _windows_of(config: ModelConfig) -> str:
    found = [window for window in config.sliding_windows if window is not None]
    if not found:
        return ""
    return f", {len(found)} of {config.num_layers} layers with a window of {found[0]}"


def multi_head_cases(rng: random.Random) -> list[Case]:
    """Llama-2-7B, and others where H_kv = H."""
    heads = rng.choice((4, 16, 40))
    configs = (
        model(3, 2, 2, 64),
        model(32, 32, 32, 128),
        model(rng.randint(3, 60), heads, heads, 64),
    )
    return [{"config": config, "dtype_bytes": 2} for config in configs]


def grouped_cases(rng: random.Random) -> list[Case]:
    """Fewer KV heads than query heads."""
    configs = (model(3, 4, 2, 64), grouped(rng), grouped(rng))
    return [{"config": config, "dtype_bytes": rng.choice((2, 4))} for config in configs]


def head_dim_cases(rng: random.Random) -> list[Case]:
    """H * D is not the hidden size, as in Qwen3."""
    heads = 2 * rng.choice((1, 2, 4, 8))
    shapes = ((3, 4, 2, 96), (rng.randint(4, 40), heads, heads // 2, rng.choice((96, 160))))
    configs = [model(*shape, hidden_size=64 * shape[1]) for shape in shapes]
    return [{"config": config, "dtype_bytes": 2} for config in configs]


def quantized_cases(rng: random.Random) -> list[Case]:
    """INT8 and INT4 with a scale a vector."""
    kinds = ((1, 4), (0.5, 2), (rng.choice((1, 0.5)), rng.choice((2, 4, 8))))
    return [
        {"config": grouped(rng), "dtype_bytes": dtype_bytes, "scale_bytes": scale_bytes}
        for dtype_bytes, scale_bytes in kinds
    ]


def full_sequence_cases(rng: random.Random) -> list[Case]:
    """No windows."""
    return [
        {"config": grouped(rng), "num_tokens": rng.randint(1, 9000), "dtype_bytes": 2}
        for _ in range(3)
    ]


def windowed_cases(rng: random.Random) -> list[Case]:
    """A window in every layer, and conversations on both sides of it."""
    cases: list[Case] = []
    for share in (0.5, 1, rng.uniform(1.1, 8)):
        config = windowed(rng, every=True)
        tokens = round(share * (config.sliding_windows[0] or 0))
        cases.append({"config": config, "num_tokens": tokens, "dtype_bytes": 2})
    return cases


def mixed_cases(rng: random.Random) -> list[Case]:
    """Windows in two layers of three."""
    small = model(3, 2, 1, 64, windows=(None, 4, 4))
    cases: list[Case] = [{"config": small, "num_tokens": 10, "dtype_bytes": 2}]
    for scale_bytes in (0, 4):
        more = {"dtype_bytes": 1, "scale_bytes": scale_bytes}
        config = windowed(rng, every=False)
        cases.append({"config": config, "num_tokens": rng.randint(4097, 20000), **more})
    return cases


def concurrency_cases(rng: random.Random) -> list[Case]:
    """Memories that hold some conversations and a part of one more."""
    cases: list[Case] = []
    for _ in range(3):
        config, tokens = grouped(rng), rng.randint(100, 8000)
        one = sequence_bytes(config, tokens, 2)
        memory = int(one * (rng.randint(1, 90) + rng.choice((0.3, 0.7))))
        cases.append({"config": config, "memory": memory, "num_tokens": tokens, "dtype_bytes": 2})
    return cases


def crowded_cases(rng: random.Random) -> list[Case]:
    """Windows and small numbers; and a memory that holds nobody."""
    config = windowed(rng, every=False)
    kind = {"num_tokens": rng.randint(5000, 30000), "dtype_bytes": 1, "scale_bytes": 4}
    one = sequence_bytes(config, **kind)
    memories = (int(one * (rng.randint(3, 40) + 0.5)), int(one / 2))
    return [{"config": config, "memory": memory, **kind} for memory in memories]


def pool(rng: random.Random, blocks: float, config: ModelConfig) -> Case:
    """A memory of so many blocks."""
    size, dtype_bytes = rng.choice((4, 16, 32, 256)), rng.choice((2, 4))
    memory = int(blocks * size * token_bytes(config, dtype_bytes))
    return {
        "config": config,
        "kv_cache_memory": memory,
        "block_size": size,
        "dtype_bytes": dtype_bytes,
    }


def budget_cases(rng: random.Random) -> list[Case]:
    """Exactly some blocks, and some blocks and a part."""
    shares = (1, rng.randint(2, 900), rng.randint(2, 900) + 0.5)
    return [pool(rng, share, grouped(rng)) for share in shares]


def windowed_budget_cases(rng: random.Random) -> list[Case]:
    """Blocks longer than the window, where the mistake would show."""
    config = model(6, 4, 2, 64, windows=(None, 2, 2, None, 2, 2))
    return [pool(rng, rng.randint(3, 300), config) for _ in range(2)]


def refused_cases(rng: random.Random) -> list[Case]:
    """Less than a block, and nothing."""
    return [pool(rng, share, grouped(rng)) for share in (0.9, 0.0)]
