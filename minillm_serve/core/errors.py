"""What can go wrong, by name."""


class RequestRefused(ValueError):
    """A request was turned away at the door: it is invalid, or it could never be served.

    Nothing of it entered the engine. The message names the value and the remedy.
    """


class Overloaded(RequestRefused):
    """A request was turned away because too many wait already; later it may be welcome.

    (A server says 503, or 429, where any other refusal is a 400.)

    Attributes:
        retry_after: seconds after which it may be worth another try; None if nobody knows.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type, tuple[str, float | None]]:
        return type(self), (str(self), self.retry_after)


class OutOfBlocks(RuntimeError):
    """The pool has fewer free blocks than were asked for; nothing was taken."""


class InvariantViolation(AssertionError):
    """The engine's bookkeeping contradicts itself: a bug, or a faulty replacement part."""


class EngineStalled(RuntimeError):
    """Requests are unfinished, yet the scheduler found nothing to run: it would loop for ever."""


class PartError(Exception):
    """A part that somebody brought for a slot of the engine is unfit, or failed while it ran.

    Attributes:
        slot: the slot that it fills, such as `block_pool`.
        owner: the part's own name, such as `__main__.MyBlockPool`.
        what: what it did.
    """

    def __init__(self, slot: str, owner: str, what: str) -> None:
        super().__init__(slot, owner, what)
        self.slot, self.owner, self.what = slot, owner, what

    def __str__(self) -> str:
        return f"your {self.slot} ({self.owner}) {self.what}"
