"""Keeps scales in float16 to save two bytes (B124).

Reason: float16 ends at 65504
"""


def scales_of(x):
    return x.float().abs().amax(-1).half() / 127
