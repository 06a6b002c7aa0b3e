"""How the attention kernels are cut into tiles: by rules and small tables, nothing is tried out.

The figures come from what the compiler makes of them (`compiled.md`): the largest tiles whose state
stays in registers, and whose tiles in flight fit in shared memory. The smallest GPU of a kind
counts: an RTX of sm_86 has 99 KiB of shared memory where an A100 has 163.
"""

from dataclasses import dataclass
from typing import Any

import torch
from minillm_serve.kernels.attention_launch import MIN_SIDE, padded
from minillm_serve.kernels.launch import next_power_of_2

#: Targets with the shared memory and the asynchronous matrix units that large tiles want.
LARGE = ("sm_90", "sm_100", "sm_103")


@dataclass(frozen=True)
class _Config:
    """What both kinds share.

    Attributes:
        tile: keys that are worked on at once.
        num_warps: groups of 32 (AMD: 64) threads that share a program.
        num_stages: tiles in flight.
    """

    tile: int
    num_warps: int
    num_stages: int

    def compiler_options(self) -> dict[str, Any]:
        """What is not an argument of the kernel."""
        options = {"num_warps": self.num_warps, "num_stages": self.num_stages}
        return {**options, "enable_fp_fusion": True}


@dataclass(frozen=True)
class DecodeConfig(_Config):
    """How the decode kernel is cut.

    Attributes:
        min_split: least keys of a piece, a multiple of `tile`; what is shorter costs more to merge
            than it gains.
    """

    min_split: int = 256

    def constants(self, group: int) -> dict[str, int]:
        """The kernel's compile-time arguments, for `group` query heads to a KV head."""
        rows = max(next_power_of_2(group), MIN_SIDE)
        return {"ROWS": rows, "TILE": self.tile, "MIN_SPLIT": self.min_split}


@dataclass(frozen=True)
class CascadeConfig(DecodeConfig):
    """How the kernel for shared prefixes is cut.

    Attributes:
        rows: of a tile, sequences times the query heads that share a KV head.
    """

    rows: int = 64

    def constants(self, group: int) -> dict[str, int]:
        """The kernel's compile-time arguments, for `group` query heads to a KV head."""
        rows = max(self.rows, next_power_of_2(group))
        return {"ROWS": rows, "TILE": self.tile, "MIN_SPLIT": self.min_split}

    def sequences(self, group: int) -> int:
        """How many a tile holds."""
        return self.constants(group)["ROWS"] // group


@dataclass(frozen=True)
class PrefillConfig(_Config):
    """How the prefill kernel is cut.

    Attributes:
        rows: of a tile, tokens times the query heads that share a KV head.
    """

    rows: int = 128

    def constants(self, group: int) -> dict[str, int]:
        """The kernel's compile-time arguments, for `group` query heads to a KV head."""
        return {"ROWS": max(self.rows, next_power_of_2(group)), "TILE": self.tile}


def configure_decode(
    head_dim: int, dtype: torch.dtype, target: str, coded: bool = False
) -> DecodeConfig:
    """Cuts decode: a tile of keys is 16 KiB, whatever a head's size.

    With as much for values and two tiles in flight that is 64 KiB of shared memory: three programs
    fit on an H100's multiprocessor, and enough bytes are under way to hide the memory's latency.
    AMD keeps what is in flight in registers, and has 64 KiB. Codes take less room, so that three
    tiles are in flight; a tile of theirs is no longer, since it becomes as many numbers.

    Args:
        head_dim: D, at most 256.
        dtype: of q, and of the cache or of what its codes become.
        target: as `launch.target_of` says it.
        coded: whether the cache holds codes of 8 bits.
    """
    if target == "cpu":
        return DecodeConfig(tile=64, num_warps=1, num_stages=1)
    row_bytes = padded(head_dim) * dtype.itemsize
    return DecodeConfig(
        tile=min(16384 // row_bytes, 64 if coded else 128),
        num_warps=8 if row_bytes >= 1024 else 4,  # more registers for the widest heads, in fp32
        num_stages=2 if target.startswith("gfx") else 4 if coded else 3,
    )


def configure_cascade(
    head_dim: int, dtype: torch.dtype, target: str, coded: bool = False
) -> CascadeConfig:
    """Cuts the shared part of decode: its tiles of keys, under the rows of a whole warpgroup.

    A tile of 64 rows is 16 sequences of 4 heads each. More rows would read the prefix less often,
    but there are too few programs to fill a GPU as it is, and what one of them has read, the next
    finds in the L2 cache. fp32 has prefill's small tiles.

    Args:
        head_dim: D, at most 256.
        dtype: of q and the cache.
        target: as `launch.target_of` says it.
        coded: see `configure_decode`.
    """
    if dtype == torch.float32 and target != "cpu":
        small = configure_prefill(head_dim, dtype, target)
        return CascadeConfig(small.tile, small.num_warps, small.num_stages, rows=small.rows)
    decode = configure_decode(head_dim, dtype, target, coded)
    # Beside the widest queries there is no room for a third tile in an RTX.
    stages = 2 if padded(head_dim) > 128 and target not in LARGE else decode.num_stages
    return CascadeConfig(decode.tile, decode.num_warps, min(stages, decode.num_stages), rows=64)


def choose_num_splits(
    programs: int, max_seq_len: int, num_multiprocessors: int, min_split: int
) -> int:
    """How many pieces each context is cut into: enough for two programs a multiprocessor.

    Args:
        programs: that there are without splitting, sequences x KV heads.
        max_seq_len: tokens of the longest context.
        num_multiprocessors: of the GPU.
        min_split: least tokens of a piece.
    """
    wanted = -(-2 * num_multiprocessors // programs)
    return max(1, min(wanted, max_seq_len // min_split))


#: Three configurations a table: for D up to 64, 128 and 256.
_PREFILL_AMPERE = (
    PrefillConfig(rows=128, tile=64, num_warps=8, num_stages=3),
    PrefillConfig(rows=128, tile=64, num_warps=8, num_stages=3),
    PrefillConfig(rows=64, tile=32, num_warps=8, num_stages=2),
)
_PREFILL_LARGE = (
    PrefillConfig(rows=128, tile=128, num_warps=8, num_stages=3),
    PrefillConfig(rows=128, tile=128, num_warps=8, num_stages=2),
    PrefillConfig(rows=128, tile=32, num_warps=8, num_stages=2),
)
_PREFILL_AMD = (
    PrefillConfig(rows=128, tile=64, num_warps=4, num_stages=2),
    PrefillConfig(rows=128, tile=32, num_warps=4, num_stages=2),
    PrefillConfig(rows=64, tile=32, num_warps=4, num_stages=2),
)
#: Codes become numbers in registers, and those are what is short.
_PREFILL_AMPERE_CODED = (
    _PREFILL_AMPERE[0],
    PrefillConfig(rows=64, tile=64, num_warps=8, num_stages=3),
    PrefillConfig(rows=64, tile=32, num_warps=8, num_stages=3),
)
_PREFILL_LARGE_CODED = (
    PrefillConfig(rows=128, tile=64, num_warps=8, num_stages=3),
    PrefillConfig(rows=128, tile=64, num_warps=8, num_stages=3),
    PrefillConfig(rows=64, tile=32, num_warps=8, num_stages=3),
)
#: fp32 serves checks, not speed. On NVIDIA it takes three products, whose parts all want registers.
_PREFILL_FP32 = (
    PrefillConfig(rows=32, tile=32, num_warps=8, num_stages=2),
    PrefillConfig(rows=32, tile=32, num_warps=8, num_stages=2),
    PrefillConfig(rows=16, tile=16, num_warps=8, num_stages=2),
)


def configure_prefill(
    head_dim: int, dtype: torch.dtype, target: str, coded: bool = False
) -> PrefillConfig:
    """Cuts prefill: looked up by the width of heads and the kind of GPU.

    Args:
        head_dim: D, at most 256.
        dtype: of q and the cache.
        target: as `launch.target_of` says it.
        coded: see `configure_decode`.
    """
    if target == "cpu":
        return PrefillConfig(rows=64, tile=64, num_warps=1, num_stages=1)
    if dtype == torch.float32:
        table = _PREFILL_FP32
    elif target.startswith("gfx"):
        table = _PREFILL_AMD
    elif coded:
        table = _PREFILL_LARGE_CODED if target in LARGE else _PREFILL_AMPERE_CODED
    else:
        table = _PREFILL_LARGE if target in LARGE else _PREFILL_AMPERE
    width = padded(head_dim)
    return table[0 if width <= 64 else 1 if width == 128 else 2]
