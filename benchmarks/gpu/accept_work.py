"""The acceptance kernel at work, beside the rule in torch."""

import torch
from minillm_serve.kernels.accept import accept
from torch import Tensor

from benchmarks.gpu.case import Work
from minillm_serve.runtime.spec.accept import accept as accept_by_torch


def accepts(
    device: torch.device, dtype: torch.dtype, compiled: bool, *, rows: int, drafts: int, vocab: int
) -> Work:
    """Drafts of so many sequences, drawn from a distribution near the model's."""
    logits = 3 * torch.randn(rows, drafts + 1, vocab, device=device)
    p = logits.softmax(dim=-1)
    q = (logits[:, :drafts] + torch.randn(rows, drafts, vocab, device=device)).softmax(dim=-1)
    drawn = q.flatten(0, 1).multinomial(1).view(rows, drafts)
    lengths = torch.arange(rows, device=device) % (drafts + 1)
    draws = torch.rand(rows, drafts + 1, 2, dtype=torch.float64, device=device)
    case = (p, q, drawn, lengths, draws)
    return Work(
        ours=lambda: accept(*case)[0],
        exact=lambda: _on_host(*case).to(device),
        peers=lambda: {"torch": lambda: accept_by_torch(*case).token_ids},
        num_bytes=2 * rows * vocab * p.element_size(),  # a row of p and one of q each
    )


def _on_host(*case: Tensor) -> Tensor:
    return accept_by_torch(*(tensor.cpu() for tensor in case)).token_ids
