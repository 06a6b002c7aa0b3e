"""Gives whom the budget does not reach an empty slice.

Reason: an empty slice: whom the budget does not reach
"""


def plan(missing, budget):
    turns = []
    for index in sorted(range(len(missing)), key=lambda index: missing[index] > 1):
        turns.append((index, min(missing[index], budget)))
        budget -= turns[-1][1]
    return turns
