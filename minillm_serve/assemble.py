"""Puts an engine together: model, KV cache, attention, scheduler, door."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from minillm_serve.core import (
    PREFIX_CACHES,
    Admission,
    BlockManager,
    EngineCore,
    Namespace,
    Speculation,
)
from minillm_serve.drafting import choose_lengths, prepare_drafter
from minillm_serve.models.config import ModelConfig
from minillm_serve.models.loader import load_config, load_model, load_tokenizer
from minillm_serve.models.quantize import check_scheme, choose_quantization
from minillm_serve.models.resolve import resolve_model
from minillm_serve.models.weights import num_weights, weight_bytes
from minillm_serve.parts import Parts, fit_parts, read_parts
from minillm_serve.runtime.attention.registry import Needs, select_backend
from minillm_serve.runtime.build import build_executor, compile_layers, run_largest_step
from minillm_serve.runtime.device import choose_device, choose_dtype
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.kv_quantizer import bytes_per_number, choose_kv_dtype
from minillm_serve.runtime.sizing import (
    check_fits,
    check_weights_fit,
    default_kv_memory,
    kv_block_bytes,
    share_kv_memory,
)
from minillm_serve.runtime.spec.verify import Rule
from minillm_serve.scheduling import Scheduling
from minillm_serve.speculation import SpeculativeConfig


@dataclass(frozen=True, slots=True)
class Assembly:
    """An engine and the parts that its faces need."""

    engine: EngineCore
    model_path: Path
    model_config: ModelConfig
    tokenizer: Any
    kv_cache: KVCache
    parts: Parts


def assemble(
    model: str | Path,
    *,
    dtype: str | torch.dtype,
    device: str | torch.device,
    quantization: str | None,
    block_size: int,
    num_blocks: int | None,
    kv_cache_memory: int | None,
    kv_cache_dtype: str,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    max_model_len: int | None,
    seed: int,
    attention_backend: str,
    scheduling: Scheduling,
    prefix_cache: str | None,
    speculation: SpeculativeConfig | None,
    parts: Mapping[str, Any] | None,
    async_scheduling: bool | None,
    enforce_eager: bool,
    compile: bool,
    debug_invariants: bool,
) -> Assembly:
    """Builds everything that `LLM` and the server stand on; see `LLM` for the arguments.

    Raises:
        ValueError: naming the argument and the remedy.
        PartError: naming the part that is unfit.
    """
    given = read_parts(parts)
    _check_limits(
        block_size=block_size,
        num_blocks=num_blocks,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        kv_cache_memory=kv_cache_memory,
        max_model_len=max_model_len,
    )
    _check_together(given, scheduling, num_blocks=num_blocks, kv_cache_memory=kv_cache_memory)
    _check_prefix_cache(given, prefix_cache)
    _check_speculation(given, speculation, async_scheduling)
    _check_kv_quantizer(given, kv_cache_dtype)
    check_scheme(quantization)
    where, path = choose_device(device), resolve_model(model, quantization=quantization)
    config = load_config(path)
    kind = choose_dtype(dtype, config.torch_dtype, where)
    check_weights_fit(
        weight_bytes(num_weights(path), config, dtype=kind, quantization=quantization),
        kept_as=quantization or config.quantization or str(kind).removeprefix("torch."),
        device=where,
    )
    kv_kind = choose_kv_dtype(kv_cache_dtype, kind)
    kv_bytes = bytes_per_number(kv_kind, config.head_dim)
    if async_scheduling is None:
        # A scheduler of somebody's own need not know of tokens that are still pending.
        async_scheduling = where.type == "cuda" and not (speculation or given.get("scheduler"))
    max_model_len = _max_model_len(max_model_len, config)
    needs_window = any(window is not None for window in config.sliding_windows)
    needs = Needs(where, kind, needs_window, kv_kind)
    fitted = fit_parts(
        given,
        prefix_cache=None if prefix_cache is None else PREFIX_CACHES[prefix_cache],
        attention=select_backend(
            attention_backend,
            device=where,
            dtype=kind,
            needs_window=needs_window,
            kv_dtype=kv_kind,
        ),
        scheduler=scheduling.make_scheduler(),
        admission=partial(
            Admission, model_limit=config.max_position_embeddings, **scheduling.limits
        ),
        needs=needs,
    )
    quantization = choose_quantization(
        quantization, config.quantization, kind, where, compile=compile
    )
    weights = load_model(path, dtype=kind, device=where, quantization=quantization)
    tokenizer = load_tokenizer(path)
    if compile:
        compile_layers(weights)
    drafting = None
    if speculation is not None:
        drafting = prepare_drafter(
            speculation,
            weights,
            path,
            attention_backend=attention_backend,
            device=where,
            max_model_len=max_model_len,
        )
    if num_blocks is None:
        largest_step = partial(
            run_largest_step,
            weights,
            fitted.attention,
            block_size=block_size,
            dtype=kv_kind,
            device=where,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
        )
        memory = kv_cache_memory or default_kv_memory(where, largest_step)
        if drafting is not None and drafting.kv_config is not None:
            memory = share_kv_memory(
                memory, config, drafting.kv_config, dtype=kind, kv_dtype=kv_kind
            )
        fits = fitted.kv_budget(
            config, kv_cache_memory=memory, block_size=block_size, dtype_bytes=kv_bytes
        )
        # More than every sequence at its longest could never be used.
        num_blocks = min(fits, max_num_seqs * -(-max_model_len // block_size))
    block_bytes = kv_block_bytes(config, block_size=block_size, dtype_bytes=kv_bytes)
    if drafting is not None and drafting.kv_config is not None:
        block_bytes += kv_block_bytes(
            drafting.kv_config, block_size=block_size, dtype_bytes=kind.itemsize
        )
    check_fits(num_blocks, block_size=block_size, block_bytes=block_bytes, device=where)
    space = scheduling.make_swap_space(config, block_bytes=block_bytes, device=where)
    num_host_blocks = 0 if space is None else space.pool.num_blocks
    blocks = BlockManager(
        fitted.block_pool(num_blocks),
        block_size,
        space,
        fitted.prefix_cache(block_size) if fitted.prefix_cache is not None else None,
        Namespace(model=f"{path} {quantization}", kv_dtype=str(kv_kind)),
    )
    admission = fitted.admission(
        max_model_len=max_model_len, pool_tokens=blocks.capacity, vocab_size=config.vocab_size
    )
    policy = fitted.scheduler(
        blocks,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_len=admission.max_len,
    )
    executor = build_executor(
        weights,
        fitted.attention,
        num_blocks=num_blocks,
        block_size=block_size,
        dtype=kind,
        device=where,
        kv_dtype=kv_kind,
        kv_quantizer=fitted.kv_quantizer,
        max_num_seqs=max_num_seqs,
        max_model_len=max_model_len,
        async_scheduling=async_scheduling,
        enforce_eager=enforce_eager,
        num_host_blocks=num_host_blocks,
        drafting=drafting,
        rule=Rule(fitted.accept, always=given.get("accept") is not None),
    )
    if speculation is not None:
        policy.speculation = Speculation(choose_lengths(speculation, executor, policy))
    engine = EngineCore(
        policy,
        executor,
        admission,
        eos_token_ids=_eos_token_ids(config, tokenizer),
        seed=seed,
        async_scheduling=async_scheduling,
        debug_invariants=debug_invariants,
    )
    return Assembly(engine, path, config, tokenizer, executor.kv_cache, given)


def _check_together(
    given: Parts, scheduling: Scheduling, *, num_blocks: int | None, kv_cache_memory: int | None
) -> None:
    """Refuses arguments that contradict each other."""
    if num_blocks is not None and kv_cache_memory is not None:
        raise ValueError("give num_blocks or kv_cache_memory, not both: each decides the other")
    if num_blocks is not None and given.get("kv_budget"):
        raise ValueError("give num_blocks or a kv_budget part, not both: each decides the blocks")
    if given.get("scheduler") and not scheduling.is_default:
        raise ValueError(
            "give a scheduler part, or scheduler, policy and max_queue_delay, not both: the part "
            "decides who goes first"
        )


def _check_prefix_cache(given: Parts, name: str | None) -> None:
    if name is not None and name not in PREFIX_CACHES:
        raise ValueError(
            f"prefix_cache={name!r} is unknown: choose from {list(PREFIX_CACHES)}, or None for none"
        )
    if name is None and given.get("prefix_cache"):
        raise ValueError("prefix_cache=None leaves no place for your prefix_cache part: drop one")


def _check_speculation(
    given: Parts, config: SpeculativeConfig | None, async_scheduling: bool | None
) -> None:
    if config is None and given.get("accept"):
        raise ValueError(
            "your accept part decides on drafts, and nobody makes any: give speculative_config, "
            "'ngram' say, as well"
        )
    if config is not None and async_scheduling:
        raise ValueError(
            "async_scheduling=True: with speculative_config, how many drafts were right must be "
            "known before the next step is scheduled; drop one of the two"
        )


def _check_kv_quantizer(given: Parts, kv_cache_dtype: str) -> None:
    if kv_cache_dtype == "auto" and given.get("kv_quantizer"):
        raise ValueError(
            "kv_cache_dtype='auto' quantizes nothing, and leaves no place for your kv_quantizer "
            "part: give kv_cache_dtype='int8' as well, or drop the part"
        )


def _check_limits(**limits: int | None) -> None:
    for name, value in limits.items():
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{name}={value!r}: expected a whole number")
        if value < 1:
            raise ValueError(f"{name}={value}: expected at least 1")


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
