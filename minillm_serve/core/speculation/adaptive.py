"""As many drafts as pay, and none where they do not."""

from collections.abc import Mapping

from minillm_serve.core.request import Sequence
from minillm_serve.core.speculation.allot import Bill, allot
from minillm_serve.core.speculation.costs import StepCosts
from minillm_serve.core.speculation.probing import Patience, Probes
from minillm_serve.core.speculation.rates import MEMORY, MOST_CERTAIN, Rates, Tally

#: By how much drafts must raise the rate to be worth it: less is within what measuring costs errs.
MARGIN = 0.02
#: What a sequence keeps of its past when a probe is kept: it was another text.
REMEMBERED = 0.5


class AdaptiveLengths:
    """Gives drafts where they raise the expected tokens a second of the next step.

    What they bring is estimated from the drafts before (`Rates`), what they take was measured
    (`StepCosts`), and `allot` weighs one against the other. Sequences that get none are probed
    now and then (`Probes`), unless not even certain drafts would pay.

    Args:
        most: drafts that a sequence gets at most, at least 1.
        costs: what steps take.

    Raises:
        ValueError: `most` is less.
    """

    def __init__(self, most: int, costs: StepCosts) -> None:
        if most < 1:
            raise ValueError(f"most={most}: expected at least 1")
        self.most = most
        self.costs = costs
        self._rates = Rates(most)
        self._probes = Probes()
        self._records: dict[Sequence, _Record] = {}
        self._may_pay: dict[int, bool] = {}
        self._last_bill: Bill | None = None

    @property
    def num_known(self) -> int:
        """Sequences that something is known of."""
        return len(self._records)

    def choose(self, rooms: Mapping[Sequence, int], num_other_tokens: int) -> dict[Sequence, int]:
        """See `DraftLengths.choose`. Sequences that get none are left out."""
        bill = self._bill(len(rooms), num_other_tokens)
        if bill is None:
            return {}
        self._probes.begin(bill)
        records = [self._record(sequence) for sequence in rooms]
        gains = [r.gains[:room] for r, room in zip(records, rooms.values(), strict=True)]
        lengths = allot(gains, bill, margin=MARGIN)
        chosen = {s: length for s, length in zip(rooms, lengths, strict=False) if length}
        if self._probes.can_afford(bill):
            patiences = {
                self._records[s].patience: s for s in rooms if rooms[s] and s not in chosen
            }
            picked = self._probes.pick(list(patiences), lengths, bill)
            chosen |= {patiences[patience]: 1 for patience in picked}
        return chosen

    def note(self, sequence: Sequence, num_drafted: int, num_accepted: int) -> None:
        """See `DraftLengths.note`."""
        record = self._record(sequence)
        if self._probes.settle(record.patience, num_drafted, num_accepted):
            record.own.fade(REMEMBERED)
        self._rates.note(record.own, num_drafted, num_accepted)
        record.gains = self._rates.gains(record.own)

    def forget(self, sequence: Sequence) -> None:
        """See `DraftLengths.forget`."""
        self._records.pop(sequence, None)

    def _bill(self, num_sequences: int, num_others: int) -> Bill | None:
        """Of the next step; None if no drafts can pay, however good."""
        if not num_sequences or not (num_others or self._may_pay.get(num_sequences, True)):
            return None
        bill = self._last_bill
        if bill is None or (bill.num_sequences, bill.num_others) != (num_sequences, num_others):
            bill = Bill(self.costs, num_sequences, num_others, most=self.most)
            self._last_bill = bill
        if num_others:
            return bill if bill.dear < MOST_CERTAIN else None
        if num_sequences not in self._may_pay:
            certain = [MOST_CERTAIN ** (place + 1) for place in range(self.most)]
            found = allot([certain] * num_sequences, bill, margin=MARGIN)
            self._may_pay[num_sequences] = bool(found)
        return bill if self._may_pay[num_sequences] else None

    def _record(self, sequence: Sequence) -> "_Record":
        record = self._records.get(sequence)
        if record is None:
            record = self._records[sequence] = _Record(self._rates, self._probes.step)
        return record


class _Record:
    """What is known of one sequence.

    Attributes:
        own: its drafts so far.
        gains: for each draft the probability that it and all before it are kept.
        patience: when it is probed, if it gets no drafts.
    """

    __slots__ = ("gains", "own", "patience")

    def __init__(self, rates: Rates, step: int) -> None:
        self.own = Tally(0.0, 0.0, MEMORY)
        self.gains = rates.gains(self.own)
        self.patience = Patience(step)
