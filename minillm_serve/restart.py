"""What becomes of a server's process whose engine is past help: a new one, or a clear end."""

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

#: Exit status, as in sysexits.h: something inside has failed. (1 is bad input, which does not get
#: better by itself: a supervisor should start a server again after this one alone.)
EXIT_ILL = 70


def restart(argv: Sequence[str]) -> NoReturn:
    """Puts a new server into this one's place; the process keeps its id.

    All threads end with that, a step that hangs among them, and all memory is given back. There is
    no such thing on Windows, where the process ends with `EXIT_ILL`.

    Args:
        argv: of `minillm-serve serve`.
    """
    if sys.platform == "win32":
        end()
    _put_away()
    os.closerange(3, 2**20)  # sockets, and what a device's memory is held by
    os.execv(sys.executable, [sys.executable, "-m", "minillm_serve.cli", "serve", *argv])


def end() -> NoReturn:
    """Ends the process with `EXIT_ILL`.

    At once: an orderly end would wait for the thread that hangs.
    """
    _put_away()
    os._exit(EXIT_ILL)


def _put_away() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # the disk is full, or the reader has gone
            stream.flush()
