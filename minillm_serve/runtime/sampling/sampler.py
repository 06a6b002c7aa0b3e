"""Chooses the next token of every row of a step."""

from collections.abc import Sequence as Rows
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from minillm_serve.core.sampling_params import SamplingParams
from minillm_serve.runtime.device import has_triton, upload, upload_one
from minillm_serve.runtime.sampling.adjust import adjust
from minillm_serve.runtime.sampling.choice import Choice
from minillm_serve.runtime.sampling.filters import keep_likely
from minillm_serve.runtime.sampling.randomness import uniform

#: What stands in the place of a token that could not be chosen, and why it could not.
FAULTS = {
    -1: "the model gave logits that are not finite numbers",
    -2: "no token is left to choose: logit_bias and min_tokens exclude every one",
    -3: "no token is left to choose: none of the model's fits into what structured_outputs allow",
    -4: "structured_outputs are too ambiguous: finding what may come next takes too long",
}


class Chosen(NamedTuple):
    """The tokens of a step, where the step ran.

    Attributes:
        tokens: [R] int64, for the next step: always ids of the vocabulary.
        reported: [R] int64, for the host: the same, or a key of `FAULTS`.
    """

    tokens: Tensor
    reported: Tensor


def choose(logits: Tensor, choices: Rows[Choice], last: Tensor) -> Chosen:
    """Chooses one token a row; nothing in here waits for the device.

    A row's token depends on its own logits, its sequence's tokens and parameters and its seed,
    and on nothing else: not on the rest of the batch, nor on how often it was chunked or
    preempted.

    Args:
        logits: [R, V], any float dtype.
        choices: [R].
        last: [R] int64, the token before each choice.
    """
    adjusted = adjust(logits, choices, last)
    by = _choose_on_gpu if _has_kernel(logits) else choose_by_torch
    tokens, healthy = by(adjusted, choices)
    return report(tokens, healthy, logits, adjusted)


def report(tokens: Tensor, healthy: Tensor, logits: Tensor, adjusted: Tensor) -> Chosen:
    """Puts faults in the places of tokens that could not be chosen.

    Args:
        tokens: [R] int64.
        healthy: [R] bool, whether each could be chosen.
        logits: [R, V], as the model gave them.
        adjusted: the same, or what `adjust` made of them.
    """
    sound = healthy if adjusted is logits else logits.max(dim=-1).values.isfinite()
    return Chosen(tokens, torch.where(healthy, tokens, torch.where(sound, -2, -1)))


def distributions(logits: Tensor, choices: Rows[Choice]) -> Tensor:
    """What each row's token is drawn from, [R, V] float32: rows sum to 1; a greedy one is one-hot.

    Args:
        logits: [R, V], adjusted. Where they are no numbers, neither is the row.
        choices: [R].
    """
    probs = torch.zeros(logits.shape, device=logits.device)
    greedy = [row for row, choice in enumerate(choices) if choice.params.greedy]
    drawn = [row for row, choice in enumerate(choices) if not choice.params.greedy]
    if greedy:
        rows = upload_one(greedy, np.int64, logits.device)
        probs[rows, logits[rows].argmax(dim=-1)] = 1
    if drawn:
        rows = upload_one(drawn, np.int64, logits.device)
        weights = _probabilities(logits[rows].float(), [choices[row].params for row in drawn])
        probs[rows] = weights / weights.sum(dim=-1, keepdim=True)
    return probs


def choose_by_torch(logits: Tensor, choices: Rows[Choice]) -> tuple[Tensor, Tensor]:
    """Tokens [R] int64, and whether each could be chosen [R]."""
    # NaN is larger than everything to max(), so one look at the maximum finds NaN and +inf.
    highest, tokens = logits.max(dim=-1)
    healthy = highest.isfinite()
    drawn = [row for row, choice in enumerate(choices) if not choice.params.greedy]
    if drawn:
        rows = upload_one(drawn, np.int64, logits.device)
        tokens[rows] = _draw(logits[rows].float(), [choices[row] for row in drawn])
    return tokens, healthy


def _has_kernel(logits: Tensor) -> bool:
    return logits.is_cuda and logits.dtype is not torch.float64 and has_triton()


def _choose_on_gpu(logits: Tensor, choices: Rows[Choice]) -> tuple[Tensor, Tensor]:
    """The same by Triton kernels, which need no sort."""
    from minillm_serve.kernels.random_numbers import wrap_seed
    from minillm_serve.kernels.sample import argmax, sample

    params = [choice.params for choice in choices]
    if all(p.greedy for p in params):
        tokens = argmax(logits)
    else:
        vocabulary = logits.shape[-1]
        arrays: list[np.ndarray] = [
            np.array([0.0 if p.greedy else p.temperature for p in params], np.float32),
            np.array([min(p.top_k, vocabulary) for p in params], np.int32),
            np.array([p.top_p for p in params], np.float64),
            np.array([p.min_p for p in params], np.float64),
            np.array([wrap_seed(choice.seed) for choice in choices], np.int64),
            np.array([choice.position for choice in choices], np.int64),
        ]
        tokens = sample(logits, *upload(arrays, logits.device))
    return tokens.clamp(min=0), tokens >= 0


def _draw(logits: Tensor, choices: list[Choice]) -> Tensor:
    """Draws from float32 logits [R, V], by inverting the cumulative distribution: [R] int64."""
    probs = _probabilities(logits, [choice.params for choice in choices])
    # float64: in float32 the sum over a large vocabulary would lose the unlikely tokens.
    cumulative = probs.double().cumsum(dim=-1)
    draws = [uniform(choice.seed, choice.position) for choice in choices]
    target = upload_one(draws, np.float64, logits.device).unsqueeze(1)
    # A draw is below 1, but the product may round up to the total, past the last possible token.
    total = cumulative[:, -1:]
    target = torch.minimum(target * total, total.nextafter(torch.zeros_like(total)))
    found = torch.searchsorted(cumulative, target, right=True).squeeze(1)
    # Where the logits are no numbers, nothing is found; the next step may still look the id up.
    return found.clamp_(max=logits.shape[-1] - 1)


def _probabilities(logits: Tensor, params: list[SamplingParams]) -> Tensor:
    """[R, V] after temperature and filters; kept rows do not sum to 1 again."""
    # The maximum goes first: at a temperature of 1e-5 the quotient itself would overflow.
    logits = logits - logits.max(dim=-1, keepdim=True).values
    temperature = upload_one([p.temperature for p in params], np.float32, logits.device)
    probs = torch.softmax(logits / temperature.unsqueeze(1), dim=-1)
    filtered = [row for row, p in enumerate(params) if p.filters]
    if filtered:
        rows = upload_one(filtered, np.int64, logits.device)
        probs[rows] = keep_likely(probs[rows], [params[row] for row in filtered])
    return probs
