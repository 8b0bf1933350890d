"""Ctrl-C while the command loads."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the command at once and quietly while something is imported.

    Nothing is open yet that could be lost. As an exception it may be swallowed or turned into
    another one by a library, or leave Python's import lock taken, for which other threads then
    wait forever. Programs that import butfor keep their Ctrl-C.
    """
    if not _is_command() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_command() -> bool:
    """Tell whether this is `butfor` or `python -m butfor`, not a process started by either."""
    given = sys.orig_argv[1:3]
    name = os.path.splitext(os.path.basename(given[0]))[0] if given else ""
    return name == "butfor" or given == ["-m", "butfor"]
