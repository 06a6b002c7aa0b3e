"""GGUF files: checked, dequantized by transformers, and written out as safetensors.

transformers reads a GGUF's tensors faithfully and drops without a word what it has no place for: a
RoPE scaling, an unexpected bias, a missing tensor. Whatever it would drop is handled or refused
here, before or after it has read the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from minillm_serve.models.cache import Source, tell
from minillm_serve.models.config import ModelConfig
from minillm_serve.models.errors import ModelError
from minillm_serve.models.gguf_tokenizer import save_tokenizer
from minillm_serve.models.registry import ARCHITECTURES, supported

_COMMON = r"token_embd\.weight|output\.weight|output_norm\.weight|rope_freqs\.weight"
_LAYER = r"blk\.\d+\.(?:attn_(?:norm|q|k|v|output)|ffn_(?:norm|gate|up|down))\.weight"
_OPTIONAL = {
    "qwen2": r"blk\.\d+\.attn_[qkv]\.bias",
    "qwen3": r"blk\.\d+\.attn_[qk]_norm\.weight",
}
# Llama 3.1, 3.2 and 3.3 differ in the factor alone; a GGUF stores the resulting divisors only.
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original": 8192}


@dataclass(frozen=True)
class Header:
    """What a GGUF says about itself.

    Attributes:
        values: its metadata, arrays left out.
        tensors: the names of its tensors.
        rope_divisors: by what each RoPE frequency is divided, ``[D/2]``, if it says.
    """

    values: dict[str, Any]
    tensors: tuple[str, ...]
    rope_divisors: np.ndarray | None

    @property
    def architecture(self) -> str:
        """llama.cpp's name of it, such as ``"llama"``."""
        return str(self.values.get("general.architecture"))

    def get(self, key: str, default: Any = None) -> Any:
        """The value of ``<architecture>.<key>``."""
        return self.values.get(f"{self.architecture}.{key}", default)


def gguf_source(file: Path, scheme: str | None = None) -> Source:
    """The cache entry of a GGUF file, in float32 or quantized (`schemes`).

    The entry is named by the file's path, and its fingerprint is size and modification time, as in
    ``make``: cheap enough to look at on every start (hashing 5 GB takes some 10 s), and a file that
    is replaced is converted again into the same entry, so that no stale copies of many GB pile up.
    """
    file = file.resolve()
    place = hashlib.sha256(str(file).encode()).hexdigest()[:12]
    stem = re.sub(r"[^\w.-]", "_", file.stem)[:60]
    state = file.stat()
    return Source(
        name=f"gguf-{stem}-{place}" + (f"-{scheme}" if scheme else ""),
        fingerprint=f"size={state.st_size} mtime_ns={state.st_mtime_ns}",
        build=lambda directory: _convert_loudly(file, directory, scheme),
        disk_bytes=(3 if scheme else 8) * state.st_size,  # from four bits to eight or thirty-two
    )


def _convert_loudly(file: Path, directory: Path, scheme: str | None) -> None:
    tell(f"converting {file.name} to {scheme or 'float32'} safetensors, once.")
    if scheme is None:
        convert(file, directory)
        return
    from minillm_serve.models.gguf_codes import convert_codes

    convert_codes(file, directory, scheme)


def convert(file: Path, directory: Path, step: Callable[[str], None] = lambda _: None) -> None:
    """Writes the model in ``file`` to ``directory``: float32 safetensors, config and tokenizer.

    Args:
        file: a GGUF file of any quantization that transformers reads.
        directory: an empty directory.
        step: told what is being done.

    Raises:
        ModelError: it is not a whole GGUF file, or not of a supported model.
    """
    step("reading")
    header = read_header(file)
    rope = check_header(header, file)
    step("dequantizing")
    model = _dequantize(file, header, rope)
    step("saving")
    with contextlib.redirect_stderr(io.StringIO()):  # its progress bar, beside ours
        model.save_pretrained(directory)
    save_tokenizer(file, directory, header.values.get("tokenizer.ggml.pre"), model.config)


def read_header(file: Path) -> Header:
    """Reads a GGUF's metadata and the names of its tensors.

    Raises:
        ModelError: the ``gguf`` package is missing, or the file is damaged.
    """
    lacking = [package for package in ("gguf", "accelerate") if find_spec(package) is None]
    if lacking:
        raise ModelError(
            f"reading a GGUF needs {' and '.join(lacking)}: pip install {' '.join(lacking)}."
        )
    from gguf import GGUFReader

    try:
        reader = GGUFReader(file)
        scalars = {
            key: field.contents()
            for key, field in reader.fields.items()
            if len(field.data) == 1 and not key.startswith("GGUF.")
        }
        divisors = [t.data for t in reader.tensors if t.name == "rope_freqs.weight"]
        return Header(
            values=scalars,
            tensors=tuple(tensor.name for tensor in reader.tensors),
            rope_divisors=np.array(divisors[0], dtype=np.float64) if divisors else None,
        )
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise ModelError(
            f"{file} is not a whole GGUF file ({error}). Download it again."
        ) from error


def check_header(header: Header, file: Path) -> dict[str, Any]:
    """Refuses what is not supported; returns the RoPE parameters that transformers overlooks."""
    known = [a.model_type for a in ARCHITECTURES]
    if header.architecture not in known or header.get("expert_count", 0):
        experts = " with experts" if header.get("expert_count", 0) else ""
        raise ModelError(
            f"{file.name} is of the architecture {header.architecture!r}{experts}, which is not "
            f"supported. Choose a dense model of one of: {supported()}."
        )
    if header.values.get("split.count", 0) > 1:
        raise ModelError(
            f"{file.name} is one part of a split GGUF. Merge it: gguf-split --merge FIRST OUT."
        )
    allowed = "|".join(filter(None, (_COMMON, _LAYER, _OPTIONAL.get(header.architecture))))
    strange = [name for name in header.tensors if not re.fullmatch(allowed, name)]
    if strange:
        raise ModelError(
            f"{file.name} has tensors that a {header.architecture} model here does not use: "
            f"{', '.join(strange[:6])}. Choose the safetensors checkpoint of the same model."
        )
    window = header.get("attention.sliding_window", 0)
    if window and window < header.get("context_length", 0):
        raise ModelError(
            f"{file.name} has a sliding window of {window} tokens, but not in which layers. "
            "Choose the safetensors checkpoint of the same model."
        )
    return _rope(header, file)


def _rope(header: Header, file: Path) -> dict[str, Any]:
    width = header.get("embedding_length", 0) // max(1, header.get("attention.head_count", 1))
    head_dim = header.get("attention.key_length", width)
    if header.get("rope.dimension_count", head_dim) != head_dim:
        raise ModelError(
            f"{file.name} rotates {header.get('rope.dimension_count')} of a head's {head_dim} "
            "numbers; only whole heads are supported."
        )
    kind = header.get("rope.scaling.type", "none")
    if header.rope_divisors is not None:
        return _llama3_rope(header.rope_divisors, header.get("rope.freq_base", 1e4), file)
    if kind == "linear":
        return {"rope_type": "linear", "factor": float(header.get("rope.scaling.factor", 1.0))}
    if kind not in ("none", ""):
        raise ModelError(
            f"{file.name} has the rope scaling {kind!r}, which is not supported; supported are "
            "none, linear and Llama 3's."
        )
    return {}


def _llama3_rope(divisors: np.ndarray, theta: float, file: Path) -> dict[str, Any]:
    """Llama 3's parameters, recovered from the divisors that they lead to, and checked."""
    factor, low, high = (
        float(divisors.max()),
        _LLAMA3["low_freq_factor"],
        _LLAMA3["high_freq_factor"],
    )
    wavelengths = 2 * np.pi * theta ** (np.arange(len(divisors)) / len(divisors))
    ramp = np.clip((_LLAMA3["original"] / wavelengths - low) / (high - low), 0, 1)
    if not np.allclose(divisors, 1 / ((1 - ramp) / factor + ramp), rtol=1e-4):
        raise ModelError(
            f"{file.name} scales its rotary frequencies in a way that is not Llama 3's. Choose the "
            "safetensors checkpoint of the same model."
        )
    return {
        "rope_type": "llama3",
        "factor": round(factor, 3),
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": _LLAMA3["original"],
    }


def read_config(file: Path, header: Header, rope: dict[str, Any]) -> Any:
    """The model's ``PretrainedConfig``, checked.

    Args:
        file: a GGUF.
        header: of it.
        rope: what `check_header` returned.

    Raises:
        ModelError: the model is not supported. A damaged file can raise anything.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(
        str(file.parent), gguf_file=file.name, local_files_only=True
    )
    if header.get("attention.key_length"):  # not looked at for Qwen3
        config.head_dim = header.get("attention.key_length")
    config.rope_parameters = {**config.rope_parameters, **rope}
    ModelConfig.from_hf(config)
    return config


def _dequantize(file: Path, header: Header, rope: dict[str, Any]) -> Any:
    """The model as transformers reads it, in float32, made a plain unquantized model again."""
    import torch
    from transformers import AutoModelForCausalLM

    where = {"gguf_file": file.name, "local_files_only": True}
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # its progress bars, beside ours
            config = read_config(file, header, rope)
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                str(file.parent),
                config=config,
                dtype=torch.float32,
                output_loading_info=True,
                **where,
            )
    except ModelError:
        raise
    except Exception as error:  # a damaged file can raise anything, from struct.error to OSError
        raise ModelError(
            f"{file} cannot be dequantized ({type(error).__name__}: {error}). Download it again; "
            "if that does not help, choose the safetensors checkpoint of the same model."
        ) from error
    model, report = loaded
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(f"{file} lacks tensors of its model: {', '.join(missing[:6])}.")
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.hf_quantizer = None
    return model
