"""Stops where somebody's tokens do not fit as a whole.

Reason: a slice may be less than is missing
"""


def slices(missing, budget):
    made = []
    for lacks in missing:
        if lacks > budget:
            break
        made.append(lacks)
        budget -= lacks
    return made
