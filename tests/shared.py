"""What tests of several files need and takes long to make: made once per run, by the first to ask.

Processes that test side by side share a folder; a lock lets the others wait for it.
"""

import fcntl
import os
import pickle


def root(factory):
    """Return the folder of this run, the same in all of its processes."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


def once(factory, name, make):
    """Return a folder, and what `make` returned when it wrote to it.

    Whoever needs to change the folder takes a copy. `factory` is pytest's `tmp_path_factory`.
    """
    folder = root(factory) / name
    made = folder / "made.pickle"
    with open(root(factory) / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            folder.mkdir(exist_ok=True)
            value = make(folder / "files")
            made.write_bytes(pickle.dumps(value))
    return folder / "files", pickle.loads(made.read_bytes())
