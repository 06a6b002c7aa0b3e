"""Random numbers without state, in Triton; reference: `minillm_serve.runtime.sampling.randomness`.

Counter-based: a number is a function of a seed and a position, so it does not matter what was drawn
before, by which program, or in which batch. The mixing: SplitMix64 (Steele, Lea and Flood, 2014).
"""

import triton
import triton.language as tl


@triton.jit
def mix(x):
    """The output function of SplitMix64, on uint64."""
    x += 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def uniform(seed, position):
    """A float64 in [0, 1) from a seed and a position, both int64."""
    bits = mix(mix(seed.to(tl.uint64, bitcast=True)) + position.to(tl.uint64, bitcast=True))
    return (bits >> 11).to(tl.int64).to(tl.float64) / 9007199254740992  # 2^53


def wrap_seed(seed: int) -> int:
    """Any Python integer as an int64 tensor can hold it; draws depend on its lowest 64 bits."""
    return (seed + 2**63) % 2**64 - 2**63
