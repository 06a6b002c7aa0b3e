"""``minillm-serve models``: which models there are, fetched and checked by hand."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from minillm_serve.models.cache import cache_root, ensure, problem, tell
from minillm_serve.models.embedded import EMBEDDED, EmbeddedModel, embedded_source
from minillm_serve.models.errors import ModelError
from minillm_serve.models.registry import supported
from minillm_serve.models.resolve import resolve_model
from minillm_serve.models.schemes import SCHEMES

Models = Mapping[str, EmbeddedModel]


def main(argv: Sequence[str] | None = None, *, embedded: Models = EMBEDDED) -> int:
    """Runs the command; returns the process's exit status.

    Args:
        argv: what follows ``minillm-serve models``; None takes the process's own arguments.
        embedded: the models that come with the package.
    """
    options = _parser(embedded).parse_args(argv)
    try:
        if options.command == "fetch":
            print(_fetch(options.name, embedded))
        elif options.command == "path":
            print(_path(options.name, embedded))
        elif options.command == "quantize":
            print(_quantize(options.name, options.target, options.scheme))
        elif options.command == "verify":
            return _verify(options.name, embedded)
        else:
            print(_table(embedded))
    except ModelError as error:
        print(f"minillm-serve: error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser(embedded: Models) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="minillm-serve models", description="Lists, fetches and checks models."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("list", help="the embedded models and what else can be served (default)")
    default = next(iter(embedded), None)
    what = "an embedded name, a directory, a GGUF file or a hub id"
    fetch = commands.add_parser("fetch", help="fetch a model, check every byte, print where it is")
    fetch.add_argument("name", nargs="?", default=default, metavar="NAME", help=what)
    path = commands.add_parser("path", help="print where a model is (fetched if need be)")
    path.add_argument("name", metavar="NAME", help=what)
    shrink = commands.add_parser("quantize", help="save a model in 8 or 4 bits a weight")
    shrink.add_argument("name", metavar="NAME", help=what)
    shrink.add_argument("target", type=Path, metavar="DIRECTORY", help="where to; empty or new")
    shrink.add_argument("--scheme", choices=SCHEMES, default="int8", help="(default: %(default)s)")
    verify = commands.add_parser("verify", help="check an embedded model's files byte by byte")
    verify.add_argument("name", nargs="?", default=default, metavar="NAME", choices=list(embedded))
    return parser


def _fetch(name: str, embedded: Models) -> Path:
    if name not in embedded:
        return resolve_model(name)
    source = embedded_source(embedded[name])
    before = _identity(cache_root() / name)
    directory = ensure(source, cache_root(), full=True)
    # What is built, or built again, comes as a new directory: no need to hash it twice to know.
    fresh = _identity(directory) != before
    tell(f"{name} is ready." if fresh else f"{name} was there already; every file is intact.")
    return directory


def _identity(directory: Path) -> int | None:
    return directory.stat().st_ino if directory.is_dir() else None


def _path(name: str, embedded: Models) -> Path:
    if name not in embedded:
        return resolve_model(name, progress=False)
    return ensure(embedded_source(embedded[name], progress=False), cache_root())


def _quantize(name: str, target: Path, scheme: str) -> Path:
    import torch  # only here: the other commands answer at once

    from minillm_serve.models.loader import load_config, load_model
    from minillm_serve.models.quantized_file import save_quantized

    source = resolve_model(name, quantization=scheme)
    saved = load_config(source).quantization
    if saved not in (None, scheme):
        raise ModelError(
            f"{name} was saved in {saved} and cannot be had in {scheme}: start from the model that "
            "is not quantized."
        )
    cpu = torch.device("cpu")
    model = load_model(source, dtype=torch.float32, device=cpu, quantization=scheme)
    save_quantized(model, source, target, scheme)
    tell(f"{name} is {model.nbytes / 1e6:.0f} MB in {scheme}.")
    return target


def _verify(name: str, embedded: Models) -> int:
    source = embedded_source(embedded[name])
    trouble = problem(cache_root() / name, source.fingerprint, full=True)
    if trouble is None:
        print(f"{name}: every file is intact ({cache_root() / name})")
        return 0
    print(f"{name}: {trouble}. Run: minillm-serve models fetch {name}")
    return 1


def _table(embedded: Models) -> str:
    rows = [("MODEL", "STATE", "WHAT IT IS")]
    rows += [(name, state(model), model.title) for name, model in embedded.items()]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in rows]
    return "\n".join(
        [
            *lines,
            "",
            "Also served: a local safetensors directory, a .gguf file, or a hub id, of the",
            f"architectures {supported()}.",
            f"Cache: {cache_root()}",
        ]
    )


def state(model: EmbeddedModel) -> str:
    """``"cached"``, ``"not fetched"`` or what is wrong with the cached copy, at a glance."""
    target = cache_root() / model.name
    if not target.exists():
        return "not fetched"
    trouble = problem(target, embedded_source(model).fingerprint, full=False)
    return "cached" if trouble is None else f"damaged: {trouble}"
