"""The decode kernel in five stages, each with its launcher and what a compiler needs to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from minillm_serve.course.chapter03.kv_heads import combine_kernel, group_kernel, split_kernel
from minillm_serve.course.chapter03.query_heads import block_kernel, loop_kernel, online_kernel
from minillm_serve.kernels.attention_launch import MIN_SIDE, check_attention
from minillm_serve.kernels.compile_case import CompileCase
from minillm_serve.kernels.launch import is_interpreted, next_power_of_2

#: What the compiler is asked for: one group of Llama-3-8B, blocks of 16 tokens.
COMPILED_D, COMPILED_P, COMPILED_GROUP = 128, 16, 4
COMPILED_TARGETS = ("sm_80", "sm_90", "gfx942")
_INPUTS = ("q_ptr", "k_ptr", "v_ptr")


@dataclass(frozen=True)
class Stage:
    """One stage of the kernel's growth.

    Attributes:
        number: 1 to 5.
        name: short.
        idea: what is new, in a sentence.
        kernel: what `@triton.jit` returned.
        per: what a program is there for.
    """

    number: int
    name: str
    idea: str
    kernel: Any
    per: str

    @property
    def title(self) -> str:
        """Number and name."""
        return f"{self.number} {self.name}"

    def programs(self, sequences: int, heads: int, kv_heads: int, splits: int = 1) -> int:
        """How many programs the (first) launch starts."""
        each = {"query head": heads, "KV head": kv_heads, "piece of a KV head": kv_heads * splits}
        return sequences * each[self.per]

    def attend(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        block_tables: Tensor,
        seq_lens: Tensor,
        *,
        scale: float,
        num_splits: int = 3,
    ) -> Tensor:
        """Attends one row a sequence.

        Args:
            q: [S, H, D]; D is a power of two of 16 or more.
            k_cache: [num_blocks, H_kv, P, D] like q; P is a power of two (of 16 or more on a GPU,
                from stage 4 on).
            v_cache: same shape.
            block_tables: [S, W] int32.
            seq_lens: [S] int32, each 1 or more.
            scale: multiplies the scores.
            num_splits: pieces of stage 5.

        Returns:
            [S, H, D].

        Raises:
            ValueError: a shape is none of these, or the interpreter would compute wrongly.
            RuntimeError: the kernel cannot run on this device.
        """
        out = check_attention(self.kernel, q, k_cache, v_cache, block_tables, seq_lens, None, None)
        for name, size in (("D", q.shape[2]), ("P", k_cache.shape[2])):
            if size & (size - 1):
                raise ValueError(f"{name}={size}: these stages take powers of two only")
        if is_interpreted(self.kernel) and q.dtype == torch.bfloat16:
            raise ValueError("Triton's interpreter computes wrongly with bfloat16: use float32")
        arguments = (q, k_cache, v_cache, block_tables, seq_lens)
        launch = _launch_split if self.kernel is split_kernel else _launch
        launch(self.kernel, arguments, out, scale, num_splits)
        return out

    def compile_case(self, target: str) -> CompileCase:
        """The stage for bf16 and the sizes above; see `CompileCase`."""
        is_tile = self.number >= 4
        pointers = {**dict.fromkeys(_INPUTS, "bf16"), "table_ptr": "i32", "lens_ptr": "i32"}
        pointers["o_ptr"] = "bf16"
        scalars = {"scale": "fp32"}
        if self.kernel is split_kernel:
            pointers |= {"o_ptr": "fp32", "lse_ptr": "fp32"}
            scalars["num_splits"] = "i32"
        constexprs = {"D": COMPILED_D, "P": COMPILED_P, "GROUP": COMPILED_GROUP}
        return CompileCase(
            name=f"stage {self.title}",
            kernel=self.kernel,
            target=target,
            pointers=pointers,
            scalars=scalars,
            constexprs=constexprs | ({"ROWS": MIN_SIDE} if is_tile else {}),
            num_warps=4 if is_tile else 1,
            num_stages=3 if target.startswith("sm_") else 2,
            uses_dot=is_tile,
            wide_loads=False,  # what it comes to is what the chapter shows
        )


def _constants(arguments: tuple[Tensor, ...]) -> dict[str, int]:
    q, k_cache = arguments[:2]
    return {"D": q.shape[2], "P": k_cache.shape[2], "GROUP": q.shape[1] // k_cache.shape[1]}


def _strides(arguments: tuple[Tensor, ...]) -> tuple[int, ...]:
    q, k_cache, v_cache, table, _ = arguments
    return (*q.stride()[:2], *k_cache.stride()[:3], *v_cache.stride()[:3], table.stride(0))


def _launch(
    kernel: Any, arguments: tuple[Tensor, ...], out: Tensor, scale: float, num_splits: int
) -> None:
    q, k_cache = arguments[:2]
    constants = _constants(arguments)
    heads = q.shape[1]
    options: dict[str, Any] = {"num_warps": 1}
    if kernel is group_kernel:
        heads = k_cache.shape[1]
        options = {"num_warps": 4, "ROWS": max(next_power_of_2(constants["GROUP"]), MIN_SIDE)}
    kernel[(heads, len(q))](
        *arguments, out, scale, *_strides(arguments), *out.stride()[:2], **constants, **options
    )


def _launch_split(
    kernel: Any, arguments: tuple[Tensor, ...], out: Tensor, scale: float, num_splits: int
) -> None:
    q, k_cache = arguments[:2]
    (sequences, heads, dim), constants = q.shape, _constants(arguments)
    part_o = q.new_empty(num_splits, sequences, heads, dim, dtype=torch.float32)
    part_lse = q.new_empty(num_splits, sequences, heads, dtype=torch.float32)
    kernel[(k_cache.shape[1], sequences, num_splits)](
        *arguments, part_o, part_lse, scale, num_splits,
        *_strides(arguments), *part_o.stride()[:3], *part_lse.stride()[:2],
        **constants, ROWS=max(next_power_of_2(constants["GROUP"]), MIN_SIDE),
    )  # fmt: skip
    combine_kernel[(heads, sequences)](
        part_o, part_lse, out, num_splits,
        *part_o.stride()[:3], *part_lse.stride()[:2], *out.stride()[:2],
        D=dim, SPLITS=next_power_of_2(num_splits),
    )  # fmt: skip


STAGES = (
    Stage(1, "loop", "one position at a time, all keys twice", loop_kernel, "query head"),
    Stage(2, "blocks", "a block at a time, and a mask", block_kernel, "query head"),
    Stage(3, "online softmax", "one pass over the keys", online_kernel, "query head"),
    Stage(4, "group", "a key is read once for all its query heads", group_kernel, "KV head"),
    Stage(5, "split", "long contexts in pieces, merged after", split_kernel, "piece of a KV head"),
)


def compile_cases() -> list[CompileCase]:
    """Every stage for the three machines that the chapter shows."""
    return [stage.compile_case(target) for target in COMPILED_TARGETS for stage in STAGES]
