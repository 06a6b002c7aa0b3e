"""The part of a config that says how positions turn queries and keys (no torch in here)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from minillm_serve.models.errors import ModelError

KINDS = ("default", "linear", "llama3")


@dataclass(frozen=True)
class RopeConfig:
    """Rotary position embedding (Su et al. 2021, arXiv:2104.09864) and its context extension.

    Attributes:
        theta: base of the geometric series of wavelengths.
        kind: ``"default"``; ``"linear"``, which divides every frequency by ``factor`` (position
            interpolation, Chen et al. 2023, arXiv:2306.15595); or ``"llama3"``, which divides only
            the low ones, with a ramp between (Llama 3.1's ``apply_scaling``).
        factor: by how much the context was extended.
        low_freq_factor: llama3: wavelengths over ``original_max_position / low_freq_factor``
            tokens are divided by ``factor`` in full.
        high_freq_factor: llama3: wavelengths under ``original_max_position / high_freq_factor``
            tokens stay as they were.
        original_max_position: llama3: context length before the extension, in tokens.
    """

    theta: float = 10000.0
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 0


def read_rope(raw: Mapping[str, Any], max_position: int) -> RopeConfig:
    """Reads either dialect: ``rope_parameters``, or ``rope_theta`` with ``rope_scaling``.

    Args:
        raw: the dict in ``config.json``.
        max_position: ``max_position_embeddings``; llama3's original length where none is given.

    Raises:
        ModelError: a rope type, or a partial rotation, that is not supported.
    """
    given = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    nested = [key for key, value in given.items() if isinstance(value, Mapping)]
    if nested:
        raise ModelError(
            f"rope parameters that differ by kind of layer ({', '.join(nested)}) are not supported."
        )
    kind = given.get("rope_type", given.get("type", "default"))
    if kind not in KINDS:
        raise ModelError(
            f"rope type {kind!r} is not supported; supported are {', '.join(KINDS)}. Where the "
            "model was extended afterwards (yarn, dynamic), removing rope_scaling from config.json "
            "serves it at its original context length."
        )
    partial = given.get("partial_rotary_factor", raw.get("partial_rotary_factor"))
    if partial not in (None, 1, 1.0):
        raise ModelError(
            f"partial_rotary_factor {partial} is not supported: all of a head is rotated (1.0)."
        )
    theta = float(given.get("rope_theta") or raw.get("rope_theta") or RopeConfig.theta)
    if kind == "default":
        return RopeConfig(theta=theta)
    original = raw.get("original_max_position_embeddings") or given.get(
        "original_max_position_embeddings", max_position
    )
    return _extended(given, RopeConfig(theta, kind, original_max_position=int(original)))


def _extended(given: Mapping[str, Any], rope: RopeConfig) -> RopeConfig:
    """``rope`` with the numbers of its way of extending the context."""
    factor = _number(given, rope.kind, "factor")
    if rope.kind == "linear":
        return RopeConfig(rope.theta, rope.kind, factor)
    return replace(
        rope,
        factor=factor,
        low_freq_factor=_number(given, rope.kind, "low_freq_factor"),
        high_freq_factor=_number(given, rope.kind, "high_freq_factor"),
    )


def _number(given: Mapping[str, Any], kind: str, key: str) -> float:
    value = given.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        raise ModelError(
            f"rope type {kind!r} needs a positive {key}, and config.json says {value!r}."
        )
    return float(value)
