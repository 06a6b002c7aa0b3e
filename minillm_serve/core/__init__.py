"""WHAT runs next: pure Python, never imports torch."""

from minillm_serve.core.admission import Admission, AdmissionPolicy
from minillm_serve.core.batch import (
    Batch,
    ScheduledSequence,
    SequenceOutput,
    SequenceUpdate,
    StepResult,
    Swap,
)
from minillm_serve.core.block_manager import BlockAllocator, BlockManager
from minillm_serve.core.block_pool import BlockPool
from minillm_serve.core.engine import EngineCore
from minillm_serve.core.errors import (
    EngineStalled,
    InvariantViolation,
    OutOfBlocks,
    Overloaded,
    PartError,
    RequestRefused,
)
from minillm_serve.core.executor import Executor, StepHandle
from minillm_serve.core.logprobs import Logprob, TokenLogprobs
from minillm_serve.core.metrics import RequestMetrics, StepRecord
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
from minillm_serve.core.swap_space import RecoveryCost, SwapSpace
from minillm_serve.core.trace_events import chrome_trace

__all__ = [
    "POLICIES",
    "Admission",
    "AdmissionPolicy",
    "Batch",
    "BlockAllocator",
    "BlockManager",
    "BlockPool",
    "ContinuousScheduler",
    "DynamicScheduler",
    "EngineCore",
    "EngineStalled",
    "Executor",
    "FinishReason",
    "FirstComeFirstServed",
    "InvariantViolation",
    "Logprob",
    "MakeScheduler",
    "OutOfBlocks",
    "Overloaded",
    "PartError",
    "Policy",
    "Preemption",
    "Priority",
    "RecoveryCost",
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
    "ShortestFirst",
    "Span",
    "StaticScheduler",
    "StepHandle",
    "StepRecord",
    "StepResult",
    "Swap",
    "SwapSpace",
    "TokenLogprobs",
    "chrome_trace",
]
