"""Random numbers without state."""

MASK = 2**64 - 1


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) from (seed, position) alone.

    Counter-based: a sequence's draw at a position is the same whatever was drawn before it and
    for whom, so chunking, preemption and neighbours cannot change it. The mixing is SplitMix64's
    (Steele, Lea and Flood, 2014), of the seed and again of its result plus the position; the
    upper 53 bits fill a float64.
    """
    return (_mix(_mix(seed) + position) >> 11) / 2**53


def _mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)
