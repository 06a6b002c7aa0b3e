"""Cuts no prompt.

Reason: tokens, and the budget is
"""


def plan(missing, budget):
    order = sorted(range(len(missing)), key=lambda index: missing[index] > 1)
    return [(index, missing[index]) for index in order]
