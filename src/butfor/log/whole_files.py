"""Files that are written completely or not at all, and never over another one unasked."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield an empty file, which takes the place of `path` if no error occurs.

    An existing file is replaced only with `overwrite`, even if it appears in the meantime, and its
    permissions are kept. Of a symbolic link, the target is written.
    """
    goal = check_new_file(path, overwrite=overwrite)
    new = goal.with_name(f".butfor-{secrets.token_hex(8)}{goal.suffix}")
    try:
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except PermissionError:
        raise PermissionError(
            f"no permission to write to {goal.parent}; choose another folder"
        ) from None
    try:
        yield new
        _keep(new)
        if goal.exists():
            shutil.copymode(goal, new)
        if overwrite or not _link(new, goal, path):
            new.replace(goal)
    finally:
        new.unlink(missing_ok=True)


def check_new_file(path: str | Path, *, overwrite: bool = False) -> Path:
    """Return where a file will be written; refuse one that exists, unless it may be replaced."""
    goal = resolved(path)
    if goal.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give a file, such as one in it")
    if goal.exists() and not overwrite:
        raise _exists(path)
    if not goal.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {goal.parent}; create it first")
    return goal


def resolved(path: str | Path) -> Path:
    """Return where a path leads; refuse a symbolic link that leads to itself."""
    goal = Path(os.path.realpath(path))
    if goal.is_symlink():
        raise OSError(f"{path} is a symbolic link that leads to itself; give another path")
    return goal


def _exists(path: str | Path) -> FileExistsError:
    return FileExistsError(
        f"{path} exists; give another path, or replace it with overwrite=True (--overwrite)"
    )


def _keep(new: Path) -> None:
    """Have the content on disk before the name, so that a power failure leaves no empty file."""
    with new.open("rb+") as file:
        os.fsync(file.fileno())


def _link(new: Path, goal: Path, path: str | Path) -> bool:
    """Name a file unless there is one of that name; return whether the file system can do that."""
    try:
        os.link(new, goal)
    except FileExistsError:
        raise _exists(path) from None
    except OSError:  # no hard links here
        if goal.exists():
            raise _exists(path) from None
        return False
    return True
