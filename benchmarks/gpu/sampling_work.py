"""The sampler's kernels at work, beside a sort."""

import torch
from minillm_serve.kernels.sample import argmax, sample
from torch import Tensor

from benchmarks.gpu.case import Work
from minillm_serve.core import SamplingParams
from minillm_serve.runtime.sampling.choice import Choice
from minillm_serve.runtime.sampling.sampler import choose_by_torch

#: One row after the other takes the next of these.
PARAMS = (
    SamplingParams(top_k=50, top_p=0.9),
    SamplingParams(temperature=0.7),
    SamplingParams(top_p=0.95, min_p=0.05),
    SamplingParams(temperature=0),
)


def highest(
    device: torch.device, dtype: torch.dtype, compiled: bool, *, rows: int, vocabulary: int
) -> Work:
    """The likeliest token of each row, of equals the lowest id."""
    logits = torch.randn(rows, vocabulary, dtype=dtype, device=device)
    return Work(
        ours=lambda: argmax(logits),
        exact=lambda: _first_highest(logits),
        peers=lambda: {
            "torch.argmax": lambda: logits.argmax(-1),
            "torch.sort": lambda: logits.sort(dim=-1, descending=True),
        },
        num_bytes=logits.nbytes,
    )


def draws(
    device: torch.device, dtype: torch.dtype, compiled: bool, *, rows: int, vocabulary: int
) -> Work:
    """A draw for each row, filtered in all ways."""
    logits = 3 * torch.randn(rows, vocabulary, dtype=dtype, device=device)
    params = [PARAMS[row % len(PARAMS)] for row in range(rows)]
    choices = [
        Choice(p, seed=row, position=7, num_output_tokens=0, stop_ids=frozenset())
        for row, p in enumerate(params)
    ]

    def column(values: list[float], kind: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=kind, device=device)

    columns = (
        column([p.temperature for p in params], torch.float32),
        column([p.top_k for p in params], torch.int32),
        column([p.top_p for p in params], torch.float64),
        column([p.min_p for p in params], torch.float64),
        column(list(range(rows)), torch.int64),
        column([7] * rows, torch.int64),
    )
    return Work(
        ours=lambda: sample(logits, *columns),
        exact=lambda: choose_by_torch(logits.float().cpu(), choices)[0].to(device),
        peers=lambda: {"torch.sort": lambda: logits.sort(dim=-1, descending=True)},
        num_bytes=logits.nbytes,
    )


def _first_highest(logits: Tensor) -> Tensor:
    top = logits.max(dim=-1, keepdim=True).values
    column = torch.arange(logits.shape[-1], device=logits.device)
    return torch.where(logits == top, column, logits.shape[-1]).min(dim=-1).values
