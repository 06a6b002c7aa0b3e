"""Which drafts of which sequences make a step yield the most tokens a second."""

from collections.abc import Sequence
from itertools import accumulate
from math import inf
from operator import add, truediv

from minillm_serve.core.speculation.costs import StepCosts

#: Nobody gets a draft.
NONE: list[int] = []


class Bill:
    """What drafts add to a step of so many decoding sequences.

    Rows of others (prompts that are being read) are not on it: they have to be computed anyway. But
    where they bring a step up to what the machine can compute, further rows are dear.

    Args:
        costs: of steps.
        num_sequences: that decode, at least 1 [B].
        num_others: rows that the step has for others.
        most: drafts that a sequence may have.

    Attributes:
        base: seconds of the step without drafts.
        rate: tokens a second without drafts.
        verify: entry `rows` + m, with `fixed` added: seconds with m >= 1 drafts, without drafting.
        passes: for each pass of the drafter, entry n: what it takes more with n + 1 sequences than
            with n.
        least: seconds that a draft adds at the very least.
    """

    __slots__ = (
        "base",
        "fixed",
        "least",
        "most",
        "num_others",
        "num_sequences",
        "passes",
        "rate",
        "rows",
        "verify",
    )

    def __init__(
        self, costs: StepCosts, num_sequences: int, num_others: int = 0, *, most: int
    ) -> None:
        self.num_sequences = num_sequences
        self.num_others = num_others
        self.most = most
        self.base = costs.plain(num_sequences)
        self.rate = num_sequences / self.base if self.base else inf
        self.rows = rows = num_sequences + num_others
        self.verify = costs.verify.table(rows + num_sequences * most)
        # A step that reads a prompt is not a plain one in any case.
        self.fixed = self.base - self.verify[rows] + (0.0 if num_others else costs.switch)
        curves = [costs.of_pass(number) for number in range(most)]
        self.passes = [curve.increments(num_sequences) for curve in curves]
        self.least = costs.verify.least_slope(rows) + min(curve.least for curve in curves)

    @property
    def dear(self) -> float:
        """What a draft must bring at least, in tokens, to be worth the least that it can cost."""
        return self.rate * self.least

    def price(self, lengths: Sequence[int], count: int) -> float:
        """Seconds that so many sequences more with one draft each add to these."""
        drafts = sum(lengths)
        before = self.verify[self.rows + drafts] + self.fixed if drafts else self.base
        first = sum(length > 0 for length in lengths)
        drafting = sum(self.passes[0][first : first + count])
        return self.verify[self.rows + drafts + count] + self.fixed - before + drafting

    def seconds(self, lengths: Sequence[int]) -> float:
        """Seconds of the step with so many drafts for each sequence."""
        if not any(lengths):
            return self.base
        passes = sum(
            self.passes[depth][number]
            for depth in range(max(lengths))
            for number in range(sum(length > depth for length in lengths))
        )
        return self.verify[self.rows + sum(lengths)] + self.fixed + passes


def allot(gains: Sequence[Sequence[float]], bill: Bill, *, margin: float = 0.0) -> list[int]:
    """Gives out drafts where they are likeliest to be kept, as many as pay.

    A step of B sequences yields a token for each, and one more for each draft that is kept:

        rate = (B + sum of the gains of all drafts) / seconds of the step

    Of all ways to give out m drafts the m largest gains yield most, and since a sequence's gains
    fall, none of them is left hanging. So the drafts are sorted by gain, and every beginning of
    that order is tried, not just those up to the first loss: costs have steps. A further pass of
    the drafter costs something however few take part, so this is done for each number of passes.

    That finds the best of all allotments if a pass of n sequences costs a + b n, with the same b
    for all passes, and one of the better ones otherwise.

    Args:
        gains: of each sequence, for each of up to `bill.most` drafts: the probability that the
            draft and all before it are kept. None for drafts for which there is no room.
        bill: made for so many sequences.
        margin: by what share the rate must be higher than without drafts to give any.

    Returns:
        Drafts of each sequence, or `NONE`.
    """
    # At a higher rate, a draft must bring more than this to be worth the least that it can cost:
    # otherwise it could only bring the rate down.
    dear = bill.dear * (1 + margin)
    if not any(own and own[0] > dear for own in gains):
        return NONE
    width = bill.most
    flat = {
        row * width + depth: gain
        for row, own in enumerate(gains)
        for depth, gain in enumerate(own)
        if gain > dear
    }
    order = sorted(flat, key=flat.__getitem__, reverse=True)
    best, chosen, num_admitted = bill.rate * (1 + margin), NONE, 0
    for depths in range(1, width + 1):
        admitted = order if depths == width else [i for i in order if i % width < depths]
        if len(admitted) == num_admitted:
            break  # nobody is to get so many
        num_admitted = len(admitted)
        rates = _rates(admitted, flat, bill)
        if (highest := max(rates)) > best:
            best, chosen = highest, admitted[: rates.index(highest) + 1]
    lengths = [0] * len(gains) if chosen else NONE
    for i in chosen:
        lengths[i // width] += 1
    return lengths


def _rates(order: list[int], gains: dict[int, float], bill: Bill) -> list[float]:
    """Tokens a second with the first 1, 2, ... of these drafts.

    Draft `depth` of sequence `row` is number `row * bill.most + depth`.
    """
    drafting = [iter(increments) for increments in bill.passes]
    seconds = accumulate([next(drafting[i % bill.most]) for i in order], initial=bill.fixed)
    tokens = accumulate(map(gains.__getitem__, order), initial=float(bill.num_sequences))
    verify = bill.verify[bill.rows : bill.rows + len(order) + 1]
    rates = map(truediv, tokens, map(add, verify, seconds))
    next(rates)  # that of no drafts
    return list(rates)
