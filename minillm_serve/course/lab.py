"""`minillm-serve lab`: JupyterLab on the course, first chapter open, in this very environment.

The user's own Jupyter configuration is neither read nor written: settings made in this Lab (a dark
theme, say) live in a folder of its own and stay there from start to start. The server listens on
this machine only.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import re
import shutil
import signal
import sys
import tempfile
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from . import EXTRA_HINT
from .lab_server import PORT, LabError, LabServer, config_folder, start

NEEDED = ("jupyterlab", "ipykernel", "ipywidgets", "anywidget", "matplotlib", "latex2mathml")
_CHAPTER = re.compile(r"\d\d_.*\.ipynb")


def missing_packages(names: Sequence[str] = NEEDED) -> list[str]:
    """Those of the `course` extra's packages that are not installed."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def find_root(start: Path | None = None) -> Path:
    """The folder that holds `notebooks/`: here, above, or where the package was cloned to.

    Raises:
        LabError: There is none.
    """
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[2]):
        if first_chapter(folder) is not None:
            return folder
    raise LabError(
        f"no notebooks/NN_*.ipynb in {here} or above: the course's notebooks come with the "
        "repository; clone it and start there, or give its folder with --root"
    )


def first_chapter(root: Path) -> Path | None:
    """The first chapter by number, relative to `root`."""
    chapters = sorted(
        path for path in (root / "notebooks").glob("*.ipynb") if _CHAPTER.fullmatch(path.name)
    )
    return chapters[0].relative_to(root) if chapters else None


def wants_browser(no_browser: bool) -> bool:
    """Whether to open a browser: not when told so, not as root, not without a display."""
    if no_browser or (hasattr(os, "geteuid") and os.geteuid() == 0):
        return False
    if platform.system() == "Linux":
        return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return True


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="minillm-serve lab", description="Open the course.")
    parser.add_argument(
        "--root", type=Path, help="the repository (found by itself if you are in it)"
    )
    parser.add_argument("--port", type=int, default=PORT, help=f"wanted port (default {PORT})")
    parser.add_argument("--no-browser", action="store_true", help="only print the URL")
    parser.add_argument("--smoke", action="store_true", help="start, print the URL, stop")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Start Lab, print its URL last, and stay until Ctrl-C; 1 with a reason if it cannot start."""
    args = _parse(argv)
    runtime = Path(tempfile.mkdtemp(prefix="minillm-lab-"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the server, as Ctrl-C does
    try:
        if missing := missing_packages():
            raise LabError(f"{', '.join(missing)} is not installed: {EXTRA_HINT}")
        root = find_root(args.root)
        chapter = first_chapter(root)
        print("starting JupyterLab ...", flush=True)
        server = start(root, config_folder(), runtime, port=args.port)
        return _serve(server, server.url(chapter), args)
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    finally:
        shutil.rmtree(runtime, ignore_errors=True)


def _serve(server: LabServer, url: str, args: argparse.Namespace) -> int:
    """Print the URL, open a browser if there is one, and wait for the end."""
    try:
        if args.smoke:
            print("    A smoke test: it has started, and is stopped again.")
        else:
            print(f"    Ctrl-C stops it; its log is {server.log}")
        print(f"\n    The course is open at\n\n    {url}\n", flush=True)
        if args.smoke:
            return 0
        if wants_browser(args.no_browser):
            webbrowser.open(url)
        return server.process.wait()
    except KeyboardInterrupt:
        print("\nstopping JupyterLab ...", flush=True)
        return 0
    finally:
        server.stop()


if __name__ == "__main__":
    raise SystemExit(main())
