"""Parts: results of shards, kept on disk until the audit is complete, so that it can resume."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
from numpy.typing import NDArray

from butfor.audit.exact import ExactSums
from butfor.audit.folders import Kind, check_free
from butfor.audit.shards.count import Counts
from butfor.audit.shards.judge import COUNTS, SUMS, Judged

MARKER = "unfinished.txt"
TABLES = ("episodes", "steps")  # of a judged shard, kept as Arrow files
PACKED = ("shape", "place", "value")  # arrays of packed sums
TEXT = (
    "Partial results of `butfor audit`. Continue with the same command and --resume. This folder\n"
    "is removed when the audit is complete; it may also be deleted at any time.\n"
)
UNFINISHED = Kind(MARKER, b"\\APartial results of `butfor audit`", ("*.npz", "*.arrow", MARKER))


def parts_folder(out: Path) -> Path:
    """Return the folder of an unfinished audit, beside where the audit will be."""
    goal = out.resolve()
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
        """Whether a part exists and is complete."""
        tables = [f"{name}-{key}.arrow" for name in TABLES] if kind == "judge" else []
        stored = zipfile.is_zipfile(self.folder / f"{kind}-{key}.npz")
        return stored and all((self.folder / name).exists() for name in tables)

    def remove(self) -> None:
        """Delete the parts, and the folder if it contains nothing else."""
        for pattern in UNFINISHED.files:
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()

    def write_ids(self, key: str, ids: NDArray[Any]) -> None:
        """Store the ids of a shard's episodes."""
        self._write(f"ids-{key}.npz", partial(_save, arrays={"ids": storable(ids)}))

    def read_ids(self, key: str) -> NDArray[Any]:
        """Return the ids of a shard's episodes, in order."""
        return loaded(self._read(f"ids-{key}.npz")["ids"])

    def write_counts(self, key: str, counts: Counts) -> None:
        """Store the counts of a shard."""
        self._write(f"count-{key}.npz", partial(_save, arrays=counts.arrays()))

    def read_counts(self, key: str) -> Counts:
        """Return the counts of a shard."""
        return Counts.from_arrays(self._read(f"count-{key}.npz"))

    def write_judged(self, key: str, judged: Judged) -> None:
        """Store the results of a shard; the tables first, so that the rest implies them."""
        for name in TABLES:
            save = partial(_save_table, table=getattr(judged, name))
            self._write(f"{name}-{key}.arrow", save)
        arrays: dict[str, Any] = {
            f"sums_{name}_{piece}": array
            for name in SUMS
            for piece, array in judged.sums[name].packed().items()
        }
        arrays |= {f"counts_{name}": judged.counts[name] for name in COUNTS}
        self._write(f"judge-{key}.npz", partial(_save, arrays=arrays))

    def read_judged(self, key: str) -> Judged:
        """Return the results of a shard; its tables are mapped into memory, not read."""
        stored = self._read(f"judge-{key}.npz")
        return Judged(
            episodes=self.table("episodes", key),
            steps=self.table("steps", key),
            sums={
                name: ExactSums.unpack(*(stored[f"sums_{name}_{piece}"] for piece in PACKED))
                for name in SUMS
            },
            counts={name: stored[f"counts_{name}"] for name in COUNTS},
        )

    def table(self, name: str, key: str) -> Any:
        """Return a table of a part, mapped from disk."""
        with pa.memory_map(str(self.folder / f"{name}-{key}.arrow")) as file:
            return pa.ipc.open_file(file).read_all()

    def _read(self, name: str) -> dict[str, NDArray[Any]]:
        if not (self.folder / name).exists():
            raise FileNotFoundError(f"{self.folder / name} was removed; run again with --resume")
        with np.load(self.folder / name, allow_pickle=False) as file:
            return {array: file[array] for array in file.files}

    def _write(self, name: str, write: Callable[[Path], None]) -> None:
        """Write a file under a temporary name and rename it, so that it is never incomplete."""
        waiting = self.folder / f"writing-{os.getpid()}-{name}"
        try:
            write(waiting)
            waiting.replace(self.folder / name)
        except BaseException:
            with suppress(OSError):
                waiting.unlink()
            raise


def storable(ids: NDArray[Any]) -> NDArray[Any]:
    """Return ids as an array of a plain type; text becomes the bytes of a JSON list."""
    if ids.dtype != object:
        return ids
    return np.frombuffer(json.dumps(ids.tolist()).encode(), dtype=np.uint8)


def loaded(ids: NDArray[Any]) -> NDArray[Any]:
    """Undo `storable`."""
    return np.array(json.loads(ids.tobytes()), dtype=object) if ids.dtype == np.uint8 else ids


def _save(path: Path, arrays: dict[str, Any]) -> None:
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
        file.flush()
        os.fsync(file.fileno())


def _save_table(path: Path, table: Any) -> None:
    with path.open("wb") as file:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        file.flush()
        os.fsync(file.fileno())
