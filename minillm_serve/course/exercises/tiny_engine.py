"""The real engine around a tiny random model: a few tokens in a moment, without any file."""

from __future__ import annotations

import torch

from minillm_serve.core import Admission, BlockManager, BlockPool, ContinuousScheduler, EngineCore
from minillm_serve.core.request import Request
from minillm_serve.core.sampling_params import SamplingParams
from minillm_serve.models.config import ModelConfig
from minillm_serve.models.transformer import Transformer
from minillm_serve.parts import Part
from minillm_serve.parts.attention import fit_attention
from minillm_serve.runtime.attention.torch_backend import TorchAttention
from minillm_serve.runtime.kv_cache import KVCache
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
    prompts: list[list[int]], max_tokens: int, seed: int, *, attention: Part | None = None
) -> list[list[int]]:
    """Greedy tokens for each prompt, all prompts served together.

    Args:
        prompts: token ids below `VOCABULARY`.
        max_tokens: for each.
        seed: of the model's parameters.
        attention: takes the engine's place for that.

    Raises:
        PartError: the part is not usable, or failed.
    """
    cpu, dtype = torch.device("cpu"), torch.float32
    model = _random_model(seed)
    backend = fit_attention(
        attention, TorchAttention(), device=cpu, dtype=dtype, needs_window=False
    )
    kv_cache = KVCache.allocate(
        model.config, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, dtype=dtype, device=cpu
    )
    blocks = BlockManager(BlockPool(NUM_BLOCKS), BLOCK_SIZE)
    door = Admission(
        max_model_len=64, pool_tokens=blocks.capacity, vocab_size=VOCABULARY, model_limit=128
    )
    scheduler = ContinuousScheduler(
        blocks, max_num_seqs=8, max_num_batched_tokens=64, max_len=door.max_len
    )
    engine = EngineCore(scheduler, TorchExecutor(model, kv_cache, backend), door)
    greedy = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    written: dict[str, list[int]] = {}
    for number, prompt in enumerate(prompts):
        written[str(number)] = []
        engine.add_request(
            Request(request_id=str(number), prompt_token_ids=tuple(prompt), params=greedy)
        )
    while engine.has_unfinished:
        for update in engine.step():
            written[update.request_id] += update.new_token_ids
    return list(written.values())


def _random_model(seed: int) -> Transformer:
    draw = torch.Generator().manual_seed(seed)
    model = Transformer(ModelConfig.from_hf(_SHAPE), torch.float32, torch.device("cpu")).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            is_norm = parameter.dim() == 1
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.3 + is_norm)
    return model.requires_grad_(False)
