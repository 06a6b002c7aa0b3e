"""Who guesses tokens, and what such a guess is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.models.config import ModelConfig
from minillm_serve.runtime.forward import Forward
from minillm_serve.runtime.inputs import StepInputs
from minillm_serve.runtime.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class Proposal:
    """Drafts for some sequences of a step.

    A draft that was *drawn* comes with the distribution that it was drawn from. All others are
    *certain*: their distribution is 1 for the draft and 0 for every other token.

    Attributes:
        token_ids: for each item asked for, its drafts: at most `num_drafts`, maybe none.
        drawn: indices of the items whose drafts were drawn.
        probs: [len(drawn), K, V] float32: probs[i, j] is what draft j of item drawn[i] was drawn
            from. K is the most drafts of any item, and what stands behind an item's own means
            nothing. None if nobody's drafts were drawn.
    """

    token_ids: list[list[int]]
    drawn: tuple[int, ...] = ()
    probs: Tensor | None = None


class Drafter(Protocol):
    """Guesses what comes next in sequences that decode.

    It may be wrong about anything: then drafts are refused, and time is lost, but the answer does
    not change. So it may take what it finds in a block that sequences share as theirs.

    Attributes:
        kv_cache: its own KV cache, if it has one: with as many blocks as the model's, of the same
            size, and addressed by the same block tables. Blocks that the executor copies or swaps
            in the model's cache it copies or swaps here too, before it asks for drafts.
    """

    kv_cache: KVCache | None

    def propose(self, items: list[ScheduledSequence]) -> Proposal:
        """Guesses the tokens that come after each sequence's last one.

        Args:
            items: slices of a step with `num_drafts` of at least 1, drafts not filled in. Blocks
                are there for all positions below `end`.
        """
        ...

    def observe(self, batch: Batch, inputs: StepInputs, hidden: Tensor) -> None:
        """Sees a step that the model has run, before anybody knows what came out of it.

        Args:
            batch: the step, drafts filled in.
            inputs: its rows; there may be more of them than the batch has, at the end.
            hidden: [T, hidden], what the model's last layer gave for them after the final norm. It
                may be overwritten by the next step.
        """
        ...


class Drafting(NamedTuple):
    """A drafter to be, as soon as there are KV caches.

    Attributes:
        kv_config: what its own KV cache is made for; None if it needs none.
        make: makes it of the model that it drafts for, and its own cache.
    """

    kv_config: ModelConfig | None
    make: Callable[[Forward, KVCache | None], Drafter]
