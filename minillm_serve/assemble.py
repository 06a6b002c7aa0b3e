"""Puts an engine together: model, KV cache, attention, scheduler, door."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from minillm_serve.core import Admission, BlockManager, BlockPool, ContinuousScheduler, EngineCore
from minillm_serve.models.config import ModelConfig
from minillm_serve.models.loader import load_config, load_model, load_tokenizer
from minillm_serve.models.resolve import resolve_model
from minillm_serve.runtime.attention.registry import select_backend
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.sizing import check_fits, default_kv_memory, num_kv_blocks
from minillm_serve.runtime.torch_executor import TorchExecutor

SCHEDULERS = {"continuous": ContinuousScheduler}


@dataclass(frozen=True, slots=True)
class Assembly:
    """An engine and the parts that its faces need."""

    engine: EngineCore
    model_path: Path
    model_config: ModelConfig
    tokenizer: Any
    kv_cache: KVCache


def assemble(
    model: str | Path,
    *,
    dtype: str | torch.dtype,
    device: str | torch.device,
    block_size: int,
    num_blocks: int | None,
    kv_cache_memory: int | None,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    max_model_len: int | None,
    seed: int,
    attention_backend: str,
    scheduler: str,
    debug_invariants: bool,
) -> Assembly:
    """Builds everything that `LLM` and the server stand on; see `LLM` for the arguments.

    Raises:
        ValueError: naming the argument and the remedy.
    """
    _check_limits(
        block_size=block_size,
        num_blocks=num_blocks,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        kv_cache_memory=kv_cache_memory,
        max_model_len=max_model_len,
    )
    if num_blocks is not None and kv_cache_memory is not None:
        raise ValueError("give num_blocks or kv_cache_memory, not both: each decides the other")
    if scheduler not in SCHEDULERS:
        raise ValueError(f"scheduler={scheduler!r} is unknown: choose from {list(SCHEDULERS)}")
    where, path = _device(device), resolve_model(model)
    config = load_config(path)
    kind = _dtype(dtype, config, where)
    max_model_len = _max_model_len(max_model_len, config)
    backend = select_backend(
        attention_backend,
        device=where,
        dtype=kind,
        needs_window=any(window is not None for window in config.sliding_windows),
    )
    weights, tokenizer = load_model(path, dtype=kind, device=where), load_tokenizer(path)
    if num_blocks is None:
        memory = default_kv_memory(where) if kv_cache_memory is None else kv_cache_memory
        fits = num_kv_blocks(config, kv_cache_memory=memory, block_size=block_size, dtype=kind)
        # More than every sequence at its longest could never be used.
        num_blocks = min(fits, max_num_seqs * -(-max_model_len // block_size))
    check_fits(config, num_blocks=num_blocks, block_size=block_size, dtype=kind, device=where)
    blocks = BlockManager(BlockPool(num_blocks), block_size)
    admission = Admission(
        max_model_len=max_model_len, pool_tokens=blocks.capacity, vocab_size=config.vocab_size
    )
    policy = SCHEDULERS[scheduler](
        blocks,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_len=admission.max_len,
    )
    kv_cache = KVCache.allocate(
        config, num_blocks=num_blocks, block_size=block_size, dtype=kind, device=where
    )
    engine = EngineCore(
        policy,
        TorchExecutor(weights, kv_cache, backend),
        admission,
        eos_token_ids=_eos_token_ids(config, tokenizer),
        seed=seed,
        debug_invariants=debug_invariants,
    )
    return Assembly(engine, path, config, tokenizer, kv_cache)


def _check_limits(**limits: int | None) -> None:
    for name, value in limits.items():
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{name}={value!r}: expected a whole number")
        if value < 1:
            raise ValueError(f"{name}={value}: expected at least 1")


def _device(device: str | torch.device) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        chosen = None
    if chosen is None or chosen.type not in ("cpu", "cuda"):
        raise ValueError(f"device={str(device)!r} is not supported: choose auto, cpu or cuda")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={str(device)!r}, but torch sees no GPU: use device='cpu'")
    return chosen


def _dtype(dtype: str | torch.dtype, config: ModelConfig, device: torch.device) -> torch.dtype:
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype == "auto":
        # CPUs of this day compute bfloat16 slower than float32, if they can at all.
        dtype = "float32" if device.type == "cpu" else config.torch_dtype
    known = {"float64", "float32", "float16", "bfloat16"}
    if dtype not in known:
        raise ValueError(
            f"dtype={dtype!r} is unknown: choose from auto, {', '.join(sorted(known))}"
        )
    chosen = getattr(torch, dtype)
    assert isinstance(chosen, torch.dtype)
    return chosen


def _max_model_len(asked: int | None, config: ModelConfig) -> int:
    limit = config.max_position_embeddings
    if asked is None:
        return limit
    if not 2 <= asked <= limit:
        raise ValueError(
            f"max_model_len={asked}: expected from 2 (one token in, one out) to {limit}, "
            "the positions that this model was trained for"
        )
    return asked


def _eos_token_ids(config: ModelConfig, tokenizer: Any) -> set[int]:
    ids = set(config.eos_token_ids)
    if tokenizer is not None and tokenizer.eos_token_id is not None:
        ids.add(tokenizer.eos_token_id)
    return ids
