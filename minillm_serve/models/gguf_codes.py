"""GGUF tensors that are kept as they are: Q8_0, Q4_0 and Q4_1 become our codes byte by byte.

Their groups of 32, their float16 steps and the order of their four-bit halves are ours
(``quantized``), so that nothing passes through floats: Q4_1 is taken as it is, Q4_0 gets a start of
minus eight steps (exact in float16), and Q8_0's signed bytes are counted from -128. What the scheme
has no place for is dequantized, one tensor at a time, and quantized again in the same groups.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minillm_serve.models.errors import ModelError
from minillm_serve.models.gguf import check_header, read_config, read_header
from minillm_serve.models.gguf_tokenizer import save_tokenizer
from minillm_serve.models.quantized import GROUP, QuantizedWeight, quantize
from minillm_serve.models.quantized_file import write_quantized

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
#: Bytes of a group: float16 step, (Q4_1) float16 start, codes.
_BLOCK_BYTES = {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34}
_KEPT = {"int4": ("Q4_0", "Q4_1"), "int8": ("Q8_0",)}
#: Embedding and output head, which have 8 bits in either scheme.
_ENDS = ("model.embed_tokens.weight", "lm_head.weight")


def convert_codes(file: Path, directory: Path, scheme: str) -> None:
    """Writes the model in a GGUF as a quantized checkpoint.

    Args:
        file: a GGUF file.
        directory: an empty directory.
        scheme: ``"int4"`` or ``"int8"``.

    Raises:
        ModelError: it is not a whole GGUF file, or not of a supported model.
    """
    from gguf import GGUFReader

    header = read_header(file)
    rope = check_header(header, file)
    try:
        config = read_config(file, header, rope)
        reader = GGUFReader(file)
        weights = _weights(reader.tensors, config, scheme)
        write_quantized(directory, scheme, {**config.to_dict(), "dtype": "float32"}, weights)
    except ModelError:
        raise
    except Exception as error:  # a damaged file can raise anything, from struct.error to OSError
        raise ModelError(
            f"{file} cannot be converted ({type(error).__name__}: {error}). Download it again."
        ) from error
    save_tokenizer(file, directory, header.values.get("tokenizer.ggml.pre"), config)


def _weights(
    tensors: Any, config: Any, scheme: str
) -> Iterator[tuple[str, QuantizedWeight | Tensor]]:
    for tensor in tensors:
        if tensor.name == "rope_freqs.weight":  # became parameters of the config
            continue
        name = _name(tensor.name)
        if len(tensor.shape) == 1:
            yield name, _floats(tensor)
            continue
        weight = read_codes(tensor, "int8" if name in _ENDS else scheme)
        yield name, _in_our_order(weight, name, config)


def read_codes(tensor: Any, scheme: str) -> QuantizedWeight:
    """The codes of a tensor of a GGUF, as they are or, where the scheme is another one, made anew.

    Args:
        tensor: the reader's, of two dimensions.
        scheme: ``"int4"`` or ``"int8"``; groups of 32 either way.
    """
    kind, columns = tensor.tensor_type.name, int(tensor.shape[0])
    if kind not in _KEPT[scheme]:
        weight = _floats(tensor)
        return quantize(weight, scheme) if scheme == "int4" else by_group_of_eight(weight)
    size = _BLOCK_BYTES[kind]
    blocks = np.array(tensor.data).view(np.uint8).reshape(-1, columns // GROUP, size)
    head = 4 if kind == "Q4_1" else 2
    numbers = torch.from_numpy(np.ascontiguousarray(blocks[..., :head]).view(np.float16))
    codes = torch.from_numpy(np.ascontiguousarray(blocks[..., head:]))
    steps = numbers[..., 0].contiguous()
    if kind == "Q8_0":
        return QuantizedWeight((codes ^ 0x80).flatten(1), steps)
    starts = numbers[..., 1].contiguous() if kind == "Q4_1" else -8 * steps
    return QuantizedWeight(codes.flatten(1), steps, starts)


def by_group_of_eight(weight: Tensor) -> QuantizedWeight:
    """A weight in 8 bits with a step for each group, as in Q8_0."""
    groups = weight.reshape(len(weight), -1, GROUP)
    steps = (groups.abs().amax(2) / 127).half()
    spread = torch.where(steps > 0, steps.float(), 1)[..., None]
    codes = (groups / spread).round_().clamp_(-127, 127) + 128
    return QuantizedWeight(codes.to(torch.uint8).flatten(1), steps)


def _in_our_order(weight: QuantizedWeight, name: str, config: Any) -> QuantizedWeight:
    """Undoes llama.cpp's order of rows: it rotates neighbours in Llamas, and we halves."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    count = heads.get(name.split(".")[-2])
    if config.model_type != "llama" or count is None:
        return weight
    rows = torch.arange(len(weight.codes)).view(count, -1, 2)
    return weight.rows(rows.transpose(1, 2).flatten())


def _floats(tensor: Any) -> Tensor:
    from gguf.quants import dequantize

    values = dequantize(tensor.data, tensor.tensor_type)
    shape = tuple(int(n) for n in reversed(tensor.shape))
    return torch.from_numpy(np.array(values, np.float32)).view(shape)


def _name(theirs: str) -> str:
    """A tensor's name in a Hugging Face checkpoint."""
    stem, _, leaf = theirs.rpartition(".")
    layer = re.fullmatch(r"blk\.(\d+)\.(.+)", stem)
    if layer is None:
        return f"{_NAMES[stem]}.{leaf}"
    return f"model.layers.{layer[1]}.{_NAMES[layer[2]]}.{leaf}"
