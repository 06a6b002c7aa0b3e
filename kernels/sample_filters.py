"""Which tokens top-k, top-p and min-p leave, found without sorting; device functions only.

All three keep the likeliest tokens and differ in how many. So each draws a border: a least weight
to keep and, of the tokens that have exactly this weight, the first so many. One look at the weights
tells how much lies above any candidate for the border, so a border is found by bisection.

A token's weight is e^((logit - highest) / temperature): a float32 from 0 to 1, and 1 for the
likeliest. Weights are added up as whole numbers. Integers give the same sum in whatever order, so
neither the tiling nor the number of threads can move a border.

In all functions weights_ptr points to one row, float32 [width]: whole parts of PART weights, so
that no load needs a mask; what is beyond the vocabulary weighs 0. A weight of 1 is UNIT, a power of
two.
"""

import triton
import triton.language as tl

BITS_OF_ONE = tl.constexpr(0x3F800000)


@triton.jit
def whole(weights, UNIT: tl.constexpr):
    """Weights as int64: the product is exact, what is left after the point is cut off."""
    return (weights * UNIT).to(tl.int64)


@triton.jit
def look(weights_ptr, width, pivot, UNIT: tl.constexpr, PART: tl.constexpr, BY_MASS: tl.constexpr):
    """What lies above a pivot, and the weights next to it.

    Returns:
        How many tokens have a higher weight, or their mass if BY_MASS, int64; the highest weight
        that is not above the pivot; the lowest that is.
    """
    measure = tl.zeros([PART], tl.int64)
    below = tl.full([PART], -1.0, tl.float32)
    above = tl.full([PART], 2.0, tl.float32)
    for start in range(0, width, PART):
        weights = tl.load(weights_ptr + start + tl.arange(0, PART))
        is_above = weights > pivot
        if BY_MASS:
            measure += tl.where(is_above, whole(weights, UNIT), 0)
        else:
            measure += is_above.to(tl.int64)
        below = tl.maximum(below, tl.where(is_above, -1.0, weights))
        above = tl.minimum(above, tl.where(is_above, weights, 2.0))
    return tl.sum(measure, axis=0), tl.max(below, axis=0), tl.min(above, axis=0)


@triton.jit
def search(
    weights_ptr, width, low, quota, UNIT: tl.constexpr, PART: tl.constexpr, BY_MASS: tl.constexpr
):  # fmt: skip
    """The least weight that has less than a quota above it.

    Positive floats are ordered as their bits are, so bits are bisected: 31 looks at most, whatever
    the weights. Going on from weights that exist makes it about 10 for a model's bf16 logits.

    Args:
        low: int32, the bits of a weight that has the quota above it or must not be kept, or -1.
        quota: tokens or mass, from 1 to all there is.

    Returns:
        The weight's bits, int32, and how much is above it, int64.
    """
    high = tl.full([], BITS_OF_ONE, tl.int32)
    more = tl.full([], 0, tl.int64)
    while high - low > 1:
        pivot = ((low + high) // 2).to(tl.float32, bitcast=True)
        measure, below, above = look(weights_ptr, width, pivot, UNIT, PART, BY_MASS)
        if measure < quota:
            # No weight lies between `below` and the pivot, so above either is the same.
            high = below.to(tl.int32, bitcast=True)
            more = measure
        else:
            low = above.to(tl.int32, bitcast=True) - 1
    return high, more


@triton.jit
def find_border(
    weights_ptr, width, mass, top_k, top_p, min_p,
    V: tl.constexpr, UNIT: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """The least weight to keep, and how many of the tokens that have exactly this weight.

    Args:
        mass: int64, of all tokens.
    """
    least = tl.full([], -1, tl.int32)  # bits, as in `search`
    room = tl.full([], 0, tl.int64)
    if (top_k > 0) & (top_k < V):
        least, more = search(weights_ptr, width, least, top_k, UNIT, PART, False)
        room = top_k - more
        # What top_k leaves is the whole of which top_p keeps a share.
        weight = least.to(tl.float32, bitcast=True)
        mass, _, _ = look(weights_ptr, width, weight, UNIT, PART, True)
        mass += room * whole(weight, UNIT)
    if top_p < 1:
        quota = tl.ceil(top_p * mass.to(tl.float64)).to(tl.int64)
        quota = tl.maximum(tl.minimum(quota, mass), 1)  # the likeliest token always stays
        low = tl.maximum(least, 0) - 1
        narrow, more = search(weights_ptr, width, low, quota, UNIT, PART, True)
        one = tl.maximum(whole(narrow.to(tl.float32, bitcast=True), UNIT), 1)
        needed = (quota - more + one - 1) // one
        room = tl.where(narrow == least, tl.minimum(room, needed), needed)
        least = narrow
    # min_p is a share of the highest weight, which is 1: the least float32 that is not below it.
    floor = min_p.to(tl.float32)
    floor_bits = floor.to(tl.int32, bitcast=True)
    if floor.to(tl.float64) < min_p:
        floor_bits += 1
    if floor_bits > least:
        least = floor_bits
        room = tl.full([], V, tl.int64)
    return least.to(tl.float32, bitcast=True), room


@triton.jit
def keep(
    weights_ptr, width, least, room, UNIT: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr
):  # fmt: skip
    """What each part keeps, and how many tokens of the least weight precede it: int64, [PARTS]."""
    part = tl.arange(0, PARTS)
    masses = tl.zeros([PARTS], tl.int64)
    ties_before = tl.zeros([PARTS], tl.int64)
    seen = tl.full([], 0, tl.int64)
    for index in range(width // PART):
        weights = tl.load(weights_ptr + index * PART + tl.arange(0, PART))
        mass = tl.sum(tl.where(weights > least, whole(weights, UNIT), 0), axis=0)
        ties = tl.sum((weights == least).to(tl.int64), axis=0)
        mass += tl.minimum(ties, tl.maximum(room - seen, 0)) * whole(least, UNIT)
        masses = tl.where(part == index, mass, masses)
        ties_before = tl.where(part == index, seen, ties_before)
        seen += ties
    return masses, ties_before
