"""The learner's side of ex03: launches their kernels in Triton's interpreter, and watches.

Triton is imported when a check runs, not before: the notebook's first cell sets TRITON_INTERPRET,
and that has to come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from minillm_serve.course.exercises.exercise import Case
from minillm_serve.course.exercises.pool_ex03 import Pool, far_view, make_pool, make_scores

if TYPE_CHECKING:
    from minillm_serve.course.chapter03.recorder import Recording


@contextmanager
def watched(**tensors: Tensor) -> Iterator[Recording]:
    """A recording; exceptions come out as they were raised in the kernel, not as Triton wraps them.

    Raises:
        RuntimeError: kernels are not interpreted here.
    """
    from minillm_serve.course.chapter03.recorder import recorded
    from minillm_serve.course.exercises.drivers_ex03 import tile_driver
    from minillm_serve.kernels.canary import explain_unrunnable

    if reason := explain_unrunnable(tile_driver, "cpu"):
        raise RuntimeError(f"{reason} (The first cell of the notebook does it.)")
    cause: BaseException | None = None
    with recorded(**tensors) as recording:
        try:
            yield recording
        except Exception as error:
            cause = error
    if cause is not None:
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise cause


def run_tiles(answer: Any, case: Case) -> dict[str, Any]:
    """`load_tile` on every block of every sequence."""
    pool = make_pool(case)
    out, recording = _load_tiles(answer, pool.k_cache, pool)
    return {"tiles": out, "undefined": recording.undefined}


def run_tile_map(answer: Any, case: Case) -> dict[str, Any]:
    """The slots that `load_tile` read."""
    pool = make_pool(case)
    _, recording = _load_tiles(answer, pool.k_cache, pool)
    return {"keys": _slots(recording, "cache")}


def run_far_tile(answer: Any, case: Case) -> dict[str, Any]:
    """`load_tile` on a block that begins 2^31 elements in."""
    pool = make_pool(case)
    near = pool.k_cache[list(pool.tables[0])]
    cache = far_view(near)
    far = Pool(pool.q, cache, cache, ((len(cache) - 1,),), pool.lengths)
    try:
        return {"tiles": _load_tiles(answer, cache, far)[0], "wild": ""}
    except Exception as error:
        if type(error).__name__ != "WildAccess":
            raise
        return {"tiles": None, "wild": str(error)}


def _load_tiles(answer: Any, cache: Tensor, pool: Pool) -> tuple[Tensor, Recording]:
    from minillm_serve.course.exercises.drivers_ex03 import tile_driver

    _, kv_heads, size, dim = cache.shape
    kept = pool.allowed()
    padded = max(1 << (dim - 1).bit_length(), 16)
    out = torch.full((len(kept), kv_heads, size, padded), -1.0)
    blocks, counts = (torch.tensor(list(x), dtype=torch.int32) for x in (kept, kept.values()))
    with watched(cache=cache) as recording:
        tile_driver[(len(kept), kv_heads)](
            cache, blocks, counts, out, *cache.stride()[:3], *out.stride()[:2],
            P=size, D=dim, D_PADDED=padded, load_tile=answer,
        )  # fmt: skip
    return out, recording


def run_folds(answer: Any, case: Case) -> dict[str, Any]:
    """`fold` over some tiles: the mean of the values, and the logarithm of the sum of weights."""
    from minillm_serve.course.exercises.drivers_ex03 import fold_driver

    scores, values = make_scores(case)
    tiles, rows, size = scores.shape
    out, lse = torch.full((rows, values.shape[2]), -1.0), torch.full((rows,), -1.0)
    with watched():
        fold_driver[(1,)](
            scores, values, out, lse, tiles,
            ROWS=rows, P=size, D_PADDED=values.shape[2], fold=answer,
        )  # fmt: skip
    return {"mean": out, "lse": lse}


def run_decode(answer: Any, case: Case) -> dict[str, Any]:
    """`paged_decode` on one launch."""
    out, recording = _decode(answer, case)
    return {"out": out, "undefined": recording.undefined}


def run_decode_map(answer: Any, case: Case) -> dict[str, Any]:
    """The slots that `paged_decode` read."""
    _, recording = _decode(answer, case)
    return {"keys": _slots(recording, "k_cache"), "values": _slots(recording, "v_cache")}


def run_decode_reads(answer: Any, case: Case) -> list[int]:
    """How many numbers of keys, and of values, all programs asked the memory for."""
    _, recording = _decode(answer, case)
    return [len(recording.touched(name)) for name in ("k_cache", "v_cache")]


def _decode(answer: Any, case: Case) -> tuple[Any, Recording]:
    pool = make_pool(case)
    names = ("q", "k_cache", "v_cache", "block_tables", "seq_lens")
    arguments = dict(zip(names, pool.arguments, strict=True))
    with watched(**arguments) as recording:
        out = answer(*arguments.values(), scale=case["dim"] ** -0.5)
    return out, recording


def run_engine(answer: Any, case: Case) -> list[list[int]]:
    """Tokens that a tiny model writes with this decode attention, in the real engine."""
    from minillm_serve.course.exercises.tiny_engine import generate
    from minillm_serve.parts import Part

    with watched():
        part = Part("attention", {"decode": answer})
        return generate(case["prompts"], case["max_tokens"], case["seed"], attention=part)


def _slots(recording: Recording, name: str) -> list[list[int]]:
    """[block, slot] of every read, without repeats, in order."""
    index = recording.touched(name)
    pairs = index[:, [0, 2]].tolist() if len(index) else []
    return [list(pair) for pair in dict.fromkeys(map(tuple, pairs))]
