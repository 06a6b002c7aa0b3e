"""The real engine around a tiny random model: a few tokens in a moment, without any file."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from minillm_serve.core import (
    Admission,
    BlockManager,
    BlockPool,
    ContinuousScheduler,
    DraftLengths,
    EngineCore,
    FixedLengths,
    SpecStats,
    Speculation,
)
from minillm_serve.core.request import Request
from minillm_serve.core.sampling_params import SamplingParams
from minillm_serve.models.config import ModelConfig
from minillm_serve.models.transformer import Transformer
from minillm_serve.parts import Part
from minillm_serve.parts.attention import fit_attention
from minillm_serve.runtime.attention.base import AttentionBackend
from minillm_serve.runtime.attention.registry import Needs
from minillm_serve.runtime.attention.torch_backend import TorchAttention
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.kv_quantizer import KVQuantizer
from minillm_serve.runtime.spec.accept import AcceptRule
from minillm_serve.runtime.spec.drafter import Drafter
from minillm_serve.runtime.spec.ngram import NgramDrafter
from minillm_serve.runtime.spec.verify import PAPERS_RULE, Rule
from minillm_serve.runtime.torch_executor import TorchExecutor

VOCABULARY, BLOCK_SIZE, NUM_BLOCKS = 64, 4, 24
_SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
}


def generate(
    prompts: list[list[int]],
    max_tokens: int,
    seed: int,
    *,
    attention: Part | None = None,
    kv_quantizer: KVQuantizer | None = None,
) -> list[list[int]]:
    """Greedy tokens for each prompt, all prompts served together.

    Args:
        prompts: token ids below `VOCABULARY`.
        max_tokens: for each.
        seed: of the model's parameters.
        attention: takes the engine's place for that.
        kv_quantizer: makes the codes of a quantized cache; None: keys and values stay floats.

    Raises:
        PartError: the part is not usable, or failed.
    """
    needs = Needs(torch.device("cpu"), torch.float32, window=False)
    backend = fit_attention(attention, TorchAttention(), needs)
    greedy = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    requests = [(prompt, greedy) for prompt in prompts]
    model = _random_model(seed, torch.float32)
    written, _ = _serve(model, backend, requests, kv_quantizer=kv_quantizer)
    return written


def speculate(
    requests: Sequence[tuple[list[int], SamplingParams]],
    seed: int,
    accept: AcceptRule | None,
    num_drafts: int,
) -> tuple[list[list[int]], SpecStats]:
    """Tokens for each request, with drafts that are looked up in its own text.

    It computes in float64, so that how many rows a step has does not decide about a token.

    Args:
        requests: prompts of token ids below `VOCABULARY`, and how each is answered.
        seed: of the model's parameters.
        accept: decides on all drafts; with None, nothing is drafted.
        num_drafts: most drafts of a sequence in a step.

    Returns:
        New tokens of each request, and what became of the drafts.
    """
    model = _random_model(seed, torch.float64, calm=0.5)
    if accept is None:
        return _serve(model, TorchAttention(), requests)
    return _serve(
        model,
        TorchAttention(),
        requests,
        drafter=NgramDrafter(3, 1),
        rule=Rule(accept, always=True),
        lengths=FixedLengths(num_drafts),
    )


def _serve(
    model: Transformer,
    backend: AttentionBackend,
    requests: Sequence[tuple[list[int], SamplingParams]],
    *,
    drafter: Drafter | None = None,
    rule: Rule = PAPERS_RULE,
    lengths: DraftLengths | None = None,
    kv_quantizer: KVQuantizer | None = None,
) -> tuple[list[list[int]], SpecStats]:
    dtype = model.embedding.weight.dtype if kv_quantizer is None else kv_quantizer.dtype
    kv_cache = KVCache.allocate(
        model.config,
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
        dtype=dtype,
        device=torch.device("cpu"),
        quantizer=kv_quantizer,
    )
    blocks = BlockManager(BlockPool(NUM_BLOCKS), BLOCK_SIZE)
    door = Admission(
        max_model_len=64, pool_tokens=blocks.capacity, vocab_size=VOCABULARY, model_limit=128
    )
    scheduler = ContinuousScheduler(
        blocks, max_num_seqs=8, max_num_batched_tokens=64, max_len=door.max_len
    )
    if lengths is not None:
        scheduler.speculation = Speculation(lengths)
    executor = TorchExecutor(model, kv_cache, backend, drafter=drafter, rule=rule)
    engine = EngineCore(scheduler, executor, door)
    written: dict[str, list[int]] = {}
    for number, (prompt, params) in enumerate(requests):
        written[str(number)] = []
        engine.add_request(
            Request(request_id=str(number), prompt_token_ids=tuple(prompt), params=params)
        )
    while engine.has_unfinished:
        for update in engine.step():
            written[update.request_id] += update.new_token_ids
    return list(written.values()), engine.spec_stats


def _random_model(seed: int, dtype: torch.dtype, *, calm: float = 1.0) -> Transformer:
    """Random parameters, the layers' times `calm`: with less, text repeats itself sooner."""
    draw = torch.Generator().manual_seed(seed)
    model = Transformer(ModelConfig.from_hf(_SHAPE), dtype, torch.device("cpu")).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = parameter.dim() == 1
            scale = 0.3 * calm if name.startswith("layers") and not is_norm else 0.3
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * scale + is_norm)
    return model.requires_grad_(False)
