"""Forgets the scale.

Reason: these are the codes
"""


def numbers_of(codes, scales):
    return codes.float()
