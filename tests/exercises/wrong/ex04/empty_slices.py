"""Gives whoever the budget does not reach a slice of no tokens.

Reason: an empty slice: whoever the budget does not reach
"""


def slices(missing, budget):
    made = []
    for lacks in missing:
        made.append(min(lacks, budget))
        budget -= made[-1]
    return made
