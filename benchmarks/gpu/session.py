"""A run of some items within a time, in which one that fails stops no other."""

import gc
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

#: Gives what was measured of an item. The key `status` may say "missed"; it is "ok" otherwise.
Item = Callable[[], dict[str, Any]]


class Notes(Protocol):
    """Where results go: a `Report`, or a file that another process reads."""

    def add(self, section: str, name: str, status: str, **figures: Any) -> None:
        """Takes down one item."""
        ...


@dataclass
class Session:
    """What every section is given.

    Attributes:
        device: that is checked.
        dry: shapes are tiny, and nothing is compiled: a rehearsal on a CPU.
        notes: where results go.
        seconds: that the section may take.
        clock: tells the time, in seconds.
    """

    device: torch.device
    dry: bool
    notes: Notes
    seconds: float
    clock: Callable[[], float] = time.monotonic
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.seconds - (self.clock() - self._began)

    def attempt(self, section: str, name: str, item: Item) -> None:
        """Runs an item and notes down what came of it, whatever that is."""
        if self.left <= 0:
            self.notes.add(section, name, "skipped", why="out of time")
            return
        began = self.clock()
        try:
            figures = item()
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            why = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
            self.notes.add(section, name, "failed", why=why[:600])
        else:
            status = figures.pop("status", "ok")
            seconds = round(self.clock() - began, 2)
            self.notes.add(section, name, status, **figures, seconds=seconds)
        if self.device.type == "cuda":
            gc.collect()  # an engine refers to itself, and its recordings hold memory
            torch.cuda.empty_cache()
