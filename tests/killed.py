"""Programs that overwrite an audit and are killed at one step of it after another.

Run as a program, so that it can fork before it has any threads.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from butfor.audit.audit import AUDIT, Audit
from butfor.audit.folders import whole_folder

STEPS = ("rename", "replace", "fsync", "unlink", "rmdir")


def start_killing(folder, others, turns, stride):
    """Start a program that replaces the audit in a folder by others in turn.

    It dies `stride` steps later each time, until it gets through; then it begins again.
    """
    command = [sys.executable, "-m", "tests.killed", folder, turns, stride, *others]
    return subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=Path(__file__).parents[1],
    )


def die_at(step):
    """Make one call that changes names or waits for the disk the last one of this process."""
    calls = itertools.count()

    def watched(function):
        def call(*arguments, **options):
            if next(calls) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return call

    for name in STEPS:
        setattr(os, name, watched(getattr(os, name)))


def replace_and_die(folder, other, step):
    """Replace an audit in a child that dies at a step; return whether it got so far."""
    child = os.fork()
    if child == 0:
        with whole_folder(folder, AUDIT, overwrite=True) as new:
            for path in other.iterdir():
                (new / path.name).write_bytes(path.read_bytes())
            die_at(step)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def main(folder, turns, stride, *others):
    """Kill one program after another; print at which step, and whether the new audit was found."""
    others = list(map(Path, others))
    digests = [Audit.load(other).meta.digest for other in others]
    step, found, which = 0, [], digests.index(Audit.load(folder).meta.digest)
    for _ in range(int(turns)):
        given = (which + 1) % len(others)
        killed = replace_and_die(Path(folder), others[given], step)
        loaded = Audit.load(folder)  # finishes what was interrupted
        which = digests.index(loaded.meta.digest)
        expected = Audit.load(others[which])
        for name in ("episodes", "steps", "estimates", "draws"):
            assert getattr(loaded, name).equals(getattr(expected, name)), (step, name)
        assert loaded.target.tobytes() == expected.target.tobytes(), step
        if killed:
            found.append((step, which == given))
        step = step + int(stride) if killed else 0
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
