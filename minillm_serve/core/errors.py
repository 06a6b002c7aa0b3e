"""What can go wrong, by name."""


class RequestRefused(ValueError):
    """A request was turned away at the door: it is invalid, or it could never be served.

    Nothing of it entered the engine. The message names the value and the remedy.
    """


class OutOfBlocks(RuntimeError):
    """The pool has fewer free blocks than were asked for; nothing was taken."""


class InvariantViolation(AssertionError):
    """The engine's bookkeeping contradicts itself: a bug, or a faulty replacement part."""


class EngineStalled(RuntimeError):
    """Requests are unfinished, yet the scheduler found nothing to run: it would loop for ever."""
