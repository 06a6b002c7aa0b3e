"""Quantizes a model's layers, as soon as each is filled."""

import torch

from minillm_serve.models.errors import ModelError
from minillm_serve.models.layers import Embedding, Quantizable
from minillm_serve.models.quantized import quantize
from minillm_serve.models.schemes import SCHEMES
from minillm_serve.models.transformer import Transformer


def check_scheme(name: str | None) -> None:
    """Refuses what is no scheme.

    Raises:
        ValueError: naming those that are.
    """
    if name is not None and name not in SCHEMES:
        raise ValueError(
            f"quantization={name!r} is unknown: choose from {list(SCHEMES)}, or None for none"
        )


def choose_quantization(
    asked: str | None, saved: str | None, dtype: torch.dtype, device: torch.device, *, compile: bool
) -> str | None:
    """What a model's weights are kept in: what was asked for, or what they were saved in.

    Args:
        asked: see `LLM`.
        saved: what the checkpoint is quantized in, if it is.
        dtype: that is computed in.
        device: where it is computed.
        compile: whether layers are to be compiled by torch.

    Raises:
        ValueError: naming what cannot go together, and the remedy.
    """
    check_scheme(asked)
    if saved is not None and asked not in (None, saved):
        raise ValueError(
            f"quantization={asked!r}, but the checkpoint was saved in {saved}: leave it out, or "
            "load one that is in floats"
        )
    asked = asked or saved
    if asked is None:
        return None
    allowed = [torch.float32] if device.type == "cpu" else [torch.float16, torch.bfloat16]
    if dtype not in allowed:
        names = " or ".join(repr(str(kind).removeprefix("torch.")) for kind in allowed)
        raise ValueError(
            f"quantization={asked!r} with dtype={str(dtype).removeprefix('torch.')!r}: on a "
            f"{device.type} quantized weights are computed with in {names}. Give that dtype."
        )
    if compile:
        raise ValueError(
            f"quantization={asked!r} with compile=True: torch cannot look into the kernels that "
            "multiply quantized weights, so there is nothing to compile. Drop one of the two."
        )
    return asked


class Quantizer:
    """Turns filled layers of a model into quantized ones, and gives their values' memory back.

    The rule for the embedding and the output head: they have 8 bits under every scheme (4 bits
    there raise the embedded model's perplexity by 7 %), and where they are tied they stay one
    weight, in memory once. Norms and biases stay as they are: they are few.

    Args:
        model: its layers are filled on the host.
        scheme: one of `schemes.SCHEMES`.
        device: where the quantized weights go.
    """

    def __init__(self, model: Transformer, scheme: str, device: torch.device) -> None:
        self._model, self._scheme, self._device = model, scheme, device

    def __call__(self, layer: Quantizable) -> None:
        """Quantizes a layer.

        Raises:
            ModelError: its values cannot be.
        """
        model = self._model
        ends = layer is model.embedding or layer is model.lm_head
        try:
            weight = quantize(layer.weight.data, "int8" if ends else self._scheme)
        except ValueError as error:
            raise ModelError(f"a layer of the model cannot be quantized: {error}") from error
        layer.keep_quantized(weight, self._device)
        if isinstance(layer, Embedding) and model.config.tie_word_embeddings:
            model.lm_head.share(layer)


def move_rest(model: Transformer, device: torch.device) -> None:
    """Brings what is not quantized, norms and biases, to where the quantized weights are."""
    for parameter in model.parameters():
        if not parameter.is_meta:
            parameter.data = parameter.data.to(device)
    model.frequencies = model.frequencies.to(device)
