"""The right answers to ex03 in float64, and the wrong ones that are easily given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minillm_serve.course.exercises.exercise import Case
from minillm_serve.course.exercises.pool_ex03 import Pool, make_pool, make_scores

NAN = (
    "there is a NaN in it: a slot without a token got into a sum, and not even a weight of 0 makes "
    "NaN vanish, so it must be loaded as 0; or nothing was summed at all, and 0 / 0 is NaN too"
)
UNDEFINED = (
    "a load with a mask and without `other=` leaves the lanes that are masked off undefined on a "
    "GPU (here they are filled with NaN, so that it shows)"
)


def tiles(case: Case) -> dict[str, Any]:
    """Rows of every block, 0 where there is no token and beyond D."""
    pool = make_pool(case)
    kept = pool.allowed()
    _, kv_heads, size, dim = pool.k_cache.shape
    padded = max(1 << (dim - 1).bit_length(), 16)
    found = torch.zeros(len(kept), kv_heads, size, padded)
    for i, (block, count) in enumerate(kept.items()):
        found[i, :, :count, :dim] = pool.k_cache[block, :, :count]
    return {"tiles": found.numpy(), "undefined": ""}


def far_tile(case: Case) -> dict[str, Any]:
    """The same, of a copy in float16."""
    pool = make_pool(case)
    near = pool.k_cache[list(pool.tables[0])].half().float()
    return {"tiles": near.numpy(), "wild": ""}


def folds(
    case: Case, *, shrinks_total: bool = True, shrinks_acc: bool = True, subtracts: bool = True
) -> dict[str, Any]:
    """Softmax over all tiles, one after the other, in float64; or with a mistake."""
    scores, values = (x.double() for x in make_scores(case))
    highest = torch.full(scores.shape[1:2], -torch.inf, dtype=torch.float64)
    total = torch.zeros_like(highest)
    acc = torch.zeros(scores.shape[1], values.shape[2], dtype=torch.float64)
    for tile, value in zip(scores, values, strict=True):
        top = torch.maximum(highest, tile.amax(1)) if subtracts else torch.zeros_like(highest)
        shrink = torch.exp(highest - top)
        weights = torch.exp(tile - top[:, None])
        total = total * (shrink if shrinks_total else 1) + weights.sum(1)
        acc = acc * (shrink[:, None] if shrinks_acc else 1) + weights @ value
        highest = top
    return {"mean": (acc / total[:, None]).numpy(), "lse": (highest + total.log()).numpy()}


def fold_mistake(case: Case, expected: Any, got: Any) -> str | None:
    """What was forgotten in `fold`."""
    if not isinstance(got, dict) or not isinstance(got.get("mean"), np.ndarray):
        return None
    if not np.isfinite(got["mean"]).all():
        return (
            "it is not finite: e^score is no float32 for scores as high as these, so subtract the "
            "highest score first (and mind that -inf minus -inf is NaN)"
        )
    mistakes = {
        "the sum of weights must shrink when a higher score comes": {"shrinks_total": False},
        "the weighted sum of values must shrink when a higher score comes": {"shrinks_acc": False},
        "nothing shrinks when a higher score comes: what was summed before was weighed against the "
        "old maximum": {"shrinks_total": False, "shrinks_acc": False},
    }
    return next((said for said, how in mistakes.items() if _same(got, folds(case, **how))), None)


def _same(got: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(np.allclose(got[key], wanted[key], rtol=1e-3, atol=1e-3) for key in wanted)


def decoded(case: Case, **mistake: Any) -> dict[str, Any]:
    """Attention of every sequence's only row, in float64."""
    return {"out": attend(make_pool(case), **mistake).numpy(), "undefined": ""}


def attend(
    pool: Pool,
    *,
    scale: Callable[[int], float] = lambda dim: dim**-0.5,
    kv_head: Callable[[int, int, int], int] = lambda head, heads, kv_heads: (
        head // (heads // kv_heads)
    ),
    table: Callable[[tuple[int, ...]], tuple[int, ...]] = lambda blocks: blocks,
    length: Callable[[int, int], int] = lambda tokens, size: tokens,
) -> Tensor:
    """[S, H, D] float64.

    Args:
        pool: inputs.
        scale: of the scores, given D.
        kv_head: that query head `head` reads, given H and H_kv.
        table: block ids that are really followed.
        length: tokens that are really seen, given P.
    """
    _, heads, dim = pool.q.shape
    kv_heads, size = pool.k_cache.shape[1:3]
    out = torch.zeros(pool.q.shape, dtype=torch.float64)
    for s, (blocks, tokens) in enumerate(zip(pool.tables, pool.lengths, strict=True)):
        seen, place = length(tokens, size), list(table(blocks))
        keys, values = (
            cache[place].double().transpose(0, 1).flatten(1, 2)[:, :seen]
            for cache in (pool.k_cache, pool.v_cache)
        )
        for head in range(heads):
            one = kv_head(head, heads, kv_heads)
            scores = keys[one] @ pool.q[s, head].double() * scale(dim)
            out[s, head] = torch.softmax(scores, 0) @ values[one]
    return out


MISTAKES: dict[str, dict[str, Any]] = {
    "the scores are not scaled: multiply them by `scale`, once": {"scale": lambda dim: 1.0},
    "the scores are scaled twice": {"scale": lambda dim: 1 / dim},
    "these are other KV heads: query head h reads KV head h // (H // H_kv), so that a group's "
    "query heads lie side by side": {"kv_head": lambda head, heads, kv_heads: head % kv_heads},
    "the last block, which is only partly filled, is missing: there are ceil(length / P) of them": {
        "length": lambda tokens, size: tokens // size * size
    },
    "the last token is missing: a sequence of n tokens sees positions 0 .. n-1": {
        "length": lambda tokens, size: tokens - 1
    },
    "these blocks come from the wrong row, or the wrong column, of the block table": {
        "table": lambda blocks: (*blocks[1:], blocks[-1])
    },
}


def decode_mistake(case: Case, expected: Any, got: Any) -> str | None:
    """What went wrong in `paged_decode`, if it is a known mistake."""
    if not isinstance(got, dict) or not isinstance(got.get("out"), np.ndarray):
        return None
    if got.get("undefined"):
        return f"{got['undefined']}: {UNDEFINED}"
    if np.isnan(got["out"]).any():
        return NAN
    pool = make_pool(case)
    for said, how in MISTAKES.items():
        if _near(got["out"], attend(pool, **how).numpy()):
            return said
    if _near(got["out"], unmasked(pool).numpy()):
        return (
            "a position past the end has a weight: its key was loaded as 0, so its score is 0, and "
            "e^0 is 1; give it a score of -inf"
        )
    return None


def _near(got: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> bool:
    return got.shape == wanted.shape and np.allclose(got, wanted, atol=1e-4)


def unmasked(pool: Pool) -> Tensor:
    """The mistake of giving positions past the end, which hold zeros, a weight."""
    size = pool.k_cache.shape[2]
    full = [-(-tokens // size) * size for tokens in pool.lengths]
    zeros = [cache.nan_to_num(0.0) for cache in (pool.k_cache, pool.v_cache)]
    return attend(replace(pool, k_cache=zeros[0], v_cache=zeros[1], lengths=tuple(full)))


def tile_mistake(case: Case, expected: Any, got: Any) -> str | None:
    """What went wrong in `load_tile`, if it is a known mistake."""
    if not isinstance(got, dict) or not isinstance(got.get("tiles"), np.ndarray):
        return None
    if got.get("undefined"):
        return f"{got['undefined']}: {UNDEFINED}"
    beyond = got["tiles"][..., case["dim"] :]
    if beyond.any():  # NaN counts as something
        return "beyond D there must be 0: mask d < D too, or the row that lies behind is read"
    if np.isnan(got["tiles"]).any():
        return "there is a NaN in it: mask the slots that hold no token yet, and load 0 there"
    return None
