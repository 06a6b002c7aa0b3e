"""Sections in processes of their own: one that crashes or hangs takes no other with it.

(After an illegal access to memory a CUDA context is lost, and with it the whole process.)
"""

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from benchmarks.gpu.session import Notes

#: Begins a line in which a child tells of an item; all other lines are for people.
MARK = "@item "


class ToParent:
    """Tells the parent of every item, on stdout."""

    def add(self, section: str, name: str, status: str, **figures: Any) -> None:
        """See `Notes`."""
        entry = {"section": section, "name": name, "status": status, **figures}
        print(MARK + json.dumps(entry), flush=True)


def run_child(command: Sequence[str], section: str, seconds: float, notes: Notes) -> None:
    """Runs a child that tells of its items, and ends it when its time is over.

    Args:
        command: starts it.
        section: how it is called where it fails as a whole.
        seconds: that it may take.
        notes: where its items go, as they come.
    """
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    late = threading.Event()

    def stop() -> None:
        late.set()
        child.kill()

    watch = threading.Timer(seconds, stop)
    watch.start()
    try:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith(MARK):
                notes.add(**json.loads(line.removeprefix(MARK)))
            else:
                sys.stdout.write(line)
        code = child.wait()
    finally:
        watch.cancel()
        child.kill()
    if late.is_set():
        notes.add(section, "the section", "failed", why=f"stopped after {seconds:.0f} s")
    elif code:
        notes.add(section, "the section", "failed", why=f"its process ended with {code}")
