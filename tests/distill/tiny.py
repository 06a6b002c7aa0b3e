"""A tiny random target and texts that it could have written."""

from typing import Any

import torch
from transformers import AutoConfig

from minillm_serve.distill.states import compute_states
from minillm_serve.distill.training import initialise
from minillm_serve.distill.unroll import Piece
from minillm_serve.models.config import ModelConfig
from minillm_serve.models.draft_head import DraftHead
from minillm_serve.models.transformer import Transformer
from tests.models.tiny import SHAPE, VOCAB

#: Whole groups of 32 columns everywhere, so that matrices can be coded.
CODED = {"hidden_size": 64, "intermediate_size": 96}


def tiny_target(dtype: torch.dtype = torch.float64, seed: int = 0, **options: Any) -> Transformer:
    """A random target on the CPU, packed as `load_model` packs it."""
    config = ModelConfig.from_hf(AutoConfig.for_model("llama", **{**SHAPE, **CODED, **options}))
    model = Transformer(config, dtype, torch.device("cpu"))
    draw = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        values = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
        parameter.data.copy_(1 + 0.3 * values if "norm" in name else 0.2 * values)
    model.pack()
    return model.eval()


def tiny_head(target: Transformer, seed: int = 1) -> DraftHead:
    """A random head that can draft every third token."""
    head = DraftHead(target, torch.arange(0, VOCAB, 3))
    initialise(head, seed)
    return head


def random_pieces(target: Transformer, sizes: list[tuple[int, int]], seed: int = 2) -> list[Piece]:
    """Random texts of (prompt, answer) tokens, with the target's true outputs."""
    draw = torch.Generator().manual_seed(seed)
    texts = [torch.randint(0, VOCAB, (p + a,), generator=draw) for p, a in sizes]
    states = compute_states(target, [text[:-1].tolist() for text in texts])
    return [
        Piece(text, hidden.clone(), prompt)
        for text, hidden, (prompt, _) in zip(texts, states, sizes, strict=True)
    ]


def greedy_pieces(
    target: Transformer, prompts: list[list[int]], num_tokens: int, kind: str = "code"
) -> list[Piece]:
    """What the target itself says after some prompts, greedily."""
    pieces = []
    for prompt in prompts:
        text = list(prompt)
        for _ in range(num_tokens):
            (hidden,) = compute_states(target, [text])
            text.append(int(target.logits(hidden[-1:]).argmax()))
        (hidden,) = compute_states(target, [text[:-1]])
        pieces.append(Piece(torch.tensor(text), hidden.clone(), len(prompt), kind))
    return pieces
