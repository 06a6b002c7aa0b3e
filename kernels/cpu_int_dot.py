"""Four products of bytes and their sum, in every lane: the one step of all integer products.

Processors differ in how they do it, and the result is the same integer everywhere: one instruction
where there is VNNI (Intel since 2019, AMD since 2022), two multiplications of 16-bit pairs under
AVX2, four of 32 bits anywhere else.

Whoever changes this file must touch those that import it: Numba's cache of compiled code looks at
the calling file alone.
"""

from typing import Any

from llvmlite import ir
from minillm_serve.kernels.cpu_vectors import INT, INTS, LANES, SHORTS, Vectors, has_feature

#: Feature, the instruction that it brings, and its lanes; the first that the processor has is used.
INSTRUCTIONS = (
    ("avx512vnni", "llvm.x86.avx512.vpdpbusd.512", 16),
    ("avxvnni", "llvm.x86.avx512.vpdpbusd.256", 8),
    ("avx2", "llvm.x86.avx2.pmadd.wd", 8),
)
#: The one that is used; None stands for plain arithmetic.
INSTRUCTION = next((entry for entry in INSTRUCTIONS if has_feature(entry[0])), None)


def dot4(vectors: Vectors, total: Any, codes: Any, word: Any) -> Any:
    """`total + codes . word` in each of 16 lanes of 32 bits.

    Args:
        vectors: writes instructions.
        total: 16 int32.
        codes: 16 times four unsigned bytes, as int32.
        word: four signed bytes, the same for all lanes, as 16 equal int32.
    """
    if INSTRUCTION is None:
        return _by_four(vectors, total, codes, word)
    _, name, lanes = INSTRUCTION
    if lanes == LANES:
        return vectors.call(name, INTS, total, codes, word)
    by = _by_pairs if name.endswith("pmadd.wd") else _by_one
    halves = [
        by(vectors, name, *(_half(vectors, x, half) for x in (total, codes, word)))
        for half in (0, 1)
    ]
    every = ir.Constant(INTS, list(range(LANES)))
    return vectors.builder.shuffle_vector(*halves, every)


def _half(vectors: Vectors, vector: Any, half: int) -> Any:
    lanes = LANES // 2
    picked = ir.Constant(ir.VectorType(INT, lanes), [half * lanes + i for i in range(lanes)])
    return vectors.builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), picked)


def _by_one(vectors: Vectors, name: str, total: Any, codes: Any, word: Any) -> Any:
    return vectors.call(name, total.type, total, codes, word)


def _by_pairs(vectors: Vectors, name: str, total: Any, codes: Any, word: Any) -> Any:
    """Bytes 0 and 2 of each lane as a pair of 16 bits, and bytes 1 and 3 as another one.

    (`pmaddubsw` takes bytes as they are, but its 16-bit sums overflow for codes above 127.)
    """
    build = vectors.builder
    eight, low = vectors.constant(8, SHORTS), vectors.constant(255, SHORTS)
    codes, word = build.bitcast(codes, SHORTS), build.bitcast(word, SHORTS)
    evens = (build.and_(codes, low), build.ashr(build.shl(word, eight), eight))
    odds = (build.lshr(codes, eight), build.ashr(word, eight))
    for pair in (evens, odds):
        total = build.add(total, vectors.call(name, total.type, *pair))
    return total


def _by_four(vectors: Vectors, total: Any, codes: Any, word: Any) -> Any:
    build = vectors.builder
    for byte in range(4):
        down, up = vectors.constant(8 * byte, INTS), vectors.constant(24 - 8 * byte, INTS)
        code = build.and_(build.lshr(codes, down), vectors.constant(255, INTS))
        factor = build.ashr(build.shl(word, up), vectors.constant(24, INTS))
        total = build.add(total, build.mul(code, factor))
    return total
