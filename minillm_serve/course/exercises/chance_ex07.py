"""ex07's test of chance: tens of thousands of tokens, and whether p could have made them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from minillm_serve.course.exercises.cases_ex07 import spread
from minillm_serve.course.exercises.drawn_ex07 import Shares
from minillm_serve.course.exercises.exercise import Case, CheckFailed
from minillm_serve.course.exercises.rules_ex07 import rows_of
from minillm_serve.course.exercises.tokens_ex07 import mistaken, named, read
from minillm_serve.runtime.sampling.chi_square import p_value
from minillm_serve.runtime.spec.accept import AcceptRule
from minillm_serve.runtime.spec.conformance import draw_steps

SIZE, DRAFTS = 50_000, 2
#: Sequences among which a mistake is looked for.
LOOKED_AT = 2000
#: A right answer fails so often.
LEAST_P_VALUE = 1e-7


def run(answer: Any, case: Case) -> Any:
    """The learner's side: one batch, of drafts that are drawn from q."""
    return named(answer(*_steps(case)))


def _steps(case: Case) -> tuple[torch.Tensor, ...]:
    """The arguments of `accept`; a third of the sequences have no drafts, a third have one."""
    p, q, *others = draw_steps(case["p"], case["q"], case["size"], seed=case["seed"])
    return (p, q, *others)


def described(case: Case) -> str:
    """A case in one line."""
    rows, vocab = case["p"].shape
    return f"S={case['size']:,}, K={rows - 1}, V={vocab}; drafts: 0, 1, 2 in turn, drawn from q"


def judge_shares(case: Case, got: Any) -> None:
    """Tokens that follow equally many kept drafts are compared with p.

    Raises:
        CheckFailed: p would hardly ever have made these; with their shares.
    """
    width = len(case["q"])
    counts, found = read(got, case["size"], width)
    kept, ids = np.array(counts), np.array(found)
    for place in range(width + 1):
        reached = ids[kept >= place, place]
        p = case["p"][place]
        outside = (reached < 0) | (reached >= len(p))
        if outside.any():
            raise CheckFailed(
                f"behind {place} kept drafts there is no token, or none that exists",
                got=int(reached[outside][0]),
            )
        came = torch.bincount(torch.from_numpy(reached), minlength=len(p))
        if p_value(came, p) < LEAST_P_VALUE:
            shares = (came / came.sum()).tolist()
            q = case["q"][place].tolist() if place < width else None
            said = _explained(case, counts, found) or (
                f"of {len(reached):,} tokens behind {place} kept drafts, as many of each kind came "
                "as the model's own p would not give once in ten million times"
            )
            raise CheckFailed(said, drawing=Shares(p.tolist(), q, shares))


def _explained(case: Case, counts: list[int], found: list[list[int]]) -> str | None:
    names = ("p", "q", "drafts", "lengths", "draws")
    rows = rows_of(dict(zip(names, _steps(case), strict=True)), LOOKED_AT)
    return mistaken(rows, counts[:LOOKED_AT], found[:LOOKED_AT])


def share_cases(rng: random.Random) -> Sequence[Case]:
    """A drafter that is not much like the model."""
    return [
        {
            "p": torch.tensor([spread(rng, 5) for _ in range(DRAFTS + 1)]),
            "q": torch.tensor([spread(rng, 5) for _ in range(DRAFTS)]),
            "size": SIZE,
            "seed": rng.randrange(2**31),
        }
    ]


def come_out(
    rule: AcceptRule, p: Sequence[float], q: Sequence[float], size: int = 40_000, seed: int = 0
) -> Shares:
    """What comes out in the place of one draft that is drawn from q, to look at.

    Args:
        rule: decides.
        p: of the model.
        q: of the drafter.
        size: how many drafts.
        seed: of all draws.
    """
    model = torch.tensor([list(p), list(p)])
    steps = draw_steps(model, torch.tensor([list(q)]), 2 * size, seed=seed)
    with_draft = steps[3] == 1
    token_ids, counts = rule(*steps)
    ids, counts = token_ids[with_draft], counts[with_draft]
    came = torch.bincount(ids[:, 0], minlength=len(p)) / len(ids)
    kept = counts.double().mean().item()
    title = f"{len(ids):,} drafts, {kept:.1%} of them kept"
    return Shares(list(p), list(q), came.tolist(), title)
