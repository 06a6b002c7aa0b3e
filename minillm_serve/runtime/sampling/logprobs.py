"""Log probabilities of chosen and of most likely tokens."""

import torch
from torch import Tensor

from minillm_serve.core.logprobs import Logprob, TokenLogprobs


def token_logprobs(logits: Tensor, tokens: list[int], counts: list[int]) -> list[TokenLogprobs]:
    """For each row: the given token, and the `count` most likely ones.

    Args:
        logits: [R, V], as the model gave them.
        tokens: [R] ids.
        counts: [R], how many of the most likely tokens to report; clamped to the vocabulary.

    Returns:
        R entries, each from token id to `Logprob`: the given token first, then by rank.
    """
    if not tokens:
        return []
    logits = logits if logits.dtype is torch.float64 else logits.float()
    logprobs = logits.log_softmax(dim=-1)
    ids = torch.tensor(tokens, device=logits.device).unsqueeze(1)
    own = logits.gather(1, ids)
    column = torch.arange(logits.shape[-1], device=logits.device)
    # Of equal logits the lower id comes first, as in argmax: one tie rule everywhere.
    before = (logits > own) | ((logits == own) & (column < ids))
    ranks = before.sum(dim=-1).add(1).tolist()
    chosen = logprobs.gather(1, ids).squeeze(1).tolist()
    entries = [
        {token: Logprob(logprob, rank)}
        for token, logprob, rank in zip(tokens, chosen, ranks, strict=True)
    ]
    if most := min(max(counts), logits.shape[-1]):
        _add_likeliest(entries, logprobs, counts, most)
    return entries


def _add_likeliest(
    entries: list[TokenLogprobs], logprobs: Tensor, counts: list[int], most: int
) -> None:
    order = _stable_top(logprobs, most)
    values = logprobs.gather(1, order).tolist()
    for row, (entry, ids) in enumerate(zip(entries, order.tolist(), strict=True)):
        for rank, token in enumerate(ids[: counts[row]]):
            entry.setdefault(token, Logprob(values[row][rank], rank + 1))


def _stable_top(values: Tensor, count: int) -> Tensor:
    """Columns of the `count` largest values of each row [R, count], of equals the lower first."""
    least = values.topk(count, dim=-1).values[:, -1:]
    # Only candidates are sorted. Ties at the end may make them more than `count`.
    width = int((values >= least).sum(dim=-1).max())
    column = torch.arange(values.shape[-1], device=values.device)
    hidden = torch.where(values >= least, column, values.shape[-1])
    candidates = hidden.topk(width, dim=-1, largest=False, sorted=True).values
    picked = values.gather(1, candidates.clamp(max=values.shape[-1] - 1))
    picked = picked.masked_fill(candidates == values.shape[-1], float("-inf"))
    order = picked.sort(dim=-1, descending=True, stable=True).indices
    return candidates.gather(1, order)[:, :count]
