"""The exponential of the CPU kernels, against float64."""

import numpy as np
from minillm_serve.kernels.cpu_math import exp_nonpositive
from numba import njit


@njit
def exponentials(x):
    out = np.empty_like(x)
    for i in range(len(x)):
        out[i] = exp_nonpositive(x[i])
    return out


def test_it_is_right_to_float32_wherever_float32_has_full_precision():
    x = np.linspace(-87, 0, 400_001).astype(np.float32)
    want = np.exp(x.astype(np.float64))
    assert np.abs(exponentials(x) / want - 1).max() < 3e-7
    assert exponentials(np.zeros(1, np.float32))[0] == 1


def test_far_below_it_is_as_good_as_zero():
    x = np.array([-88, -1e4, -1e30, -np.inf], np.float32)
    assert (exponentials(x) < 2e-38).all()
