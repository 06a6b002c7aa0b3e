"""Lets everybody stay as long as if they were alone.

Reason: somebody alone stays for n * t(1): with others in the step it takes longer
"""


def settles_at(rate, output, fixed, each):
    if rate * output * each >= 1:
        return None
    return rate * output * (fixed + each)
