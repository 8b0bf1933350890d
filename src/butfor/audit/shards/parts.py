"""Parts: results of shards, kept on disk until the audit is complete, so that it can resume."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.audit.folders import Kind, check_free
from butfor.audit.shards.coded import LOG, logged_steps
from butfor.audit.shards.count import Counted, Counts
from butfor.audit.shards.judge import Judged
from butfor.audit.shards.packed import (
    Arrays,
    PackedTable,
    pack_arrays,
    table_file,
    unpack_arrays,
)
from butfor.log.checksums import sha256_of

MARKER = "unfinished.txt"
TABLES = {"count": LOG, "judge": ("episodes", "cases")}  # kept as Arrow files
TEXT = (
    "Partial results of `butfor audit`. Continue with the same command and --resume. This folder\n"
    "is removed when the audit is complete; it may also be deleted at any time.\n"
)
UNFINISHED = Kind(
    MARKER, b"\\APartial results of `butfor audit`", ("*.npz", "*.arrow", "*.sha256", MARKER)
)


def parts_folder(out: Path) -> Path:
    """Return the folder of an unfinished audit, beside where the audit will be."""
    goal = Path(os.path.realpath(out))
    return goal.parent / f"{goal.name}.unfinished"


@dataclass(frozen=True)
class Parts:
    """A folder of parts, each named by a hash of all that it depends on and written atomically."""

    folder: Path

    @classmethod
    def open(cls, out: Path, *, resume: bool, overwrite: bool) -> Parts:
        """Create the folder, or open that of an interrupted run."""
        folder = parts_folder(out)
        if folder.exists() and not resume:
            if not overwrite:
                raise FileExistsError(
                    f"{folder} has the parts of an unfinished audit; continue it (--resume), or "
                    "discard them and start again (--overwrite)"
                )
            check_free(folder, UNFINISHED, overwrite=True)
            cls(folder).remove()
        check_free(folder, UNFINISHED, overwrite=True)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / MARKER).exists():
            (folder / MARKER).write_text(TEXT)
        return cls(folder)

    def has(self, kind: str, key: str) -> bool:
        """Whether a part exists, complete and undamaged: its files have their checksums."""
        try:
            return self._sums_file(kind, key).read_bytes() == self._sums(kind, key)
        except FileNotFoundError:
            return False

    def remove(self) -> None:
        """Delete the parts, and the folder if it contains nothing else."""
        for pattern in UNFINISHED.files:
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()

    def write_ids(self, key: str, ids: NDArray[Any]) -> None:
        """Store the ids of a shard's episodes."""
        self._write_part("ids", key, {}, {"ids": storable(ids)})

    def read_ids(self, key: str) -> NDArray[Any]:
        """Return the ids of a shard's episodes, in order."""
        return loaded(self._read(f"ids-{key}.npz")["ids"])

    def write_counted(self, key: str, counted: Counted) -> None:
        """Store the counts and the log of a shard."""
        self._write_part("count", key, counted.tables, counted.counts.arrays())

    def read_counts(self, key: str) -> Counts:
        """Return the counts of a shard."""
        return Counts.from_arrays(self._read(f"count-{key}.npz"))

    def write_judged(self, key: str, judged: Judged) -> None:
        """Store the results of a shard."""
        arrays: Arrays = {f"counts {name}": array for name, array in judged.counts.items()}
        for name, packed in judged.sums.items():
            arrays |= {f"{name} {piece}": array for piece, array in packed.items()}
        self._write_part("judge", key, judged.tables, arrays)

    def read_judged(self, key: str) -> Judged:
        """Return the results of a shard without its tables."""
        found: dict[str, Arrays] = {}
        for name, array in self._read(f"judge-{key}.npz").items():
            group, piece = name.split()
            found.setdefault(group, {})[piece] = array
        return Judged(tables={}, counts=found.pop("counts"), sums=found)

    def _read(self, name: str) -> Arrays:
        if not (self.folder / name).exists():
            raise FileNotFoundError(f"{self.folder / name} was removed; run again with --resume")
        return unpack_arrays(self.folder / name)

    def _write_part(self, kind: str, key: str, tables: Mapping[str, Any], arrays: Arrays) -> None:
        """Store the files of a part, and then their checksums, without which it does not count."""
        for name, packed in tables.items():
            self._write(table_file(self.folder, name, key).name, packed)
        self._write(f"{kind}-{key}.npz", pack_arrays(arrays))
        self._sums_file(kind, key).write_bytes(self._sums(kind, key))

    def _sums_file(self, kind: str, key: str) -> Path:
        return self.folder / f"{kind}-{key}.sha256"

    def _sums(self, kind: str, key: str) -> bytes:
        """Return the checksums of the files of a part, as `sha256sum` writes them."""
        tables = [table_file(self.folder, name, key) for name in TABLES.get(kind, ())]
        files = [self.folder / f"{kind}-{key}.npz", *tables]
        return "".join(f"{sha256_of(path)}  {path.name}\n" for path in files).encode()

    def _write(self, name: str, data: Any) -> None:
        """Write a file under a temporary name and rename it, so that it is never incomplete."""
        waiting = self.folder / f"writing-{os.getpid()}-{name}"
        try:
            with waiting.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            waiting.replace(self.folder / name)
        except BaseException:
            with suppress(OSError):
                waiting.unlink()
            raise


@dataclass(frozen=True)
class Part:
    """The tables of one shard after both passes."""

    folder: Path
    counted: str  # keys
    judged: str

    def table(self, name: str, *columns: str) -> PackedTable:
        """Return a table, or some of its columns, to be read."""
        key = self.counted if name in TABLES["count"] else self.judged
        return PackedTable(self.folder, name, key, columns.__contains__ if columns else None)

    def logged(self) -> Any:
        """Return the steps without what only readers see."""
        return logged_steps(self.folder, self.counted)


def storable(ids: NDArray[Any]) -> NDArray[Any]:
    """Return ids as an array of a plain type; text becomes the bytes of a JSON list."""
    if ids.dtype != object:
        return ids
    return np.frombuffer(json.dumps(ids.tolist()).encode(), dtype=np.uint8)


def loaded(ids: NDArray[Any]) -> NDArray[Any]:
    """Undo `storable`."""
    return np.array(json.loads(ids.tobytes()), dtype=object) if ids.dtype == np.uint8 else ids
