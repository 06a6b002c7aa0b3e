"""How long would it take? Cost models of serving that run without a GPU (and without torch)."""

from minillm_serve.sim import arrivals, lengths, metrics, queueing, trace_files
from minillm_serve.sim.measure import measured_cpu
from minillm_serve.sim.presets import HARDWARE, LATENT_MODELS, MODELS
from minillm_serve.sim.roofline import (
    StepCost,
    decode_cost,
    decode_step_time,
    kv_bytes_per_token,
    max_conversations,
    max_tokens,
    prefill_cost,
    prefill_time,
    throughput,
    throughput_ceiling,
)
from minillm_serve.sim.shapes import Hardware, LatentShape, ModelShape
from minillm_serve.sim.units import GB, GiB, KiB, MiB, format_bytes

__all__ = [
    "GB",
    "HARDWARE",
    "LATENT_MODELS",
    "MODELS",
    "GiB",
    "Hardware",
    "KiB",
    "LatentShape",
    "MiB",
    "ModelShape",
    "StepCost",
    "arrivals",
    "decode_cost",
    "decode_step_time",
    "format_bytes",
    "kv_bytes_per_token",
    "lengths",
    "max_conversations",
    "max_tokens",
    "measured_cpu",
    "metrics",
    "prefill_cost",
    "prefill_time",
    "queueing",
    "throughput",
    "throughput_ceiling",
    "trace_files",
]
