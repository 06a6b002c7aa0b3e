"""top_k, top_p and min_p, without sorting the vocabulary where that can be helped."""

from collections.abc import Sequence as Rows

import numpy as np
import torch
from torch import Tensor

from minillm_serve.core.sampling_params import SamplingParams
from minillm_serve.runtime.device import upload_one

#: How many of the most likely tokens are looked at first. Rows that keep more than that are rare.
CANDIDATES = 512


def keep_likely(probs: Tensor, params: Rows[SamplingParams]) -> Tensor:
    """Zeroes what each row's parameters exclude, in probs [R, V].

    All three filters keep the most likely tokens and differ only in how many. So they are first
    turned into a number for each row, for which a few of the largest probabilities suffice, and
    then so many are kept, of equals the lower ids. What stays, stays where it was: a draw must
    not depend on whether some other row of the batch made us sort.
    """
    vocabulary = probs.shape[-1]
    # On a GPU all are looked at: the host would have to wait to learn whether a few suffice. They
    # do not where top_p keeps a share of what a large top_k leaves, and that is not known yet.
    unknown = any(CANDIDATES < p.top_k < vocabulary and p.top_p < 1 for p in params)
    on_cpu = probs.device.type == "cpu"
    few = min(CANDIDATES, vocabulary) if on_cpu and not unknown else vocabulary
    for candidates in (few, vocabulary):
        ranked = probs.topk(candidates, dim=-1).values
        count = _count_kept(ranked, probs, params)
        if candidates == vocabulary or bool((count < candidates).all()):
            break
    least = ranked.gather(1, count - 1)
    above = probs > least
    equal = probs == least
    room = count - above.sum(dim=-1, keepdim=True)
    return probs * (above | (equal & (equal.cumsum(dim=-1) <= room)))


def _count_kept(ranked: Tensor, probs: Tensor, params: Rows[SamplingParams]) -> Tensor:
    """[R, 1] tokens to keep, as far as the ranked probabilities [R, C] tell; at least 1."""

    def column(values: list[float]) -> Tensor:
        return upload_one(values, np.float64, probs.device).unsqueeze(1)

    rank = torch.arange(ranked.shape[-1], device=probs.device)
    top_k = column([float(p.top_k) if p.top_k > 0 else float("inf") for p in params])
    top_p, min_p = column([p.top_p for p in params]), column([p.min_p for p in params])
    kept = rank < top_k
    cumulative = (ranked * kept).double().cumsum(dim=-1)
    # What top_k left is the whole of which top_p keeps a share; without top_k that is everything.
    whole = torch.where(top_k <= ranked.shape[-1], cumulative[:, -1:], probs.double().sum(-1, True))
    # top_p = 1 keeps all, even where rounding makes the sum reach its end early.
    kept &= (cumulative - ranked < top_p * whole) | (top_p >= 1)
    kept &= ranked >= min_p * ranked[:, :1]
    return kept.sum(dim=-1, keepdim=True).clamp(min=1)
