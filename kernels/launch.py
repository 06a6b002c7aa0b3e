"""What every launcher checks and asks before it starts a Triton kernel.

A kernel believes what it is told: a wrong shape or a transposed tensor gives wrong numbers, or a
crash far away. So launchers refuse here, in words, what a kernel could not read.
"""

from functools import cache

import torch
import triton
import triton.language as tl
from minillm_serve.kernels.canary import canary_kernel, explain_unrunnable
from torch import Tensor
from triton.runtime import JITFunction

#: The dtypes of weights and caches that kernels compute with, and Triton's names for them.
TRITON_TYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


def is_interpreted(kernel: object) -> bool:
    """Whether what `@triton.jit` returned will be interpreted, operation by operation, in numpy."""
    return not isinstance(kernel, JITFunction)


def compute_type(kernel: object, dtype: torch.dtype) -> tl.dtype:
    """The type that a kernel computes in: what it loads is converted to it before any arithmetic.

    Compiled, that is the tensors' own type and the conversion is nothing. The interpreter holds
    bf16 as bare 16-bit integers and would multiply those, so there it is float32.
    """
    return tl.float32 if is_interpreted(kernel) else TRITON_TYPES[dtype]


def check_tensors(kernel: object, like: Tensor, **tensors: Tensor | None) -> None:
    """Checks that a kernel can run on a tensor's device, and that others lie there too.

    Raises:
        RuntimeError: the kernel cannot run on this device; the message tells how it could.
        ValueError: a tensor lies on another device.
    """
    if reason := explain_unrunnable(kernel, like.device.type):
        raise RuntimeError(reason)
    for name, tensor in tensors.items():
        if tensor is not None:
            check_device(name, tensor, like)


def check_device(name: str, tensor: Tensor, like: Tensor) -> None:
    """Raises ValueError unless a tensor lies where another one does."""
    if tensor.device != like.device:
        raise ValueError(
            f"{name} is on {tensor.device} and the kernel runs on {like.device}: "
            f"move it with {name}.to({str(like.device)!r})"
        )


def check_dtype(name: str, tensor: Tensor, *allowed: torch.dtype) -> None:
    """Raises ValueError unless a tensor has one of some dtypes."""
    if tensor.dtype not in allowed:
        raise ValueError(
            f"{name} is {tensor.dtype}, must be {' or '.join(map(str, allowed))}: "
            f"convert it with {name}.to({allowed[0]})"
        )


def check_shape(name: str, tensor: Tensor, *shape: int | None) -> None:
    """Raises ValueError unless a tensor has a shape; None stands for any size."""
    if len(tensor.shape) != len(shape) or any(
        want is not None and want != size for size, want in zip(tensor.shape, shape, strict=True)
    ):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} has shape {list(tensor.shape)}, must have [{wanted}]")


def check_rows_dense(name: str, tensor: Tensor) -> None:
    """Raises ValueError unless the last dimension is dense in memory; others may be strided."""
    if tensor.stride(-1) != 1 and tensor.shape[-1] > 1:
        raise ValueError(
            f"{name} has strides {list(tensor.stride())}: the kernel reads rows that lie dense in "
            f"memory (last stride 1); pass {name}.contiguous(), or lay it out so from the start"
        )


def check_scales(
    k_cache: Tensor, v_cache: Tensor, k_scale: Tensor | None, v_scale: Tensor | None
) -> None:
    """Raises ValueError unless caches of codes have scales, one a slot and head, and others none.

    A scale is [blocks, H_kv, P] float32, with slots dense.
    """
    coded = k_cache.element_size() == 1
    for name, codes, scale in (("k", k_cache, k_scale), ("v", v_cache, v_scale)):
        if (scale is not None) != coded:
            what = "codes, which need scales" if coded else "numbers, which have no scales"
            raise ValueError(f"{name}_cache is {codes.dtype}, {what}: check {name}_scale")
        if scale is not None:
            check_shape(f"{name}_scale", scale, *codes.shape[:3])
            check_dtype(f"{name}_scale", scale, torch.float32)
            check_rows_dense(f"{name}_scale", scale)
            check_device(f"{name}_scale", scale, codes)


def check_positive(name: str, value: float | None) -> None:
    """Raises ValueError unless an option is None or above zero."""
    if value is not None and not value > 0:
        raise ValueError(f"{name}={value} must be above 0, or None to do without it")


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least n: the size of a Triton tile must be one."""
    return 1 << max(n - 1, 0).bit_length()


@cache
def multiprocessors(device: torch.device) -> int:
    """How many multiprocessors a GPU has; 1 for a CPU."""
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@cache
def target_of(device: torch.device) -> str:
    """The machine language that kernels are compiled to for a device.

    Returns:
        "sm_90" and the like for NVIDIA, "gfx942" and the like for AMD; "cpu" where kernels are
        interpreted.
    """
    if device.type != "cuda" or is_interpreted(canary_kernel):
        return "cpu"
    target = triton.runtime.driver.active.get_current_target()
    return target.arch if target.backend == "hip" else f"sm_{target.arch}"


def warps(threads: int, target: str) -> int:
    """How many warps so many threads are: of 32, and on AMD's accelerators of 64."""
    return max(1, threads // (64 if target.startswith("gfx9") else 32))
