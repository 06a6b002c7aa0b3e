"""Takes the first token at which the sum is as large as the draw: 0 is as large as 0.

Reason: The running sum has to exceed the draw
"""

import torch


def pick(weights, draws):
    running = weights.double().cumsum(-1)
    return torch.searchsorted(running, draws[:, None] * running[:, -1:])[:, 0]
