"""Divides, in Python, where a q of 0 is no infinity (B63).

Reason: it raised ZeroDivisionError
"""

import torch


def kept(p, q, drafts, lengths, draws):
    counts = torch.zeros(len(p), dtype=torch.int64)
    for s, length in enumerate(lengths.tolist()):
        for i, d in enumerate(drafts[s, :length].tolist()):
            if draws[s, i, 0].item() >= p[s, i, d].item() / q[s, i, d].item():
                break
            counts[s] += 1
    return counts
