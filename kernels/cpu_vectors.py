"""LLVM's vector instructions, for the Numba kernels that no compiler vectorises well.

`@intrinsic` functions write them with a `Vectors` around Numba's builder; in 16 lanes of float32,
which are one register of AVX-512 and two of AVX2.

Whoever changes this file must touch those that import it: Numba's cache of compiled code looks at
the calling file alone.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import binding, ir
from numba import config
from numba.core import cgutils

LANES = 16


def has_feature(name: str) -> bool:
    """Whether the processor that Numba compiles for has a feature, by LLVM's name of it.

    That is this machine's, unless `NUMBA_CPU_FEATURES` says otherwise, as in "-avx512f,+avx2".
    """
    wanted = str(config.CPU_FEATURES or "")  # type: ignore[attr-defined]
    told = dict((feature[1:], feature[0] == "+") for feature in wanted.split(",") if feature)
    return told.get(name, bool(binding.get_host_cpu_features().get(name)))


#: Whether a vector takes one register, of 32; otherwise it takes two, of 16.
WIDE_REGISTERS = has_feature("avx512f")

BYTE, INT, LONG, FLOAT = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
SHORT, HALF = ir.IntType(16), ir.HalfType()
BYTES, INTS, FLOATS = (ir.VectorType(kind, LANES) for kind in (BYTE, INT, FLOAT))
SHORTS, HALVES = (ir.VectorType(kind, LANES) for kind in (SHORT, HALF))


class Vectors:
    """Writes instructions; addresses are integers of 64 bits.

    Args:
        builder: llvmlite's `IRBuilder`, as `@intrinsic` hands it out.
    """

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def at(self, base: Any, *steps: tuple[Any, Any]) -> Any:
        """The address `base + index * size + ...`; indices and sizes may be Python's integers."""
        for index, size in steps:
            if isinstance(index, int) and isinstance(size, int):
                base = self.builder.add(base, LONG(index * size))
                continue
            index, size = (LONG(x) if isinstance(x, int) else x for x in (index, size))
            base = self.builder.add(base, self.builder.mul(index, size))
        return base

    def load(self, address: Any, kind: Any, align: int = 4) -> Any:
        """The value of this kind at an address."""
        value = self.builder.load(self.builder.inttoptr(address, kind.as_pointer()))
        value.align = align
        return value

    def store(self, value: Any, address: Any) -> None:
        """Writes a value, aligned as float32."""
        pointer = self.builder.inttoptr(address, value.type.as_pointer())
        self.builder.store(value, pointer).align = 4

    def splat(self, value: Any) -> Any:
        """A number in every lane."""
        kind = ir.VectorType(value.type, LANES)
        nothing, first = ir.Constant(kind, ir.Undefined), ir.Constant(INTS, [0] * LANES)
        vector = self.builder.insert_element(nothing, value, INT(0))
        return self.builder.shuffle_vector(vector, nothing, first)

    def widen(self, address: Any) -> Any:
        """The 16 float16 at an address, as float32; no infinity among them."""
        build = self.builder
        if has_feature("f16c"):
            return build.fpext(self.load(address, HALVES, align=2), FLOATS)
        # The same bits in float32's places are a number too small by 2^112; this is exact.
        bits = build.zext(self.load(address, SHORTS, align=2), INTS)
        magnitude = build.shl(
            build.and_(bits, self.constant(0x7FFF, INTS)), self.constant(13, INTS)
        )
        sign = build.shl(build.lshr(bits, self.constant(15, INTS)), self.constant(31, INTS))
        small = build.bitcast(build.or_(magnitude, sign), FLOATS)
        return build.fmul(small, self.constant(2.0**112))

    def constant(self, value: float, kind: Any = FLOATS) -> Any:
        """A constant in every lane."""
        return ir.Constant(kind, [value] * LANES)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c, rounded once."""
        return self.call(f"llvm.fma.v{LANES}f32", FLOATS, a, b, c)

    def sum(self, vector: Any) -> Any:
        """The sum of the lanes, in any order."""
        name = f"llvm.vector.reduce.fadd.v{LANES}f32"
        return self.call(name, FLOAT, FLOAT(0.0), vector, fastmath=("reassoc",))

    def prefetch(self, address: Any) -> None:
        """Asks for the cache line at an address, which need not be valid."""
        read, keep, data = INT(0), INT(3), INT(1)
        pointer = self.builder.inttoptr(address, BYTE.as_pointer())
        self.call("llvm.prefetch.p0", ir.VoidType(), pointer, read, keep, data)

    def call(self, name: str, result: Any, *arguments: Any, fastmath: Sequence[str] = ()) -> Any:
        """What an intrinsic function of LLVM gives."""
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, arguments, fastmath=fastmath)


class Loop:
    """`for index in range(count)`, count >= 1, with values that each round hands to the next.

        loop = Loop(builder, count, start_values)
        ... # what uses loop.index and loop.values
        results = loop.close(new_values)

    Args:
        builder: at the place where the loop begins.
        count: rounds, 64 bits.
        start: values of the first round.
    """

    def __init__(self, builder: Any, count: Any, start: Sequence[Any]) -> None:
        self._builder, self._count = builder, count
        before, self._body = builder.block, builder.append_basic_block()
        builder.branch(self._body)
        builder.position_at_end(self._body)
        self.index = builder.phi(LONG)
        self.index.add_incoming(LONG(0), before)
        self.values = []
        for value in start:
            phi = builder.phi(value.type)
            phi.add_incoming(value, before)
            self.values.append(phi)

    def close(self, values: Sequence[Any]) -> Sequence[Any]:
        """Ends the body; `values` are the next round's, and after the last one the results."""
        builder, end = self._builder, self._builder.block
        following = builder.add(self.index, LONG(1))
        after = builder.append_basic_block()
        builder.cbranch(builder.icmp_signed("<", following, self._count), self._body, after)
        self.index.add_incoming(following, end)
        for phi, value in zip(self.values, values, strict=True):
            phi.add_incoming(value, end)
        builder.position_at_end(after)
        return values
