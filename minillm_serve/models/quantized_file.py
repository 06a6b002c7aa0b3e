"""Checkpoints that are quantized already: written, and read without a detour through floats.

A directory as any other model's (config, tokenizer, safetensors), whose ``config.json`` says so
under ``quantization_config``. Where a checkpoint has ``NAME.weight [O, I]`` in floats, this one has

    NAME.weight.codes     uint8 [O, I], or with 4 bits [O, I / 2]
    NAME.weight.steps     [O, G], float32 or float16
    NAME.weight.starts    [O, G], with 4 bits only

see ``quantized.QuantizedWeight``; norms and biases stay as they are.
"""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from minillm_serve.models.errors import ModelError
from minillm_serve.models.layers import Quantizable
from minillm_serve.models.quantized import GROUP, QuantizedWeight, join
from minillm_serve.models.schemes import describe_scheme
from minillm_serve.models.transformer import Transformer
from minillm_serve.models.weights import Slot, slots

FILE = "model.safetensors"
#: Files that belong to a model beside its weights; of these, those that are written anew.
_COMPANIONS, _OWN = (".json", ".jinja", ".txt", ".model"), ("config.json", "manifest.json")
#: Of a quantized weight, in the order of its fields.
PARTS = ("codes", "steps", "starts")


def write_quantized(
    directory: Path,
    scheme: str,
    config: dict[str, Any],
    weights: Iterable[tuple[str, QuantizedWeight | Tensor]],
) -> None:
    """Writes config and weights of a quantized checkpoint.

    Args:
        directory: where to; it exists.
        scheme: one of `schemes.SCHEMES`.
        config: what ``config.json`` said of the model in floats.
        weights: by the names of the checkpoint in floats.
    """
    tensors: dict[str, Tensor] = {}
    for name, weight in weights:
        if isinstance(weight, Tensor):
            tensors[name] = weight.contiguous()
            continue
        parts = zip(PARTS, weight, strict=True)
        tensors.update({f"{name}.{part}": x.contiguous() for part, x in parts if x is not None})
    text = json.dumps({**config, "quantization_config": describe_scheme(scheme)}, indent=2)
    save_file(tensors, directory / FILE, metadata={"format": "pt"})
    (directory / "config.json").write_text(text + "\n", "utf-8")


def save_quantized(model: Transformer, source: Path, target: Path, scheme: str) -> None:
    """Saves a quantized model on a CPU, with the tokenizer and whatever else describes it.

    Args:
        model: quantized, on a CPU.
        source: the directory that it was loaded from.
        target: a directory that does not exist yet, or is empty.
        scheme: what it is quantized in.

    Raises:
        ModelError: the target has something in it, or the model is not quantized.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ModelError(f"{target} is there already. Give a directory that is empty or new.")
    if model.embedding.quantized is None:
        raise ModelError("the model is not quantized: load it with quantization='int8' or 'int4'.")
    target.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.suffix in _COMPANIONS and file.name not in _OWN and "safetensors" not in file.name:
            shutil.copy2(file, target / file.name)
    config = json.loads((source / "config.json").read_text("utf-8"))
    write_quantized(target, scheme, config, _weights(model))


def fill_quantized(model: Transformer, directory: Path, device: torch.device) -> None:
    """Reads all weights of a quantized checkpoint; no layer is there in floats.

    Args:
        model: on the host; its layers take quantized weights.
        directory: of the checkpoint.
        device: where the quantized weights go.

    Raises:
        ModelError: a tensor is missing, unexpected, or of the wrong shape; or the file is damaged.
    """
    file = directory / FILE
    try:
        with safe_open(file, framework="pt") as shard:
            _fill(model, shard, file, device)
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"{file} cannot be read ({error}). It is damaged or was not written whole: quantize "
            "the model again."
        ) from error


def _fill(model: Transformer, shard: Any, file: Path, device: torch.device) -> None:
    left = set(shard.keys())
    owned: dict[Quantizable, list[tuple[str, Slot]]] = defaultdict(list)
    for name, slot in slots(model).items():
        if slot.owner is not None:
            owned[slot.owner].append((name, slot))
        else:
            slot.view.copy_(_take(shard, name, slot.shape, left, file))
    for layer, parts in owned.items():
        read = [_read(shard, name, slot.shape, left, file) for name, slot in parts]
        if len({(part.bits, part.steps.dtype) for part in read}) > 1:
            names = ", ".join(name for name, _ in parts)
            raise ModelError(f"{file} has {names} in different bits, and they are one layer here.")
        layer.keep_quantized(join(read), device)
    if model.config.tie_word_embeddings:
        model.lm_head.share(model.embedding)
    if left:
        names = ", ".join(sorted(left)[:6])
        raise ModelError(f"{file} has tensors that its config.json does not ask for: {names}.")


def _read(
    shard: Any, name: str, shape: tuple[int, ...], left: set[str], file: Path
) -> QuantizedWeight:
    has_starts = f"{name}.starts" in left
    columns = shape[1] // 2 if has_starts else shape[1]
    codes = _take(shard, f"{name}.codes", (shape[0], columns), left, file)
    names = PARTS[1:] if has_starts else PARTS[1:2]
    rest = [_take(shard, f"{name}.{part}", None, left, file) for part in names]
    groups = 1 if rest[0].dtype == torch.float32 else shape[1] // GROUP
    for part, tensor in zip(names, rest, strict=True):
        if tuple(tensor.shape) != (shape[0], groups):
            raise ModelError(
                f"{name}.{part} in {file} has shape {list(tensor.shape)} instead of "
                f"{[shape[0], groups]}. Quantize the model again."
            )
    return QuantizedWeight(codes, *rest)


def _take(
    shard: Any, name: str, shape: tuple[int, ...] | None, left: set[str], file: Path
) -> Tensor:
    if name not in left:
        raise ModelError(f"{file} lacks {name}, which its config.json asks for.")
    left.remove(name)
    tensor: Tensor = shard.get_tensor(name)
    if shape is not None and tuple(tensor.shape) != shape:
        raise ModelError(
            f"{name} in {file} has shape {list(tensor.shape)}, and config.json asks for "
            f"{list(shape)}. Quantize the model again."
        )
    return tensor


def _weights(model: Transformer) -> Iterator[tuple[str, QuantizedWeight | Tensor]]:
    """Everything that a checkpoint of the model has, by the names that it has there."""
    begun: dict[Quantizable, int] = defaultdict(int)
    for name, slot in slots(model).items():
        if slot.owner is None:
            # Of what is repeated for all heads, the checkpoint has one.
            yield name, slot.view.reshape(-1, *slot.shape)[0]
            continue
        first = begun[slot.owner]
        begun[slot.owner] = first + slot.shape[0]
        assert slot.owner.quantized is not None
        yield name, slot.owner.quantized.rows(torch.arange(first, first + slot.shape[0]))
