"""Weights below 0 are left in.

Reason: negative parts are still there
"""


def residual(p, q):
    return p - q
