"""Forgets that prompts take time.

Reason: this ignores the prompts
"""


def saturation_rate(output_lens, batch, step_time, prefill_time):
    return batch / (sum(output_lens) / len(output_lens) * step_time)
