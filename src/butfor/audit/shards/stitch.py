"""Joining the parts of shards into the tables of an audit, in the order of ids."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from butfor.audit.files import TableWriter, as_arrow
from butfor.audit.meta import SamplingDesign
from butfor.audit.shards.parts import Parts
from butfor.audit.tables import episode_table
from butfor.log.episodes import rows_of
from butfor.types import Progress

RANGE = 20_000  # approximate number of episodes that are sorted together


def stitch_tables(
    folder: Path,
    parts: Parts,
    keys: Sequence[str],
    cuts: Sequence[Any],
    shown: pd.DataFrame,
    design: SamplingDesign,
    progress: Progress | None,
) -> None:
    """Write the tables of episodes and steps of an audit, in the order of ids.

    `keys` name the parts, `cuts` are the ids at which the rows are divided into ranges, and `shown`
    is the table of the episodes shown, with their ids; `design` says how they were chosen.
    """
    done = 0
    with ExitStack() as files:
        writers: list[TableWriter] = []
        for number, (episodes, steps) in enumerate(_gather(parts, keys, cuts)):
            judged = episodes.to_pandas().drop(columns="order")
            place = pd.Index(judged["id"]).get_indexer(pd.Index(shown["id"]))
            known = shown[place >= 0].drop(columns="id").reset_index(drop=True)
            table = as_arrow("episodes", episode_table(judged, known, place[place >= 0], design))
            lengths = judged["length"].to_numpy() + 1
            owner = np.repeat(np.arange(done, done + len(judged)), lengths)
            rows = steps.add_column(0, pa.field("episode", pa.int64()), pa.array(owner))
            if not writers:
                writers = [
                    files.enter_context(TableWriter(folder / f"{name}.parquet", schema))
                    for name, schema in (("episodes", table.schema), ("steps", rows.schema))
                ]
            writers[0].write(table)
            writers[1].write(rows)
            done += len(judged)
            if progress is not None:
                progress(number + 1, len(cuts) + 1)


def _gather(parts: Parts, keys: Sequence[str], cuts: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the episodes and the steps between one cut and the next, in order."""
    edges = {key: _find_edges(parts.table("episodes", key), cuts) for key in keys}
    for number in range(len(cuts) + 1):
        found: list[tuple[Any, Any]] = []
        for key, (place, row) in edges.items():
            if place[number] < place[number + 1]:
                found.append(
                    (
                        _slice(parts.table("episodes", key), place[number : number + 2]),
                        _slice(parts.table("steps", key), row[number : number + 2]),
                    )
                )
        if found:
            yield join_by_id(found)


def _find_edges(episodes: Any, cuts: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Positions of the cuts among the episodes of a part and among their steps, with both ends."""
    ids = episodes.column("id")
    places = [bisect_left(range(len(ids)), cut, key=lambda i: ids[i].as_py()) for cut in cuts]
    place = [0, *places, len(ids)]
    rows = np.append(0, np.cumsum(episodes.column("length").to_numpy() + 1))
    return place, rows[place].tolist()


def _slice(table: Any, between: Sequence[int]) -> Any:
    low, high = between
    return table.slice(low, high - low)


def join_by_id(found: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Concatenate the rows of several parts and sort them by id."""
    episodes, steps = (pa.concat_tables(tables) for tables in zip(*found, strict=True))
    if len(found) == 1:
        return episodes, steps
    order = np.argsort(episodes.column("id").to_numpy(zero_copy_only=False), kind="stable")
    lengths = episodes.column("length").to_numpy() + 1
    rows = rows_of(np.cumsum(lengths) - lengths, lengths, order)
    return episodes.take(pa.array(order)), steps.take(pa.array(rows))
