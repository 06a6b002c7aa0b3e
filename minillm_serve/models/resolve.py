"""From what a user calls a model to a local directory that holds it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from minillm_serve.models.cache import cache_root, ensure
from minillm_serve.models.config import ModelConfig
from minillm_serve.models.embedded import EMBEDDED, embedded_source
from minillm_serve.models.errors import ModelError
from minillm_serve.models.gguf import gguf_source


class _SilentBar(tqdm):
    """A bar that nobody sees; the hub's client takes a class of bars, not a switch."""

    def __init__(self, *args: Any, **options: Any) -> None:
        options.pop("name", None)
        super().__init__(*args, **{**options, "disable": True})


_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
# Not *.bin, not a second copy in another format: safetensors and what describes them.
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]
_HUB_SKIP = ["original/*", "consolidated*", "*/*"]


def resolve_model(
    name: str | Path, *, progress: bool = True, quantization: str | None = None
) -> Path:
    """The local directory of a model, fetched or converted first where need be.

    Args:
        name: one of

            - the name of an embedded model (``smollm2-135m``);
            - a directory with safetensors weights, or with exactly one GGUF file;
            - a GGUF file;
            - an id on the Hugging Face hub (``organisation/model``).

            A name that is both an embedded model's and a directory's is the former; write
            ``./name`` for the latter.
        progress: show progress bars on stderr.
        quantization: of a GGUF only: one of `schemes.SCHEMES`, to have its codes and not floats.

    Raises:
        ModelError: there is no such model, or it cannot be had.
    """
    text = str(name)
    if isinstance(name, str) and name in EMBEDDED:
        return ensure(embedded_source(EMBEDDED[name], progress=progress), cache_root())
    path = Path(name).expanduser()
    if text and path.is_file():
        return _file(path, quantization)
    if text and path.is_dir():
        return _directory(path, quantization)
    if isinstance(name, str) and _HUB_ID.fullmatch(text) and not text.endswith(".gguf"):
        return _from_hub(text, progress)
    raise ModelError(
        f"there is no model {text!r}: it is no embedded model ({', '.join(EMBEDDED)}), no local "
        "directory or GGUF file, and no hub id of the form organisation/model."
    )


def _file(path: Path, quantization: str | None) -> Path:
    if path.suffix.lower() != ".gguf":
        raise ModelError(
            f"{path} is a file, and not a GGUF. Give the directory that it is in, or a .gguf file."
        )
    return ensure(gguf_source(path, quantization), cache_root())


def _directory(path: Path, quantization: str | None) -> Path:
    """A directory as it is; where it holds a GGUF and no safetensors, that GGUF converted."""
    ggufs = sorted(path.glob("*.gguf"))
    if not ggufs or any(path.glob("*.safetensors")):
        return path.resolve()
    if len(ggufs) > 1:
        raise ModelError(
            f"{path} has {len(ggufs)} GGUF files ({', '.join(file.name for file in ggufs)}). "
            "Give the path of the one that is meant."
        )
    return _file(ggufs[0], quantization)


def _from_hub(repo: str, progress: bool) -> Path:
    """Downloads (or finds downloaded) a model of the hub, its config first.

    The config decides whether gigabytes of weights are worth fetching.
    """
    from huggingface_hub import hf_hub_download, snapshot_download

    bar = None if progress else _SilentBar
    try:
        config = Path(hf_hub_download(repo, "config.json", tqdm_class=bar))
        ModelConfig.from_hf(json.loads(config.read_text("utf-8")))
        return Path(snapshot_download(repo, allow_patterns=_HUB_FILES, ignore_patterns=_HUB_SKIP))
    except ModelError as error:
        raise ModelError(f"{repo}: {error}") from error
    except Exception as error:  # the hub's own errors, the network's, and those of its cache
        raise ModelError(
            f"{repo} is no local directory and could not be had from the Hugging Face hub "
            f"({type(error).__name__}: {' '.join(str(error).split())[:300]}). Check the name, the "
            "network and, for a gated model, 'hf auth login'; or give a local directory."
        ) from error
