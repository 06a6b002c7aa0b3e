"""Plans as if all answers were as long as the longest.

Reason: this plans for the longest answer
"""


def saturation_rate(output_lens, batch, step_time, prefill_time):
    return 1 / (prefill_time + max(output_lens) * step_time / batch)
