"""Serves one at a time.

Reason: this serves one at a time
"""


def saturation_rate(output_lens, batch, step_time, prefill_time):
    return 1 / (prefill_time + sum(output_lens) / len(output_lens) * step_time)
