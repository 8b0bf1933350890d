"""While butfor loads: Ctrl-C, and names that are gone."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# names of the version before, and what to write instead
GONE = {
    "counterfactual_bounds": "bf.Replay(log, model, target).bounds()",
    "counterfactual_outcomes": "bf.Replay(log, model, target).outcomes()",
    "fewest_changes": "bf.Replay(log, model, target).fewest_changes(), for any target",
    "sample_counterfactuals": "bf.Replay(log, model, target).draws()",
    "walk_through": "bf.Replay(log, model, target).steps()",
    "compare_labels": "one Replay with the model and one with model.with_labels(labels)",
    "nature_labels": "log.state_labels()",
    "is_monotone": "bf.mechanisms.is_monotone(mechanism)",
    "is_stable": "bf.mechanisms.is_stable(mechanism)",
    "row_bounds": "bf.mechanisms.row_bounds(p, q, observed, value)",
}


def refuse_gone(load: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return the package's `__getattr__`, which says of a name that is gone what to write instead.

    An `ImportError`, because `from butfor import name` replaces the words of an `AttributeError`.
    """

    def find(name: str) -> Any:
        if name in GONE:
            raise ImportError(f"bf.{name} is gone; write {GONE[name]}", name=name)
        return load(name)

    return find


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
