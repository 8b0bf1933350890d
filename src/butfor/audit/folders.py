"""Folders that are written completely or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_folder(
    folder: str | Path, *, marker: str, overwrite: bool = False, keep: Sequence[str] = ()
) -> Iterator[Path]:
    """Yield a temporary folder, which takes the place of `folder` if no error occurs.

    An existing folder is replaced only with `overwrite`, and only if it contains the file `marker`,
    which identifies its kind; files named in `keep` are carried over.
    """
    goal = Path(folder)
    check_free(goal, marker=marker, overwrite=overwrite)
    goal.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{goal.name}-", dir=goal.parent))
    try:
        yield new
        new.chmod(0o755)
        for name in keep:
            if (goal / name).exists():
                (new / name).parent.mkdir(parents=True, exist_ok=True)
                _carry_over(goal / name, new / name)
        old = new.with_name(f"{new.name}-old")
        if goal.exists():
            goal.rename(old)
        try:
            new.rename(goal)
        except OSError:
            if old.exists():
                old.rename(goal)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _carry_over(old: Path, new: Path) -> None:
    """Link a file at a second place, so that programs which have it open keep the same file."""
    try:
        os.link(old, new)
    except OSError:  # the file system has no hard links
        shutil.copy2(old, new)


def check_free(folder: str | Path, *, marker: str, overwrite: bool = False) -> None:
    """Refuse a folder that exists, unless it may be replaced."""
    goal = Path(folder)
    parent = goal.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise PermissionError(f"cannot write to {parent}; choose another folder")
    if not goal.exists() or (goal.is_dir() and not any(goal.iterdir())):
        return
    same = (goal / marker).is_file()
    if same and overwrite:
        return
    remedy = (
        "choose another one, or replace it with overwrite=True (--overwrite)"
        if same
        else f"it has no {marker}, so it will not be replaced; choose another one"
    )
    kind = "folder" if goal.is_dir() else "file"
    raise FileExistsError(f"the {kind} {goal} already exists; {remedy}")
