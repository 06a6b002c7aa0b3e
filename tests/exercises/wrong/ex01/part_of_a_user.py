"""Rounds up: the last conversation would not fit.

Reason: part of a conversation is none
"""

import math


def max_concurrency(config, *, memory, num_tokens, **kind):
    return math.ceil(memory / kv_bytes_per_sequence(config, num_tokens, **kind))  # noqa: F821
