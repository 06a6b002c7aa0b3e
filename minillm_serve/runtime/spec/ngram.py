"""Drafts copied from further up in the same text."""

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from torch import Tensor

from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.core.request import Sequence
from minillm_serve.runtime.inputs import StepInputs
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.spec.drafter import Proposal


class NgramDrafter:
    """Looks the last few tokens up in what came before them (prompt lookup; Saxena 2023).

    If they have been there already, whatever followed then is the draft:

        ... the | cat sat | on the mat ... the dog and the | cat sat |
                            ^^^^^^^^^^ drafts                 the last 2 tokens

    The longest piece that is found wins, and of several places the most recent one. Prompt and
    answer both count. It costs next to nothing, and pays where a text repeats itself or its
    prompt: summaries, edits, code.

    Args:
        max_n: tokens of the longest piece that is looked up.
        min_n: tokens of the shortest.

    Raises:
        ValueError: not 1 <= min_n <= max_n.
    """

    kv_cache: KVCache | None = None

    def __init__(self, max_n: int = 4, min_n: int = 2) -> None:
        if not 1 <= min_n <= max_n:
            raise ValueError(f"min_n={min_n}, max_n={max_n}: expected 1 <= min_n <= max_n")
        self.max_n = max_n
        self.min_n = min_n
        self._indices = WeakKeyDictionary[Sequence, _Index]()

    def propose(self, items: list[ScheduledSequence]) -> Proposal:
        """See `Drafter.propose`. All drafts are certain."""
        return Proposal([self._guess(item.sequence, item.num_drafts) for item in items])

    def observe(self, batch: Batch, inputs: StepInputs, hidden: Tensor) -> None:
        """Has nothing to learn from it: the tokens themselves tell everything."""

    def _guess(self, sequence: Sequence, count: int) -> list[int]:
        index = self._indices.get(sequence)
        if index is None:
            index = self._indices[sequence] = _Index(self.min_n, self.max_n)
        tokens = sequence.token_ids
        begin = index.find(tokens)
        if begin is None:
            return []
        # Where the place found runs into the end, copying goes on with what was just copied.
        period = len(tokens) - begin
        return [tokens[begin + i % period] for i in range(count)]


@dataclass(slots=True)
class _Index:
    """Where each piece of a growing list of tokens ended last. It never looks at a piece twice.

    Attributes:
        min_n: tokens of the shortest pieces.
        max_n: tokens of the longest.
        ends: for each piece, the position after it.
        num_indexed: all pieces are in there that end at or before this position.
    """

    min_n: int
    max_n: int
    ends: dict[tuple[int, ...], int] = field(default_factory=dict)
    num_indexed: int = 0

    def find(self, tokens: list[int]) -> int | None:
        """Where the tokens at the end have been before: the position after that place."""
        length = len(tokens)
        # The piece at the very end is looked for, so it is not to be found itself.
        for end in range(self.num_indexed + 1, length):
            for n in range(self.min_n, min(self.max_n, end) + 1):
                self.ends[tuple(tokens[end - n : end])] = end
        self.num_indexed = max(self.num_indexed, length - 1)
        for n in range(min(self.max_n, length - 1), self.min_n - 1, -1):
            found = self.ends.get(tuple(tokens[length - n :]))
            if found is not None:
                return found
        return None
