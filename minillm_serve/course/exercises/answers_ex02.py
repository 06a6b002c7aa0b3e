"""What ex02's attention should give, and what a wrong result gives away about its cause."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from minillm_serve.course.exercises.block_map import BlockMap
from minillm_serve.course.exercises.exercise import Case, CheckFailed, Opaque

#: Weights above it count as a read.
VISIBLE = 1e-6
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


class Row(NamedTuple):
    """One row of a step: whose it is, and what it may see.

    Attributes:
        sequence: index of its sequence.
        table: its block ids, as many as it has tokens for.
        length: tokens of its sequence.
        seen: positions that it sees: 0 .. seen-1.
    """

    sequence: int
    table: list[int]
    length: int
    seen: int


def rows_of(case: Case) -> list[Row]:
    """Every row, in order."""
    size, found = case["k_cache"].shape[2], []
    starts, lengths = case["query_start_loc"].tolist(), case["seq_lens"].tolist()
    for s, (begin, end) in enumerate(pairwise(starts)):
        table = case["block_tables"][s, : -(-lengths[s] // size)].tolist()
        for row in range(begin, end):
            found.append(Row(s, table, lengths[s], lengths[s] - end + row + 1))
    return found


def attention(case: Case, *, scale: float | None = None) -> Tensor:
    """The right output in float64, [T, H, D]: row by row, out of one dense softmax."""
    q, size = case["q"].double(), case["k_cache"].shape[2]
    group = q.shape[1] // case["k_cache"].shape[1]
    out = torch.empty_like(q)
    for index, row in enumerate(rows_of(case)):
        positions = torch.arange(row.seen)
        blocks, slots = torch.tensor(row.table)[positions // size], positions % size
        k, v = (case[name].double()[blocks, :, slots] for name in ("k_cache", "v_cache"))
        for head in range(q.shape[1]):
            scores = k[:, head // group] @ q[index, head]
            weights = torch.softmax(scores * (case["scale"] if scale is None else scale), 0)
            out[index, head] = weights @ v[:, head // group]
    return out


def judge_attention(case: Case, got: Any) -> None:
    """Compares, and says what a difference means.

    Raises:
        CheckFailed: with the index, both values, and a drawing of what was read.
    """
    q, wanted = case["q"], attention(case)
    if got is None:
        raise CheckFailed("it returned nothing: is there a `return`?")
    if not isinstance(got, np.ndarray):
        kind = got.type if isinstance(got, Opaque) else type(got).__name__
        raise CheckFailed(f"it returned a {kind}, and should return a tensor like q")
    if got.shape != tuple(q.shape):
        raise CheckFailed(
            "the shape is wrong: the output is like q", expected=list(q.shape), got=list(got.shape)
        )
    carried = q.float() if q.dtype is torch.bfloat16 else q  # evidence has no bfloat16
    if got.dtype != carried.numpy().dtype:
        raise CheckFailed("the dtype is wrong: the output is like q", got=str(got.dtype))
    right = wanted.numpy()
    off = ~(np.abs(got - right) <= TOLERANCE[q.dtype])
    if off.any():
        index = tuple(int(i) for i in np.argwhere(off)[0])
        said, drawn = diagnosed(case, np.asarray(got, dtype=float), index[0], index[1])
        shown = "".join(f"[{i}]" for i in index)
        raise CheckFailed(
            said,
            index=shown,
            expected=float(right[index]),
            got=float(got[index]),
            drawing=drawn,
        )


def diagnosed(case: Case, got: Any, row: int, head: int) -> tuple[str, BlockMap | None]:
    """What one head of one row did wrong, and what it read, by the weights that it gave."""
    num_blocks, kv_heads, size, _ = case["k_cache"].shape
    me, own_head = f"row {row}, head {head}", head // (case["q"].shape[1] // kv_heads)
    output = got[row, head]
    if not np.isfinite(output).all():
        return f"{me} is not finite: {_why_not_finite(case)}", None
    weights = output.reshape(kv_heads, num_blocks, size)
    on_head = np.abs(weights).sum(axis=(1, 2))
    if on_head[own_head] < 0.5 * on_head.sum():
        return (
            f"{me} reads KV head {int(on_head.argmax())}, and should read KV head {own_head}: "
            "the H // H_kv query heads that share one stand side by side"
        ), None
    who = rows_of(case)[row]
    reads = [(int(b), int(s)) for b, s in np.argwhere(np.abs(weights[own_head]) > VISIBLE)]
    drawn = BlockMap(num_blocks, size, _seen_slots(who, size), reads)
    said = _misread(case, who, drawn) or _misweighed(case, row, head, output)
    return f"{me}: {said}", drawn


def _why_not_finite(case: Case) -> str:
    if torch.isnan(case["k_cache"]).any():
        return (
            "NaN of an unused slot got into it. A weight of 0 does not help, for 0 * NaN is NaN: "
            "leave those slots out, or put 0 in their place"
        )
    return "exp of a large score overflows, unless the largest one is subtracted first"


def _seen_slots(row: Row, size: int) -> dict[int, int]:
    """Block -> how many of its slots the row sees."""
    return {
        block: min(size, row.seen - index * size)
        for index, block in enumerate(row.table)
        if row.seen > index * size
    }


def _misread(case: Case, row: Row, drawn: BlockMap) -> str | None:
    """A slot that should not have been read, in words; the plainest mistake first."""
    size = drawn.block_size
    position = {(row.table[p // size], p % size): p for p in range(len(row.table) * size)}
    if foreign := [at for at in drawn.reads if at not in position]:
        return (
            f"it reads block {foreign[0][0]}, and its block table is {row.table}: entry i // P of "
            "the table says where position i lies"
        )
    later = [position[at] for at in drawn.reads if position[at] >= row.seen]
    if later and later[0] < row.length:
        return (
            f"it stands at position {row.seen - 1} and sees position {later[0]}, which comes "
            "after it: all rows of a step are in the cache before the first one attends"
        )
    if later:
        return (
            f"it reads on behind the last token: the sequence has {row.length}, and slot "
            f"{later[0] % size} of its last block holds what somebody else left there"
        )
    return None


def _misweighed(case: Case, row: int, head: int, output: Any) -> str:
    """Right slots, wrong weights."""
    total = float(output.sum())
    if abs(total - 1) > 1e-3:
        return (
            f"the right slots, but their weights add up to {total:.3g}, not 1. One softmax goes "
            "over all blocks; where it is built block by block, a new largest score means that "
            "all that was summed before must be rescaled"
        )
    right = attention(case)[row, head].numpy()
    missing = int(((right > 0.01) & (np.abs(output) < VISIBLE)).sum())
    if missing:
        return f"it never reads {missing} of the slots that are its own"
    if np.abs(attention(case, scale=1.0)[row, head].numpy() - output).max() < 1e-3:
        return "the right slots, but the scores were not multiplied by `scale`"
    return (
        "the right slots, and weights that add up to 1, but not these: one softmax goes over all "
        "blocks, not one over each"
    )
