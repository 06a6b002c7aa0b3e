"""Checkpoints: streams safetensors shards straight into the model's parameters.

A checkpoint stores q, k and v (and gate and up) apart, the model keeps them fused. So every name
in a checkpoint has a *slot*: a view into some parameter, and the shape that the checkpoint must
have. Each tensor is read, converted and copied into its slot one at a time.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from minillm_serve.models.config import ModelConfig
from minillm_serve.models.errors import ModelError
from minillm_serve.models.layers import Embedding, Linear, Quantizable
from minillm_serve.models.quantized import GROUP, quantize
from minillm_serve.models.transformer import Attention, DecoderLayer, Transformer

HEAD = "lm_head.weight"
_FLOATS = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True)
class Slot:
    """Where a checkpoint's tensor goes.

    Attributes:
        view: the part of a parameter that it fills.
        shape: the shape that it must have; where the view has more dimensions (a head's norm,
            repeated for all heads), it is broadcast.
        owner: the layer whose weight it is part of, if that can be quantized.
    """

    view: Tensor
    shape: tuple[int, ...]
    owner: Quantizable | None = None


def _leave(layer: Quantizable) -> None:
    """Does nothing to a filled layer."""


def fill(
    model: Transformer, directory: Path, filled: Callable[[Quantizable], None] = _leave
) -> None:
    """Reads all parameters of ``model`` from the safetensors files in ``directory``.

    Args:
        model: changed in place.
        directory: of a checkpoint.
        filled: is given each layer as soon as it has its whole weight, and may change what the
            layer keeps of it. (What was never written takes no memory on a CPU yet, so a model that
            is quantized on the way never stands there in floats.)

    Raises:
        ModelError: a tensor is missing, unexpected, of the wrong shape or not made of floats; or a
            file is missing, truncated or not a safetensors file.
    """
    waiting = slots(model)
    tied = model.config.tie_word_embeddings
    head: Tensor | None = None
    unexpected: list[str] = []
    missing = Counter(slot.owner for slot in waiting.values() if slot.owner is not None)
    for file in weight_files(directory):
        for name, tensor in _tensors(file):
            if name in waiting:
                owner = _copy(name, tensor, waiting.pop(name), file)
                if owner is not None:
                    missing[owner] -= 1
                    if not missing[owner]:
                        filled(owner)
            elif name == HEAD and tied:
                head = tensor[:]
            elif not name.endswith("rotary_emb.inv_freq"):  # recomputed from the config
                unexpected.append(name)
    _refuse("lacks", sorted(waiting), directory)
    _refuse("has, beyond what its config.json asks for,", sorted(unexpected), directory)
    if head is not None:
        _check_tied(head, model)


def slots(model: Transformer) -> dict[str, Slot]:
    """The slot of every tensor that a checkpoint of this model must have, by the tensor's name."""
    found = {
        "model.embed_tokens.weight": _slot(model.embedding.weight, model.embedding),
        "model.norm.weight": _slot(model.norm.weight),
    }
    if not model.config.tie_word_embeddings:
        found[HEAD] = _slot(model.lm_head.weight, model.lm_head)
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, DecoderLayer)
        for name, slot in _layer_slots(layer):
            found[f"model.layers.{number}.{name}"] = slot
    return found


def _layer_slots(layer: DecoderLayer) -> Iterator[tuple[str, Slot]]:
    attention, mlp = layer.attention, layer.mlp
    yield "input_layernorm.weight", _slot(layer.input_norm.weight)
    yield "post_attention_layernorm.weight", _slot(layer.post_attention_norm.weight)
    heads = (attention.num_heads, attention.num_kv_heads, attention.num_kv_heads)
    q, k, v = (count * attention.head_dim for count in heads)
    yield from _rows(attention.qkv_proj, {"q_proj": q, "k_proj": k, "v_proj": v}, "self_attn.")
    yield from _rows(attention.o_proj, {"o_proj": attention.o_proj.weight.shape[0]}, "self_attn.")
    half = mlp.gate_up_proj.weight.shape[0] // 2
    yield from _rows(mlp.gate_up_proj, {"gate_proj": half, "up_proj": half}, "mlp.")
    yield from _rows(mlp.down_proj, {"down_proj": mlp.down_proj.weight.shape[0]}, "mlp.")
    yield from _norm_slots(attention)


def _norm_slots(attention: Attention) -> Iterator[tuple[str, Slot]]:
    """One ``[D]`` of the checkpoint for all query heads, and one for all key heads."""
    if attention.qk_norm is None:
        return
    weight, shape = attention.qk_norm.weight.data, (attention.head_dim,)
    yield "self_attn.q_norm.weight", Slot(weight[: attention.num_heads], shape)
    yield "self_attn.k_norm.weight", Slot(weight[attention.num_heads :], shape)


def _rows(linear: Linear, parts: dict[str, int], prefix: str) -> Iterator[tuple[str, Slot]]:
    """The slots of a fused layer whose rows belong to several layers of the checkpoint."""
    start = 0
    for name, rows in parts.items():
        yield f"{prefix}{name}.weight", _slot(linear.weight[start : start + rows], linear)
        if linear.bias is not None:
            yield f"{prefix}{name}.bias", _slot(linear.bias[start : start + rows])
        start += rows


def _slot(view: Tensor, owner: Quantizable | None = None) -> Slot:
    return Slot(view.data, tuple(view.shape), owner)


def _tensors(file: Path) -> Iterator[tuple[str, Any]]:
    """(name, lazily read tensor) of everything in a file."""
    try:
        with safe_open(file, framework="pt") as shard:
            for name in shard.keys():  # noqa: SIM118 - safe_open is no mapping
                yield name, shard.get_slice(name)
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"{file} cannot be read ({error}). It is damaged or was not downloaded whole: "
            "fetch it again."
        ) from error


def _copy(name: str, tensor: Any, slot: Slot, file: Path) -> Quantizable | None:
    """Fills a slot; tells whose it is, and keeps nothing of it."""
    shape, kind = tuple(tensor.get_shape()), tensor.get_dtype()
    if shape != slot.shape:
        raise ModelError(
            f"{name} in {file} has shape {list(shape)}, and config.json asks for "
            f"{list(slot.shape)}: the two do not belong together. Fetch the directory again."
        )
    if kind not in _FLOATS:
        raise ModelError(
            f"{name} in {file} is made of {kind}: a quantized checkpoint, which is not supported. "
            "Choose the unquantized checkpoint of the same model."
        )
    slot.view.copy_(tensor[:])
    return slot.owner


def _check_tied(head: Tensor, model: Transformer) -> None:
    """A tied model's file may repeat the embedding as its head, but not have another one."""
    embedding = model.embedding.weight
    if head.shape == embedding.shape and _same(head, model.embedding):
        return
    raise ModelError(
        f"config.json ties the output head to the embedding, and the file's {HEAD} differs from "
        "it. Set tie_word_embeddings to false in config.json if the head is meant."
    )


def num_weights(directory: Path) -> int:
    """How many numbers a checkpoint holds; its files' headers tell.

    Raises:
        ModelError: a file is missing, truncated or not a safetensors file.
    """
    shapes = (
        tensor.get_shape() for file in weight_files(directory) for _, tensor in _tensors(file)
    )
    return sum(map(math.prod, shapes))


def weight_bytes(
    num_weights: int, config: ModelConfig, *, dtype: torch.dtype, quantization: str | None
) -> float:
    """Bytes that a checkpoint's weights take once they are loaded, norms and steps left aside.

    Args:
        num_weights: numbers that the checkpoint holds.
        config: of the model.
        dtype: that is computed in.
        quantization: what floats are quantized in while they are read, if in anything.
    """
    if config.quantization is not None:
        return num_weights  # codes, and they stay as they are
    if quantization is None:
        return num_weights * dtype.itemsize
    if quantization == "int8":
        return num_weights
    # The embedding and the output head have 8 bits, all others 4 and a share of two float16.
    ends = config.vocab_size * config.hidden_size * (1 if config.tie_word_embeddings else 2)
    return ends + (num_weights - ends) * (4 / 8 + 2 * 2 / GROUP)


def _same(head: Tensor, embedding: Embedding) -> bool:
    """Whether the embedding's weight came of these values."""
    if embedding.quantized is None:
        return torch.equal(head.to(embedding.weight), embedding.weight)
    device = embedding.quantized.codes.device
    kept = embedding.quantized.rows(torch.arange(len(head), device=device))
    again = quantize(head.to(embedding.weight.dtype), "int8").to(device)
    return torch.equal(kept.codes, again.codes) and torch.equal(kept.steps, again.steps)


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a model: the single one, or the shards that the index names.

    Raises:
        ModelError: there is none, there is no telling which, or a shard is missing.
    """
    single = directory / "model.safetensors"
    if single.is_file():
        return [single]
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        return _shards(index)
    others = sorted(directory.glob("*.safetensors"))
    if len(others) == 1:
        return others
    if others:
        raise ModelError(
            f"{directory} has {len(others)} safetensors files and no {index.name} that says how "
            "they belong together. Fetch the index, or the whole directory again."
        )
    pickled = any(directory.glob("*.bin")) or any(directory.glob("*.pth"))
    raise ModelError(
        f"{directory} has no safetensors weights"
        + (" (only pickled ones, which can run code when they are read)." if pickled else ".")
        + " Choose a checkpoint in safetensors format, or a GGUF file."
    )


def _shards(index: Path) -> list[Path]:
    try:
        weight_map = json.loads(index.read_text("utf-8"))["weight_map"]
        names = sorted(set(weight_map.values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelError(
            f"{index} is not an index of shards ({error!r}). Fetch it again."
        ) from error
    outside = [str(name) for name in names if Path(str(name)).name != name]
    if outside:
        raise ModelError(f"{index} names files outside its directory: {', '.join(outside)}.")
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise ModelError(
            f"{index.parent} lacks {_some(missing)}, which {index.name} names. Fetch it again."
        )
    return [index.parent / name for name in names]


def _refuse(what: str, names: list[str], directory: Path) -> None:
    if names:
        raise ModelError(
            f"the checkpoint in {directory} {what} {len(names)} tensor(s): {_some(names)}. "
            "Its weights and its config.json do not belong together: fetch both again."
        )


def _some(names: list[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
