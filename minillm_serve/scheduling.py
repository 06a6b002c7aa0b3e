"""Who runs next: those arguments of `LLM` that decide it."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from minillm_serve.core import (
    POLICIES,
    ContinuousScheduler,
    DynamicScheduler,
    MakeScheduler,
    Policy,
    RecoveryCost,
    StaticScheduler,
    SwapSpace,
)
from minillm_serve.models.config import ModelConfig
from minillm_serve.runtime.sizing import check_swap_space
from minillm_serve.sim.shapes import ModelShape

SCHEDULERS = ("continuous", "static", "dynamic")
PREEMPTIONS = ("auto", "recompute", "swap")
#: FLOP/s of a step, and bytes/s between the pool and host memory: rough, since whether a swap pays
#: is rarely a close call. GPU: half the dense 16-bit peak of an A100 or so (312e12), PCIe 4.0 x16.
#: CPU: a few cores, and a copy within one memory.
FLOPS_S = {"cuda": 150e12, "cpu": 100e9}
HOST_BYTES_S = {"cuda": 25e9, "cpu": 5e9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """See `LLM` for what these are.

    Raises:
        ValueError: naming the argument and the remedy.
    """

    scheduler: str = "continuous"
    policy: str | Policy = "fcfs"
    max_queue_delay: float | None = None
    swap_space: int = 0
    preemption: str = "auto"
    max_num_waiting: int | None = None
    max_waiting_tokens: int | None = None
    refuse_late: bool = False

    def __post_init__(self) -> None:
        _choose("scheduler", self.scheduler, SCHEDULERS)
        _choose("preemption", self.preemption, PREEMPTIONS)
        if isinstance(self.policy, str):
            _choose("policy", self.policy, POLICIES)
        if self.max_queue_delay is not None and self.scheduler == "continuous":
            raise ValueError(
                f"max_queue_delay={self.max_queue_delay!r}: scheduler='continuous' lets everybody "
                "in at once; leave it out, or choose 'static' or 'dynamic'"
            )
        for name, least in (("swap_space", 0), ("max_num_waiting", 1), ("max_waiting_tokens", 1)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < least):
                raise ValueError(f"{name}={value!r}: expected a whole number from {least} on")
        if self.preemption == "swap" and not self.swap_space:
            raise ValueError("preemption='swap' needs room: give swap_space, in bytes")

    @property
    def is_default(self) -> bool:
        """Whether nothing was chosen that a scheduler of somebody's own would not do."""
        return (self.scheduler, self.policy, self.max_queue_delay) == ("continuous", "fcfs", None)

    @property
    def limits(self) -> dict[str, Any]:
        """Arguments of `Admission`: how long the queue may get."""
        return {
            "max_num_waiting": self.max_num_waiting,
            "max_waiting_tokens": self.max_waiting_tokens,
            "refuse_late": self.refuse_late,
        }

    def make_scheduler(self) -> MakeScheduler:
        """Builds the scheduler over the blocks, given its limits."""
        policy = POLICIES[self.policy]() if isinstance(self.policy, str) else self.policy
        if self.scheduler == "continuous":
            return partial(ContinuousScheduler, policy=policy)
        fixed = StaticScheduler if self.scheduler == "static" else DynamicScheduler
        return partial(fixed, policy=policy, max_queue_delay=self.max_queue_delay)

    def make_swap_space(
        self, config: ModelConfig, *, block_bytes: int, device: torch.device
    ) -> SwapSpace | None:
        """Gives out what `swap_space` holds; None if it is not to be used.

        Args:
            config: of the model.
            block_bytes: of a block in all caches, a drafter's among them.
            device: that the engine runs on.

        Raises:
            ValueError: it holds not even one block, or the host has no room for it.
        """
        if not self.swap_space or self.preemption == "recompute":
            return None
        if self.swap_space < block_bytes:
            raise ValueError(
                f"swap_space={self.swap_space} bytes holds no block: one takes {block_bytes} "
                "bytes; raise it, or leave it at 0 so that nothing is swapped"
            )
        check_swap_space(self.swap_space)
        if self.preemption == "swap":
            return SwapSpace(self.swap_space // block_bytes)
        shape = ModelShape.from_model_config(config)
        cost = RecoveryCost(
            flops_per_token=2 * shape.matmul_parameters,
            flops_per_pair=4 * shape.num_layers * shape.num_heads * shape.head_dim,
            flops_s=FLOPS_S[device.type],
            block_bytes=block_bytes,
            host_bytes_s=HOST_BYTES_S[device.type],
        )
        return SwapSpace(self.swap_space // block_bytes, cost.swap_is_cheaper)


def _choose(name: str, value: str, known: Iterable[str]) -> None:
    if value not in (names := list(known)):
        raise ValueError(f"{name}={value!r} is unknown: choose from {names}")
