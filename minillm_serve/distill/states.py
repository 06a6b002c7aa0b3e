"""What the target computed for a text: the outputs that the head reads and learns to foresee.

They are computed again in prefill, several texts side by side, rather than kept from generation: a
pass over whole texts is as fast, and so the text may come from anywhere.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file
from torch import Tensor

from minillm_serve.distill.text import Sample
from minillm_serve.distill.unroll import Piece
from minillm_serve.models.transformer import Transformer

#: Rows of one pass through the target.
ROWS = 1024


class CausalAttend:
    """Whole texts side by side: each token looks at those before it in its own text.

    Args:
        lengths: of the texts, in the order of the rows.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = list(lengths)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """As `Attend`; layers with a sliding window are not provided for."""
        repeats = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        parts = [tensor.transpose(0, 1).split(self.lengths, 1) for tensor in (q, k, v)]
        rows = [
            F.scaled_dot_product_attention(q, k, v, is_causal=True)
            for q, k, v in zip(*parts, strict=True)
        ]
        return torch.cat(rows, 1).transpose(0, 1)


def compute_states(
    target: Transformer, texts: Sequence[Sequence[int]], *, fast: bool = False
) -> list[Tensor]:
    """The target's outputs after its final norm: for each text ``[n, hidden]``.

    Args:
        target: whose outputs.
        texts: token ids.
        fast: multiply in bfloat16; what is between the products stays as it is.

    Raises:
        ValueError: the target has a sliding window that is shorter than a text.
    """
    windows = [window for window in target.config.sliding_windows if window is not None]
    if windows and max(map(len, texts)) > min(windows):
        raise ValueError(
            f"the target looks back {min(windows)} tokens at most; train its head on texts that "
            "are no longer"
        )
    device, found = target.device, []
    for batch in _batches(texts):
        lengths = [len(text) for text in batch]
        ids = torch.tensor([token for text in batch for token in text], device=device)
        positions = torch.cat([torch.arange(n, device=device) for n in lengths])
        with torch.autocast(device.type, torch.bfloat16, enabled=fast):
            hidden = target(ids, positions, CausalAttend(lengths))
        found.extend(hidden.split(lengths))
    return found


def pieces_of(
    target: Transformer, samples: Sequence[Sample], file: Path, *, fast: bool = False
) -> list[Piece]:
    """Samples with their states; these are read from the file if it is there, else written.

    The file holds float16. Its states are used in either case: a run that goes on with a file and
    one that wrote it learn from the same numbers.
    """
    if not file.is_file():
        texts = [sample.token_ids[:-1] for sample in samples]
        states = torch.cat(compute_states(target, texts, fast=fast))
        partial = file.with_suffix(".partial")
        save_file({"hidden": states.half().cpu().contiguous()}, partial)
        os.replace(partial, file)
    hidden = load_file(file)["hidden"].split([len(sample.token_ids) - 1 for sample in samples])
    return [
        Piece(
            token_ids=torch.tensor(sample.token_ids),
            hidden=rows,
            num_prompt_tokens=sample.num_prompt_tokens,
            kind=sample.kind,
            greedy=sample.temperature == 0,
        )
        for sample, rows in zip(samples, hidden, strict=True)
    ]


def _batches(texts: Sequence[Sequence[int]]) -> list[list[Sequence[int]]]:
    """Neighbours of ``ROWS`` tokens together, or a single longer text."""
    batches: list[list[Sequence[int]]] = []
    room = 0
    for text in texts:
        if len(text) > room:
            batches.append([])
            room = ROWS
        batches[-1].append(text)
        room -= len(text)
    return batches
