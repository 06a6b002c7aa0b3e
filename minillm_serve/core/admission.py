"""The door: what can never be served, or not in time, is refused before anything is touched."""

import math
import numbers
from dataclasses import dataclass
from typing import Any, Protocol

from minillm_serve.core.errors import RequestRefused
from minillm_serve.core.load import Load, asked_tokens
from minillm_serve.core.request import Request


@dataclass(frozen=True, slots=True)
class Accept:
    """Come in; it takes as long as it takes. (A deadline of the request's own holds.)"""


@dataclass(frozen=True, slots=True)
class Queue:
    """Come in, but not at any price: what has not begun by then is given up.

    Attributes:
        at_most: seconds from now; the request ends with the reason "deadline" if it waits longer.

    Raises:
        ValueError: it is no number from 0 on.
    """

    at_most: float

    def __post_init__(self) -> None:
        _check_seconds("Queue.at_most", self.at_most)


@dataclass(frozen=True, slots=True)
class Refuse:
    """Not now.

    Attributes:
        retry_after: seconds after which it may be worth another try.
        why: for people, as in "refused, since {why}".

    Raises:
        ValueError: `retry_after` is no number from 0 on.
    """

    retry_after: float
    why: str = "the engine is overloaded"

    def __post_init__(self) -> None:
        _check_seconds("Refuse.retry_after", self.retry_after)


Verdict = Accept | Queue | Refuse


class AdmissionPolicy(Protocol):
    """What an engine asks of its door; `Admission` is ours.

    `check` is about the request alone, `admit` about the moment. A door may keep books of who is
    inside: it is told of everybody whom it let in that they have left, however they ended.
    """

    @property
    def max_len(self) -> int:
        """Length at which a sequence must end, in tokens."""
        ...

    def check(self, request: Request) -> None:
        """Lets a request in by returning; it may be asked of the same request more than once.

        Raises:
            RequestRefused: the request stays outside; the message says why.
        """
        ...

    def admit(self, request: Request, load: Load) -> Verdict:
        """Accepts, queues or refuses a request that has passed `check`; asked once.

        Args:
            request: its `deadline`, if any, is when it must have begun.
            load: how busy the engine is.
        """
        ...

    def leave(self, request_id: str) -> None:
        """A request that was let in is no longer inside: it has ended, or was taken out."""
        ...


#: Seconds after which somebody may try again, at the earliest.
LEAST_PAUSE = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Checks a request against the limits of the engine, and bounds the queue.

    Attributes:
        max_model_len: most tokens of a sequence, prompt and output together.
        pool_tokens: tokens that the whole KV pool holds.
        vocab_size: ids must lie below it.
        model_limit: what max_model_len could be raised to; None if nobody knows.
        max_num_waiting: refuse newcomers while so many sequences wait; None: there is no limit.
        max_waiting_tokens: likewise, while those who have not begun may come to so many tokens,
            prompts and answers: a few long prompts fill a queue as well as many short ones do.
        refuse_late: refuse at once who would not begin before their deadline, by `estimated_wait`,
            rather than let them wait for nothing.
    """

    max_model_len: int
    pool_tokens: int
    vocab_size: int
    model_limit: int | None = None
    max_num_waiting: int | None = None
    max_waiting_tokens: int | None = None
    refuse_late: bool = False

    @property
    def max_len(self) -> int:
        """Length at which a sequence must end, whichever limit bites first."""
        return min(self.max_model_len, self.pool_tokens)

    def check(self, request: Request) -> None:
        """Lets a request in, or says why not.

        Raises:
            RequestRefused: empty prompt, ids outside the vocabulary, or a prompt that leaves no
                room for a single new token.
        """
        prompt = request.prompt_token_ids
        if not prompt:
            raise RequestRefused(
                f"request {request.request_id!r} has an empty prompt: give at least one token"
            )
        self._check_ids(request, "prompt_token_ids", prompt)
        self._check_ids(request, "stop_token_ids", request.params.stop_token_ids)
        self._check_ids(request, "logit_bias", tuple(request.params.logit_bias))
        if len(prompt) >= self.max_len:
            raise RequestRefused(self._too_long(request))

    def admit(self, request: Request, load: Load) -> Verdict:
        """Refuses while the queue is full, or if the request would begin too late."""
        wait = load.estimated_wait
        late = None if request.deadline is None else load.now + wait - request.deadline
        if (most := self.max_num_waiting) is not None and load.num_waiting >= most:
            why = f"{load.num_waiting} wait already (max_num_waiting={most})"
        elif self._is_full(request, load):
            why = (
                f"those who wait may come to {load.waiting_tokens} tokens "
                f"(max_waiting_tokens={self.max_waiting_tokens})"
            )
        elif self.refuse_late and wait and late is not None and late >= 0:
            why = f"it would have to wait for {wait:.3g} s, {late:.3g} s too long"
        else:
            return Accept()
        # By then, whoever waits now has begun.
        return Refuse(max(wait, LEAST_PAUSE), why)

    def leave(self, request_id: str) -> None:
        """Does nothing: `Load` tells all that we need to know."""

    def _is_full(self, request: Request, load: Load) -> bool:
        """Whether the request is too many in tokens; the first in line never is."""
        if self.max_waiting_tokens is None or not load.waiting_tokens:
            return False
        tokens = load.waiting_tokens + asked_tokens(request, self.max_len)
        return not load.has_seats and tokens > self.max_waiting_tokens

    def _check_ids(self, request: Request, name: str, ids: tuple[Any, ...]) -> None:
        for index, token in enumerate(ids):
            whole = isinstance(token, numbers.Integral) and not isinstance(token, bool)
            if not whole or not 0 <= token < self.vocab_size:
                raise RequestRefused(
                    f"request {request.request_id!r}: {name}[{index}] is {token!r}, expected an id "
                    f"from 0 to {self.vocab_size - 1}"
                )

    def _too_long(self, request: Request) -> str:
        needed = len(request.prompt_token_ids) + 1
        if self.pool_tokens < self.max_model_len:
            limit = f"the KV pool holds {self.pool_tokens} tokens"
            remedy = " or raise num_blocks or kv_cache_memory"
        elif self.max_model_len == self.model_limit:
            limit, remedy = f"max_model_len is {self.max_model_len}, all that the model takes", ""
        else:
            limit, remedy = f"max_model_len is {self.max_model_len}", " or raise max_model_len"
        return (
            f"request {request.request_id!r} needs room for {needed} tokens (its prompt and one "
            f"more), but {limit}: shorten the prompt{remedy}"
        )


def _check_seconds(name: str, value: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf:
        raise ValueError(f"{name}={value!r}: give seconds, a finite number from 0 on")
