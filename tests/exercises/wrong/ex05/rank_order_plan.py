"""Gives everybody their turn in order of rank: prompts before typists.

Reason: lacks one token and gets none, while a prompt is read
"""


def plan(missing, budget):
    turns = []
    for index, lacks in enumerate(missing):
        if budget:
            turns.append((index, min(lacks, budget)))
            budget -= turns[-1][1]
    return turns
