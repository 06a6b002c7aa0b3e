"""Models of random weights in the shapes of real ones, in both libraries, and our engine on one."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen3Config,
)

from minillm_serve.core import Admission, BlockManager, BlockPool, ContinuousScheduler, EngineCore
from minillm_serve.models.config import ModelConfig
from minillm_serve.models.transformer import Transformer
from minillm_serve.models.weights import slots
from minillm_serve.runtime.attention.registry import select_backend
from minillm_serve.runtime.build import build_executor, run_largest_step
from minillm_serve.runtime.sizing import default_kv_memory, num_kv_blocks

BLOCK_SIZE, MAX_MODEL_LEN = 16, 1024
COMMON = {"max_position_embeddings": 8192, "bos_token_id": None, "eos_token_id": None}
SHAPES: dict[str, PretrainedConfig] = {
    "Qwen3-0.6B": Qwen3Config(
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
        architectures=["Qwen3ForCausalLM"],
        **COMMON,
    ),
    "Llama-3-8B": LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        architectures=["LlamaForCausalLM"],
        **COMMON,
    ),
    "tiny": Qwen3Config(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        architectures=["Qwen3ForCausalLM"],
        **COMMON,
    ),
}


@dataclass(frozen=True)
class Pair:
    """The same random weights in both libraries."""

    ours: Transformer
    theirs: PreTrainedModel
    device: torch.device
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """Bytes of weights that a decode step reads: all but the rows of the embedding."""
        skipped = self.ours.embedding.weight
        read = [p for p in self.ours.parameters() if p is not skipped]
        head = skipped.nbytes if self.ours.config.tie_word_embeddings else 0
        return sum(p.nbytes for p in read) + head


def make_pair(config: PretrainedConfig, device: torch.device, dtype: torch.dtype) -> Pair:
    """Draws weights where they will be, and shares them."""
    torch.manual_seed(0)
    with torch.device(device):
        theirs = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    ours = Transformer(ModelConfig.from_hf(config), dtype, device)
    state = theirs.state_dict()
    for name, slot in slots(ours).items():
        slot.view.copy_(state[name])
    return Pair(ours.eval(), theirs.eval(), device, dtype)


def make_engine(
    pair: Pair,
    *,
    max_num_seqs: int,
    async_scheduling: bool,
    enforce_eager: bool = False,
    backend: str = "auto",
    most_blocks: int = 8192,
) -> EngineCore:
    """Our engine on a model that is in memory already."""
    config, budget = pair.ours.config, min(8192, max_num_seqs * MAX_MODEL_LEN)
    place: dict[str, Any] = {"dtype": pair.dtype, "device": pair.device}
    attention = select_backend(backend, needs_window=False, **place)
    sizes: dict[str, Any] = {"block_size": BLOCK_SIZE, "max_num_seqs": max_num_seqs}
    largest = partial(
        run_largest_step, pair.ours, attention, max_num_batched_tokens=budget, **place, **sizes
    )
    fits = num_kv_blocks(
        config,
        kv_cache_memory=default_kv_memory(pair.device, largest),
        block_size=BLOCK_SIZE,
        dtype_bytes=pair.dtype.itemsize,
    )
    blocks = BlockManager(BlockPool(min(fits, most_blocks)), BLOCK_SIZE)
    executor = build_executor(
        pair.ours,
        attention,
        num_blocks=blocks.pool.num_blocks,
        max_model_len=MAX_MODEL_LEN,
        async_scheduling=async_scheduling,
        enforce_eager=enforce_eager,
        **place,
        **sizes,
    )
    door = Admission(
        max_model_len=MAX_MODEL_LEN, pool_tokens=blocks.capacity, vocab_size=config.vocab_size
    )
    scheduler = ContinuousScheduler(
        blocks,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        max_len=door.max_len,
    )
    return EngineCore(scheduler, executor, door, async_scheduling=async_scheduling)
