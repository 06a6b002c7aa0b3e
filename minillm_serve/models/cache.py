"""A cache of directories that are either whole or not there.

An entry is built in a temporary directory beside its place, gets a manifest (size and sha256 of
every file) as its last file, and is then renamed into its place. So a crash at any moment leaves
the old entry or none, and what happens to an entry later (a truncated or an edited file) shows in
the manifest. One builder at a time holds a file lock; the others wait and find the work done.

    cache/
      smollm2-135m/            an entry: files, and manifest.json
      .smollm2-135m.tmp-x1y2/  being built; swept away by the next builder if its own died
      .smollm2-135m.lock       held while building
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from minillm_serve.models.errors import ModelError

MANIFEST = "manifest.json"
FORMAT = 1  # of the manifest and of what a builder writes; raise it, and old entries are rebuilt


@dataclass(frozen=True)
class Source:
    """What an entry is made from.

    Attributes:
        name: of the entry, a plain file name.
        fingerprint: changes when the entry should; recorded in the manifest.
        build: fills the empty directory that it is given, or raises ``ModelError``.
        disk_bytes: free space that building needs.
    """

    name: str
    fingerprint: str
    build: Callable[[Path], None]
    disk_bytes: int = 0


def cache_root() -> Path:
    """``$MINILLM_SERVE_CACHE``, else ``minillm_serve`` in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    own = os.environ.get("MINILLM_SERVE_CACHE")
    if own:
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".cache") / "minillm_serve"


def tell(message: str) -> None:
    """One line for the person at the terminal; answers go to stdout, this does not."""
    print(f"minillm-serve: {message}", file=sys.stderr, flush=True)


def ensure(
    source: Source, root: Path, *, full: bool = False, say: Callable[[str], None] = tell
) -> Path:
    """The whole and checked directory of ``source``, which is built first where need be.

    Args:
        source: what to build it from.
        root: the cache.
        full: check the sha256 of every file, not their sizes alone.
        say: gets a line when something is repaired or waited for.

    Raises:
        ModelError: the cache cannot be written, or the entry cannot be built.
    """
    target = root / source.name
    if problem(target, source.fingerprint, full=full) is None:
        return target
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root / f".{source.name}.lock", say):
            trouble = problem(target, source.fingerprint, full=full)  # another may have built it
            if trouble is not None:
                if os.path.lexists(target):
                    say(f"the cached model {target} is not usable ({trouble}): building it again.")
                _build(source, target)
    except OSError as error:
        for place in (root, *root.parents):
            if place.is_file():
                raise ModelError(
                    f"the model cache {root} cannot be a directory, since {place} is a file. "
                    "Remove that file or set MINILLM_SERVE_CACHE to a directory."
                ) from error
        raise ModelError(
            f"the model cache {root} cannot be written ({error}). Free some space there or set "
            "MINILLM_SERVE_CACHE to another directory."
        ) from error
    return target


def problem(target: Path, fingerprint: str, *, full: bool) -> str | None:
    """What is wrong with an entry, in a few words; None if nothing is.

    Args:
        target: the entry's directory.
        fingerprint: of the source that it should have been built from.
        full: read every file and compare its sha256; otherwise sizes only, which costs nothing.
    """
    if not target.is_dir():
        return "it is not there"
    try:
        manifest = json.loads((target / MANIFEST).read_text("utf-8"))
        files = {str(name): (int(e["size"]), e["sha256"]) for name, e in manifest["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"its {MANIFEST} is missing or damaged"
    if manifest.get("format") != FORMAT:
        return "it was written by another version of minillm-serve"
    if manifest.get("source") != fingerprint:
        return "its source has changed"
    for name, (size, digest) in files.items():
        file = target / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != size:
            return f"{name} has {file.stat().st_size:,} bytes instead of {size:,}"
        if full and sha256(file) != digest:
            return f"{name} has been altered"
    return None


def sha256(file: Path) -> str:
    """Of a file's bytes, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _build(source: Source, target: Path) -> None:
    """Builds beside the target and moves the result into its place. The lock is held."""
    for leftover in target.parent.glob(f".{source.name}.tmp-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    _check_space(target.parent, source)
    work = Path(tempfile.mkdtemp(prefix=f".{source.name}.tmp-", dir=target.parent))
    try:
        fresh = work / "new"
        fresh.mkdir()
        source.build(fresh)
        _write_manifest(fresh, source)
        if os.path.lexists(target):
            os.replace(target, work / "old")
        os.replace(fresh, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_manifest(directory: Path, source: Source) -> None:
    files: dict[str, Any] = {
        file.relative_to(directory).as_posix(): {
            "size": file.stat().st_size,
            "sha256": sha256(file),
        }
        for file in sorted(directory.rglob("*"))
        if file.is_file()
    }
    for name in files:  # on disk before the manifest says so
        _flush(directory / name)
    manifest = {"format": FORMAT, "source": source.fingerprint, "files": files}
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
    _flush(directory / MANIFEST)


def _flush(file: Path) -> None:
    with file.open("rb+") as stream:
        os.fsync(stream.fileno())


def _check_space(root: Path, source: Source) -> None:
    free = shutil.disk_usage(root).free
    if free < source.disk_bytes:
        raise ModelError(
            f"building {source.name} needs {source.disk_bytes / 1e9:.1f} GB and {root} has "
            f"{free / 1e9:.1f} GB left. Free some space or set MINILLM_SERVE_CACHE to another "
            "directory."
        )


@contextmanager
def _locked(file: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Holds a lock that the operating system releases if its holder dies."""
    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"another process is building this model; waiting for it ({file}).")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
