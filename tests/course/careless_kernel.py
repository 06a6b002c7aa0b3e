"""A kernel with a fault that only undefined data shows."""

import triton
import triton.language as tl


@triton.jit
def copy_without_other(x_ptr, out_ptr, n, n_padded: tl.constexpr):
    """Masks a load and does not say what the other lanes get."""
    i = tl.arange(0, n_padded)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n))
