"""The shards of a log: files that are read one at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import butfor
from butfor.log.meds.table import check_events
from butfor.log.read import NothingLeft, Reading, read_ids, read_part
from butfor.log.sections import Study
from butfor.log.sources import PARQUET, check_columns, find_files, read_schema


@dataclass(frozen=True)
class Shard:
    """One file of a log, as it was at the start of the run."""

    path: str
    size: int
    changed: int  # nanoseconds

    @property
    def name(self) -> str:
        """The file's name."""
        return Path(self.path).name

    def check(self) -> None:
        """Raise an error if the file has changed."""
        about = Path(self.path).stat()
        if (about.st_size, about.st_mtime_ns) != (self.size, self.changed):
            raise ValueError(
                f"{self.path} changed during the audit; make sure that nothing writes to it, and "
                "run again with --resume"
            )

    def key(self, *others: str) -> str:
        """Return a key for results of this file, from the file and all else they depend on."""
        version = butfor.__version__
        text = "\0".join([version, self.path, str(self.size), str(self.changed), *others])
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def find_shards(source: Any) -> tuple[Shard, ...]:
    """Return the shards of a log, which are its files, each once."""
    if not isinstance(source, str | Path | list | tuple):
        raise ValueError(
            f"{type(source).__name__}: in summary detail a log is read from files; write it to a "
            "file, or use full detail"
        )
    files = dict.fromkeys(path.absolute() for path in find_files(source))
    found = [(path, path.stat()) for path in files]
    return tuple(Shard(str(path), about.st_size, about.st_mtime_ns) for path, about in found)


def check_alike(shards: Sequence[Shard], study: Study) -> tuple[tuple[Shard, ...], dict[str, Any]]:
    """Return the shards that have rows, and the type of each column that the study names.

    Shards with different types are refused. CSV files have no types. Those of events are the types
    of the columns that are made of them.
    """
    if study.source is not None:
        return tuple(shards), check_events([Path(shard.path) for shard in shards], study)
    if not shards[0].path.lower().endswith(PARQUET):
        return tuple(shards), {}
    full = []
    needed = study.places()
    types: dict[str, Any] = {}
    first: dict[str, str] = {}  # the file that determined each type
    for shard in shards:
        schema, rows = read_schema(Path(shard.path))
        check_columns(shard.path, schema.names, needed)
        if rows == 0:
            continue
        full.append(shard)
        for name in needed:
            kind = schema.field(name).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            if pa.types.is_null(kind):
                continue
            if types.setdefault(name, kind) != kind:
                raise ValueError(
                    f"the column {name!r} has different types in the files ({types[name]} in "
                    f"{first[name]}, {kind} in {shard.name}); convert it to one type"
                )
            first.setdefault(name, shard.name)
    if not full:
        raise ValueError(
            f"{shards[0].path} and the other files have no rows; give at least one decision"
        )
    return tuple(full), types


def list_shard(shard: Shard, study: Study, threads: int = 1) -> NDArray[Any]:
    """Return the ids of the episodes of a shard, in order."""
    ids = read_ids(shard.path, study)
    shard.check()
    return np.sort(ids)


def read_shard(shard: Shard, study: Study) -> Reading | NothingLeft:
    """Read a shard according to its study, its episodes in the order of their ids."""
    reading = read_part(shard.path, study)
    shard.check()
    if isinstance(reading, NothingLeft):
        return reading
    return in_order(reading)


def in_order(reading: Reading) -> Reading:
    """Put the episodes of a reading in the order of their ids."""
    ids = reading.episodes.id
    if (ids[1:] > ids[:-1]).all():
        return reading
    order = np.argsort(ids, kind="stable")
    return replace(reading, episodes=reading.episodes.select(order))
