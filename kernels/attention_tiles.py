"""What the attention kernels do with one tile of keys and values; device functions only.

A tile is TILE consecutive positions of a sequence. They lie in blocks of P slots, anywhere in the
pool, so a tile is gathered: position -> block id -> address.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def only_row_of(starts_ptr, sequence):
    """The row of a sequence that has exactly one in this step; -1 otherwise.

    Without `starts_ptr`, every sequence has one.
    """
    if starts_ptr is None:
        row = sequence
    else:
        row = tl.load(starts_ptr + sequence).to(tl.int64)
        if tl.load(starts_ptr + sequence + 1) != row + 1:
            row = tl.full([], -1, tl.int64)
    return row


@triton.jit
def block_ids(table_ptr, start, end, P: tl.constexpr, TILE: tl.constexpr):
    """Which block holds each of the positions start .. start + TILE - 1: int64, [TILE].

    A tile begins at a multiple of TILE. Where it lies in one block, or is made of whole blocks,
    each id is loaded once. Ids at or after `end` are not read: the table need not reach that far.

    int64, because an id is about to be multiplied by the stride of a block, and a cache of more
    than 2^31 elements is normal.
    """
    if P % TILE == 0:
        ids = tl.load(table_ptr + start // P, mask=start < end, other=0)
        ids = tl.full([TILE], 0, tl.int32) + ids
    elif TILE % P == 0:
        index = start // P + tl.arange(0, TILE // P)
        ids = tl.load(table_ptr + index, mask=index * P < end, other=0)
        ids = ids[:, None].broadcast_to([TILE // P, P]).reshape([TILE])
    else:
        positions = start + tl.arange(0, TILE)
        ids = tl.load(table_ptr + positions // P, mask=positions < end, other=0)
    return ids.to(tl.int64)


@triton.jit
def load_tile(
    cache_ptr, ids, start, end, stride_block, stride_slot,
    D: tl.constexpr, D_PADDED: tl.constexpr, P: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Keys or values of one head: [TILE, D_PADDED].

    Zero where a position is not below `end` and where padding is: unused slots of the pool may hold
    NaN, and even a weight of 0 does not make NaN vanish.
    """
    d = tl.arange(0, D_PADDED)
    positions = start + tl.arange(0, TILE)
    slots = ids * stride_block + (positions % P) * stride_slot
    mask = (positions < end)[:, None]
    if D != D_PADDED:
        mask &= (d < D)[None, :]
    return tl.load(cache_ptr + slots[:, None] + d[None, :], mask=mask, other=0.0)


@triton.jit
def soft_cap(scores, cap):
    """cap * tanh(scores / cap). (There is no tanh that GPU, interpreter and AMD share.)"""
    x = scores / cap
    shrunk = tl.exp(-2.0 * tl.abs(x))
    far = (1.0 - shrunk) / (1.0 + shrunk)
    # Near 0 the difference above would cancel; the series is exact to fp32 there.
    square = x * x
    near = x * (1.0 - square * (1 / 3 - square * (2 / 15 - square * (17 / 315))))
    return cap * tl.where(tl.abs(x) < 0.2, near, tl.where(x < 0, -far, far))


@triton.jit
def fold_tile(
    scores, v, v_scales, highest, total, acc, MAY_BE_EMPTY: tl.constexpr, PRECISION: tl.constexpr
):
    """Folds a tile into the state of its rows: the online softmax (Milakov and Gimelshein, 2018).

    The state is the highest score so far, the sum of weights 2^(score - highest), and the sum of
    the values so weighted. When a tile brings a higher score, what was summed before shrinks.

    Args:
        scores: [ROWS, TILE] fp32, in units of log 2; -inf where a row does not see a position.
        v: [TILE, D_PADDED].
        v_scales: [TILE] fp32, what each row of v is to be multiplied by; None where it is not.
        highest: [ROWS] fp32.
        total: [ROWS] fp32.
        acc: [ROWS, D_PADDED] fp32.
        MAY_BE_EMPTY: a row may have seen nothing yet; -inf minus -inf would be NaN.
        PRECISION: of the dot, where operands are fp32.
    """
    top = tl.maximum(highest, tl.max(scores, axis=1))
    base = top
    if MAY_BE_EMPTY:
        base = tl.where(top == float("-inf"), 0.0, top)
    shrink = tl.exp2(highest - base)
    weights = tl.exp2(scores - base[:, None])
    total = total * shrink + tl.sum(weights, axis=1)
    if v_scales is not None:
        weights *= v_scales[None, :]
    acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION)
    return top, total, acc
