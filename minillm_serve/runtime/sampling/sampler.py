"""Chooses the next token of every row of a step."""

from collections.abc import Sequence as Rows

import torch
from torch import Tensor

from minillm_serve.core.batch import SequenceOutput
from minillm_serve.core.request import Sequence
from minillm_serve.runtime.sampling.adjust import adjust
from minillm_serve.runtime.sampling.filters import keep_likely
from minillm_serve.runtime.sampling.randomness import uniform

NOT_FINITE = "the model gave logits that are not finite numbers"
NOTHING_LEFT = "no token is left to choose: logit_bias and min_tokens exclude every one"


def sample(logits: Tensor, sequences: Rows[Sequence]) -> list[SequenceOutput]:
    """Samples one token a row.

    A row's token depends on its own logits, its sequence's tokens and parameters and its seed,
    and on nothing else: not on the rest of the batch, nor on how often it was chunked or
    preempted.

    Args:
        logits: [R, V], any float dtype.
        sequences: [R].

    Returns:
        R outputs with one token each; or with an error, where no token can be chosen.
    """
    adjusted = adjust(logits, sequences)
    # NaN is larger than everything to max(), so one look at the maximum finds NaN and +inf.
    highest, tokens = adjusted.max(dim=-1)
    healthy = highest.isfinite().tolist()
    drawn = [row for row, s in enumerate(sequences) if not s.params.greedy and healthy[row]]
    if drawn:
        rows = torch.tensor(drawn, device=logits.device)
        tokens[rows] = _draw(adjusted[rows].float(), [sequences[row] for row in drawn])
    outputs = []
    for row, token in enumerate(tokens.tolist()):
        if healthy[row]:
            outputs.append(SequenceOutput((token,)))
        else:
            sound = bool(logits[row].max().isfinite())
            outputs.append(SequenceOutput(error=NOTHING_LEFT if sound else NOT_FINITE))
    return outputs


def _draw(logits: Tensor, sequences: list[Sequence]) -> Tensor:
    """Draws from float32 logits [R, V], by inverting the cumulative distribution: [R] int64."""
    probs = _probabilities(logits, sequences)
    # float64: in float32 the sum over a large vocabulary would lose the unlikely tokens.
    cumulative = probs.double().cumsum(dim=-1)
    draws = [uniform(s.seed, len(s)) for s in sequences]
    target = torch.tensor(draws, dtype=torch.float64, device=logits.device).unsqueeze(1)
    # A draw is below 1, but the product may round up to the total, past the last possible token.
    total = cumulative[:, -1:]
    target = torch.minimum(target * total, total.nextafter(torch.zeros_like(total)))
    return torch.searchsorted(cumulative, target, right=True).squeeze(1)


def _probabilities(logits: Tensor, sequences: list[Sequence]) -> Tensor:
    """[R, V] after temperature and filters; kept rows do not sum to 1 again."""
    params = [s.params for s in sequences]
    # The maximum goes first: at a temperature of 1e-5 the quotient itself would overflow.
    logits = logits - logits.max(dim=-1, keepdim=True).values
    temperature = [p.temperature for p in params]
    probs = torch.softmax(
        logits / torch.tensor(temperature, dtype=torch.float32, device=logits.device).unsqueeze(1),
        dim=-1,
    )
    filtered = [row for row, p in enumerate(params) if p.filters]
    if filtered:
        rows = torch.tensor(filtered, device=logits.device)
        probs[rows] = keep_likely(probs[rows], [params[row] for row in filtered])
    return probs
