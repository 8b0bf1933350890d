"""The demonstration with less work, in both of its processes."""

from functools import partial

from butfor.cli import demo
from butfor.evaluate.rehearsal import rehearse

MAKE = demo._make_audit
LESS = {"MODELS": 2, "INTERVALS": 5, "rehearse": partial(rehearse, splits=1)}


def do_less(monkeypatch):
    """Let demonstrations made here draw few models and rehearse once."""
    for name, value in LESS.items():
        monkeypatch.setattr(demo, name, value)
    monkeypatch.setattr(demo, "_make_audit", make_audit)


def make_audit(*arguments):
    """Do the work of the second process, which knows nothing of changes made in the first."""
    vars(demo).update(LESS)
    return MAKE(*arguments)
