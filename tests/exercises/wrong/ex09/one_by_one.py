"""Tries one batch after the other.

Reason: step_time was asked 5,000 times: is that a loop without an end?
"""


def largest_batch(step_time, promise, most):
    batch = 0
    while batch < most and step_time(batch + 1) <= promise:
        batch += 1
    return batch
