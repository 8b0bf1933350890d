"""Folders that are written whole or not at all."""

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
    """Give a temporary folder to write to; when all went well it takes the place of `folder`.

    An existing folder is replaced only with `overwrite` and if it holds the file `marker`, which
    tells that it is of the same kind; files named in `keep` are carried over.
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
    """Give a file a second place; it stays the same one for programs that have it open."""
    try:
        os.link(old, new)
    except OSError:  # the disk has no such links
        shutil.copy2(old, new)


def check_free(folder: str | Path, *, marker: str, overwrite: bool = False) -> None:
    """Refuse a folder that exists, unless it may be replaced."""
    goal = Path(folder)
    parent = goal.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise PermissionError(f"cannot write to {parent}; give a folder elsewhere")
    if not goal.exists() or (goal.is_dir() and not any(goal.iterdir())):
        return
    same = (goal / marker).is_file()
    if same and overwrite:
        return
    remedy = (
        "give another one, or replace it with overwrite=True (--overwrite)"
        if same
        else f"without {marker}, so it will not be replaced; give another one"
    )
    kind = "folder" if goal.is_dir() else "file"
    raise FileExistsError(f"the {kind} {goal} is there already, {remedy}")
