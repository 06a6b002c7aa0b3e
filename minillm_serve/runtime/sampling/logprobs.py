"""Log probabilities of chosen and of most likely tokens."""

from typing import NamedTuple

import torch
from torch import Tensor

from minillm_serve.core.logprobs import Logprob, TokenLogprobs


class LogprobTensors(NamedTuple):
    """What was found out about R rows, K tokens each at most.

    Attributes:
        ids: [R] int64, the given tokens.
        own: [R], their log probabilities.
        ranks: [R] int64, their ranks.
        likeliest: [R, K] int64, the most likely tokens by rank.
        values: [R, K], their log probabilities.
    """

    ids: Tensor
    own: Tensor
    ranks: Tensor
    likeliest: Tensor
    values: Tensor

    def to_host(self) -> "LogprobTensors":
        """The same on the host, as soon as it has arrived there."""
        return LogprobTensors(*(tensor.to("cpu", non_blocking=True) for tensor in self))

    def entries(self, counts: list[int]) -> list[TokenLogprobs]:
        """R entries, each from token id to `Logprob`: the given token first, then by rank.

        Args:
            counts: [R], how many of the most likely tokens to report.
        """
        rows = zip(*(tensor.tolist() for tensor in self), counts, strict=True)
        return [_entry(*row) for row in rows]


def _entry(
    token: int, own: float, rank: int, likeliest: list[int], values: list[float], count: int
) -> TokenLogprobs:
    entry = {token: Logprob(own, rank)}
    for place in range(min(count, len(likeliest))):
        entry.setdefault(likeliest[place], Logprob(values[place], place + 1))
    return entry


def token_logprobs(logits: Tensor, ids: Tensor, most: int) -> LogprobTensors:
    """How likely given tokens were, and which ones were the most likely.

    Args:
        logits: [R, V], as the model gave them.
        ids: [R] int64.
        most: how many of the most likely tokens to tell of; clamped to the vocabulary.
    """
    logits = logits if logits.dtype is torch.float64 else logits.float()
    logprobs = logits.log_softmax(dim=-1)
    own = logits.gather(1, ids.unsqueeze(1))
    column = torch.arange(logits.shape[-1], device=logits.device)
    # Of equal logits the lower id comes first, as in argmax: one tie rule everywhere.
    before = (logits > own) | ((logits == own) & (column < ids.unsqueeze(1)))
    likeliest = _stable_top(logprobs, min(most, logits.shape[-1]))
    return LogprobTensors(
        ids=ids,
        own=logprobs.gather(1, ids.unsqueeze(1)).squeeze(1),
        ranks=before.sum(dim=-1) + 1,
        likeliest=likeliest,
        values=logprobs.gather(1, likeliest),
    )


def _stable_top(values: Tensor, count: int) -> Tensor:
    """Columns of the `count` largest values of each row [R, count], of equals the lower first."""
    if not count or not len(values):
        return values.new_empty(len(values), count, dtype=torch.int64)
    if values.device.type != "cpu":
        # All are sorted: the host would have to wait to learn how many candidates suffice.
        return values.sort(dim=-1, descending=True, stable=True).indices[:, :count]
    least = values.topk(count, dim=-1).values[:, -1:]
    # Only candidates are sorted. Ties at the end may make them more than `count`.
    width = int((values >= least).sum(dim=-1).max())
    column = torch.arange(values.shape[-1], device=values.device)
    hidden = torch.where(values >= least, column, values.shape[-1])
    candidates = hidden.topk(width, dim=-1, largest=False, sorted=True).values
    picked = values.gather(1, candidates.clamp(max=values.shape[-1] - 1))
    picked = picked.masked_fill(candidates == values.shape[-1], float("-inf"))
    order = picked.sort(dim=-1, descending=True, stable=True).indices
    # A row of no numbers has no candidates, and still must not name a column that is none.
    return candidates.gather(1, order)[:, :count].clamp(max=values.shape[-1] - 1)
