"""What a server allows, and what it is called."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Limits and names of one server, validated on construction.

    Attributes:
        served_model_name: what requests call the model.
        aliases: further names that it goes by.
        api_key: what requests must bring as `Authorization: Bearer ...`, without the white space
            around it, such as the line feed of a file; None lets everybody in.
        max_body_bytes: most bytes of a request's body.
        body_seconds: most seconds that a request's headers may take to arrive, and then its body.
        read_seconds: a client that reads nothing of its answer for so long is cut off.
        keep_alive_seconds: a stream in which nothing comes for so long gets a comment.
        max_header_bytes: most bytes of a request's headers together.
        max_request_id_chars: most characters of an `X-Request-Id`.
        max_prompts: most prompts of one completion request.
        max_n: most answers to one prompt.
        max_stop: most stop strings of one request, each of
        max_stop_chars: so many characters at most.
        max_logprobs: most alternatives to a token that may be asked for.
        max_logprobs_total: most log probabilities of one request, those of all its tokens together.
        max_listed_tokens: most tokens that `/tokenize` tells and `/detokenize` reads.
        max_queue_seconds: a request that has not begun after so long is given up; None waits.
        cors_origins: pages of which origins may call from a browser; none by default.
        drain_seconds: how long answers under way may go on once the server is to stop.
        retry_after: seconds after which somebody who was refused may try again; more, if the
            engine's door says so.

    Raises:
        ValueError: naming the setting, its value and what is expected.
    """

    served_model_name: str
    aliases: tuple[str, ...] = ()
    api_key: str | None = None
    max_body_bytes: int = 4 * 2**20
    body_seconds: float = 60.0
    read_seconds: float = 60.0
    keep_alive_seconds: float = 10.0
    max_header_bytes: int = 32 * 2**10
    max_request_id_chars: int = 128
    max_prompts: int = 128
    max_n: int = 16
    max_stop: int = 4
    max_stop_chars: int = 1024
    max_logprobs: int = 20
    max_logprobs_total: int = 2_000_000
    max_listed_tokens: int = 2**19
    max_queue_seconds: float | None = None
    cors_origins: tuple[str, ...] = ()
    drain_seconds: float = 30.0
    retry_after: int = 1

    def __post_init__(self) -> None:
        for name in (
            *("max_body_bytes", "max_header_bytes", "max_request_id_chars", "retry_after"),
            *("max_prompts", "max_n", "max_stop", "max_stop_chars"),
            *("max_logprobs_total", "max_listed_tokens"),
        ):
            _at_least(name, getattr(self, name), 1)
        for name in ("max_logprobs", "drain_seconds"):
            _at_least(name, getattr(self, name), 0)
        for name in ("body_seconds", "read_seconds", "keep_alive_seconds", "max_queue_seconds"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name}={value!r}: expected a finite number above 0")
        if not self.served_model_name or "" in self.aliases:
            raise ValueError("served_model_name='': a model needs a name that requests can give")
        if self.api_key is not None:
            # A header's value has no white space around it either.
            object.__setattr__(self, "api_key", self.api_key.strip())
            if not self.api_key:
                raise ValueError("api_key is blank: give a key, or None for a server open to all")

    @property
    def model_names(self) -> tuple[str, ...]:
        """All names of the model, the main one first."""
        return (self.served_model_name, *self.aliases)


def _at_least(name: str, value: float, least: int) -> None:
    if isinstance(value, bool) or not least <= value < math.inf:
        raise ValueError(f"{name}={value!r}: expected a finite number of at least {least}")
