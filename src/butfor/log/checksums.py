"""Checksums of files: whether they are what was written, bit for bit."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from butfor.checks import check_size
from butfor.log.sources import find_files

MOST_BYTES = 64_000_000  # of a list of checksums
LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_log(source: Any, listing: str | Path) -> None:
    """Refuse a log unless every file of it is in a list of checksums, and is what it says.

    The list has lines as `sha256sum` writes them, with paths relative to the list; it may have
    other files, too.
    """
    path = Path(listing)
    check_size(path, MOST_BYTES, "a list of checksums")
    expected = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        found = LINE.fullmatch(line)
        if found is None:
            raise ValueError(
                f"{path}: line {number} is not a checksum and a path; write the file with sha256sum"
            )
        expected[(path.parent / found[2]).resolve()] = found[1].lower()
    for file in find_files(source):
        known = expected.get(file.resolve())
        if known is None:
            raise ValueError(f"{path}: has no checksum of {file}; list all files of the log")
        if sha256_of(file) != known:
            raise ValueError(
                f"{file}: its SHA-256 is not the one in {path}; it was changed or is damaged: "
                "restore it, or list its new checksum"
            )
