"""Right, but as a float: 13.0 users, which no loop can count.

Reason: a whole number was expected, an int
"""


def max_concurrency(config, *, memory, num_tokens, **kind):
    return float(memory // kv_bytes_per_sequence(config, num_tokens, **kind))  # noqa: F821
