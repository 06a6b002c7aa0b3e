"""Acceptance rules that the tests of `accept` are tried on: the papers', and how they go wrong."""

from fractions import Fraction

import torch

from minillm_serve.runtime.sampling.inversion import invert
from minillm_serve.runtime.spec.accept import PADDING, Accepted, accept


def by_the_paper(p, q, drafts, draws):
    """One sequence in exact arithmetic: its new tokens, and how many drafts were kept.

    Rows of p and q may have any sum; so may what is picked from.
    """
    p, q, draws = (exact(rows) for rows in (p, q, draws))
    for i, draft in enumerate(drafts):
        passes = draws[i][0] < p[i][draft] / q[i][draft] if q[i][draft] else p[i][draft] > 0
        if not passes:
            rest = [max(Fraction(0), a - b) for a, b in zip(p[i], q[i], strict=True)]
            return [*drafts[:i], pick(rest if sum(rest) else p[i], draws[i][1])], i
    return [*drafts, pick(p[len(drafts)], draws[len(drafts)][1])], len(drafts)


def exact(rows):
    return [[Fraction(number) for number in row] for row in rows]


def pick(weights, draw):
    running = Fraction(0)
    for token, weight in enumerate(weights):
        running += weight
        if running > draw * sum(weights):
            return token
    raise AssertionError("no weight is above 0")


def rest_of(p, q):
    rest = (p - q).clamp(min=0)
    return rest.where(rest.sum(dim=1, keepdim=True) > 0, p)


def variant(test, rest=rest_of, last=lambda p, q, rows, counts: p[rows, counts]):
    """A rule some part of which is another.

    Args:
        test: (draw, p(d), q(d)) -> whether a draft is kept.
        rest: (p, q) -> weights that the token after a refused draft is picked from.
        last: (p, q, rows, counts) -> weights that the token after all drafts is picked from.
    """

    def rule(p, q, drafts, lengths, draws):
        size, num_drafts = drafts.shape
        drafted = torch.arange(num_drafts) < lengths[:, None]
        index = drafts.where(drafted, 0).unsqueeze(2)
        p_draft = p[:, :num_drafts].gather(2, index).squeeze(2)
        q_draft = q.gather(2, index).squeeze(2)
        kept = drafted & test(draws[:, :num_drafts, 0], p_draft, q_draft)
        counts = kept.long().cumprod(dim=1).sum(dim=1)
        rows, refused = torch.arange(size), counts < lengths
        weights = torch.where(refused, 0.0, 1.0)[:, None] * last(p, q, rows, counts)
        at = counts[refused]
        weights[refused] = rest(p[refused, at], q[refused, at])
        token_ids = torch.nn.functional.pad(drafts, (0, 1))
        token_ids[rows, counts] = invert(weights, draws[rows, counts, 1])
        place = torch.arange(num_drafts + 1)
        return Accepted(token_ids.where(place <= counts[:, None], PADDING), counts)

    return rule


def right(draw, p, q):
    return draw * q < p


def tests_with_the_number_that_picks(p, q, drafts, lengths, draws):
    return accept(p, q, drafts, lengths, draws[..., [1, 1]])


def looks_one_row_too_far(p, q, drafts, lengths, draws):
    return accept(p.roll(-1, dims=1), q, drafts, lengths, draws)


def takes_another_q(p, q, drafts, lengths, draws):
    sharper = q.square()
    return accept(p, sharper / sharper.sum(dim=-1, keepdim=True), drafts, lengths, draws)


#: Each emits tokens that are distributed otherwise than p.
WRONG = {
    "keeps every draft": variant(lambda draw, p, q: draw < 2),
    "tests against q": variant(lambda draw, p, q: draw < q),
    "tests against p": variant(lambda draw, p, q: draw < p),
    "the ratio upside down": variant(lambda draw, p, q: draw * p < q),
    "picks again from p": variant(right, rest=lambda p, q: p),
    "picks from |p - q|": variant(right, rest=lambda p, q: (p - q).abs()),
    "the last token from the row before": variant(
        right, last=lambda p, q, rows, n: p[rows, (n - 1).clamp(min=0)]
    ),
    "the last token from q": variant(
        right, last=lambda p, q, rows, n: q[rows, (n - 1).clamp(min=0)]
    ),
    "tests with the number that picks": tests_with_the_number_that_picks,
    "looks one row too far": looks_one_row_too_far,
    "takes another q than was drawn from": takes_another_q,
}
