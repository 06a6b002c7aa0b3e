"""From a local directory to a config, a tokenizer and a model."""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from minillm_serve.models.config import ModelConfig
from minillm_serve.models.errors import ModelError
from minillm_serve.models.fused import FusedLayers
from minillm_serve.models.quantize import Quantizer, move_rest
from minillm_serve.models.quantized_file import fill_quantized
from minillm_serve.models.transformer import Transformer
from minillm_serve.models.weights import fill

# transformers, the engine and people all write dtypes; these are the ones a model can be run in.
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}


def load_config(path: str | Path) -> ModelConfig:
    """Reads ``config.json`` and, where there is one, ``generation_config.json``.

    Args:
        path: a local directory, as ``resolve_model`` returns it.

    Raises:
        ModelError: there is no config, or it asks for something that is not supported.
    """
    directory = Path(path)
    config = _read_json(directory / "config.json")
    if config is None:
        raise ModelError(
            f"{directory} has no config.json, so nothing says what kind of model it is. Give a "
            "directory that a model was saved or downloaded to, whole, or a GGUF file."
        )
    try:
        return ModelConfig.from_hf(config, _read_json(directory / "generation_config.json"))
    except ModelError as error:
        raise ModelError(f"{directory}: {error}") from error


def load_tokenizer(path: str | Path) -> PreTrainedTokenizerBase:
    """Reads the tokenizer of a local directory; nothing is downloaded and no code of it is run.

    Raises:
        ModelError: there is none, or it cannot be read.
    """
    try:
        # Clean-up of spaces would make the text of a sequence depend on what follows it, which a
        # stream cannot take back.
        return AutoTokenizer.from_pretrained(
            str(path),
            local_files_only=True,
            trust_remote_code=False,
            clean_up_tokenization_spaces=False,
        )
    except Exception as error:  # transformers raises half a dozen unrelated types here
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ModelError(
            f"no tokenizer can be read from {path} ({reason}). Fetch "
            "tokenizer.json and tokenizer_config.json of the same model into the directory."
        ) from error


def load_model(
    path: str | Path,
    *,
    dtype: torch.dtype | None,
    device: torch.device | str,
    quantization: str | None = None,
) -> Transformer:
    """Loads the weights of a local directory.

    Args:
        path: a local directory, as ``resolve_model`` returns it.
        dtype: what the weights are converted to while they are read; None keeps the checkpoint's.
        device: where they go. No second copy of the model is made on the way.
        quantization: one of `schemes.SCHEMES`: keeps weights in fewer bits, layer by layer, so that
            the whole model is never there in floats. What was saved quantized stays so in any case.

    Raises:
        ModelError: the config or the weights are not supported, or do not fit each other.
    """
    directory, place = Path(path), torch.device(device)
    config = load_config(directory)
    kind = dtype or _own_dtype(config)
    if quantization is None and config.quantization is None:
        model = Transformer(config, kind, place)
        fill(model, directory)
    else:
        model = Transformer(config, kind, torch.device("cpu"))
        if quantization is None or config.quantization is not None:
            fill_quantized(model, directory, place)
        else:
            fill(model, directory, Quantizer(model, quantization, place))
        move_rest(model, place)
    if place.type == "cpu":
        model.pack()
        model.run_layers = FusedLayers.of(model) or model.run_layers
    return model.eval()


def _own_dtype(config: ModelConfig) -> torch.dtype:
    if config.torch_dtype not in DTYPES:
        raise ModelError(
            f"config.json gives the dtype {config.torch_dtype!r}, which cannot be run. Pass a "
            f"dtype: one of {', '.join(DTYPES)}."
        )
    return DTYPES[config.torch_dtype]


def _read_json(file: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None where there is no such file."""
    if not file.is_file():
        return None
    try:
        value = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ModelError(f"{file} is not JSON ({error}). Fetch it again.") from error
    if not isinstance(value, dict):
        raise ModelError(f"{file} holds a {type(value).__name__}, not an object. Fetch it again.")
    return value
