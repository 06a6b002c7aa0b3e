"""The `admission` slot."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from minillm_serve.core import (
    Accept,
    Admission,
    AdmissionPolicy,
    Load,
    PartError,
    Queue,
    Refuse,
    Request,
    RequestRefused,
    Verdict,
)
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
        sizes = {
            "max_model_len": max_model_len,
            "pool_tokens": pool_tokens,
            "vocab_size": vocab_size,
        }
        return GuardedAdmission(part, ours(**sizes), **sizes)

    part.check_signature(part.value, build, "__init__")
    _self_test(part, build(**LIMITS))
    return build


class GuardedAdmission:
    """Somebody's door. What it lets in must still be servable, or the engine would be harmed.

    Limits of the queue that were set hold for every door.

    Raises:
        PartError: from `check` and `admit`, if the door raises what it should not. What it raises
            in `leave` comes with the next request: nobody who leaves is to be stopped.
    """

    def __init__(self, part: Part, limits: AdmissionPolicy, **sizes: int) -> None:
        self._part, self._limits = part, limits
        self._fault: PartError | None = None
        with part.blame("__init__"):
            self._door = part.value(**sizes)
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

    def admit(self, request: Request, load: Load) -> Verdict:
        """See `AdmissionPolicy`."""
        if self._fault is not None:
            raise self._fault
        limit = self._limits.admit(request, load)
        if isinstance(limit, Refuse):
            return limit
        with self._part.blame("admit"):
            verdict: Any = self._door.admit(request, load)
        self._part.expect(
            isinstance(verdict, Accept | Queue | Refuse),
            f"returned {verdict!r} from admit, expected Accept(), Queue(at_most=seconds) or "
            "Refuse(retry_after=seconds)",
        )
        return verdict

    def leave(self, request_id: str) -> None:
        """See `AdmissionPolicy`."""
        try:
            with self._part.blame("leave"):
                self._door.leave(request_id)
        except PartError as error:
            self._fault = error


def _self_test(part: Part, door: GuardedAdmission) -> None:
    """Hopeless requests are refused, a small one is let in: into an idle engine, and out again."""
    for name, prompt in HOPELESS.items():
        with suppress(RequestRefused):
            door.check(Request(request_id=name, prompt_token_ids=prompt))
    small = Request(request_id="one token", prompt_token_ids=(1,))
    try:
        door.check(small)
    except RequestRefused as error:
        raise part.error(f"refused a prompt of one token: {error}") from error
    for _ in range(2):  # the second finds an engine that is idle again
        verdict = door.admit(small, Load(now=0.0, max_len=door.max_len))
        part.expect(
            not isinstance(verdict, Refuse), f"returned {verdict} though the engine is idle"
        )
        door.leave(small.request_id)
