"""The file of a draft head: 8-bit codes, their steps, and what the head was made from.

Matrices are rounded as in GGUF's Q8_0: in each group of 32 neighbours of a row, codes -127 .. 127
times one float16 step. ``codes.find_codes`` finds such values again to the last bit, so a CPU reads
a fourth of the bytes; and a head of four million weights is a file of some 4 MB.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from minillm_serve.kernels.cpu_coded_linear import GROUP
from minillm_serve.models.config import ModelConfig

FORMAT = 1
#: Numbers of the target's config that a head depends on.
SHAPE = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_heads",
    "num_kv_heads",
    "head_dim",
)


@dataclass(frozen=True)
class DraftFile:
    """What a file holds.

    Attributes:
        target: the name of the model that the head was trained for.
        shape: the numbers named in ``SHAPE``, of the target.
        vocabulary: int64 ``[V_d]``, draft id -> the target's id, rising.
        matrices: name -> float32 ``[out, in]``; on reading, of values that codes can hold.
        norms: name -> float32 ``[hidden]``.
        recipe: how it was made: seed, steps, tokens, measured figures; JSON values.
    """

    target: str
    shape: dict[str, int]
    vocabulary: Tensor
    matrices: dict[str, Tensor]
    norms: dict[str, Tensor]
    recipe: dict[str, Any] = field(default_factory=dict)


def shape_of(config: ModelConfig) -> dict[str, int]:
    """The numbers of a target that its head depends on."""
    return {name: getattr(config, name) for name in SHAPE}


def round_to_codes(weight: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest codes and steps of a matrix.

    Args:
        weight: ``[O, I]``, I a multiple of 32.

    Returns:
        int8 codes ``[O, I]`` and float16 steps ``[O, I / 32]``.
    """
    groups = weight.detach().float().reshape(len(weight), -1, GROUP)
    largest = groups.abs().amax(2, keepdim=True)
    steps = (largest / 127).half()
    spread = torch.where(steps > 0, steps.float(), 1)
    codes = (groups / spread).round_().clamp_(-127, 127)
    # The largest has the code 127 whatever the step was rounded to: that is how the step is found.
    codes = torch.where(groups.abs() == largest, 127 * groups.sign(), codes)
    return codes.to(torch.int8).flatten(1), steps.squeeze(2)


def expand_codes(codes: Tensor, steps: Tensor) -> Tensor:
    """The matrix, float32 ``[O, I]``; every product is exact (8 and 11 bits)."""
    groups = codes.float().reshape(len(codes), -1, GROUP)
    return (groups * steps.float()[..., None]).flatten(1)


def write_draft_file(file: Path, head: DraftFile) -> None:
    """Rounds the matrices and writes all of it."""
    tensors = {"vocabulary": head.vocabulary.to(torch.int32).contiguous()}
    for name, weight in head.matrices.items():
        codes, steps = round_to_codes(weight)
        tensors[f"{name}.codes"], tensors[f"{name}.steps"] = codes.contiguous(), steps.contiguous()
    for name, weight in head.norms.items():
        tensors[f"{name}.weight"] = weight.detach().float().contiguous()
    about = {"shape": head.shape, "recipe": head.recipe}
    metadata = {"format": str(FORMAT), "target": head.target, "about": json.dumps(about)}
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, file, metadata)


def read_draft_file(file: Path) -> DraftFile:
    """Reads what `write_draft_file` wrote.

    Raises:
        ValueError: there is no such file, it is no draft head, or it has another format.
    """
    if not file.is_file():
        raise ValueError(f"there is no draft head {file}. Train one: minillm-serve train-drafter.")
    try:
        with safe_open(file, framework="pt") as opened:
            metadata = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file} cannot be read ({error}). Fetch or train it again.") from error
    if metadata.get("format") != str(FORMAT):
        raise ValueError(
            f"{file} is no draft head of format {FORMAT} (it says {metadata.get('format')!r}). "
            "Train one: minillm-serve train-drafter."
        )
    about = json.loads(metadata["about"])
    return DraftFile(
        target=metadata["target"],
        shape=about["shape"],
        vocabulary=tensors["vocabulary"].long(),
        matrices={
            name.removesuffix(".codes"): expand_codes(
                codes, tensors[name.replace(".codes", ".steps")]
            )
            for name, codes in tensors.items()
            if name.endswith(".codes")
        },
        norms={
            name.removesuffix(".weight"): weight
            for name, weight in tensors.items()
            if name.endswith(".weight")
        },
        recipe=about["recipe"],
    )
