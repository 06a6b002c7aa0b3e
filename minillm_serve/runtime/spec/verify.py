"""Which drafts of a step are right, and which token comes after them.

A sequence with k drafts has k + 1 rows of logits, each telling of the token after its own. How many
of its drafts stay hangs on how they came about:

- A draft that is *certain* (copied from before, say, or simply the likeliest) stays if it is what
  the row before it chooses anyway, by the request's seed and the token's position. So the tokens
  are those that there would be without drafts, to the last one.
- A draft that was *drawn* from a distribution q stays by the rule of `accept`, so that the tokens
  are distributed as they would be without drafts. More of them stay than if they were certain.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from minillm_serve.runtime.device import upload, upload_one
from minillm_serve.runtime.inputs import StepInputs
from minillm_serve.runtime.sampling.adjust import adjust
from minillm_serve.runtime.sampling.choice import Choice
from minillm_serve.runtime.sampling.randomness import TEST, stream, uniforms
from minillm_serve.runtime.sampling.sampler import Chosen, choose, distributions, report
from minillm_serve.runtime.spec.accept import AcceptRule, accept


class Rule(NamedTuple):
    """By which rule drafts stay.

    Attributes:
        accept: the rule.
        always: certain drafts are put to it as well: slower, and the same distribution.
    """

    accept: AcceptRule
    always: bool = False


#: The paper's, where drafts were drawn.
PAPERS_RULE = Rule(accept)


class Verdict(NamedTuple):
    """What became of the drafts of a step.

    Attributes:
        chosen: the token of each choice, [C]; see `sampler.Chosen`.
        counts: for those of `StepInputs.sampled` that the rule decided on, how many drafts stay:
            [S'] int64. For all others the host finds out: as many as were chosen.
        ruled: indices into `StepInputs.sampled`, [S'].
    """

    chosen: Chosen
    counts: Tensor
    ruled: list[int]


def verify(
    logits: Tensor, inputs: StepInputs, last: Tensor, drawn: Mapping[int, Tensor], rule: Rule
) -> Verdict:
    """Decides on the drafts of a step.

    Args:
        logits: [C, V], of `inputs.choices`.
        inputs: of the step.
        last: [C] int64, the token before each choice.
        drawn: of those of `inputs.sampled` whose drafts were drawn, from what: [k, V] float32.
        rule: decides on those.
    """
    ruled = [s for s, drafts in enumerate(inputs.drafts) if drafts and (rule.always or s in drawn)]
    if not ruled:
        return Verdict(choose(logits, inputs.choices, last), last.new_zeros(0), [])
    rows = [row for s in ruled for row in _rows_of(inputs, s)]
    others = sorted(set(range(len(inputs.choices))) - set(rows))
    at, rest = (upload_one(picked, np.int64, logits.device) for picked in (rows, others))
    choices = [inputs.choices[row] for row in rows]
    drafts = [inputs.drafts[s] for s in ruled]
    proposals = [drawn.get(s) for s in ruled]
    decided, counts = _decide(logits[at], choices, last[at], drafts, proposals, rule.accept)
    if not others:
        return Verdict(decided, counts, ruled)
    plain = choose(logits[rest], [inputs.choices[row] for row in others], last[rest])
    tokens, reported = torch.empty_like(last), torch.empty_like(last)
    for where, part in ((at, decided), (rest, plain)):
        tokens[where], reported[where] = part
    return Verdict(Chosen(tokens, reported), counts, ruled)


def num_agreed(drafts: tuple[int, ...], chosen: list[int]) -> int:
    """How many certain drafts stay: those before the first that was not chosen."""
    pairs = enumerate(zip(drafts, chosen, strict=False))
    return next((count for count, (draft, token) in pairs if draft != token), len(drafts))


def _decide(
    logits: Tensor,
    choices: list[Choice],
    last: Tensor,
    drafts: list[tuple[int, ...]],
    proposals: list[Tensor | None],
    accept: AcceptRule,
) -> tuple[Chosen, Tensor]:
    """By the rule: the token of each choice, and how many drafts stay."""
    adjusted = adjust(logits, choices, last)
    (vocab, device), longest = (logits.shape[1], logits.device), max(map(len, drafts))
    lengths = [len(guessed) for guessed in drafts]
    # Where in a table [S', K + 1] the choices stand: each sequence's at the beginning of its row.
    spots = [s * (longest + 1) + i for s, k in enumerate(lengths) for i in range(k + 1)]
    padded = np.zeros((len(drafts), longest), np.int64)
    for s, guessed in enumerate(drafts):
        padded[s, : len(guessed)] = guessed
    positions = np.array([[choice.position] for choice in choices])
    draws = np.zeros((len(drafts) * (longest + 1), 2))
    seeds = [choice.seed for choice in choices]
    draws[spots, 0] = uniforms([stream(seed, TEST) for seed in seeds], positions)[:, 0]
    draws[spots, 1] = uniforms(seeds, positions)[:, 0]
    arrays = [np.array(spots), padded, np.array(lengths), draws.reshape(len(drafts), -1, 2)]
    where, ids, counts, numbers = upload(arrays, device)
    # A row without a single possible token is reported as a fault; no rule need bear its numbers.
    healthy = adjusted.max(dim=-1).values.isfinite()
    harmless = torch.zeros(vocab, device=device).index_fill_(0, ids.new_zeros(1), 1)
    p = torch.zeros(len(drafts) * (longest + 1), vocab, device=device)
    p[where] = distributions(adjusted, choices).where(healthy[:, None], harmless)
    q = torch.zeros(len(drafts), longest, vocab, device=device)
    q.scatter_(2, ids.unsqueeze(2), 1)
    for s, probs in enumerate(proposals):
        if probs is not None:
            q[s, : len(probs)] = probs
    kept = accept(p.view(len(drafts), longest + 1, vocab), q, ids, counts, numbers)
    tokens = kept.token_ids.flatten()[where].clamp(min=0)
    return report(tokens, healthy, logits, adjusted), kept.counts


def _rows_of(inputs: StepInputs, index: int) -> range:
    return range(inputs.first_choices[index], inputs.first_choices[index + 1])
