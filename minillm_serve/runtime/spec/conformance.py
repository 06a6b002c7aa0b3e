"""Whether a rule accepts as the papers say: a few cases with one right answer, and chi-square."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from minillm_serve.runtime.sampling.chi_square import p_value
from minillm_serve.runtime.sampling.inversion import invert
from minillm_serve.runtime.spec.accept import PADDING, Accepted, AcceptRule

VOCAB, DRAFTS = 4, 2
JUST_BELOW_1 = 1 - 2**-53
#: Whatever picks a token must pick the same: in each case only one is left to be picked.
PICKS = (0.0, 0.5, JUST_BELOW_1)
#: Distributions that chi-square is tried with: of the model, [K+1, V], and of a drafter, [K, V].
MODEL = ((0.1, 0.2, 0.3, 0.4), (0.5, 0.0, 0.25, 0.25), (0.05, 0.15, 0.0, 0.8))
DRAFTER = ((0.5, 0.3, 0.15, 0.05), (0.25, 0.25, 0.5, 0.0))
DRAWS, SEED = 4_000, 0
#: A right rule fails one such test in a million.
LEAST_P_VALUE = 1e-6

Rows = tuple[tuple[float, ...], ...]
#: The arguments of a rule: p, q, drafts, lengths, draws.
Step = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
ZERO, ONE, TWO, THREE = ((0.0,) * i + (1.0,) + (0.0,) * (VOCAB - 1 - i) for i in range(VOCAB))


@dataclass(frozen=True, slots=True)
class Case:
    """Drafts of one sequence and what must become of them.

    Attributes:
        name: what is particular about it.
        p: rows of the model, one more than drafts.
        q: rows of the drafter.
        drafts: their tokens.
        tests: the number that each is tested with.
        want: new tokens.
    """

    name: str
    p: Rows
    q: Rows
    drafts: tuple[int, ...]
    tests: tuple[float, ...]
    want: tuple[int, ...]


CASES = (
    Case("no drafts", (TWO,), (), (), (), (2,)),
    Case(
        "drafts from the model's own distribution",
        (*MODEL[:2], ONE),
        MODEL[:2],
        (0, 3),
        (JUST_BELOW_1,) * 2,
        (0, 3, 1),
    ),
    Case(
        "greedy, and all drafts right", (TWO, ONE, THREE), (TWO, ONE), (2, 1), (0.9, 0.9), (2, 1, 3)
    ),
    Case(
        "greedy, and the second draft wrong",
        (TWO, ONE, ZERO),
        (TWO, ZERO),
        (2, 0),
        (0.0, 0.0),
        (2, 1),
    ),
    Case(
        "greedy, and the first draft wrong",
        (ONE, ZERO, ZERO),
        (MODEL[0], ZERO),
        (3, 0),
        (0.5, 0.0),
        (1,),
    ),
    Case(
        "a draft half as likely as the drafter thought, draw below 1/2",
        ((0.25, 0.75, 0.0, 0.0), THREE),
        ((0.5, 0.5, 0.0, 0.0),),
        (0,),
        (0.49,),
        (0, 3),
    ),
    Case(
        "a draft half as likely as the drafter thought, draw above 1/2",
        ((0.25, 0.75, 0.0, 0.0), THREE),
        ((0.5, 0.5, 0.0, 0.0),),
        (0,),
        (0.51,),
        (1,),
    ),
    Case(
        "a certain draft of which the model is not certain",
        ((0.5, 0.0, 0.5, 0.0), ONE, ONE),
        (ZERO, ONE),
        (0, 1),
        (0.6, 0.0),
        (2,),
    ),
    Case(
        "a draft that the model never says, draw 0",
        ((0.5, 0.5, 0.0, 0.0), ONE),
        ((0.0, 0.5, 0.5, 0.0),),
        (2,),
        (0.0,),
        (0,),
    ),
    Case(
        "a draft of which q is 0, as rounding makes it, and p is not",
        ((0.5, 0.5, 0.0, 0.0), THREE),
        ((0.0, 0.5, 0.5, 0.0),),
        (0,),
        (JUST_BELOW_1,),
        (0, 3),
    ),
    Case(
        "p below q everywhere, as rounding makes it",
        ((1 - 2**-24, 0.0, 0.0, 0.0), THREE),
        (ZERO,),
        (0,),
        (JUST_BELOW_1,),
        (0,),
    ),
)


def find_fault(rule: AcceptRule) -> str | None:
    """Tries a rule on everything there is here.

    Returns:
        What it did wrong and where, as the end of a sentence; None if nothing was wrong.
    """
    return find_wrong_tokens(rule) or find_wrong_shares(rule)


def find_wrong_tokens(rule: AcceptRule) -> str | None:
    """Tries a rule on cases with one right answer, each alone and all together; as `find_fault`."""
    for case in CASES:
        if fault := try_cases(rule, (case,)):
            return fault
    fault = try_cases(rule, CASES)
    return f"{fault}, in one step with other cases" if fault else None


def try_cases(rule: AcceptRule, cases: tuple[Case, ...]) -> str | None:
    """Gives a rule a step of cases; answers as `find_fault`."""
    token_ids, counts = rule(*stack_cases(cases))
    for s, (row, count) in enumerate(zip(token_ids.tolist(), counts.tolist(), strict=True)):
        case = cases[s // len(PICKS)]
        want = [*case.want, *[PADDING] * (DRAFTS + 1 - len(case.want))]
        if row != want or count != len(case.want) - 1:
            return (
                f"gave the tokens {row} and the count {count}, expected {want} and "
                f"{len(case.want) - 1} in the case {case.name!r} (p {_told(case.p)}, "
                f"q {_told(case.q)}, drafts {list(case.drafts)}, tested with {list(case.tests)}, "
                f"picked with {PICKS[s % len(PICKS)]})"
            )
    return None


def stack_cases(cases: tuple[Case, ...]) -> Step:
    """The arguments of a rule: every case with every pick; what must not matter is NaN."""
    size = len(cases) * len(PICKS)
    p = torch.full((size, DRAFTS + 1, VOCAB), math.nan)
    q = torch.full((size, DRAFTS, VOCAB), math.nan)
    drafts = torch.full((size, DRAFTS), PADDING)
    lengths = torch.zeros(size, dtype=torch.int64)
    draws = torch.zeros(size, DRAFTS + 1, 2, dtype=torch.float64)
    for s in range(size):
        case, count = cases[s // len(PICKS)], len(cases[s // len(PICKS)].drafts)
        lengths[s] = count
        p[s, : count + 1] = torch.tensor(case.p)
        q[s, :count] = torch.tensor(case.q).reshape(count, VOCAB)
        drafts[s, :count] = torch.tensor(case.drafts, dtype=torch.int64)
        draws[s, :count, 0] = torch.tensor(case.tests, dtype=torch.float64)
        draws[s, :, 1] = PICKS[s % len(PICKS)]
    return p, q, drafts, lengths, draws


def _told(rows: Rows) -> str:
    return str([[float(f"{x:.3g}") for x in row] for row in rows])


def draw_steps(p: Tensor, q: Tensor, size: int, *, seed: int) -> Step:
    """The arguments of a rule: steps in which the drafter really drew its drafts from q.

    Args:
        p: [K+1, V], the same in all steps.
        q: [K, V].
        size: S; of every K+1 steps one has no drafts, one has 1, and so on to K.
        seed: of all draws.
    """
    generator = torch.Generator().manual_seed(seed)
    num_drafts = len(q)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, dtype=torch.float64, generator=generator)

    columns = [invert(row.expand(size, -1), uniform(size)) for row in q]
    drafts = torch.stack(columns, dim=1)
    lengths = torch.arange(size) % (num_drafts + 1)
    draws = uniform(size, num_drafts + 1, 2)
    return p.expand(size, -1, -1), q.expand(size, -1, -1), drafts, lengths, draws


def find_wrong_shares(rule: AcceptRule) -> str | None:
    """Whether a rule's tokens are distributed as the model's; answers as `find_fault`.

    The draws are the same every time, so that a rule passes always or never.
    """
    step = draw_steps(torch.tensor(MODEL), torch.tensor(DRAFTER), DRAWS, seed=SEED)
    got, few = rule(*step), tuple(one[:100] for one in step)
    for one, again in zip(got, rule(*few), strict=True):
        if not torch.equal(one[:100], again):
            return "gave other tokens for the same draws, the second time"
    for place, counts in enumerate(count_tokens(got)):
        if p_value(counts, torch.tensor(MODEL[place])) < LEAST_P_VALUE:
            shares = [round(share, 3) for share in (counts / counts.sum()).tolist()]
            return (
                f"gave each token in shares of {shares} of {int(counts.sum())} draws, expected "
                f"{list(MODEL[place])}: what follows {place} kept drafts, with q {_told(DRAFTER)}"
            )
    return None


def count_tokens(got: Accepted) -> list[Tensor]:
    """How often each token came out, [V], in each place that a step reached.

    Whether the drafts before were kept says nothing of the token after them: each place by itself
    must follow the model.
    """
    return [
        torch.bincount(got.token_ids[got.counts >= place, place], minlength=VOCAB)
        for place in range(DRAFTS + 1)
    ]
