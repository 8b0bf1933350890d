"""Files of named arrays (.npz), read safely: nothing is unpickled, and sizes are limited."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_BYTES = 2_000_000_000  # of all arrays in a file
HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
WORDS = {"f": "decimal numbers", "iu": "whole numbers", "b": "true and false", "U": "text"}


class _WrongError(Exception):
    """What is wrong with a file; the path is added to the message."""


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write named arrays, unless they are too large to be read again."""
    size = sum(array.nbytes for array in arrays.values())
    if size > MOST_BYTES:
        raise ValueError(
            f"{path}: {size / 1e6:,.0f} MB of arrays, more than {MOST_BYTES / 1e6:,.0f} MB; use "
            "fewer states or actions"
        )
    np.savez(path, allow_pickle=False, **arrays)


def read_arrays(path: Path, kinds: Mapping[str, str], remedy: str) -> dict[str, NDArray[Any]]:
    """Read the named arrays of a file, each of the kind given ("f", "iu", "b" or "U").

    Sizes are checked before memory is allocated. Nothing is unpickled.
    """
    try:
        with zipfile.ZipFile(path) as file:
            return {name: _read(file, name, kind) for name, kind in kinds.items()}
    except _WrongError as wrong:
        raise ValueError(f"{path}: {wrong}; {remedy}") from None
    except Exception:  # zipfile and NumPy raise errors of many types about damaged files
        raise ValueError(f"{path}: damaged, or not a file of arrays; {remedy}") from None


def _read(file: zipfile.ZipFile, name: str, kind: str) -> NDArray[Any]:
    members = [info for info in file.infolist() if info.filename == f"{name}.npy"]
    if len(members) != 1:
        raise _WrongError(f"has {'no array' if not members else 'several arrays'} {name!r}")
    info = members[0]
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        raise _WrongError(f"{name} is compressed, but arrays must be stored uncompressed")
    if info.file_size > MOST_BYTES:
        raise _WrongError(f"{name} has {info.file_size:,} bytes, more than {MOST_BYTES:,}")
    with file.open(info) as member:
        shape, _, dtype = HEADERS[np.lib.format.read_magic(member)](member)
        if dtype.kind not in kind:
            what = "Python objects" if dtype.hasobject else f"values of type {dtype}"
            raise _WrongError(f"{name} contains {what}, expected {WORDS[kind]}")
        if math.prod(shape) * dtype.itemsize != info.file_size - member.tell():
            raise _WrongError(f"{name} should have shape {shape}, but its data has another size")
        member.seek(0)
        array: NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
    return array
