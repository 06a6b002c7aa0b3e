"""Execute the course's notebooks so that they can be committed, and check committed ones.

    python -m minillm_serve.course.notebooks notebooks/*.ipynb          # execute in place
    python -m minillm_serve.course.notebooks --check notebooks          # verify, run, write nothing
    python -m minillm_serve.course.notebooks --check --no-run notebooks # verify only: a second

A notebook is executed in a fresh kernel of this very environment, in the notebook's own folder,
and must end within the time limit. It is written only if every cell succeeded.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from .notebook_checks import check, check_file, source_of

LIMIT_S = 60.0
"""Wall-clock seconds that a chapter may take from a fresh kernel on two CPU cores."""

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")  # colours of a traceback, which logs would show as noise
_KEPT_CELL_METADATA = {"tags", "nbgrader", "editable", "deletable", "slideshow", "jupyter"}


class NotebookFailedError(RuntimeError):
    """A notebook did not run through, or took too long; the message says where and why."""


def find_notebooks(paths: Sequence[str | Path]) -> list[Path]:
    """Expand folders into the notebooks in them, sorted, without checkpoints.

    Raises:
        FileNotFoundError: A path does not exist.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist")
        inside = sorted(path.rglob("*.ipynb")) if path.is_dir() else [path]
        found += [file for file in inside if ".ipynb_checkpoints" not in file.parts]
    return found


@contextmanager
def _private_jupyter() -> Iterator[None]:
    """Keep the user's Jupyter and IPython configuration out, and their folders untouched."""
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    before = {name: os.environ.get(name) for name in names}
    with tempfile.TemporaryDirectory(prefix="minillm-nb-", ignore_cleanup_errors=True) as folder:
        os.environ.update({name: str(Path(folder) / name.lower()) for name in names})
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _kernel_manager() -> AsyncKernelManager:
    """A kernel run by this very interpreter, whatever kernels the user has registered."""
    manager = AsyncKernelManager(kernel_name="python3")
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=40"]
    manager._kernel_spec = KernelSpec(argv=argv, display_name="Python 3", language="python")
    return manager


def execute(notebook: Any, folder: Path, limit_s: float = LIMIT_S) -> tuple[Any, float]:
    """Run a notebook in a fresh kernel.

    Args:
        notebook: As read by nbformat; left as it is.
        folder: The kernel's working folder.
        limit_s: Wall-clock seconds for the whole of it, and for each cell.

    Returns:
        `(executed copy, seconds taken)`, the copy tidied for committing.

    Raises:
        NotebookFailedError: A cell raised, or the limit was passed.
    """
    fresh = copy.deepcopy(notebook)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    start = time.perf_counter()
    with _private_jupyter():
        client = NotebookClient(
            fresh,
            km=_kernel_manager(),
            timeout=max(int(limit_s), 1),
            record_timing=False,
            store_widget_state=True,  # so that widgets' messages are understood; dropped below
            resources={"metadata": {"path": str(folder)}},
        )
        try:
            client.execute(cleanup_kc=True)  # a kernel manager of our own would be kept otherwise
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            raise NotebookFailedError(_ANSI.sub("", str(error))) from error
    seconds = time.perf_counter() - start
    if seconds > limit_s:
        raise NotebookFailedError(f"it took {seconds:.0f} s, more than {limit_s:.0f} s")
    tidy(fresh)
    return fresh, seconds


def tidy(notebook: Any) -> None:
    """Take out, in place, what differs from run to run or serves no reader."""
    notebook.nbformat, notebook.nbformat_minor = 4, max(notebook.nbformat_minor, 5)
    notebook.metadata.pop("widgets", None)
    notebook.metadata["kernelspec"] = {
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "name": "python3",
    }
    notebook.metadata["language_info"] = {"name": "python", "file_extension": ".py"}
    _tidy_ids(notebook.cells)
    for cell in notebook.cells:
        for key in set(cell.metadata) - _KEPT_CELL_METADATA:
            del cell.metadata[key]
        for output in cell.get("outputs", []):
            _tidy_output(output)


def _tidy_ids(cells: list[Any]) -> None:
    """Keep good ids; replace missing, malformed and repeated ones by the same ones each time."""
    seen: set[str] = set()
    for position, cell in enumerate(cells):
        name = cell.get("id", "")
        if not _ID.fullmatch(name) or name in seen:
            digest = hashlib.sha256(f"{position}:{source_of(cell)}".encode()).hexdigest()
            name = f"cell-{digest[:8]}"
        seen.add(name)
        cell["id"] = name


def _tidy_output(output: Any) -> None:
    """Drop the reference to a live widget where a picture or a page stands beside it.

    Without a kernel a front end would look for the widget, fail, and show an error in place of the
    picture. Outputs' metadata (sizes of retina pictures, transient ids) is dropped with it.
    """
    data = output.get("data")
    if data is not None and WIDGET_VIEW in data and set(data) - {WIDGET_VIEW, "text/plain"}:
        del data[WIDGET_VIEW]
    if "metadata" in output:
        output["metadata"] = nbformat.NotebookNode()


def read(path: Path) -> Any:
    """Read a notebook. Bad ids are replaced first: nbformat would give random ones.

    Raises:
        ValueError: It is not a notebook.
        OSError: It cannot be read.
    """
    raw = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(raw, dict) or not isinstance(raw.get("cells"), list):
        raise ValueError("it is not a notebook: it has no list of cells")
    if raw.get("nbformat_minor", 0) >= 5:
        _tidy_ids(raw["cells"])
    return nbformat.reads(json.dumps(raw), as_version=4)


def write(notebook: Any, path: Path) -> None:
    """Write atomically: a reader, or a crash, never meets half a notebook."""
    text = nbformat.writes(notebook).rstrip("\n") + "\n"
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def execute_file(path: Path, *, save: bool, limit_s: float = LIMIT_S) -> list[str]:
    """Execute one file and write it back if `save`; return what is wrong with it, if anything."""
    try:
        notebook = read(path)
        done, seconds = execute(notebook, path.parent.resolve(), limit_s)
    except (NotebookFailedError, ValueError, OSError) as error:
        return [str(error)]
    print(f"{path}: ran in {seconds:.0f} s", flush=True)
    problems = check(done)
    if save and not problems:
        write(done, path)
    return problems


def main(argv: list[str] | None = None) -> int:
    """Command line; exit status 1 if any notebook has a problem."""
    parser = argparse.ArgumentParser(prog="python -m minillm_serve.course.notebooks")
    parser.add_argument("paths", nargs="+", help="notebooks, or folders of them")
    parser.add_argument("--check", action="store_true", help="verify as committed; write nothing")
    parser.add_argument("--no-run", action="store_true", help="with --check: do not execute")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for each notebook")
    args = parser.parse_args(argv)
    if args.no_run and not args.check:
        parser.error("--no-run goes with --check")
    try:
        files = find_notebooks(args.paths)
    except FileNotFoundError as error:
        parser.error(str(error))
    failed = 0
    for file in files:
        problems = check_file(file) if args.check else []
        if not problems and not args.no_run:
            problems = execute_file(file, save=not args.check, limit_s=args.limit)
        for problem in problems:
            print(f"{file}: {problem}", file=sys.stderr)
        failed += bool(problems)
    print(f"{len(files)} notebooks, {failed} with problems")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
