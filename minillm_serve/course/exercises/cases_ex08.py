"""ex08's cases: rows of keys or values, codes with their scales, and small caches.

No number lies so near the middle between two codes that rounding in float32 could decide.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from minillm_serve.course.exercises.exercise import Case

LARGEST = 127
#: How far a number is from the middle between two codes, in steps.
MARGIN = 0.05
SHAPE = (5, 2, 8)


def _generator(rng: random.Random) -> torch.Generator:
    return torch.Generator().manual_seed(rng.randrange(2**31))


def normal(rng: random.Random, shape: tuple[int, ...] = SHAPE) -> Tensor:
    """Rows as a model makes them, with tokens of different sizes."""
    draw = _generator(rng)
    x = torch.randn(shape, generator=draw)
    return x * torch.logspace(-1.5, 1.5, shape[0])[:, None, None]


def described(case: Case) -> str:
    """A case's tensors in one line: shapes, and the kind of rows if it has one."""
    told = [f"{name} {list(x.shape)}" for name, x in case.items() if isinstance(x, Tensor)]
    return ", ".join([*([case["kind"]] if "kind" in case else []), *told])


# Scales.


def scale_cases(rng: random.Random) -> Sequence[Case]:
    """One row that can be checked by hand, then tokens and heads of different sizes."""
    by_hand = torch.tensor([[[0.5, -2.54, 1.0, 0.0]]])
    heads = normal(rng) * torch.tensor([1.0, 40.0])[:, None]
    return [{"x": by_hand}, {"x": normal(rng)}, {"x": heads}]


def zero_scale_cases(rng: random.Random) -> Sequence[Case]:
    """Rows of zeros alone and among others."""
    x = normal(rng)
    x[rng.randrange(5), rng.randrange(2)] = 0
    return [{"x": torch.zeros(SHAPE)}, {"x": x}]


def size_cases(rng: random.Random) -> Sequence[Case]:
    """Sizes that float16 has no number for, and rows in which all numbers are nearly the same."""
    x = normal(rng)
    near = 1 + 1e-7 * torch.arange(8).expand(SHAPE)
    return [
        {"x": x * 1e-12},
        {"x": x * 1e9},
        {"x": torch.full(SHAPE, 100.0)},
        {"x": torch.full(SHAPE, -100.0)},
        {"x": near},
    ]


def half_cases(rng: random.Random) -> Sequence[Case]:
    """Rows in the dtypes that models compute in."""
    x = normal(rng)
    return [{"x": x.to(dtype)} for dtype in (torch.float16, torch.bfloat16, torch.float64)]


# Codes.


def coded(rng: random.Random, shape: tuple[int, ...] = SHAPE) -> Case:
    """Rows that are so many steps and a bit, and their scales; each row reaches 127 or -127."""
    draw = _generator(rng)
    whole = torch.randint(-LARGEST + 1, LARGEST, shape, generator=draw).double()
    rest = (torch.rand(shape, generator=draw).double() - 0.5) * (1 - 2 * MARGIN)
    steps = whole + rest
    signs = torch.randint(0, 2, shape[:-1], generator=draw) * 2 - 1
    steps[..., 0] = LARGEST * signs
    scales = torch.logspace(-3, 2, shape[0])[:, None] * torch.tensor([0.5, 3.0])[: shape[1]]
    return {"x": (steps * scales[..., None]).float(), "scales": scales.float()}


def code_cases(rng: random.Random) -> Sequence[Case]:
    """A row by hand, then many."""
    by_hand = torch.tensor([[[2.54, 0.029, -0.029, 0.011, -2.54, 1.0]]])
    return [{"x": by_hand, "scales": torch.tensor([[0.02]])}, coded(rng), coded(rng)]


def zero_code_cases(rng: random.Random) -> Sequence[Case]:
    """Rows of zeros, whose scale is 0."""
    case = coded(rng)
    row, head = rng.randrange(5), rng.randrange(2)
    case["x"][row, head], case["scales"][row, head] = 0, 0
    return [{"x": torch.zeros(SHAPE), "scales": torch.zeros(SHAPE[:2])}, case]


# Numbers.


def number_cases(rng: random.Random) -> Sequence[Case]:
    """Codes of a step [T, H_kv, D], and of a whole pool [num_blocks, H_kv, P, D]."""
    draw = _generator(rng)
    by_hand = torch.tensor([[[127, -127, 50, 0]]], dtype=torch.int8)
    made = [{"codes": by_hand, "scales": torch.tensor([[0.02]])}]
    for shape in (SHAPE, (3, 2, 4, 8)):
        codes = torch.randint(-LARGEST, LARGEST + 1, shape, generator=draw, dtype=torch.int8)
        scales = torch.rand(shape[:-1], generator=draw) + 0.01
        made.append({"codes": codes, "scales": scales})
    return made


# Blocks.


def cache_case(rng: random.Random, moves: list[tuple[int, int]], blocks: int = 6) -> Case:
    """A layer's cache in which every block is of another size, and what to copy."""
    draw = _generator(rng)
    shape = (blocks, 2, 4, 8)

    def codes() -> Tensor:
        return torch.randint(-LARGEST, LARGEST + 1, shape, generator=draw, dtype=torch.int8)

    def scales() -> Tensor:
        return (torch.rand(shape[:-1], generator=draw) + 0.1) * 2.0 ** torch.arange(blocks).view(
            -1, 1, 1
        )

    cache = {"k": codes(), "v": codes(), "k_scale": scales(), "v_scale": scales()}
    return {"cache": cache, "moves": moves}


def copy_cases(rng: random.Random) -> Sequence[Case]:
    """One block, then several at once."""
    order = rng.sample(range(6), 6)
    return [
        cache_case(rng, [(0, 3)]),
        cache_case(rng, [(order[0], order[1]), (order[2], order[3])]),
        cache_case(rng, [(order[0], order[1]), (order[0], order[4])]),
    ]


def still_cases(rng: random.Random) -> Sequence[Case]:
    """A copy that is written to afterwards: the original must not follow; and no moves at all."""
    order = rng.sample(range(6), 2)
    return [cache_case(rng, [(order[0], order[1])]), cache_case(rng, [])]


def described_moves(case: Case) -> str:
    """What is copied where."""
    told = ", ".join(f"block {a} to {b}" for a, b in case["moves"]) or "nothing"
    return f"copy {told}; a cache of {len(case['cache']['k'])} blocks"


# A quantizer.


def row_cases(rng: random.Random) -> Sequence[Case]:
    """What the engine's own test puts through a quantizer, with names."""
    from minillm_serve.runtime.kv_conformance import make_rows

    return [{"kind": rows.kind, "x": rows.x} for rows in make_rows(rng.randrange(2**31))]


def bias_cases(rng: random.Random) -> Sequence[Case]:
    """Many numbers, whose errors must not lean to one side."""
    draw = _generator(rng)
    return [{"kind": "many normal numbers", "x": torch.randn(64, 8, 64, generator=draw)}]


def company_cases(rng: random.Random) -> Sequence[Case]:
    """A token, and what is stored beside it in the same step."""
    x = normal(rng, (4, 2, 16))
    return [
        {"kind": "large numbers", "x": torch.cat([x[:1], x[1:] * 1e4])},
        {"kind": "zeros", "x": torch.cat([x[:1], x[1:] * 0])},
    ]


def service_cases(rng: random.Random) -> Sequence[Case]:
    """Prompts of different lengths for a tiny model."""
    prompts = [[rng.randrange(64) for _ in range(length)] for length in (3, 9, 14)]
    return [{"prompts": prompts, "max_tokens": 16, "seed": rng.randrange(10**6)}]


def described_service(case: Case) -> str:
    """Who asks, in one line."""
    return f"{len(case['prompts'])} prompts, {case['max_tokens']} tokens each, int8 cache"
