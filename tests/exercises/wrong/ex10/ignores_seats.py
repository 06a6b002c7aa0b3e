"""Has people wait for those who have a seat.

Reason: a seat is free: whoever comes now begins in the next step
"""


def waits(load):
    return load.waiting_tokens / load.tokens_per_second if load.tokens_per_second else 0.0
