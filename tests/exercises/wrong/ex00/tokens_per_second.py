"""Gives tokens per second for requests per second.

Reason: these are steps times B, that is tokens per second
"""


def saturation_rate(output_lens, batch, step_time, prefill_time):
    return batch / step_time
