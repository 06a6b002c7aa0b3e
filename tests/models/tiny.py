"""Tiny random models of every architecture, and the plainest attention that can run them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from minillm_serve.models.config import ModelConfig
from minillm_serve.models.transformer import Transformer

VOCAB = 97
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,  # 4 heads of 16 are 64, not 48: the two need not agree
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def random_model(model_type: str, seed: int = 0, **options: Any) -> PreTrainedModel:
    """A tiny float32 model whose every parameter, biases and norms too, is random.

    Args:
        model_type: transformers' name of the architecture.
        seed: of the parameters.
        options: of the config; ``head_dim=None`` leaves the key out.
    """
    shape = {**SHAPE, **options}
    if shape["head_dim"] is None:
        del shape["head_dim"]
    config = AutoConfig.for_model(model_type, **shape)
    model = AutoModelForCausalLM.from_config(
        config, dtype=torch.float32, attn_implementation="eager"
    )
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=draw)
            parameter.copy_(1 + 0.3 * values if "norm" in name else 0.2 * values)
    return model.eval()


def save(model: PreTrainedModel, directory: Path, **options: Any) -> Path:
    """Saves a model as transformers does; ``max_shard_size`` shards it."""
    model.save_pretrained(directory, **options)
    return directory


class DenseAttend:
    """Keeps every key of one sequence and looks at all of them, one mask a layer."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if layer in self.kept:
            k, v = (torch.cat(pair) for pair in zip(self.kept[layer], (k, v), strict=True))
        self.kept[layer] = (k, v)
        repeats = self.config.num_heads // self.config.num_kv_heads
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        scores = torch.einsum("thd,shd->hts", q, k) / self.config.head_dim**0.5
        start, total = k.shape[0] - q.shape[0], k.shape[0]
        distance = torch.arange(start, total)[:, None] - torch.arange(total)
        window = self.config.sliding_windows[layer] or total
        hidden = (distance < 0) | (distance >= window)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return torch.einsum("hts,shd->thd", weights, v)


def our_logits(model: Transformer, token_ids: list[int], chunk: int | None = None) -> Tensor:
    """Logits ``[T, V]`` of one sequence, computed whole or ``chunk`` tokens at a time."""
    attend, step = DenseAttend(model.config), chunk or len(token_ids)
    pieces = []
    for start in range(0, len(token_ids), step):
        part = torch.tensor(token_ids[start : start + step])
        positions = torch.arange(start, start + len(part))
        pieces.append(model.logits(model(part, positions, attend)))
    return torch.cat(pieces)


def their_logits(model: PreTrainedModel, token_ids: list[int]) -> Tensor:
    """transformers' logits ``[T, V]``."""
    with torch.inference_mode():
        return model(torch.tensor([token_ids])).logits[0]


def prompt(length: int, seed: int = 0) -> list[int]:
    """Random token ids of the tiny vocabulary."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCAB, (length,), generator=draw).tolist()
