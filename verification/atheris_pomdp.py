"""Inputs for the `.pomdp` reader that are led by coverage, where atheris is installed.

atheris is no dependency: it has wheels for few versions of Python. `pip install atheris`, then
`python -m verification.atheris_pomdp -runs=100000 tests/data`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["butfor.interop.pomdp_file"]):
    from butfor.interop.pomdp_file import read_pomdp_file

from verification.fuzz import is_own

FOLDER = Path(tempfile.mkdtemp(prefix="butfor-atheris-"))


def read(data: bytes) -> None:
    """Read one input; what is not refused by us ends the run, and atheris keeps the input."""
    path = FOLDER / "model.pomdp"
    path.write_bytes(data)
    try:
        read_pomdp_file(path)
    except Exception as error:
        if not is_own(error):
            raise


if __name__ == "__main__":
    atheris.Setup(sys.argv, read)
    atheris.Fuzz()
