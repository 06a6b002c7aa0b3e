"""Start and stop a JupyterLab that leaves the user's own Jupyter alone."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

HOST = "127.0.0.1"
PORT = 8888
START_LIMIT_S = 120.0


class LabError(RuntimeError):
    """Lab cannot be started; the message says what to do."""


def free_port(wanted: int) -> int:
    """`wanted` if it is free, else the next free one, else any.

    Raises:
        LabError: `wanted` is not a port.
    """
    if not 0 <= wanted <= 65535:
        raise LabError(f"port {wanted} is not between 0 and 65535")
    for port in [*range(wanted, min(wanted + 20, 65536)), 0] if wanted else [0]:
        with socket.socket() as probe:
            if os.name == "posix":
                # As the server does: a port that was closed a moment ago counts as free.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise LabError("no port is free on this machine")


def config_folder() -> Path:
    """Where this Lab keeps its settings: beside nobody's own Jupyter."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "minillm-serve" / "jupyter"


# JupyterLab's own defaults that do not suit a course. The learner's choices still win.
_DEFAULTS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    # Widgets that scroll out of sight keep their state, and a page search finds every cell.
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "defer"},
}


def write_config(folder: Path) -> None:
    """Write the few settings that differ from Lab's own; the user's choices stay untouched."""
    settings = folder / "labconfig"
    settings.mkdir(parents=True, exist_ok=True)
    disabled = {
        # No pop-up asking to subscribe to news, and no look-up of new versions.
        "@jupyterlab/apputils-extension:announcements": True,
        # The grader's panels are an instructor's: a learner has `check` in the notebook.
        "@jupyter/nbgrader": True,
    }
    (settings / "page_config.json").write_text(json.dumps({"disabledExtensions": disabled}))
    (settings / "default_setting_overrides.json").write_text(json.dumps(_DEFAULTS))


def environment(config: Path, runtime: Path, token: str) -> dict[str, str]:
    """The server's environment: own folders, and this environment's kernel and commands first."""
    env = {**os.environ}
    # The token goes by environment: a command line is visible to every user of the machine.
    env |= {
        "JUPYTER_TOKEN": token,
        "JUPYTER_CONFIG_DIR": str(config),
        "JUPYTER_DATA_DIR": str(config / "data"),
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "IPYTHONDIR": str(config / "ipython"),
    }
    for name in ("JUPYTER_CONFIG_PATH", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR"):
        env.pop(name, None)
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", "")])
    return env


def command(root: Path, port: int, extra: Sequence[str] = ()) -> list[str]:
    """The command line of the server."""
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return [
        *(sys.executable, "-m", "jupyterlab", "--no-browser"),
        f"--ServerApp.root_dir={root}",
        f"--ServerApp.ip={HOST}",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=50",
        "--LabApp.check_for_updates_class=jupyterlab.handlers.announcements.NeverCheckForUpdate",
        # Else it looks for language servers by starting npm, which writes into the home folder.
        "--LanguageServerManager.autodetect=False",
        *(["--allow-root"] if as_root else []),
        *extra,
    ]


@dataclass
class LabServer:
    """A running JupyterLab.

    Attributes:
        process: The server.
        port: On which it listens.
        token: Its secret.
        log: File with what it says.
    """

    process: subprocess.Popen[bytes]
    port: int
    token: str
    log: Path

    def url(self, notebook: Path | str | None = None) -> str:
        """Address to open in a browser, token included."""
        where = f"/tree/{quote(Path(notebook).as_posix())}" if notebook is not None else ""
        return f"http://{HOST}:{self.port}/lab{where}?token={self.token}"

    def stop(self) -> None:
        """End the server and its kernels, by force if it does not within ten seconds."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def start(
    root: Path, config: Path, runtime: Path, *, port: int = PORT, extra: Sequence[str] = ()
) -> LabServer:
    """Start JupyterLab and wait until it answers.

    Args:
        root: The folder that Lab shows.
        config: Folder for its settings; made if need be.
        runtime: Empty folder for its runtime files and log.
        port: Wanted; 0 for any.
        extra: More of JupyterLab's own options.

    Raises:
        LabError: It ended, or did not answer in time; with the end of its log.
    """
    write_config(config)
    token = secrets.token_hex(16)
    log = runtime / "lab.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command(root, free_port(port), extra),
            env=environment(config, runtime, token),
            stdout=sink,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=os.name == "posix",  # Ctrl-C is for us: we end the server in order
        )
    server = LabServer(process, 0, token, log)
    try:
        _wait_until_it_answers(server, runtime)
    except BaseException:
        server.stop()
        raise
    return server


def _wait_until_it_answers(server: LabServer, runtime: Path) -> None:
    """Read the port that the server took from its own file, then ask it until it answers."""
    info = runtime / f"jpserver-{server.process.pid}.json"
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise LabError(f"JupyterLab ended at once:\n{_tail(server.log)}")
        if server.port == 0 and info.is_file():
            try:
                server.port = int(json.loads(info.read_text())["port"])
            except (ValueError, KeyError):  # half written: look again
                server.port = 0
        if server.port and answers(server):
            return
        time.sleep(0.1)
    raise LabError(f"JupyterLab did not answer in {START_LIMIT_S:.0f} s:\n{_tail(server.log)}")


def answers(server: LabServer) -> bool:
    """Whether the server answers an authorised question."""
    address = f"http://{HOST}:{server.port}/api/status"
    request = urllib.request.Request(address, headers={"Authorization": f"token {server.token}"})
    # No proxy: one set for the internet has no business with this machine's own server.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=5) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _tail(log: Path, lines: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
