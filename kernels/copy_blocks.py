"""Copies blocks of KV caches, in Triton: copy-on-write, swapping out and in, handing over.

A block must be copied in every layer, for keys and for values: in a model of 30 layers that is 60
tensors. One launch each would take longer than the copying, so the kernel is given a list of
addresses and finds its tensor in it.
"""

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from minillm_serve.kernels.compile_case import TARGETS, CompileCase
from minillm_serve.kernels.launch import check_tensors, target_of, warps
from torch import Tensor

#: Bytes and threads a program; a thread has 4 loads of 16 bytes in flight.
CHUNK_BYTES, THREADS = 8192, 128
#: What is copied are bits. A number's own width is what the strides count.
BITS = {1: tl.int8, 2: tl.int16, 4: tl.int32, 8: tl.int64}


@triton.jit(do_not_specialize=["num_tensors", "num_moves"])
def copy_blocks_kernel(
    plan_ptr, num_tensors, num_moves, stride_source, stride_target,
    NUMBERS: tl.constexpr, CHUNK: tl.constexpr, BITS: tl.constexpr, ALIGNMENT: tl.constexpr,
):  # fmt: skip
    """Program (c, m, i): chunk c of move m in tensor i.

    plan: int64, the addresses of all sources, those of all targets, the blocks that are moved from,
    the blocks that they are moved to. NUMBERS: in one block of one tensor.
    """
    move, tensor = tl.program_id(1), tl.program_id(2)
    source = tl.load(plan_ptr + tensor)
    target = tl.load(plan_ptr + num_tensors + tensor)
    moves_ptr = plan_ptr + 2 * num_tensors + move
    from_block, to_block = tl.load(moves_ptr), tl.load(moves_ptr + num_moves)

    # Tensors begin at multiples of 16 bytes as a rule. A number from a list does not show it, and
    # without knowing it the compiler would move two bytes at a time.
    source = tl.multiple_of(source.to(tl.pointer_type(BITS)), ALIGNMENT)
    target = tl.multiple_of(target.to(tl.pointer_type(BITS)), ALIGNMENT)
    i = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    bits = tl.load(source + from_block * stride_source + i, mask=i < NUMBERS, other=0)
    tl.store(target + to_block * stride_target + i, bits, mask=i < NUMBERS)


def copy_blocks(
    sources: Sequence[Tensor], targets: Sequence[Tensor], moves: Sequence[tuple[int, int]]
) -> None:
    """`targets[i][t] = sources[i][s]`, for every pair of tensors and every move (s, t).

    Args:
        sources: caches [blocks, ...] of one shape, dtype and layout; a block lies dense in memory.
        targets: as many; the sources themselves (copy-on-write), another pool or a staging buffer
            (swap, hand-over). Only their number of blocks may differ.
        moves: pairs of block ids, on the host. No two may touch the same target, and where both
            are one pool no target may be a source: the order of copies is not defined.

    Raises:
        ValueError: tensors do not fit together, or moves are out of range or in each other's way.
        RuntimeError: the kernel cannot run on this device.
    """
    if not sources or not moves:
        return
    check_tensors(copy_blocks_kernel, sources[0])
    _check_pool("sources", sources, sources[0])
    _check_pool("targets", targets, sources[0])
    if len(sources) != len(targets):
        raise ValueError(f"{len(sources)} sources for {len(targets)} targets: must be as many")
    _check_moves(sources, targets, moves)
    addresses = [tensor.data_ptr() for tensor in (*sources, *targets)]
    plan = [*addresses, *(source for source, _ in moves), *(target for _, target in moves)]
    numbers, width = sources[0][0].numel(), sources[0].element_size()
    chunk = CHUNK_BYTES // width
    copy_blocks_kernel[(triton.cdiv(numbers, chunk), len(moves), len(sources))](
        _upload(plan, sources[0].device), len(sources), len(moves),
        sources[0].stride(0), targets[0].stride(0),
        NUMBERS=numbers, CHUNK=chunk, BITS=BITS[width], ALIGNMENT=math.gcd(16, *addresses),
        num_warps=warps(THREADS, target_of(sources[0].device)), enable_fp_fusion=True,
    )  # fmt: skip


def _check_pool(name: str, tensors: Sequence[Tensor], like: Tensor) -> None:
    first = tensors[0] if tensors else like
    for i, tensor in enumerate(tensors):
        if tensor.device != like.device:
            raise ValueError(f"{name}[{i}] is on {tensor.device}, move it to {like.device}")
        if tensor.dtype != like.dtype or tensor.shape[1:] != like.shape[1:]:
            raise ValueError(
                f"{name}[{i}] is {tensor.dtype} with blocks of {list(tensor.shape[1:])}: must be "
                f"{like.dtype} with blocks of {list(like.shape[1:])}, as sources[0]"
            )
        if tensor.shape != first.shape or tensor.stride() != first.stride():
            raise ValueError(
                f"{name}[{i}] has shape {list(tensor.shape)} and strides {list(tensor.stride())}: "
                f"one launch needs all to be laid out as {name}[0], {list(first.shape)} and "
                f"{list(first.stride())}"
            )
        if not tensor[0].is_contiguous():
            raise ValueError(
                f"{name}[{i}] has strides {list(tensor.stride())}: a block must lie dense in memory"
            )


def _check_moves(
    sources: Sequence[Tensor], targets: Sequence[Tensor], moves: Sequence[tuple[int, int]]
) -> None:
    for source, target in moves:
        if not (0 <= source < len(sources[0]) and 0 <= target < len(targets[0])):
            raise ValueError(
                f"move {source, target}: blocks are 0 .. {len(sources[0]) - 1} to "
                f"0 .. {len(targets[0]) - 1}"
            )
    written = [target for _, target in moves]
    twice = {target for target in written if written.count(target) > 1}
    if twice:
        raise ValueError(f"moves write block {min(twice)} twice: keep one of them")
    shared = {t.data_ptr() for t in sources} & {t.data_ptr() for t in targets}
    if shared and (both := set(written) & {source for source, _ in moves}):
        raise ValueError(
            f"moves read and write block {min(both)} of one pool, in no defined order: "
            f"make two calls"
        )


def _upload(plan: list[int], device: torch.device) -> Tensor:
    """Sends numbers to the device without waiting for what runs there."""
    pinned = device.type == "cuda"
    return torch.tensor(plan, dtype=torch.int64, pin_memory=pinned).to(device, non_blocking=True)


def copy_blocks_reference(
    sources: Sequence[Tensor], targets: Sequence[Tensor], moves: Sequence[tuple[int, int]]
) -> None:
    """What `copy_blocks` does."""
    for source, target in zip(sources, targets, strict=True):
        for from_block, to_block in moves:
            target[to_block] = source[from_block]


def compile_cases() -> list[CompileCase]:
    """Blocks of SmolLM2-135M in fp32 and of Llama-3-8B in bf16."""
    return [
        CompileCase(
            name=f"copy_blocks {width * 8} bits x {numbers}",
            kernel=copy_blocks_kernel,
            target=target,
            pointers={"plan_ptr": "i64"},
            scalars={"num_tensors": "i32", "num_moves": "i32"},
            constexprs={
                "NUMBERS": numbers,
                "CHUNK": CHUNK_BYTES // width,
                "BITS": BITS[width],
                "ALIGNMENT": 16,
            },
            num_warps=warps(THREADS, target),
            index_loads=4,  # two addresses, two blocks
        )
        for target in TARGETS
        for width, numbers in ((4, 3 * 16 * 64), (2, 8 * 16 * 128))
    ]
