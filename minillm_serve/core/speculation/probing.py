"""A draft now and then where none pays, so that a text that has become easy is noticed."""

from collections.abc import Sequence as Items

from minillm_serve.core.speculation.allot import Bill

#: Share of the time that may go into probes.
SHARE = 0.005
#: Steps' time that is saved up for probes at most.
MOST_SAVED = 2.0
#: Sequences that are probed together, so that they share a pass of the drafter.
TOGETHER = 4
#: Steps until a sequence is probed again, after its first failure and at most.
FIRST_WAIT, LONGEST_WAIT = 8, 32


class Patience:
    """When a sequence that gets no drafts is probed.

    Attributes:
        due: the step from which on it may be.
        wait: steps that it waits after its next failure.
        price: seconds that the probe under way takes; None if there is none.
    """

    __slots__ = ("due", "price", "wait")

    def __init__(self, due: int) -> None:
        self.due = due
        self.wait = FIRST_WAIT
        self.price: float | None = None


class Probes:
    """Keeps an account of the time that goes into probes, of one draft each.

        + SHARE of each step   - what a probe takes   + what its token is worth, if it is kept

    So probes take that share at the very most, however slow the drafter and however many the
    sequences. Whoever failed waits, each time for longer. Whoever did not is probed again at once,
    until its rate says that drafts pay, or a probe fails.

    Attributes:
        step: number of the present one.
    """

    def __init__(self) -> None:
        self.step = 0
        self._saved = 0.0
        self._token_seconds = 0.0

    def begin(self, bill: Bill) -> None:
        """A further step, in which there may be probes."""
        self.step += 1
        self._saved = min(self._saved + SHARE * bill.base, MOST_SAVED * bill.base)
        self._token_seconds = 1 / bill.rate

    def can_afford(self, bill: Bill) -> bool:
        """Whether there is enough for the cheapest probe that there could be."""
        return self._saved >= bill.least

    def pick(self, idle: Items[Patience], lengths: Items[int], bill: Bill) -> Items[Patience]:
        """Those of the idle sequences that are probed in this step.

        Args:
            idle: sequences without drafts that have room for one.
            lengths: drafts of all sequences in the step.
            bill: of the step.
        """
        due = [patience for patience in idle if patience.due <= self.step]
        if not due:
            return ()
        due = sorted(due, key=lambda patience: patience.due)[:TOGETHER]
        price = bill.price(lengths, len(due))
        if price > self._saved:
            return ()
        for patience in due:
            patience.price = price / len(due)
        return due

    def settle(self, patience: Patience, num_drafted: int, num_accepted: int) -> bool:
        """Takes note of a sequence's drafts; true if they were a probe, and it was kept.

        (A probe for which the drafter had no guess costs nothing, and is still due.)
        """
        if patience.price is None or num_drafted > 1:
            return False
        self._saved += num_accepted * self._token_seconds - patience.price
        patience.price = None
        if num_accepted:
            patience.due, patience.wait = self.step + 1, FIRST_WAIT
            return True
        patience.due = self.step + patience.wait
        patience.wait = min(2 * patience.wait, LONGEST_WAIT)
        return False
