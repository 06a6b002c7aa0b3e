"""The door: what can never be served is refused here, before anything is touched."""

import numbers
from dataclasses import dataclass
from typing import Any, Protocol

from minillm_serve.core.errors import RequestRefused
from minillm_serve.core.request import Request


class AdmissionPolicy(Protocol):
    """What an engine asks of its door; `Admission` is ours."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Checks a request against the limits of the engine.

    Attributes:
        max_model_len: most tokens of a sequence, prompt and output together.
        pool_tokens: tokens that the whole KV pool holds.
        vocab_size: ids must lie below it.
        model_limit: what max_model_len could be raised to; None if nobody knows.
    """

    max_model_len: int
    pool_tokens: int
    vocab_size: int
    model_limit: int | None = None

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
