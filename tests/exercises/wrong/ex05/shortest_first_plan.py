"""Sorts by what is missing: short prompts pass long ones.

Reason: the right slices in another order
"""


def plan(missing, budget):
    turns = []
    for index in sorted(range(len(missing)), key=lambda index: missing[index]):
        if budget:
            turns.append((index, min(missing[index], budget)))
            budget -= turns[-1][1]
    return turns
