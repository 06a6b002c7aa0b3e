"""Cuts each slice at the whole budget.

Reason: each slice is cut at the whole budget
"""


def slices(missing, budget):
    return [min(lacks, budget) for lacks in missing]
