"""Find a Chrome or Chromium for the browser tests, or install one.

`find()` looks in the places where the usual installers put one, and starts what it finds with
`--version`, since a stub on the `PATH` (Ubuntu's snap launcher in a container) is not a browser.
`install()` takes Debian's package as root, and Playwright's own download otherwise.

    python -m minillm_serve.course.browser            # where is it?
    python -m minillm_serve.course.browser --install  # get one if there is none
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ENV_VAR = "MINILLM_SERVE_BROWSER"

PATH_NAMES = (
    "google-chrome",
    "google-chrome-stable",
    "chromium",
    "chromium-browser",
    "chrome",
    "microsoft-edge",
    "microsoft-edge-stable",
    "msedge",
)

MAC_APPS = (
    "Google Chrome.app/Contents/MacOS/Google Chrome",
    "Chromium.app/Contents/MacOS/Chromium",
    "Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
)

WINDOWS_APPS = (
    r"Google\Chrome\Application\chrome.exe",
    r"Chromium\Application\chrome.exe",
    r"Microsoft\Edge\Application\msedge.exe",
)

# What a download of Playwright's looks like inside its folder, newest layout first.
PLAYWRIGHT_GLOBS = (
    "chromium-*/chrome-linux*/chrome",
    "chromium-*/chrome-mac*/*.app/Contents/MacOS/*",
    "chromium-*/chrome-win*/chrome.exe",
    "chromium_headless_shell-*/chrome-*/*headless*shell*",
)

# Headless, and silent: none of these lets the browser itself speak to the network.
LAUNCH_ARGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class BrowserNotFoundError(RuntimeError):
    """No Chrome or Chromium runs here; the message says what was tried and what to do."""


def _playwright_folder(env: Mapping[str, str]) -> Path:
    """The folder into which `playwright install` downloads, for this platform."""
    configured = env.get("PLAYWRIGHT_BROWSERS_PATH")
    if configured and configured != "0":
        return Path(configured)
    if platform.system() == "Darwin":
        return Path.home() / "Library/Caches/ms-playwright"
    if platform.system() == "Windows":
        return Path(env.get("LOCALAPPDATA", str(Path.home()))) / "ms-playwright"
    return Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ms-playwright"


def candidates(env: Mapping[str, str] | None = None) -> Iterator[Path]:
    """Yield every existing file that may be a browser, the likeliest first.

    Args:
        env: Environment to read; the process's own when None.

    Raises:
        BrowserNotFoundError: `MINILLM_SERVE_BROWSER` names a file that does not exist.
    """
    env = os.environ if env is None else env
    chosen = env.get(ENV_VAR)
    if chosen:
        if not Path(chosen).is_file():
            raise BrowserNotFoundError(
                f"{ENV_VAR}={chosen!r} is not a file: point it at a Chrome or Chromium "
                "executable, or unset it"
            )
        yield Path(chosen)
        return
    for name in PATH_NAMES:
        if found := shutil.which(name, path=env.get("PATH")):
            yield Path(found)
    for path in _installed_apps(env):
        if path.is_file():
            yield path
    folder = _playwright_folder(env)
    for pattern in PLAYWRIGHT_GLOBS:
        yield from sorted((p for p in folder.glob(pattern) if p.is_file()), reverse=True)


def _installed_apps(env: Mapping[str, str]) -> Iterator[Path]:
    """Yield the places where macOS and Windows installers put a browser."""
    if platform.system() == "Darwin":
        for root in (Path("/Applications"), Path.home() / "Applications"):
            yield from (root / app for app in MAC_APPS)
    elif platform.system() == "Windows":
        for variable in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA"):
            if variable in env:
                yield from (Path(env[variable]) / app for app in WINDOWS_APPS)


def _starts(path: Path) -> bool:
    """Whether `path` runs at all. Windows builds open a window on `--version`: trust the file."""
    if platform.system() == "Windows":
        return True
    try:
        done = subprocess.run(
            [str(path), "--version"], capture_output=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def find(env: Mapping[str, str] | None = None) -> Path | None:
    """Return a browser that starts, or None.

    Raises:
        BrowserNotFoundError: `MINILLM_SERVE_BROWSER` names a file that does not exist.
    """
    return next((path for path in candidates(env) if _starts(path)), None)


def _attempts() -> list[tuple[str, list[list[str]]]]:
    """The ways to install a browser here: (name, commands to run in order)."""
    ways: list[tuple[str, list[list[str]]]] = []
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    if is_root and shutil.which("apt-get"):
        package = ["apt-get", "install", "-y", "--no-install-recommends"]
        package += ["chromium", "fonts-dejavu-core"]
        # The package lists of an image are often there already: ask for new ones only on failure.
        ways.append(("the Debian package", [package]))
        ways.append(("the Debian package, lists updated", [["apt-get", "update"], package]))
    if importlib.util.find_spec("playwright"):
        download = [sys.executable, "-m", "playwright", "install", "chromium"]
        ways.append(("Playwright's download", [download]))
    return ways


def install() -> Path:
    """Install a browser unless one is found, and return its path.

    Raises:
        BrowserNotFoundError: No way of installing one works here; the message has each reason.
    """
    if found := find():
        return found
    reasons: list[str] = []
    for name, commands in _attempts():
        print(f"installing a browser: {name} ...", flush=True)
        failure = _run_all(commands)
        if failure is None and (found := find()):
            return found
        reasons.append(f"{name}: {failure or 'it installed, but no browser that starts is found'}")
    tried = "; ".join(reasons) or "neither apt-get as root nor Playwright is at hand"
    raise BrowserNotFoundError(
        f"no Chrome or Chromium could be installed ({tried}). Install one by hand, or set "
        f"{ENV_VAR} to the executable of one that you have."
    )


def _run_all(commands: list[list[str]]) -> str | None:
    """Run `commands` in order; return None, or the last line said by the one that failed."""
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in commands:
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, env=env, timeout=900, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{command[0]}: {error}"
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            return f"{command[0]} ended with {done.returncode}: {said[-1] if said else 'no output'}"
    return None


def main(argv: list[str] | None = None) -> int:
    """Print the browser's path; with `--install`, get one first. Exit 1 when there is none."""
    parser = argparse.ArgumentParser(prog="python -m minillm_serve.course.browser")
    parser.add_argument("--install", action="store_true", help="install one if none is found")
    args = parser.parse_args(argv)
    try:
        found = install() if args.install else find()
    except BrowserNotFoundError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if found is None:
        print(
            "no Chrome or Chromium found: python -m minillm_serve.course.browser --install",
            file=sys.stderr,
        )
        return 1
    print(found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
