"""Works scales out in float16, and returns float32: too late.

Reason: a scale is 0, and its row is not
"""


def scales_of(x):
    return (x.half().abs().amax(-1) / 127).float()
