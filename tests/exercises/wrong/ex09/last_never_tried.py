"""Stops one before the end.

Reason: one more is served in time, too: is the last one that was tried looked at?
"""


def largest_batch(step_time, promise, most):
    good, bad = 0, most
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if step_time(middle) <= promise else (good, middle)
    return good
