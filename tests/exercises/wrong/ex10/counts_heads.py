"""Counts who waits, and not what they bring.

Reason: a document is as long as thirty questions
"""


def waits(load):
    if load.has_seats or load.tokens_per_second is None:
        return 0.0
    return load.num_waiting / load.tokens_per_second
