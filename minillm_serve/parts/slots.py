"""The slots: which parts of the engine may be somebody else's, and by which protocol."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minillm_serve.core import (
    AdmissionPolicy,
    BlockAllocator,
    EngineStalled,
    InvariantViolation,
    PartError,
    PrefixCache,
    Scheduler,
)
from minillm_serve.parts.part import Part
from minillm_serve.runtime.attention.functions import PagedAttentionFunction
from minillm_serve.runtime.kv_quantizer import KVQuantizer
from minillm_serve.runtime.sizing import KVBudget
from minillm_serve.runtime.spec.accept import AcceptRule


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in the engine for a part.

    Attributes:
        name: the key in `parts`.
        protocol: what a part must look like; its docstrings say what it must do.
        doc: what to give, in a sentence.
        keeps_books: a fault may leave the engine's books wrong, so that it must stop.
        in_every_engine: else its part is told of only if it is somebody's.
    """

    name: str
    protocol: type
    doc: str
    keeps_books: bool = False
    in_every_engine: bool = True


SLOTS: dict[str, Slot] = {
    slot.name: slot
    for slot in (
        Slot(
            "kv_budget",
            KVBudget,
            "A function that says how many KV blocks fit into the memory.",
        ),
        Slot(
            "block_pool",
            BlockAllocator,
            "A class, built with num_blocks, that hands blocks out and counts their references.",
            keeps_books=True,
        ),
        Slot(
            "prefix_cache",
            PrefixCache,
            "A class, built with block_size, that finds the blocks of prompts which begin alike.",
            keeps_books=True,
        ),
        Slot(
            "attention",
            PagedAttentionFunction,
            "A function that attends to paged keys and values; {'decode': function} for one that "
            "takes a single row of each sequence; or an AttentionBackend.",
        ),
        Slot(
            "kv_quantizer",
            KVQuantizer,
            "A class that turns keys and values into codes of 8 bits, with a scale for each token "
            "and head.",
            in_every_engine=False,
        ),
        Slot(
            "scheduler",
            Scheduler,
            "A subclass of Scheduler, whose schedule() chooses what the next step runs.",
            keeps_books=True,
        ),
        Slot(
            "admission",
            AdmissionPolicy,
            "A class, built with max_model_len, pool_tokens and vocab_size, that accepts requests, "
            "has them wait, or refuses them.",
        ),
        Slot(
            "accept",
            AcceptRule,
            "A function that decides which drafts of speculative decoding stay, and which token "
            "follows them.",
            in_every_engine=False,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Parts:
    """Which parts of an engine are whose.

    Attributes:
        yours: the parts that were given, in the order of `SLOTS`.
    """

    yours: tuple[Part, ...] = ()

    def get(self, slot: str) -> Part | None:
        """The part that was given for a slot; None if it is ours."""
        return next((part for part in self.yours if part.slot == slot), None)

    def fault(self, error: BaseException) -> PartError | None:
        """Whose fault an error of a step is, if it is a given part's.

        A part that raises is named already. Books that contradict themselves, or an engine that
        stands still, show only afterwards; if somebody's part kept those books, it is named.
        """
        if isinstance(error, PartError):
            return error
        if not isinstance(error, InvariantViolation | EngineStalled):
            return None
        keepers = [part for part in self.yours if SLOTS[part.slot].keeps_books]
        if not keepers:
            return None
        others = "".join(f" (or your {part.slot}, {part.owner})" for part in keepers[:-1])
        return keepers[-1].error(f"broke an invariant{others}: {error}")

    def __repr__(self) -> str:
        """The line that the engine prints on start."""
        ours = [
            name for name, slot in SLOTS.items() if slot.in_every_engine and self.get(name) is None
        ]
        told = [f"{part.slot} is yours ({part.owner})" for part in self.yours]
        if ours:
            told.append(f"{', '.join(ours)} {'is' if len(ours) == 1 else 'are'} minillm_serve's")
        return f"parts: {'; '.join(told)}"


def read_parts(parts: Mapping[str, Any] | None) -> Parts:
    """Takes in the argument of `LLM`.

    Raises:
        ValueError: it is no mapping, or names a slot that is not there.
    """
    if parts is None:
        return Parts()
    known = "".join(f"\n  {slot.name}: {slot.doc}" for slot in SLOTS.values())
    if not isinstance(parts, Mapping):
        raise ValueError(f"parts={parts!r}: expected a mapping from slots to parts:{known}")
    for name in parts:
        if name not in SLOTS:
            raise ValueError(f"parts has no slot {name!r}; choose from:{known}")
    return Parts(tuple(Part(name, parts[name]) for name in SLOTS if name in parts))
