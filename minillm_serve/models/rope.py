"""Rotary position embeddings: a query and a key meet at an angle that only their distance sets."""

import math

import torch
from torch import Tensor

from minillm_serve.models.rope_config import RopeConfig


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """Radians per position for each pair of a head's numbers, float32 ``[D/2]``.

    The arithmetic is transformers': float32, on the CPU, in the same order. An error in the
    last bit of a frequency grows with the position that it is multiplied by.
    """
    powers = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequencies = 1.0 / (rope.theta**powers)
    if rope.kind == "linear":
        return frequencies / rope.factor
    if rope.kind == "llama3":
        return _llama3(frequencies, rope)
    return frequencies


def _llama3(frequencies: Tensor, rope: RopeConfig) -> Tensor:
    """Slows the long waves by ``factor``, leaves the short ones, and ramps between the two."""
    wavelengths = 2 * math.pi / frequencies
    longest = rope.original_max_position / rope.low_freq_factor
    shortest = rope.original_max_position / rope.high_freq_factor
    slowed = torch.where(wavelengths > longest, frequencies / rope.factor, frequencies)
    ramp = (rope.original_max_position / wavelengths - rope.low_freq_factor) / (
        rope.high_freq_factor - rope.low_freq_factor
    )
    blended = (1 - ramp) * slowed / rope.factor + ramp * slowed
    between = (wavelengths >= shortest) & (wavelengths <= longest)
    return torch.where(between, blended, slowed)


def rotation(positions: Tensor, frequencies: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The cosines and signed sines of all angles of a step; every layer shares them.

    Args:
        positions: int64 ``[T]``.
        frequencies: float32 ``[D/2]``.
        dtype: the dtype of the queries; angles are computed in float32 whatever it is.

    Returns:
        cos ``[T, 1, D]`` and sin ``[T, 1, D]``, sin's first half negated: see
        ``functional.rotate``.
    """
    angles = positions[:, None, None].float() * frequencies
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), -1).to(dtype), torch.cat((-sin, sin), -1).to(dtype)
