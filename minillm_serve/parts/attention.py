"""The `attention` slot."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from minillm_serve.parts.part import Part
from minillm_serve.runtime.attention.base import AttentionBackend, AttentionMetadata
from minillm_serve.runtime.attention.conformance import find_difference
from minillm_serve.runtime.attention.functions import (
    DecodeFunctionAttention,
    FunctionAttention,
    PagedAttentionFunction,
    PagedDecodeFunction,
)
from minillm_serve.runtime.attention.registry import Needs, find_lack
from minillm_serve.runtime.kv_cache import KVScales


def fit_attention(
    part: Part | None,
    ours: AttentionBackend,
    needs: Needs,
) -> AttentionBackend:
    """Somebody's attention as a backend, watched; ours if there is none.

    Args:
        part: what was given.
        ours: takes its place, or the longer slices that it leaves out.
        needs: what the engine asks of it.

    Raises:
        PartError: it lacks something of the protocol, or computes something else.
    """
    if part is None:
        return ours
    backend = as_backend(part, ours)
    lack = find_lack(backend.capabilities, needs)
    part.expect(lack is None, str(lack))
    watched = WatchedAttention(part, backend)
    with part.trial("a comparison with the naive backend"), torch.inference_mode():
        found = find_difference(watched, needs)
    part.expect(found is None, f"is wrong: {found}")
    return watched


def as_backend(part: Part, ours: AttentionBackend) -> AttentionBackend:
    """Makes a backend of a function, of `{"decode": function}`, of a class or of a backend.

    Raises:
        PartError: it is none of these, or its parameters are others.
    """
    value = part.value
    if isinstance(value, AttentionBackend):
        return value
    if inspect.isclass(value) and issubclass(value, AttentionBackend):
        with part.blame("__init__"):
            return value()
    if isinstance(value, dict):
        right = value.keys() == {"decode"} and callable(value["decode"])
        part.expect(right, f"has the keys {list(value)}, expected {{'decode': function}}")
        part.check_signature(value["decode"], PagedDecodeFunction.__call__, "decode")
        return DecodeFunctionAttention(_checked(part, value["decode"]), ours)
    if inspect.isclass(value) or not callable(value):
        raise part.error("is neither a function, nor {'decode': function}, nor an AttentionBackend")
    part.check_signature(value, PagedAttentionFunction.__call__, part.slot)
    return FunctionAttention(_checked(part, value))


def _checked(part: Part, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function, whose failures and whose results of another shape are named."""

    def call(q: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        with part.blame():
            out = function(q, *args, **kwargs)
        check_output(part, out, q)
        return out

    return call


def check_output(part: Part, out: object, q: Tensor) -> None:
    """Checks type, shape and dtype, which costs nothing.

    Raises:
        PartError: one of them is not q's.
    """
    if not isinstance(out, Tensor):
        raise part.error(f"returned a {type(out).__name__}, expected a tensor")
    what = f"shape {list(out.shape)} and {out.dtype}"
    right = out.shape == q.shape and out.dtype == q.dtype
    part.expect(right, f"returned {what}, expected q's {list(q.shape)} and {q.dtype}")


class WatchedAttention(AttentionBackend):
    """A backend whose failures name the part that it is."""

    def __init__(self, part: Part, backend: AttentionBackend) -> None:
        self.part, self.backend = part, backend
        self.name = backend.name  # type: ignore[misc]
        # What somebody writes may look into tensors at any time, which no recording survives.
        self.capabilities = replace(  # type: ignore[misc]
            backend.capabilities, can_be_recorded=False
        )

    def plan(self, metadata: AttentionMetadata) -> Any:
        """See `AttentionBackend.plan`."""
        with self.part.blame("plan"):
            return self.backend.plan(metadata)

    def write(
        self,
        k: Tensor,
        v: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        slot_mapping: Tensor,
        scales: KVScales | None = None,
    ) -> None:
        """See `AttentionBackend.write`."""
        more = {} if scales is None else {"scales": scales}
        with self.part.blame("write"):
            self.backend.write(k, v, k_cache, v_cache, slot_mapping, **more)

    def run(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        metadata: AttentionMetadata,
        plan: Any,
        *,
        scale: float,
        window: int | None,
        scales: KVScales | None = None,
    ) -> Tensor:
        """See `AttentionBackend.run`."""
        given = (q, k_cache, v_cache, metadata, plan)
        # A backend of somebody's own need not know of scales, if it takes no such cache.
        more: dict[str, Any] = {} if scales is None else {"scales": scales}
        with self.part.blame("run"):
            out = self.backend.run(*given, scale=scale, window=window, **more)
        check_output(self.part, out, q)
        return out
