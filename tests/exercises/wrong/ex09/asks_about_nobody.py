"""Begins by asking about an empty batch.

Reason: it asks for the time of a batch of 0: ask from 1 to most
"""


def largest_batch(step_time, promise, most):
    if step_time(0) > promise:
        return 0
    good, bad = 0, most + 1
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if step_time(middle) <= promise else (good, middle)
    return good
