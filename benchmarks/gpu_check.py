"""`python benchmarks/gpu_check.py`: what only a GPU can tell, in one run of under six minutes.

Is every kernel right when it is compiled, how far is each from the card's limits and from its
peers, and what does the engine reach from end to end, beside transformers. It needs the repository,
torch, triton, transformers, safetensors, numpy and numba; nothing is installed or downloaded.
`--dry-run` rehearses all of it on a CPU, with tiny shapes.
"""

import argparse
import importlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The whole run ends within so many seconds; what is not done by then is reported as skipped.
TOTAL_SECONDS = 345
#: What a section may take beyond its own seconds, to finish the item that it is at.
GRACE_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the check.

    Attributes:
        module: where it is; imported when it is its turn.
        function: takes a `Session`.
        seconds: that it may take.
    """

    module: str
    function: str
    seconds: float


SECTIONS = {
    "correct": Section("benchmarks.gpu.kernels", "check", 60),
    "fast": Section("benchmarks.gpu.kernels", "race", 120),
    "small": Section("benchmarks.gpu.engines", "small", 60),
    "large": Section("benchmarks.gpu.engines", "large", 80),
}


def main(argv: Sequence[str]) -> int:
    """Runs the sections; 1 if anything that should work did not."""
    chosen = _options().parse_args(argv)
    if chosen.dry_run:
        # Triton reads it when it is first imported, so this must come before all else (B134).
        os.environ.setdefault("TRITON_INTERPRET", "1")
    import torch

    if not chosen.dry_run and not torch.cuda.is_available():
        print("torch sees no GPU: try --dry-run", file=sys.stderr)
        return 2
    if chosen.child:
        from benchmarks.gpu.children import ToParent

        _run(chosen.child, chosen.dry_run, SECTIONS[chosen.child].seconds, ToParent())
        return 0
    return _run_all(chosen)


def _run_all(chosen: argparse.Namespace) -> int:
    from benchmarks.gpu.children import run_child
    from benchmarks.gpu.report import Report
    from minillm_serve.stamp import stamp

    began = time.monotonic()
    report = Report(stamp(dry_run=chosen.dry_run), chosen.output)
    for name in chosen.sections:
        left = TOTAL_SECONDS - (time.monotonic() - began)
        if left <= 0:
            report.add(name, "the section", "skipped", why="out of time")
        elif chosen.isolate or not chosen.dry_run:
            command = [sys.executable, str(Path(__file__).resolve()), "--child", name]
            command += ["--dry-run"] if chosen.dry_run else []
            run_child(command, name, min(SECTIONS[name].seconds + GRACE_SECONDS, left), report)
        else:
            _run(name, chosen.dry_run, min(SECTIONS[name].seconds, left), report)
    minutes = (time.monotonic() - began) / 60
    report.add("end", "the whole run", "ok", remarks=[f"took {minutes:.1f} minutes"])
    if chosen.output is None:
        print(report.table())
    return 1 if report.num_failed else 0


def _run(name: str, dry: bool, seconds: float, notes: "Notes") -> None:  # noqa: F821
    """Runs a section in this process."""
    import torch

    from benchmarks.gpu.session import Session

    section = SECTIONS[name]
    device = torch.device("cpu" if dry else "cuda")
    session = Session(device, dry, notes, seconds)
    getattr(importlib.import_module(section.module), section.function)(session)


def _options() -> argparse.ArgumentParser:
    first_line = (__doc__ or "").split("\n")[0]
    options = argparse.ArgumentParser(prog="gpu_check.py", description=first_line)
    options.add_argument("--dry-run", action="store_true", help="tiny shapes, on a CPU")
    options.add_argument("--output", type=Path, help="a .json file; a table goes beside it")
    options.add_argument("--sections", nargs="+", choices=[*SECTIONS], default=[*SECTIONS])
    options.add_argument(
        "--isolate", action="store_true", help="a process for each section, in a dry run too"
    )
    options.add_argument("--child", choices=[*SECTIONS], help=argparse.SUPPRESS)
    return options


if __name__ == "__main__":
    # Python put this file's folder first, whose kernels.py and profile.py hide what others import.
    sys.path[0] = str(ROOT)
    sys.exit(main(sys.argv[1:]))
