"""ex02's attention problems: tokens in shuffled blocks, and values that tell who read them.

The value in every slot, used or not, is a unit vector: number j * slots + s in slot s of KV head j.
So an output, whatever the queries, *is* the attention weights: which slots were read, on which
head, and how much each counted.
"""

from __future__ import annotations

import random
from itertools import accumulate

import torch

from minillm_serve.course.exercises.exercise import Case

#: Rows of a sequence in this step, and its tokens in the cache, these included.
Slices = list[tuple[int, int]]


def make_case(
    rng: random.Random,
    slices: Slices,
    *,
    block_size: int = 4,
    heads: int = 2,
    kv_heads: int = 2,
    strength: float = 1.0,
    nan: bool = False,
    spare: int = 2,
    dtype: torch.dtype = torch.float32,
) -> Case:
    """A step's tensors, as the slot `attention` gives them.

    Args:
        rng: of everything that is drawn.
        slices: rows and tokens of each sequence.
        block_size: P.
        heads: H.
        kv_heads: H_kv.
        strength: queries are multiplied by it; large ones make large scores.
        nan: what lies in slots that hold no token is not a number.
        spare: blocks that belong to nobody.
        dtype: of queries, keys and values.
    """
    widths = [-(-length // block_size) for _, length in slices]
    num_blocks = sum(widths) + spare
    order = rng.sample(range(num_blocks), num_blocks)
    tables = torch.zeros(len(slices), max(widths) + 1, dtype=torch.int32)
    dim = kv_heads * num_blocks * block_size
    shape = (num_blocks, kv_heads, block_size, dim)
    draw = torch.Generator().manual_seed(rng.randrange(2**31))
    k_cache = torch.randn(shape, generator=draw)
    # [H_kv, num_blocks, P, D] would be the identity matrix, cut up.
    v_cache = torch.eye(dim).view(kv_heads, num_blocks, block_size, dim).transpose(0, 1).clone()
    used = torch.zeros(num_blocks, block_size, dtype=torch.bool)
    for s, (_, length) in enumerate(slices):
        own = torch.tensor([order.pop() for _ in range(widths[s])])
        tables[s, : widths[s]] = own
        positions = torch.arange(length)
        used[own[positions // block_size], positions % block_size] = True
    if nan:
        for cache in (k_cache, v_cache):
            cache.transpose(1, 2)[~used] = float("nan")
    rows = sum(count for count, _ in slices)
    q = strength * torch.randn(rows, heads, dim, generator=draw)
    return {
        "q": q.to(dtype),
        "k_cache": k_cache.to(dtype),
        "v_cache": v_cache.to(dtype),
        "block_tables": tables,
        "seq_lens": torch.tensor([length for _, length in slices], dtype=torch.int32),
        "query_start_loc": torch.tensor(
            [0, *accumulate(count for count, _ in slices)], dtype=torch.int32
        ),
        "scale": dim**-0.5,
    }


def described(case: Case) -> str:
    """A problem in one line."""
    starts = case["query_start_loc"].tolist()
    slices = [
        f"{end - begin} of {length}"
        for begin, end, length in zip(starts, starts[1:], case["seq_lens"].tolist(), strict=False)
    ]
    tables = [
        table[: -(-length // case["k_cache"].shape[2])]
        for table, length in zip(
            case["block_tables"].tolist(), case["seq_lens"].tolist(), strict=True
        )
    ]
    heads, kv_heads = case["q"].shape[1], case["k_cache"].shape[1]
    return (
        f"rows of tokens: {', '.join(slices)}; blocks of {case['k_cache'].shape[2]}: "
        f"{', '.join(map(str, tables))}; H={heads}, H_kv={kv_heads}"
    )


def one_block_cases(rng: random.Random) -> list[Case]:
    """One sequence that fills its block, in a pool of one."""
    return [
        make_case(rng, [(1, 4)], heads=1, kv_heads=1, spare=0),
        make_case(rng, [(1, 2)], block_size=2, spare=0),
    ]


def table_cases(rng: random.Random) -> list[Case]:
    """Several full blocks, in any order."""
    return [
        make_case(rng, [(1, 8)], heads=1, kv_heads=1),
        make_case(rng, [(1, 12), (1, 4), (1, 8)]),
    ]


def partial_cases(rng: random.Random) -> list[Case]:
    """Last blocks with one, some and all but one of their slots filled."""
    return [
        make_case(rng, [(1, 5)], heads=1, kv_heads=1),
        make_case(rng, [(1, 7), (1, 1), (1, rng.randint(9, 11))]),
        make_case(rng, [(1, rng.randint(2, 6))], block_size=8),
    ]


def grouped_cases(rng: random.Random) -> list[Case]:
    """2, 3 and 7 query heads to a KV head."""
    return [
        make_case(rng, [(1, 4)], heads=4, kv_heads=2, spare=1),
        make_case(rng, [(1, 6)], heads=9, kv_heads=3, spare=1),
        make_case(rng, [(1, 5)], heads=14, kv_heads=2, spare=1),
    ]


def softmax_cases(rng: random.Random) -> list[Case]:
    """Scores of about 1, and of some hundreds, over several blocks."""
    return [
        make_case(rng, [(1, 8)], heads=1, kv_heads=1, strength=2),
        make_case(rng, [(1, 11), (1, 6)], block_size=2, strength=3),
        make_case(rng, [(1, 16), (1, 9)], strength=120),
    ]


def causal_cases(rng: random.Random) -> list[Case]:
    """Whole prompts, the end of a prompt, and both beside a decode step."""
    length = rng.randint(6, 10)
    return [
        make_case(rng, [(3, 3)], heads=1, kv_heads=1),
        make_case(rng, [(length, length)]),
        make_case(rng, [(3, length), (1, 7), (5, 5)]),
    ]


def leftover_cases(rng: random.Random) -> list[Case]:
    """What others left is not a number."""
    return [
        make_case(rng, [(1, 5)], heads=1, kv_heads=1, nan=True),
        make_case(rng, [(2, 6), (1, 9)], nan=True),
    ]


def dtype_cases(rng: random.Random) -> list[Case]:
    """Half precision, as on a GPU."""
    return [
        make_case(rng, [(1, 6), (4, 9)], heads=4, kv_heads=2, dtype=dtype, spare=1)
        for dtype in (torch.bfloat16, torch.float16)
    ]
