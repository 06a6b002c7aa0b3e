"""How likely a sequence's next drafts are to be kept, judged by those before them.

A draft is *tested* if all drafts before it were kept: of k drafts of which n are kept, the first
min(k, n + 1). What becomes of the others says nothing, since they follow a wrong token.

    alpha = kept / tested     of the sequence, the engine's average counting as some tests more

Later drafts are often worse than the first, since a drafter reads its own guesses. So there is a
factor for each place, over all sequences: drafts kept there / what alpha had led to expect.
"""

#: The share of kept drafts that is expected before there was any, and how many tests that counts.
FIRST_GUESS, FIRST_GUESS_COUNTS = 0.6, 10.0
#: Tests that a sequence's share remembers, and as how many of them the engine's share counts.
MEMORY, SHARE_COUNTS = 30.0, 4.0
#: Tests that the engine's share, and the factors, remember.
LONG_MEMORY = 300.0
#: Nothing is taken to be more certain.
MOST_CERTAIN = 0.99


class Tally:
    """A quotient of two sums, in which what is long past counts less and less."""

    __slots__ = ("above", "below", "fading")

    def __init__(self, above: float, below: float, memory: float) -> None:
        self.above = above
        self.below = below
        self.fading = 1 - 1 / memory

    def add(self, above: float, below: float) -> None:
        """One more to each sum."""
        self.above = self.above * self.fading + above
        self.below = self.below * self.fading + below

    def fade(self, share: float) -> None:
        """Lets this share of the past be enough."""
        self.above *= share
        self.below *= share


class Rates:
    """What is known of all sequences together, by which a sequence's own record is read.

    Args:
        most: drafts that a sequence may have.
    """

    def __init__(self, most: int) -> None:
        first = FIRST_GUESS * FIRST_GUESS_COUNTS, FIRST_GUESS_COUNTS
        self._common = Tally(*first, LONG_MEMORY)
        self._places = [Tally(10.0, 10.0, LONG_MEMORY) for _ in range(most)]

    def alpha(self, own: Tally) -> float:
        """The share of tested drafts that a sequence is taken to keep."""
        common = self._common.above / self._common.below
        return (own.above + SHARE_COUNTS * common) / (own.below + SHARE_COUNTS)

    def gains(self, own: Tally) -> list[float]:
        """For each draft the probability that it and all before it are kept: falling."""
        alpha, gain, gains = self.alpha(own), 1.0, []
        for place in self._places:
            gain *= min(MOST_CERTAIN, alpha * place.above / place.below)
            gains.append(gain)
        return gains

    def note(self, own: Tally, num_drafted: int, num_accepted: int) -> None:
        """Enters what became of a sequence's drafts."""
        alpha = self.alpha(own)
        for place in range(min(num_drafted, num_accepted + 1)):
            kept = float(place < num_accepted)
            self._places[place].add(kept, alpha)
            self._common.add(kept, 1.0)
            own.add(kept, 1.0)
