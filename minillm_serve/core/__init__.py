"""WHAT runs next: pure Python, never imports torch."""

from minillm_serve.core.admission import (
    Accept,
    Admission,
    AdmissionPolicy,
    Queue,
    Refuse,
    Verdict,
)
from minillm_serve.core.batch import (
    Batch,
    Copy,
    ScheduledSequence,
    SequenceOutput,
    SequenceUpdate,
    StepResult,
    Swap,
)
from minillm_serve.core.block_manager import BlockManager
from minillm_serve.core.block_pool import BlockAllocator, BlockPool
from minillm_serve.core.engine import EngineCore
from minillm_serve.core.errors import (
    EngineStalled,
    InvariantViolation,
    OutOfBlocks,
    Overloaded,
    PartError,
    RequestRefused,
)
from minillm_serve.core.executor import Executor, FinishedStep, StepHandle
from minillm_serve.core.load import Load, Pace, asked_tokens
from minillm_serve.core.logprobs import Logprob, TokenLogprobs
from minillm_serve.core.metrics import RequestMetrics, StepRecord
from minillm_serve.core.prefix import (
    PREFIX_CACHES,
    HashPrefixCache,
    MakePrefixCache,
    Namespace,
    PrefixCache,
    RadixPrefixCache,
)
from minillm_serve.core.record import Preemption, ScheduleRecord, Span
from minillm_serve.core.request import FinishReason, Request, Sequence, SequenceStatus
from minillm_serve.core.sampling_params import SamplingParams
from minillm_serve.core.scheduler import (
    POLICIES,
    ContinuousScheduler,
    DynamicScheduler,
    FirstComeFirstServed,
    MakeScheduler,
    Policy,
    Priority,
    Scheduler,
    ShortestFirst,
    StaticScheduler,
)
from minillm_serve.core.sharing import PrefixStats, SharedBlocks
from minillm_serve.core.speculation import (
    AdaptiveLengths,
    DraftLengths,
    FixedLengths,
    SpecCounter,
    SpecStats,
    Speculation,
    StepCosts,
)
from minillm_serve.core.structured_outputs import StructuredOutputsParams
from minillm_serve.core.swap_space import RecoveryCost, SwapSpace
from minillm_serve.core.trace_events import chrome_trace

__all__ = [
    "POLICIES",
    "PREFIX_CACHES",
    "Accept",
    "AdaptiveLengths",
    "Admission",
    "AdmissionPolicy",
    "Batch",
    "BlockAllocator",
    "BlockManager",
    "BlockPool",
    "ContinuousScheduler",
    "Copy",
    "DraftLengths",
    "DynamicScheduler",
    "EngineCore",
    "EngineStalled",
    "Executor",
    "FinishReason",
    "FinishedStep",
    "FirstComeFirstServed",
    "FixedLengths",
    "HashPrefixCache",
    "InvariantViolation",
    "Load",
    "Logprob",
    "MakePrefixCache",
    "MakeScheduler",
    "Namespace",
    "OutOfBlocks",
    "Overloaded",
    "Pace",
    "PartError",
    "Policy",
    "Preemption",
    "PrefixCache",
    "PrefixStats",
    "Priority",
    "Queue",
    "RadixPrefixCache",
    "RecoveryCost",
    "Refuse",
    "Request",
    "RequestMetrics",
    "RequestRefused",
    "SamplingParams",
    "ScheduleRecord",
    "ScheduledSequence",
    "Scheduler",
    "Sequence",
    "SequenceOutput",
    "SequenceStatus",
    "SequenceUpdate",
    "SharedBlocks",
    "ShortestFirst",
    "Span",
    "SpecCounter",
    "SpecStats",
    "Speculation",
    "StaticScheduler",
    "StepCosts",
    "StepHandle",
    "StepRecord",
    "StepResult",
    "StructuredOutputsParams",
    "Swap",
    "SwapSpace",
    "TokenLogprobs",
    "Verdict",
    "asked_tokens",
    "chrome_trace",
]
