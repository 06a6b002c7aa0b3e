"""Takes a promise that is met exactly for broken.

Reason: a promise that is met exactly is kept: <=, not <
"""


def largest_batch(step_time, promise, most):
    good, bad = 0, most + 1
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if step_time(middle) < promise else (good, middle)
    return good
