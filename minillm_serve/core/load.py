"""How busy an engine is, as its door sees it."""

import math
from dataclasses import dataclass

from minillm_serve.core.request import Request

#: Share of the blocks in use from which on a free seat is of little use to a newcomer.
ALMOST_FULL = 0.9
#: Seconds of work after which what was measured before counts a third (1/e).
MEMORY = 10.0


def asked_tokens(request: Request, max_len: int) -> int:
    """Tokens that a request may come to: its prompt once, and each answer at its longest.

    Args:
        request: what is asked.
        max_len: length at which a sequence ends, in tokens.
    """
    prompt = len(request.prompt_token_ids)
    room = max(max_len - prompt, 0)
    longest = request.params.max_tokens
    return prompt + request.params.n * (room if longest is None else min(longest, room))


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """An engine at the moment at which somebody knocks.

    Attributes:
        now: in seconds of the engine's clock, which deadlines are given in, too.
        num_running: sequences that hold a seat.
        num_waiting: sequences in the queue.
        waiting_tokens: what the requests that have not begun may come to, prompts and answers.
        max_num_seqs: seats.
        max_len: length at which a sequence ends, in tokens.
        kv_usage: share of the KV blocks that sequences hold, from 0 to 1.
        tokens_per_second: computed lately, prompts and answers together; None before any step.
    """

    now: float
    num_running: int = 0
    num_waiting: int = 0
    waiting_tokens: int = 0
    max_num_seqs: int = 1
    max_len: int = 1
    kv_usage: float = 0.0
    tokens_per_second: float | None = None

    @property
    def has_seats(self) -> bool:
        """Whether a newcomer would get a seat, and probably blocks, in the next step or so."""
        free = self.max_num_seqs - self.num_running
        return self.num_waiting < free and self.kv_usage < ALMOST_FULL

    @property
    def estimated_wait(self) -> float:
        """Seconds until a newcomer's turn: what waits before it, at the pace of late.

        Answers that end before their longest make it shorter; so it is a careful estimate. Zero as
        long as nobody knows.
        """
        if self.has_seats or not self.tokens_per_second:
            return 0.0
        return self.waiting_tokens / self.tokens_per_second


class Pace:
    """How many tokens a second an engine computes while it is busy; what is long ago fades.

    Attributes:
        tokens_per_second: None before any step.
    """

    __slots__ = ("_seconds", "_tokens", "_until")

    def __init__(self) -> None:
        self._tokens = self._seconds = 0.0
        self._until = -math.inf

    @property
    def tokens_per_second(self) -> float | None:
        """Of late; None before any step that took time."""
        return self._tokens / self._seconds if self._seconds else None

    def note(self, began: float, ended: float, tokens: int) -> None:
        """Some steps have run. (The first may have begun before the last ended: time counts once.)

        Args:
            began, ended: in seconds.
            tokens: computed in between.
        """
        seconds = max(ended - max(began, self._until), 0.0)
        self._until = ended
        kept = math.exp(-seconds / MEMORY)
        self._tokens = self._tokens * kept + tokens
        self._seconds = self._seconds * kept + seconds
