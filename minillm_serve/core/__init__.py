"""WHAT runs next: pure Python, never imports torch."""

from minillm_serve.core.admission import Admission, AdmissionPolicy
from minillm_serve.core.batch import (
    Batch,
    ScheduledSequence,
    SequenceOutput,
    SequenceUpdate,
    StepResult,
)
from minillm_serve.core.block_manager import BlockAllocator, BlockManager
from minillm_serve.core.block_pool import BlockPool
from minillm_serve.core.engine import EngineCore
from minillm_serve.core.errors import (
    EngineStalled,
    InvariantViolation,
    OutOfBlocks,
    PartError,
    RequestRefused,
)
from minillm_serve.core.executor import Executor, StepHandle
from minillm_serve.core.logprobs import Logprob, TokenLogprobs
from minillm_serve.core.metrics import RequestMetrics, StepRecord
from minillm_serve.core.request import FinishReason, Request, Sequence, SequenceStatus
from minillm_serve.core.sampling_params import SamplingParams
from minillm_serve.core.scheduler import ContinuousScheduler, Scheduler

__all__ = [
    "Admission",
    "AdmissionPolicy",
    "Batch",
    "BlockAllocator",
    "BlockManager",
    "BlockPool",
    "ContinuousScheduler",
    "EngineCore",
    "EngineStalled",
    "Executor",
    "FinishReason",
    "InvariantViolation",
    "Logprob",
    "OutOfBlocks",
    "PartError",
    "Request",
    "RequestMetrics",
    "RequestRefused",
    "SamplingParams",
    "ScheduledSequence",
    "Scheduler",
    "Sequence",
    "SequenceOutput",
    "SequenceStatus",
    "SequenceUpdate",
    "StepHandle",
    "StepRecord",
    "StepResult",
    "TokenLogprobs",
]
