"""Gives a batch below 0 for a crowd without end.

Reason: a batch below 0: more is asked for than the ceiling
"""


def settles_at(rate, output, fixed, each):
    return rate * output * fixed / (1 - rate * output * each)
