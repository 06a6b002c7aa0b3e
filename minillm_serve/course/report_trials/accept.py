"""Cases with one right answer, draws by chi-square, and a text of which a drafter knows a part."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from minillm_serve.course.report_card import Counters, Measure, Trial
from minillm_serve.parts import Part
from minillm_serve.parts.accept import name_faults
from minillm_serve.runtime.sampling.chi_square import p_value
from minillm_serve.runtime.sampling.inversion import invert
from minillm_serve.runtime.spec.accept import PADDING, Accepted, AcceptRule, accept
from minillm_serve.runtime.spec.conformance import (
    CASES,
    DRAFTER,
    DRAWS,
    MODEL,
    Step,
    count_tokens,
    draw_steps,
    try_cases,
)

SEED = 2
SEQUENCES, STEPS, DRAFTS, VOCAB = 32, 25, 4, 24
#: A right rule is called wrong once in ten thousand times; with these draws, it never is.
LEAST_P_VALUE = 1e-4


def trial(yours: Any) -> Trial:
    """Cases, draws, and texts of a language that a drafter half knows; every second one greedy."""
    return Trial(
        trace=f"{len(CASES)} cases, {DRAWS} draws and {SEQUENCES} texts (seed {SEED})",
        naive=keeps_none,
        naive_is="keeps no draft and picks from p",
        reference=accept,
        measures=(
            Measure("cases right", "=", len(CASES)),
            Measure("p-value", ">=", LEAST_P_VALUE, format=".2g"),
            Measure("greedy tokens wrong", "=", 0),
            Measure("tokens a step", ">=", format=".2f"),
        ),
        count=_count,
        work=_accept_many,
    )


def keeps_none(p: Tensor, q: Tensor, drafts: Tensor, lengths: Tensor, draws: Tensor) -> Accepted:
    """Right tokens, and no use of any draft."""
    token_ids = pad(invert(p[:, 0], draws[:, 0, 1])[:, None], (0, drafts.shape[1]), value=PADDING)
    return Accepted(token_ids, torch.zeros_like(lengths))


def _count(part: Part) -> Counters:
    rule = name_faults(part)
    right = sum(try_cases(rule, (case,)) is None for case in CASES)
    with part.trial("the draws"):
        step = draw_steps(torch.tensor(MODEL), torch.tensor(DRAFTER), DRAWS, seed=SEED)
        places = zip(count_tokens(rule(*step)), map(torch.tensor, MODEL), strict=True)
        least = min(p_value(counts, row) for counts, row in places if counts.sum())
    with part.trial("the texts"):
        wrong, per_step = _write_texts(rule)
    return {
        "cases right": right,
        "p-value": least,
        "greedy tokens wrong": wrong,
        "tokens a step": per_step,
    }


def _write_texts(rule: AcceptRule) -> tuple[int, float]:
    """Greedy tokens that are not the likeliest, and new tokens a step and text."""
    draw = torch.Generator().manual_seed(SEED)
    language = torch.randn(VOCAB, VOCAB, generator=draw) * 2
    guess = language + torch.randn(VOCAB, VOCAB, generator=draw)
    likeliest = language.argmax(dim=1)
    greedy = torch.arange(SEQUENCES) % 2 == 0
    p_of, q_of = (_both(table) for table in (language, guess))
    last, place = torch.arange(SEQUENCES) % VOCAB, torch.arange(DRAFTS + 1)
    wrong = num_tokens = 0
    for _ in range(STEPS):
        known, q = [last], []
        for _ in range(DRAFTS):
            q.append(q_of[greedy.long(), known[-1]])
            known.append(invert(q[-1], torch.rand(SEQUENCES, dtype=torch.float64, generator=draw)))
        p = torch.stack([p_of[greedy.long(), tokens] for tokens in known], dim=1)
        draws = torch.rand(SEQUENCES, DRAFTS + 1, 2, dtype=torch.float64, generator=draw)
        drafts, lengths = torch.stack(known[1:], dim=1), torch.full((SEQUENCES,), DRAFTS)
        token_ids, counts = rule(p, torch.stack(q, dim=1), drafts, lengths, draws)
        new = place <= counts[:, None]
        before = torch.cat([last[:, None], token_ids[:, :-1]], dim=1)
        wrong += int((new & greedy[:, None] & (token_ids != likeliest[before])).sum())
        num_tokens += int(new.sum())
        last = token_ids.gather(1, counts[:, None]).squeeze(1)
    return wrong, num_tokens / (STEPS * SEQUENCES)


def _both(logits: Tensor) -> Tensor:
    """[2, V, V]: what to draw the token after each token from, and the same if greedy."""
    certain = one_hot(logits.argmax(dim=1), logits.shape[1]).float()
    return torch.stack([torch.softmax(logits, dim=1), certain])


def _accept_many(rule: AcceptRule) -> None:
    rule(*_many())


@cache
def _many() -> Step:
    """16 sequences with 4 drafts each, of a vocabulary of 8192."""
    logits = torch.randn(5, 8192, generator=torch.Generator().manual_seed(SEED))
    p = torch.softmax(logits, dim=1)
    return draw_steps(p, torch.softmax(logits[:4] / 2, dim=1), 16, seed=SEED)
