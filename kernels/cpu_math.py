"""What Numba lacks for fast loops over float32: an exponential that vectorises, and prefetching.

Whoever changes this file must touch those that import it: Numba's cache of compiled code looks at
the calling file alone.
"""

import math
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
from llvmlite import ir
from minillm_serve.kernels.cpu_vectors import Vectors
from numba import njit, types
from numba.extending import intrinsic

#: Kernels that take long let other threads of Python run meanwhile: a server's, for one. Not where
#: Numba may have nothing but a pool of its own, which two threads must not enter.
NOGIL = sys.platform.startswith("linux")
#: For sums that may be reordered, so that they vectorise. NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "nsz", "arcp"}

_ONE, _HALF, _LOWEST = np.float32(1), np.float32(0.5), np.float32(-87)
_LOG2_E = np.float32(1 / math.log(2))
# ln 2 in two parts, of which the first has few bits: n times it is exact (Cody and Waite, 1980).
_LN2_HIGH = np.float32(0.693359375)
_LN2_LOW = np.float32(math.log(2) - 0.693359375)
_C2, _C3, _C4, _C5, _C6, _C7 = (np.float32(1 / math.factorial(i)) for i in range(2, 8))


def bind(function: Callable[..., Any], **constants: Any) -> Callable[..., Any]:
    """A copy of a function whose global names mean `constants`.

    Numba takes globals for constants of the program: a loop of known length is unrolled and
    vectorised as one of unknown length is not. The copy's name carries the integers, and with it
    its place in Numba's cache on disk (which cannot tell closures over functions apart).
    """
    numbers = [str(value) for value in constants.values() if isinstance(value, int)]
    name = "_".join([function.__name__, *numbers])
    copy = FunctionType(function.__code__, {**function.__globals__, **constants}, name)
    copy.__qualname__ = name
    return copy


@intrinsic
def float_from_bits(typing_context: Any, bits: Any) -> Any:
    """The float32 that has these 32 bits."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), codegen


@intrinsic
def bits_of_float(typing_context: Any, x: Any) -> Any:
    """The 32 bits of a float32."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), codegen


@intrinsic
def prefetch(typing_context: Any, address: Any) -> Any:
    """Asks for the cache line at an address, which need not be valid; nothing is waited for."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        Vectors(builder).prefetch(arguments[0])
        return context.get_dummy_value()

    return types.void(types.intp), codegen


@njit(fastmath=FAST, inline="always")  # by LLVM (forceinline) it comes out a third slower
def exp_nonpositive(x):
    """e^x for float32 x <= 0, to about 1e-7 of its value; 1.6e-38 for everything below -87.

    x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its series, 2^n by writing n into the exponent. No
    branch and no table, so eight or sixteen go at once; `math.exp` goes one by one.
    """
    x = max(x, _LOWEST)
    n = np.floor(x * _LOG2_E + _HALF)
    r = x - n * _LN2_HIGH - n * _LN2_LOW
    series = _ONE + r * (_ONE + r * (_C2 + r * (_C3 + r * (_C4 + r * (_C5 + r * (_C6 + r * _C7))))))
    return series * float_from_bits(  # type: ignore[call-arg] # Numba adds the first argument
        (np.int32(n) + np.int32(127)) << np.int32(23)
    )
