"""What was asked (`Request`), and the stream of tokens grown for it (`Sequence`)."""

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from minillm_serve.core.logprobs import TokenLogprobs
from minillm_serve.core.sampling_params import SamplingParams


class FinishReason(StrEnum):
    """Why a sequence ended."""

    STOP = "stop"  # an EOS or stop token
    LENGTH = "length"  # max_tokens, the context limit, or the whole KV pool
    ABORT = "abort"  # the caller went away
    ERROR = "error"  # the computation failed for this sequence
    DEADLINE = "deadline"  # it was still waiting for its first step when its deadline passed


class SequenceStatus(Enum):
    """Where a sequence stands."""

    WAITING = "waiting"  # never run, holds no blocks
    RUNNING = "running"  # holds blocks, takes part in steps
    PREEMPTED = "preempted"  # lost its blocks, waits to compute its tokens again
    SWAPPED = "swapped"  # its blocks lie in host memory, where they wait for room
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a user asked for. Immutable.

    Attributes:
        request_id: unique among the requests that are in the engine.
        prompt_token_ids: at least one id.
        params: how to sample and when to stop. `params.seed` may be None: the engine then
            draws one.
        arrival_time: in seconds of the engine's clock; None lets the engine read the clock.
        priority: the lower goes first, where the policy asks for it (`core.scheduler.Priority`).
        deadline: in seconds of the engine's clock: if it has not begun by then, it need not.

    Raises:
        ValueError: the priority is no whole number, or the deadline no number.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams = field(default_factory=SamplingParams)
    arrival_time: float | None = None
    priority: int = 0
    deadline: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.priority, int):
            raise ValueError(f"priority={self.priority!r}: give a whole number, 0 by default")
        if self.deadline is not None and math.isnan(self.deadline):
            raise ValueError("deadline=nan: give seconds of the engine's clock, or None")


class Sequence:
    """One stream of tokens being grown for a request.

    There is no prefill phase and no decode phase: a sequence has `len(sequence)` tokens, the KV
    of the first `num_computed` of them is in the cache, and a step lets it catch up by some
    number of tokens. When it has caught up, the next token can be sampled.

    While a step is under way, its tokens count as computed, and a token that it samples counts as
    a token, though nobody knows yet which:

        token_ids  [ prompt ...  generated ... ] + num_pending   = len(sequence)

    Attributes:
        token_ids: all ids that are known.
        num_computed: tokens whose KV is in the cache or being computed.
        num_pending: tokens at the end that are being sampled.
        num_under_way: steps under way that the sequence takes part in.
        arrival_time: in seconds of the engine's clock.
        rank: its place among all others, given once by the policy: the lower goes first.
        block_table: blocks of the pool that hold its KV; empty while it waits.
        host_table: blocks of host memory that do, while it is swapped out.
    """

    __slots__ = (
        "arrival_time",
        "block_table",
        "error",
        "finish_reason",
        "host_table",
        "num_computed",
        "num_pending",
        "num_preemptions",
        "num_under_way",
        "prompt_logprobs",
        "rank",
        "request",
        "seed",
        "status",
        "stop_ids",
        "token_ids",
    )

    def __init__(
        self,
        request: Request,
        *,
        eos_token_ids: Collection[int] = (),
        seed: int = 0,
        arrival_time: float = 0.0,
    ) -> None:
        params = request.params
        self.request = request
        self.seed = params.seed if params.seed is not None else seed
        self.stop_ids = frozenset(params.stop_token_ids)
        if not params.ignore_eos:
            self.stop_ids |= frozenset(eos_token_ids)
        self.token_ids: list[int] = list(request.prompt_token_ids)
        self.num_computed = 0
        self.num_pending = 0
        self.num_under_way = 0
        self.arrival_time = arrival_time
        self.rank: tuple[float, int] = (0.0, 0)
        self.block_table: list[int] = []
        self.host_table: list[int] = []
        self.status = SequenceStatus.WAITING
        self.finish_reason: FinishReason | None = None
        self.error: str | None = None
        self.num_preemptions = 0
        # Nothing comes before the first token, so nothing is known of it. The list outlives
        # preemption: what was reported once is not reported again when it is recomputed.
        self.prompt_logprobs: list[TokenLogprobs | None] = [None]

    def __len__(self) -> int:
        return len(self.token_ids) + self.num_pending

    def __repr__(self) -> str:
        return (
            f"Sequence({self.request.request_id!r}, {self.status.value}, tokens={len(self)}, "
            f"computed={self.num_computed}, blocks={self.block_table})"
        )

    @property
    def params(self) -> SamplingParams:
        """The request's sampling parameters."""
        return self.request.params

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens that were given, not generated."""
        return len(self.request.prompt_token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far, pending ones included."""
        return len(self) - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> list[int]:
        """The generated ids that are known, a copy."""
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def num_uncomputed(self) -> int:
        """Tokens whose KV is still missing: at least 1 until the sequence ends."""
        return len(self) - self.num_computed
