"""Makes `exercises/` out of `solutions/`: `python -m minillm_serve.course.exercises.release`.

The steps are nbgrader's own, with `stubs.Stubs` for its stubs. Equal sources make equal bytes.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from nbgrader.converters import GenerateAssignment
from nbgrader.coursedir import CourseDirectory

from minillm_serve.course.exercises.nbgrader_settings import settings
from minillm_serve.course.exercises.places import find_root
from minillm_serve.course.exercises.registry import all_exercises, load


def released(root: Path, folder: str) -> dict[str, bytes]:
    """What a release of one exercise holds.

    Args:
        root: the repository.
        folder: the exercise's, such as ``"ex01_kv_budget"``.

    Returns:
        File name, relative to the exercise's folder -> contents.

    Raises:
        ValueError: there is no such source, or nbgrader refuses it; the message is its log.
    """
    if not (root / "solutions" / folder).is_dir():
        raise ValueError(f"there is no solutions/{folder}")
    with tempfile.TemporaryDirectory(prefix="minillm-release-") as name:
        work = Path(name).resolve()
        shutil.copytree(root / "solutions" / folder, work / "solutions" / folder)
        _generate(work, folder)
        out = work / "exercises" / folder
        files = sorted(path for path in out.rglob("*") if path.is_file())
        return {path.relative_to(out).as_posix(): path.read_bytes() for path in files}


def _generate(root: Path, folder: str) -> None:
    """nbgrader's own command, in a folder of its own, where its gradebook may lie."""
    config = settings(root)
    config.CourseDirectory.assignment_id = folder
    log = root / "log"
    handler, logger = logging.FileHandler(log), logging.getLogger("minillm-release")
    logger.propagate = False
    logger.addHandler(handler)
    try:
        course = CourseDirectory(config=config)
        GenerateAssignment(coursedir=course, config=config, log=logger).start()
    except BaseException as error:  # nbgrader leaves with SystemExit
        if isinstance(error, KeyboardInterrupt):
            raise
        said = log.read_text(encoding="utf-8")
        raise ValueError(f"nbgrader cannot release {folder}: {error}\n{said}") from error
    finally:
        logger.removeHandler(handler)
        handler.close()


def write_release(root: Path, folder: str) -> list[Path]:
    """Brings `exercises/<folder>` up to date; returns the files that changed."""
    changed = []
    for name, contents in released(root, folder).items():
        path = root / "exercises" / folder / name
        if not path.is_file() or path.read_bytes() != contents:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(contents)
            changed.append(path)
    return changed


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; releases what is named, or everything that has a source."""
    parser = argparse.ArgumentParser(prog="python -m minillm_serve.course.exercises.release")
    parser.add_argument("exercises", nargs="*", help="such as ex01 (all)")
    args = parser.parse_args(argv)
    root = find_root()
    chosen = [load(name) for name in args.exercises] or all_exercises()
    try:
        for exercise in chosen:
            changed = write_release(root, exercise.folder)
            what = ", ".join(str(path.relative_to(root)) for path in changed) or "as it was"
            print(f"{exercise.folder}: {what}")
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
