"""Forgets that an answer takes many steps.

Reason: this ignores how long the answers are
"""


def saturation_rate(output_lens, batch, step_time, prefill_time):
    return 1 / (prefill_time + step_time / batch)
