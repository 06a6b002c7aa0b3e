"""Makes the NaN, and mends it afterwards: what it was between is not seen in the codes.

Reason: Divide by 1 where the scale is 0
"""

import torch


def codes_of(x, scales):
    return (x.float() / scales[..., None]).round().nan_to_num(0).to(torch.int8)
