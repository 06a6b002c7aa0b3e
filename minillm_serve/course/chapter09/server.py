"""The formula of this chapter: what a decode step moves and computes, and how long that takes.

    t(B) = max((W + B * L * kv) / BW, B * flops / peak)

It is `sim.decode_cost` in the five numbers that it is made of, so that each can be turned.
"""
# ruff: noqa: N803 - arguments have the names of the course's symbols

from __future__ import annotations

import math
from dataclasses import dataclass

from minillm_serve.sim import HARDWARE, MODELS, GiB, MiB


@dataclass(frozen=True, slots=True)
class Server:
    """A model on a machine.

    Attributes:
        weights: bytes that a step reads whatever the batch [W].
        kv: bytes of KV cache a token [kv].
        bandwidth: bytes a second [BW].
        flops: FLOPs of a row, attention aside; 0 leaves the arithmetic out.
        pair_flops: FLOPs of attention for each token that a row looks at.
        peak: FLOP/s.
    """

    weights: float
    kv: float
    bandwidth: float
    flops: float = 0.0
    pair_flops: float = 0.0
    peak: float = math.inf

    def memory_seconds(self, B: int, L: int) -> float:
        """Seconds to move what B sequences of L tokens need."""
        return (self.weights + B * L * self.kv) / self.bandwidth

    def compute_seconds(self, B: int, L: int) -> float:
        """Seconds to compute a row for each of them."""
        return B * (self.flops + L * self.pair_flops) / self.peak

    def seconds(self, B: int, L: int) -> float:
        """A step: the slower of the two, as hardware does both at once [t]."""
        return max(self.memory_seconds(B, L), self.compute_seconds(B, L))

    def throughput(self, B: int, L: int) -> float:
        """Output tokens a second."""
        return B / self.seconds(B, L)

    def memory_roof(self, L: int) -> float:
        """Tokens a second that the bandwidth allows, however large the batch: BW / (L kv)."""
        return self.bandwidth / (L * self.kv)

    def compute_roof(self, L: int) -> float:
        """Tokens a second that the arithmetic allows; infinite if it was left out."""
        flops = self.flops + L * self.pair_flops
        return self.peak / flops if flops else math.inf

    def ceiling(self, L: int) -> float:
        """The lower of the two roofs."""
        return min(self.memory_roof(L), self.compute_roof(L))

    def half(self, L: int) -> float:
        """The batch whose KV cache takes as many bytes as the weights: W / (L kv)."""
        return self.weights / (L * self.kv)

    def roofs_meet(self) -> float:
        """The context at which both roofs are as high; 0 if the arithmetic was left out."""
        # BW / (L kv) = peak / (flops + L pair_flops), solved for L; never, if attention's own
        # arithmetic takes longer than its bytes.
        spare = self.peak * self.kv - self.bandwidth * self.pair_flops
        return self.bandwidth * self.flops / spare if spare > 0 else math.inf


def server_of(card: str, model: str) -> Server:
    """A preset model in 16 bits on a preset card, by its data sheet."""
    hardware, shape = HARDWARE[card], MODELS[model]
    return Server(
        weights=shape.streamed_weight_bytes(16),
        kv=shape.kv_bytes_per_token(2),
        bandwidth=hardware.bandwidth_bytes_s,
        flops=2 * shape.matmul_parameters,
        pair_flops=4 * shape.num_layers * shape.num_heads * shape.head_dim,
        peak=hardware.flops(16),
    )


#: A 7B model and a card in round numbers, with the arithmetic left out.
TEXTBOOK = Server(weights=14 * GiB, kv=0.5 * MiB, bandwidth=2000 * GiB)
ROUND = "a 7B model in round numbers"

SERVERS: dict[str, Server] = {
    ROUND: TEXTBOOK,
    **{
        f"{model} on {article} {card}": server_of(card, model)
        for model, article, card in (
            ("Llama-2-7B", "an", "A100 80GB"),
            ("Llama-3-8B", "an", "A100 80GB"),
            ("Llama-3-8B", "an", "L4"),
            ("Llama-3-8B", "an", "H200 SXM"),
        )
    },
}
