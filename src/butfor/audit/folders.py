"""Folders that are written completely or not at all, by one program at a time.

A new folder is made beside its place and renamed. In an existing one only the files of its kind are
replaced, so that reviews, which another program may have open, never move: the new files are made
in a hidden folder inside; one rename, after everything is on disk, decides that they count; then
each takes its place. Whoever opens a folder in which that was interrupted finishes it (`settle`).
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from butfor.log.whole_files import resolved

if sys.platform != "win32":
    import fcntl

NEW, READY = ".butfor-new", ".butfor-ready"  # files being written; files that only have to be moved
STALE = "stale.txt"  # in READY: the files of the old folder that the new one lacks, by line
NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # of a file system that has none
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
PATIENCE = 2.0  # seconds in which a reader has finished what was interrupted
T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    """What a folder of butfor consists of."""

    marker: str  # a file that each of them has
    sign: bytes  # in that file, a regular expression; without it butfor did not write the folder
    files: tuple[str, ...]  # patterns of its files; others are never touched


@dataclass(frozen=True)
class Claim:
    """The right to write to a folder, which nobody else has meanwhile."""

    goal: Path  # what a link leads to
    kind: Kind

    @contextmanager
    def whole(self) -> Iterator[Path]:
        """Yield a hidden folder, whose files become those of `goal` if no error occurs."""
        inside = self.goal.is_dir()
        new = self.goal / NEW if inside else self.goal.with_name(f".{self.goal.name}{NEW}")
        shutil.rmtree(new, ignore_errors=True)  # of a run that was killed
        new.mkdir()
        try:
            yield new
            if inside:
                (new / STALE).write_text("\n".join(self._stale(new)))
            for path in (*new.rglob("*"), new):
                _sync(path)
            new.rename(self.goal / READY if inside else self.goal)
            _sync(self.goal if inside else self.goal.parent)
            _settle(self.goal)
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def _stale(self, new: Path) -> list[str]:
        found = {path for pattern in self.kind.files for path in self.goal.glob(pattern)}
        names = [path.relative_to(self.goal) for path in found if not path.is_dir()]
        gone = [name for name in names if name.parts[0] != NEW and not (new / name).exists()]
        return sorted(map(str, gone))


@contextmanager
def whole_folder(folder: str | Path, kind: Kind, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a hidden folder, whose files become those of `folder` if no error occurs.

    An existing folder is changed only with `overwrite`, and only if it is of the same kind.
    """
    with claimed(folder, kind, overwrite=overwrite) as claim, claim.whole() as new:
        yield new


@contextmanager
def claimed(folder: str | Path, kind: Kind, *, overwrite: bool = False) -> Iterator[Claim]:
    """Refuse a folder that may not be replaced, and keep other programs from writing to it."""
    check_free(folder, kind, overwrite=overwrite)
    goal = resolved(folder)
    missing = [parent for parent in goal.parents if not parent.exists()]
    goal.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _locked(goal):
            _settle(goal)
            _check_free(goal, kind, overwrite)
            yield Claim(goal, kind)
    finally:
        with suppress(OSError):  # where something was written
            for parent in missing:
                parent.rmdir()


def check_free(folder: str | Path, kind: Kind, *, overwrite: bool = False) -> None:
    """Refuse a folder that exists, unless it may be replaced."""
    goal = resolved(folder)
    parent = goal.parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise PermissionError(f"cannot write to {parent}; choose another folder")
    settle(goal)
    _check_free(goal, kind, overwrite)


def _check_free(goal: Path, kind: Kind, overwrite: bool) -> None:
    if not goal.exists() or (goal.is_dir() and all(path.name == NEW for path in goal.iterdir())):
        return
    marker = goal / kind.marker
    exists = marker.is_file()
    ours = exists and re.search(kind.sign, marker.read_bytes(), re.DOTALL)
    if ours and overwrite:
        for path in (goal / name for name in kind.files):
            if path.is_dir():
                raise IsADirectoryError(
                    f"{path} is a folder where a file has to be written; move it elsewhere"
                )
        return
    remedy = "choose another one, or replace it with overwrite=True (--overwrite)"
    if not ours:
        missing = f"its {kind.marker} is not from butfor" if exists else f"it has no {kind.marker}"
        remedy = f"{missing}, so it will not be replaced; choose another one"
    what = "folder" if goal.is_dir() else "file"
    raise FileExistsError(f"the {what} {goal} already exists; {remedy}")


def read_settled(folder: Path, name: str, read: Callable[[], T]) -> T:
    """Read a folder, again if it was replaced meanwhile: then its file `name` is another one."""
    while True:
        settle(folder)
        before = _identity(folder / name)
        try:
            found = read()
        except (OSError, ValueError):
            if _identity(folder / name) == before and not _is_unsettled(folder):
                raise
        else:
            if _identity(folder / name) == before and not _is_unsettled(folder):
                return found


def settle(folder: str | Path) -> None:
    """Finish what an interrupted program began to replace: this folder, or the one it is in."""
    goal = resolved(folder)
    for place in filter(_is_unsettled, (goal.parent, goal)):
        try:
            with _locked(place, wait=True):
                _settle(place)
        except OSError as error:
            if error.errno not in FORBIDDEN:
                raise
            raise PermissionError(
                f"{place}: a run was interrupted while it replaced this folder; open it once as "
                f"somebody who may write to it and to {place.parent}"
            ) from None


def _is_unsettled(folder: Path) -> bool:
    return (folder / READY).is_dir() and not (folder / READY).is_symlink()


def _settle(goal: Path) -> None:
    """Move new files to their places, however many of them already are there."""
    if not _is_unsettled(goal):
        return
    ready = goal / READY
    stale = ready / STALE
    for name in stale.read_text(errors="replace").splitlines() if stale.is_file() else []:
        if _is_inside(goal, name) and not (goal / name).is_dir():
            (goal / name).unlink(missing_ok=True)
    folders = {goal}
    for path in [path for path in ready.rglob("*") if path.is_symlink() or not path.is_dir()]:
        place = goal / path.relative_to(ready)
        if path != stale and _is_inside(goal, place):
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)
            folders.add(place.parent)
    for folder in folders:
        _sync(folder)
    shutil.rmtree(ready)
    _sync(goal)


def _is_inside(goal: Path, name: str | Path) -> bool:
    """Whether a name leads nowhere else: not up, nor through a link."""
    return (goal / name).parent.resolve().is_relative_to(goal)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _sync(path: Path) -> None:
    """Have a file, or the names in a folder, written to disk."""
    if sys.platform == "win32" and path.is_dir():
        return
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError as error:
        if not (path.is_dir() and error.errno == errno.EINVAL):  # some network file systems
            raise
    finally:
        os.close(file)


@contextmanager
def _locked(goal: Path, *, wait: bool = False) -> Iterator[None]:
    """Keep other programs from writing to a folder, whether or not it exists."""
    path = goal.with_name(f".{goal.name}.butfor-lock")
    file = None
    while file is None:
        file = _lock(path, goal, wait)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # while it is locked: whoever waits looks at the path again
        os.close(file)


def _take(file: int, wait: bool) -> None:
    """Lock a file; without `wait`, only wait for a reader that finishes a replacement."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def _lock(path: Path, goal: Path, wait: bool) -> int | None:
    """Lock a file and return it; None if whoever had it before removed it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if sys.platform != "win32":
            _take(file, wait)
    except BlockingIOError:
        process = os.read(file, 20).decode() or "unknown"
        os.close(file)
        raise BlockingIOError(
            f"another run (process {process}) is writing to {goal}; wait for it, or choose another "
            "folder (--out)"
        ) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            os.close(file)
            raise
    if not path.exists() or os.fstat(file).st_ino != path.stat().st_ino:
        os.close(file)
        return None
    with suppress(OSError):  # on a full disk; the number only tells others whom to wait for
        os.truncate(file, 0)
        os.write(file, str(os.getpid()).encode())
    return file
