"""The `admission` slot."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from minillm_serve.core import Admission, AdmissionPolicy, Request, RequestRefused
from minillm_serve.parts.part import Part

#: Limits of a small engine, and prompts that it could never serve.
LIMITS = {"max_model_len": 8, "pool_tokens": 12, "vocab_size": 5}
HOPELESS: dict[str, tuple[int, ...]] = {"empty": (), "unknown id": (5,), "too long": (1,) * 8}


def fit_admission(
    part: Part | None, ours: Callable[..., AdmissionPolicy] = Admission
) -> Callable[..., AdmissionPolicy]:
    """Builds somebody's door, with ours behind it; ours alone if there is none.

    Raises:
        PartError: it lacks something of the protocol, or fails its self-test.
    """
    if part is None:
        return ours
    part.check_class()

    def build(*, max_model_len: int, pool_tokens: int, vocab_size: int) -> GuardedAdmission:
        limits = Admission(
            max_model_len=max_model_len, pool_tokens=pool_tokens, vocab_size=vocab_size
        )
        return GuardedAdmission(part, limits)

    part.check_signature(part.value, build, "__init__")
    _self_test(part, build(**LIMITS))
    return build


class GuardedAdmission:
    """Somebody's door. What it lets in must still be servable, or the engine would be harmed.

    Raises:
        PartError: from every method, if the door raises what it should not.
    """

    def __init__(self, part: Part, limits: Admission) -> None:
        self._part, self._limits = part, limits
        with part.blame("__init__"):
            self._door = part.value(
                max_model_len=limits.max_model_len,
                pool_tokens=limits.pool_tokens,
                vocab_size=limits.vocab_size,
            )
        part.check_methods(self._door, AdmissionPolicy)
        told = self._door.max_len
        whole = isinstance(told, int) and 2 <= told <= limits.max_len
        part.expect(whole, f"has max_len {told!r}, expected from 2 to {limits.max_len} tokens")
        self.max_len: int = told

    def check(self, request: Request) -> None:
        """See `AdmissionPolicy`."""
        with self._part.blame("check", RequestRefused):
            answer: Any = self._door.check(request)
        self._part.expect(
            answer is None,
            f"returned {answer!r} from check: raise RequestRefused to refuse, return nothing to "
            "let in",
        )
        try:
            self._limits.check(request)
        except RequestRefused as error:
            raise self._part.error(f"let in what cannot be served: {error}") from error


def _self_test(part: Part, door: GuardedAdmission) -> None:
    """Hopeless requests are refused, a small one is let in."""
    for name, prompt in HOPELESS.items():
        with suppress(RequestRefused):
            door.check(Request(request_id=name, prompt_token_ids=prompt))
    try:
        door.check(Request(request_id="one token", prompt_token_ids=(1,)))
    except RequestRefused as error:
        raise part.error(f"refused a prompt of one token: {error}") from error
