"""How many drafts were verified, and how many of them were kept."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpecStats:
    """Counts since the engine began, under vLLM's names.

    Attributes:
        num_drafts: verifications, of one sequence in one step, that had at least one draft.
        num_draft_tokens: drafts that they verified.
        num_accepted_tokens: drafts that were kept.
        num_accepted_tokens_per_pos: entry i: verifications in which draft i was kept.
    """

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_accepted_tokens_per_pos: tuple[int, ...] = ()

    @property
    def acceptance_rate(self) -> float:
        """Share of the drafts that were kept; 0 before there were any."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else 0.0

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens that a verification gave on average, the one more included; 1 before any."""
        return 1 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else 1.0


class SpecCounter:
    """Collects `SpecStats`."""

    def __init__(self) -> None:
        self._num_drafts = 0
        self._num_draft_tokens = 0
        self._kept: list[int] = []

    def add(self, num_drafted: int, num_accepted: int) -> None:
        """Counts one verification; nothing if it had no draft.

        Raises:
            ValueError: more were kept than there were.
        """
        if not 0 <= num_accepted <= num_drafted:
            raise ValueError(f"num_accepted={num_accepted}: expected from 0 to {num_drafted}")
        if not num_drafted:
            return
        self._num_drafts += 1
        self._num_draft_tokens += num_drafted
        self._kept.extend([0] * (num_drafted - len(self._kept)))
        for position in range(num_accepted):
            self._kept[position] += 1

    @property
    def stats(self) -> SpecStats:
        """What has come together so far."""
        return SpecStats(
            self._num_drafts, self._num_draft_tokens, sum(self._kept), tuple(self._kept)
        )
