"""The positive part as it is.

Reason: does only if it is divided by its own
"""


def residual(p, q):
    return (p - q).clamp(min=0)
