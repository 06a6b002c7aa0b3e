"""The names under which weights are kept in fewer bits. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minillm_serve.models.errors import ModelError

SCHEMES = ("int8", "int4")
#: How a checkpoint that is quantized already calls its method in ``config.json``.
METHOD = "minillm-serve"
#: Of its layout; raised when that changes.
FORMAT = 1


def describe_scheme(scheme: str) -> dict[str, Any]:
    """What ``config.json`` says under ``quantization_config``."""
    return {"quant_method": METHOD, "format": FORMAT, "scheme": scheme}


def read_scheme(config: Mapping[str, Any]) -> str | None:
    """In what a checkpoint's weights are: one of `SCHEMES`, or None for floats.

    Args:
        config: what is in its ``config.json``.

    Raises:
        ModelError: they are quantized in a way that is not known here.
    """
    said = config.get("quantization_config")
    if not said:
        return None
    if not isinstance(said, Mapping):
        said = said.to_dict()
    method, scheme = said.get("quant_method", "of an unnamed method"), said.get("scheme")
    if method != METHOD:
        raise ModelError(
            f"the checkpoint is quantized ({method}), in a way that is not supported. Choose the "
            "unquantized checkpoint of the same model, which can be quantized while it is read "
            "(int8, int4), or a GGUF."
        )
    if scheme not in SCHEMES or said.get("format") != FORMAT:
        raise ModelError(
            f"the checkpoint is quantized as {scheme!r} in format {said.get('format')!r}; known "
            f"are {', '.join(SCHEMES)} in format {FORMAT}. Quantize the model again."
        )
    return str(scheme)
