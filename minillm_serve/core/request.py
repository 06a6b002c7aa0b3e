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
        cache_salt: KV is shared only with requests that bring the same one: a tenant's name, say,
            so that nobody learns from response times what other tenants ask.
        grammar: what `params.structured_outputs` was compiled to, for whoever runs the steps;
            nobody in the core looks into it.

    Raises:
        ValueError: the priority is no whole number, the deadline no number, the salt no text; or
            structured outputs were not compiled.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams = field(default_factory=SamplingParams)
    arrival_time: float | None = None
    priority: int = 0
    deadline: float | None = None
    cache_salt: str | None = None
    grammar: object | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.priority, int):
            raise ValueError(f"priority={self.priority!r}: give a whole number, 0 by default")
        if self.deadline is not None and math.isnan(self.deadline):
            raise ValueError("deadline=nan: give seconds of the engine's clock, or None")
        if self.cache_salt is not None and not isinstance(self.cache_salt, str):
            raise ValueError(f"cache_salt={self.cache_salt!r}: give a string, or None")
        if (self.params.structured_outputs is None) != (self.grammar is None):
            raise ValueError(
                "structured_outputs and grammar: give both or neither. `LLM` compiles the one to "
                "the other"
            )


#: `Sequence.num_written` of a sequence whose KV has a gap: a step that was to write it failed.
NEVER = -1


class Sequence:
    """One stream of tokens being grown for a request.

    There is no prefill phase and no decode phase: a sequence has `len(sequence)` tokens, the KV
    of the first `num_computed` of them is in the cache, and a step lets it catch up by some
    number of tokens. When it has caught up, the next token can be sampled.

    While a step is under way, its tokens count as computed, and a token that it samples counts as
    a token, though nobody knows yet which:

        token_ids  [ prompt ...  generated ... ] + num_pending   = len(sequence)

    A request that wants several answers has as many sequences: number 0 and its siblings.

    Attributes:
        index: which of the request's answers it grows into.
        parent: of a sibling, number 0, whose prompt blocks it shares if it can; otherwise None.
        token_ids: all ids that are known.
        num_computed: tokens whose KV is in the cache or being computed.
        num_written: tokens whose KV is there for certain, since their steps are done; or `NEVER`.
        num_cached_tokens: tokens of the prompt that the prefix cache had when it was let in.
        num_pending: tokens at the end that are being sampled.
        num_under_way: steps under way that the sequence takes part in.
        arrival_time: in seconds of the engine's clock.
        rank: its place among all others, given once by the policy: the lower goes first.
        block_table: blocks of the pool that hold its KV; empty while it waits.
        host_table: blocks of host memory that do, while it is swapped out.
    """

    __slots__ = (
        "__weakref__",  # drafters keep what they know of a sequence as long as it lives
        "arrival_time",
        "block_table",
        "error",
        "finish_reason",
        "host_table",
        "index",
        "num_cached_tokens",
        "num_computed",
        "num_pending",
        "num_preemptions",
        "num_under_way",
        "num_written",
        "parent",
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
        parent: "Sequence | None" = None,
        index: int = 0,
    ) -> None:
        params = request.params
        self.request = request
        self.parent = parent
        self.index = index
        # Siblings must not draw alike, and must draw the same whenever they are asked for.
        self.seed = (params.seed if params.seed is not None else seed) + index
        self.stop_ids = frozenset(params.stop_token_ids)
        if not params.ignore_eos:
            self.stop_ids |= frozenset(eos_token_ids)
        self.token_ids: list[int] = list(request.prompt_token_ids)
        self.num_computed = 0
        self.num_written = 0
        self.num_cached_tokens = 0
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
        which = f"[{self.index}]" if self.params.n > 1 else ""
        return (
            f"Sequence({self.request.request_id!r}{which}, {self.status.value}, "
            f"tokens={len(self)}, computed={self.num_computed}, blocks={self.block_table})"
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
    def lacks_prompt_logprobs(self) -> bool:
        """Whether its prompt must be computed even if its KV is known: for the log probabilities.

        (One answer's suffices: they are the same for all.)
        """
        wanted = self.params.prompt_logprobs is not None and self.index == 0
        return wanted and len(self.prompt_logprobs) < self.num_prompt_tokens

    @property
    def num_uncomputed(self) -> int:
        """Tokens whose KV is still missing: at least 1 until the sequence ends."""
        return len(self) - self.num_computed
