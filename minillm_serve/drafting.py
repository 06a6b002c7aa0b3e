"""Builds what `SpeculativeConfig` asks for: who makes drafts, and who says how many."""

from pathlib import Path

import torch

from minillm_serve.core import AdaptiveLengths, DraftLengths, FixedLengths, Scheduler
from minillm_serve.models.draft_head import find_draft_head, load_draft_head
from minillm_serve.models.loader import load_config, load_model
from minillm_serve.models.quantize import choose_quantization
from minillm_serve.models.resolve import resolve_model
from minillm_serve.models.transformer import Transformer
from minillm_serve.runtime.attention.base import AttentionBackend
from minillm_serve.runtime.attention.registry import select_backend
from minillm_serve.runtime.forward import Forward
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.spec.draft_model import DraftModelDrafter
from minillm_serve.runtime.spec.drafter import Drafter, Drafting
from minillm_serve.runtime.spec.eagle import EagleDrafter
from minillm_serve.runtime.spec.early_exit import EarlyExitDrafter
from minillm_serve.runtime.spec.lookup_first import LookupFirstDrafter
from minillm_serve.runtime.spec.measure import measure_costs
from minillm_serve.runtime.spec.ngram import NgramDrafter
from minillm_serve.runtime.torch_executor import TorchExecutor
from minillm_serve.speculation import SpeculativeConfig

#: Share of the layers that an early exit runs, unless it is told how many: the embedded model says
#: next to nothing before its last ones.
EARLY = 0.9


def prepare_drafter(
    config: SpeculativeConfig,
    target: Transformer,
    path: Path,
    *,
    attention_backend: str,
    device: torch.device,
    max_model_len: int,
) -> Drafting:
    """Loads what drafts, so that a drafter can be made as soon as there are KV caches.

    Args:
        config: what is wanted.
        target: the model that is drafted for.
        path: where it was loaded from.
        attention_backend: see `LLM`.
        device: where the target is.
        max_model_len: no position of a sequence reaches it.

    Raises:
        ValueError: there is no such drafter for this model; the message says what to do.
    """
    lookup = NgramDrafter(*config.lookup)
    if config.method == "ngram" or (config.method == "auto" and find_draft_head(path) is None):
        return Drafting(None, lambda forward, cache: lookup)
    if config.method == "early_exit":
        layers = config.draft_layers or max(1, round(EARLY * target.config.num_layers))
        if layers > target.config.num_layers:
            raise ValueError(
                f"draft_layers={layers}: this model has {target.config.num_layers} layers"
            )
        return Drafting(None, lambda forward, cache: EarlyExitDrafter(forward, layers))
    dtype = target.dtype
    if config.method == "draft_model":
        small = _load_draft_model(config, dtype, device)
        if small.config.vocab_size != target.config.vocab_size:
            raise ValueError(
                f"the draft model {str(config.model)!r} has a vocabulary of "
                f"{small.config.vocab_size} tokens, this model one of "
                f"{target.config.vocab_size}: choose one that was made for the same tokenizer"
            )
        backend = _backend(attention_backend, small, device)
        return Drafting(
            small.config, lambda forward, cache: _draft_model(small, cache, backend, max_model_len)
        )
    file = Path(config.model) if config.model is not None else find_draft_head(path)
    if file is None:
        raise ValueError(
            f"no draft head comes with {path.name}: train one (`minillm-serve train-drafter`) and "
            "name its file as the model of speculative_config, or choose 'ngram'"
        )
    head = load_draft_head(file, target)
    backend = _backend(attention_backend, target, device)

    def make(forward: Forward, cache: KVCache | None) -> Drafter:
        assert cache is not None
        vocab_size = target.config.vocab_size
        eagle = EagleDrafter(head, target.embedding, cache, backend, vocab_size=vocab_size)
        return LookupFirstDrafter(lookup, eagle) if config.method == "auto" else eagle

    return Drafting(head.config, make)


def choose_lengths(
    config: SpeculativeConfig, executor: TorchExecutor, scheduler: Scheduler
) -> DraftLengths:
    """Who says how many drafts: by what steps take, which is measured now, or always as many."""
    if not config.adaptive:
        return FixedLengths(config.num_speculative_tokens)
    costs = measure_costs(
        executor,
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        max_len=scheduler.max_len,
    )
    return AdaptiveLengths(config.num_speculative_tokens, costs)


def _backend(name: str, model: Transformer, device: torch.device) -> AttentionBackend:
    needs_window = any(window is not None for window in model.config.sliding_windows)
    dtype = model.dtype
    return select_backend(name, device=device, dtype=dtype, needs_window=needs_window)


def _load_draft_model(
    config: SpeculativeConfig, dtype: torch.dtype, device: torch.device
) -> Transformer:
    assert config.model is not None  # the config has seen to it
    path = resolve_model(config.model)
    try:
        choose_quantization(None, load_config(path).quantization, dtype, device, compile=False)
    except ValueError as error:
        raise ValueError(f"the draft model {str(config.model)!r}: {error}") from error
    return load_model(path, dtype=dtype, device=device)


def _draft_model(
    small: Transformer, cache: KVCache | None, backend: AttentionBackend, max_model_len: int
) -> Drafter:
    assert cache is not None
    # Positions are the target's, and may lie beyond those that the small model was trained for.
    forward = Forward(small, cache, backend, max_model_len=max_model_len)
    return DraftModelDrafter(forward, small.config.vocab_size)
