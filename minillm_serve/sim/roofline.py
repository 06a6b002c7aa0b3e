"""A roofline cost model of serving: how much fits, and how long a step takes.

A step has to move its bytes and to do its arithmetic; hardware overlaps the two, so the slower
one sets the time (Williams, Waterman & Patterson, 'Roofline', CACM 2009):

    time = max(bytes / bandwidth, flops / peak)

It is a floor, not a forecast: launch overheads, imperfect kernels and synchronisation come on
top. The chapters lay measured points over these curves.
"""

from __future__ import annotations

from dataclasses import dataclass

from minillm_serve.sim.shapes import Hardware, LatentShape, ModelShape

__all__ = [
    "Hardware",
    "LatentShape",
    "ModelShape",
    "StepCost",
    "decode_cost",
    "decode_step_time",
    "kv_bytes_per_token",
    "max_conversations",
    "max_tokens",
    "prefill_cost",
    "prefill_time",
    "throughput",
    "throughput_ceiling",
]


@dataclass(frozen=True)
class StepCost:
    """What one step moves and computes, and what that costs on one machine.

    Attributes:
        bytes_moved: bytes read from (and written to) memory.
        flops: floating point operations.
        memory_s: seconds for the bytes alone.
        compute_s: seconds for the arithmetic alone.
    """

    bytes_moved: float
    flops: float
    memory_s: float
    compute_s: float

    @property
    def time_s(self) -> float:
        """Seconds for the step: the slower of the two."""
        return max(self.memory_s, self.compute_s)

    @property
    def bound_by(self) -> str:
        """``'memory'`` or ``'compute'``, whichever sets the time."""
        return "memory" if self.memory_s >= self.compute_s else "compute"


def kv_bytes_per_token(
    num_layers: int, num_kv_heads: int, head_dim: int, dtype_bytes: float
) -> int:
    """Bytes of keys and values that one token leaves in the cache.

    Args:
        num_layers: [N].
        num_kv_heads: [H_kv].
        head_dim: [D].
        dtype_bytes: bytes per element: 4 (fp32), 2 (fp16, bf16), 1 (int8, fp8), 0.5 (int4).

    Returns:
        2 * N * H_kv * D * bytes; the 2 is one key and one value.

    Raises:
        ValueError: an argument is not positive.
    """
    values = {
        "num_layers": num_layers,
        "num_kv_heads": num_kv_heads,
        "head_dim": head_dim,
        "dtype_bytes": dtype_bytes,
    }
    for name, value in values.items():
        if value <= 0:
            raise ValueError(f"{name} is {value!r}; give a positive number")
    return round(2 * num_layers * num_kv_heads * head_dim * dtype_bytes)


def max_tokens(
    memory_bytes: float, weight_bytes: float, activation_bytes: float, kv_per_token: float
) -> int:
    """Tokens whose K and V fit in what weights and activations leave free.

    Returns 0 where the weights alone are too big: that is an answer, not an error.

    Raises:
        ValueError: a size is negative, or ``kv_per_token`` is not positive.
    """
    sizes = {"memory": memory_bytes, "weight": weight_bytes, "activation": activation_bytes}
    for name, value in sizes.items():
        if value < 0:
            raise ValueError(f"{name}_bytes is {value!r}; give a number of bytes of 0 or more")
    if kv_per_token <= 0:
        raise ValueError(f"kv_per_token is {kv_per_token!r}; give bytes above 0")
    return max(0, int((memory_bytes - weight_bytes - activation_bytes) // kv_per_token))


def max_conversations(
    memory_bytes: float,
    weight_bytes: float,
    activation_bytes: float,
    kv_per_token: float,
    context: int,
) -> int:
    """Conversations of ``context`` tokens each that can be held at once.

    Raises:
        ValueError: a size is negative, or ``context`` or ``kv_per_token`` is not positive.
    """
    if context < 1:
        raise ValueError(f"context is {context}; a conversation has at least 1 token")
    return max_tokens(memory_bytes, weight_bytes, activation_bytes, kv_per_token) // context


def decode_cost(
    hardware: Hardware,
    model: ModelShape,
    batch: int,
    context: int,
    weight_bits: float = 16,
    kv_bits: float = 16,
) -> StepCost:
    """One decode step: ``batch`` sequences of ``context`` tokens get one more token each.

    The weights are read once for the whole batch; the KV cache is read once per sequence. That
    asymmetry is the reason for batching, and its limit.
    """
    if batch < 1 or context < 0:
        raise ValueError(f"batch={batch}, context={context}; batch must be 1 or more, context >= 0")
    kv_bytes = batch * context * model.kv_bytes_per_token(kv_bits / 8)
    bytes_moved = model.streamed_weight_bytes(weight_bits) + kv_bytes
    flops = batch * model.flops_per_token(context)
    return _cost(hardware, bytes_moved, flops, weight_bits)


def decode_step_time(
    hardware: Hardware,
    model: ModelShape,
    batch: int,
    context: int,
    weight_bits: float = 16,
    kv_bits: float = 16,
) -> float:
    """Seconds of one decode step, see `decode_cost`; this is also the time per output token."""
    return decode_cost(hardware, model, batch, context, weight_bits, kv_bits).time_s


def prefill_cost(
    hardware: Hardware,
    model: ModelShape,
    tokens: int,
    weight_bits: float = 16,
    kv_bits: float = 16,
) -> StepCost:
    """One prompt of ``tokens`` tokens, computed in one step.

    Attention is causal, so token i attends to i tokens: half of the square. Only the last token
    needs the output head.
    """
    if tokens < 1:
        raise ValueError(f"tokens is {tokens}; a prompt has at least 1 token")
    head = model.hidden_size * model.vocab_size
    matmul = 2 * ((model.matmul_parameters - head) * tokens + head)
    pairs = tokens * (tokens + 1) // 2
    attention = 4 * model.num_layers * model.num_heads * model.head_dim * pairs
    kv_bytes = tokens * model.kv_bytes_per_token(kv_bits / 8)
    bytes_moved = model.streamed_weight_bytes(weight_bits) + kv_bytes
    return _cost(hardware, bytes_moved, matmul + attention, weight_bits)


def prefill_time(
    hardware: Hardware,
    model: ModelShape,
    tokens: int,
    weight_bits: float = 16,
    kv_bits: float = 16,
) -> float:
    """Seconds of the prompt's step, see `prefill_cost`: a floor under the time to first token."""
    return prefill_cost(hardware, model, tokens, weight_bits, kv_bits).time_s


def throughput(batch: int, step_time_s: float) -> float:
    """Output tokens per second when every step of ``step_time_s`` yields ``batch`` tokens."""
    if batch < 1 or step_time_s <= 0:
        raise ValueError(f"batch={batch}, step_time_s={step_time_s}; both must be above 0")
    return batch / step_time_s


def throughput_ceiling(bandwidth_bytes_s: float, context: int, kv_per_token: float) -> float:
    """Output tokens per second that bandwidth allows at an endless batch.

    At an endless batch the weights cost nothing per token and what is left is reading each
    sequence's own cache: bandwidth / (context * kv_per_token).
    """
    if bandwidth_bytes_s <= 0 or context < 1 or kv_per_token <= 0:
        raise ValueError(
            f"bandwidth_bytes_s={bandwidth_bytes_s}, context={context}, "
            f"kv_per_token={kv_per_token}; all must be above 0"
        )
    return bandwidth_bytes_s / (context * kv_per_token)


def _cost(hardware: Hardware, bytes_moved: float, flops: float, bits: float) -> StepCost:
    return StepCost(
        bytes_moved=bytes_moved,
        flops=flops,
        memory_s=bytes_moved / hardware.bandwidth_bytes_s,
        compute_s=flops / hardware.flops(bits),
    )
