"""How long a step takes: its memory traffic, its arithmetic and its launch, added up.

    seconds = overhead + bytes / (bandwidth * e_m) + flops / (peak * e_c)

A plain roofline takes the slower of the first two, as if every kernel overlapped them perfectly.
Real steps are made of some kernels that wait for memory and others that compute, one after the
other, so around the knee (batches of 8 to 16 on a CPU) the sum is nearer the truth. The two
efficiencies are the constants that a few measured steps fix, see `CostModel.fitted`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from minillm_serve.core.batch import Batch
from minillm_serve.core.swap_space import RecoveryCost
from minillm_serve.sim.shapes import Hardware, ModelShape


@dataclass(frozen=True, slots=True)
class Work:
    """What a step has to do, as far as its cost depends on it.

    Attributes:
        sequences: that take part [B].
        tokens: rows that go through the layers.
        samples: rows that go through the output head.
        context: tokens whose keys and values are read, summed over sequences.
        pairs: (query, key) pairs of causal attention, summed over sequences.
    """

    sequences: int
    tokens: int
    samples: int
    context: int
    pairs: int

    @classmethod
    def of(cls, batch: Batch) -> Work:
        """The work of a batch: row i of a slice attends to start + i + 1 tokens.

        (All rows of a sequence share what is read. Each draft needs logits of its own.)

        The idle rows of a fixed batch are computed as well, as wide as its widest row.
        """
        sequences = tokens = samples = context = pairs = 0
        for item in batch.scheduled:
            count = item.num_tokens
            sequences += 1
            tokens += count
            samples += item.samples + item.num_drafts
            context += item.start + count
            pairs += count * item.start + count * (count + 1) // 2
        work = cls(sequences, tokens, samples, context, pairs)
        return work.padded(batch.num_idle, max((s.end for s in batch.scheduled), default=0))

    def padded(self, rows: int, width: int) -> Work:
        """The same with so many rows more, each of which attends to `width` tokens for nobody."""
        if not rows:
            return self
        return Work(
            self.sequences + rows,
            self.tokens + rows,
            self.samples + rows,
            self.context + rows * width,
            self.pairs + rows * width,
        )

    @classmethod
    def decode(cls, batch: int, context: int) -> Work:
        """A decode step of sequences that have `context` tokens each, the new one included."""
        return cls(batch, batch, batch, batch * context, batch * context)

    @classmethod
    def verify(cls, batch: int, drafts: int, context: int) -> Work:
        """The same with so many drafts each behind the new token."""
        rows = 1 + drafts
        pairs = rows * context + drafts * rows // 2
        return cls(batch, batch * rows, batch * rows, batch * (context + drafts), batch * pairs)

    @classmethod
    def prefill(cls, tokens: int) -> Work:
        """A whole prompt, alone."""
        return cls(1, tokens, 1, tokens, tokens * (tokens + 1) // 2)


@dataclass(frozen=True, slots=True)
class CostModel:
    """Prices steps of a model on a machine.

    Attributes:
        hardware: its bandwidth and peak.
        model: what is computed.
        weight_bits: bits a weight.
        kv_bits: bits an element of the KV cache.
        overhead_s: seconds a step takes before it moves a byte: launches, scheduling, sampling.
        memory_efficiency: share of the bandwidth that is reached [e_m].
        compute_efficiency: share of the peak that is reached [e_c].
        host_bytes_s: bytes that cross the bus to host memory, a second. (PCIe 4.0 x16 carries
            31.5 GB/s in each direction, of which about 25 arrive.)

    Raises:
        ValueError: an efficiency or a number of bits is not positive, or the overhead is negative.
    """

    hardware: Hardware
    model: ModelShape
    weight_bits: float = 16
    kv_bits: float = 16
    overhead_s: float = 0.0
    memory_efficiency: float = 1.0
    compute_efficiency: float = 1.0
    host_bytes_s: float = 25e9

    def __post_init__(self) -> None:
        names = "weight_bits kv_bits memory_efficiency compute_efficiency host_bytes_s"
        for name in names.split():
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)!r}: give a positive number")
        if not 0 <= self.overhead_s < math.inf:
            raise ValueError(f"overhead_s={self.overhead_s!r}: give seconds, 0 or more")

    def seconds(self, work: Work) -> float:
        """The time of one step."""
        memory, compute = self.terms(work)
        return self.overhead_s + memory + compute

    def terms(self, work: Work) -> tuple[float, float]:
        """Seconds for the bytes, and seconds for the arithmetic."""
        model, hardware = self.model, self.hardware
        head = model.hidden_size * model.vocab_size
        kv_bytes = model.kv_bytes_per_token(self.kv_bits / 8)
        weights = model.streamed_parameters - (0 if work.samples else head)
        moved = weights * self.weight_bits / 8 + (work.context + work.tokens) * kv_bytes
        flops = 2 * (model.matmul_parameters - head) * work.tokens + 2 * head * work.samples
        flops += 4 * model.num_layers * model.num_heads * model.head_dim * work.pairs
        peak = hardware.flops(self.weight_bits)
        return (
            moved / (hardware.bandwidth_bytes_s * self.memory_efficiency),
            flops / (peak * self.compute_efficiency),
        )

    def swap_seconds(self, tokens: int) -> float:
        """The time to copy the KV of so many tokens to the host, or back; steps wait for it."""
        return tokens * self.model.kv_bytes_per_token(self.kv_bits / 8) / self.host_bytes_s

    def recovery(self, block_size: int) -> RecoveryCost:
        """What a preempted sequence costs, by which an engine chooses to swap it or not."""
        model = self.model
        return RecoveryCost(
            flops_per_token=2 * model.matmul_parameters,
            flops_per_pair=4 * model.num_layers * model.num_heads * model.head_dim,
            flops_s=self.hardware.flops(self.weight_bits) * self.compute_efficiency,
            block_bytes=block_size * model.kv_bytes_per_token(self.kv_bits / 8),
            host_bytes_s=self.host_bytes_s,
        )

    def seconds_of_run(self, first: Work, steps: int) -> float:
        """The time of `steps` decode steps, of which `first` is the first one.

        From one to the next each sequence's context grows by a token, so the cost grows by the
        same amount: an arithmetic series.
        """
        return steps * self.seconds(first) + self._growth(first) * steps * (steps - 1) / 2

    def ends_of_run(self, first: Work, steps: int, began: float) -> list[float]:
        """When each of these steps ends."""
        step, growth = self.seconds(first), self._growth(first)
        return [began + k * step + growth * k * (k - 1) / 2 for k in range(1, steps + 1)]

    def steps_within(self, first: Work, seconds: float) -> int:
        """How many decode steps it takes until `seconds` have gone by; at least 1."""
        growth, step = self._growth(first), self.seconds(first)
        # steps * step + growth * steps (steps - 1) / 2 = seconds, solved without cancellation.
        slope = step - growth / 2
        root = math.sqrt(slope * slope + 2 * growth * max(0.0, seconds))
        steps = max(1, math.floor(2 * seconds / (slope + root)))
        while self.seconds_of_run(first, steps) < seconds:
            steps += 1
        return steps

    def _growth(self, work: Work) -> float:
        longer = replace(
            work, context=work.context + work.sequences, pairs=work.pairs + work.tokens
        )
        return self.seconds(longer) - self.seconds(work)

    def fitted(self, measured: Sequence[tuple[Work, float]]) -> CostModel:
        """The same model with both efficiencies set so that it fits measured steps best.

        Least squares of relative errors, so that short steps count as much as long ones.

        Args:
            measured: work and seconds of at least two steps of different shape.

        Raises:
            ValueError: too few steps, or none that tell memory and arithmetic apart.
        """
        if len(measured) < 2:
            raise ValueError(f"{len(measured)} measured steps: two constants need at least two")
        seconds = np.array([time for _, time in measured])
        terms = np.array([self.terms(work) for work, _ in measured])
        known = np.array([self.overhead_s / time for _, time in measured])
        scale, _, rank, _ = np.linalg.lstsq(terms / seconds[:, None], 1 - known, rcond=1e-9)
        if rank < 2 or not (scale > 0).all():
            raise ValueError(
                f"these {len(measured)} steps do not tell memory from arithmetic (factors "
                f"{scale.tolist()}): measure a small batch and a large one, or a whole prompt"
            )
        return replace(
            self,
            memory_efficiency=self.memory_efficiency / float(scale[0]),
            compute_efficiency=self.compute_efficiency / float(scale[1]),
        )
