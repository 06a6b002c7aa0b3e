"""Chooses the next token of every row: greedy, or drawn after temperature, top-k, top-p, min-p."""

from collections.abc import Sequence as Rows

import torch
from torch import Tensor

from minillm_serve.core.request import Sequence


def sample(logits: Tensor, sequences: Rows[Sequence]) -> list[int | None]:
    """Samples one token a row.

    A row's draw depends on its own logits, its sequence's seed and its position, and on nothing
    else: not on the rest of the batch, nor on how often the sequence was chunked or preempted.

    Args:
        logits: [R, V], any float dtype.
        sequences: [R], whose parameters, seed and length are used.

    Returns:
        R token ids; None for a row whose logits are not finite at their maximum.
    """
    # NaN is larger than everything to max(), so one look at the maximum finds NaN and +inf.
    highest = logits.max(dim=-1).values
    healthy = highest.isfinite().tolist()
    tokens = logits.argmax(dim=-1)
    drawn = [row for row, s in enumerate(sequences) if not s.params.greedy and healthy[row]]
    if drawn:
        rows = torch.tensor(drawn, device=logits.device)
        tokens[rows] = _draw(logits[rows].float(), [sequences[row] for row in drawn])
    return [token if ok else None for token, ok in zip(tokens.tolist(), healthy, strict=True)]


def _draw(logits: Tensor, sequences: list[Sequence]) -> Tensor:
    """Draws from float32 logits [R, V], by inverting the cumulative distribution: [R] int64."""

    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=logits.device).unsqueeze(1)

    params = [s.params for s in sequences]
    # The maximum goes first: at a temperature of 1e-5 the quotient itself would overflow.
    logits = logits - logits.max(dim=-1, keepdim=True).values
    temperature = column([p.temperature for p in params]).float()
    probs = torch.softmax(logits / temperature, dim=-1)
    if any(p.top_k > 0 or p.top_p < 1 or p.min_p > 0 for p in params):
        top_k = [p.top_k if p.top_k > 0 else probs.shape[-1] for p in params]
        probs = _filter(
            probs,
            top_k=column([float(k) for k in top_k]),
            top_p=column([p.top_p for p in params]),
            min_p=column([p.min_p for p in params]),
        )
    # float64: in float32 the sum over a large vocabulary would lose the unlikely tokens.
    cumulative = probs.double().cumsum(dim=-1)
    target = column([uniform(s.seed, len(s)) for s in sequences]) * cumulative[:, -1:]
    chosen = torch.searchsorted(cumulative, target, right=True)
    # u < 1, but the product may round up to the total: stay on the last token with a chance.
    last = (probs > 0).long().mul(torch.arange(probs.shape[-1], device=probs.device)).amax(-1)
    chosen = torch.minimum(chosen, last.unsqueeze(1))
    return chosen.squeeze(1)


def _filter(probs: Tensor, *, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """Zeroes what the parameters exclude, in probs [R, V].

    top_p looks at what top_k left, as in vLLM and transformers; the likeliest token always stays.
    What is kept stays where it was, in the order of ids: a row's draw must not depend on whether
    some other row of the batch made us sort.
    """
    ranked, order = probs.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(probs.shape[-1], device=probs.device)
    ranked = ranked.masked_fill(rank >= top_k, 0)
    cumulative = ranked.double().cumsum(dim=-1)
    before = cumulative - ranked
    # top_p = 1 keeps all, even where rounding makes the sum reach its end early.
    beyond = (before >= top_p * cumulative[:, -1:]) & (top_p < 1)
    beyond |= ranked < min_p * ranked[:, :1]
    beyond[:, 0] = False
    return torch.zeros_like(probs).scatter_(1, order, ranked.masked_fill(beyond, 0))


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) from (seed, position) alone: counter-based, so it has no state.

    SplitMix64's finaliser (Steele, Lea and Flood, 2014), applied to the seed and again to the
    sum of its result and the position.
    """
    return (_mix(_mix(seed) + position) >> 11) / 2**53


def _mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 31)
