"""Joining the parts of shards into the tables of an audit, in the order of ids."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from butfor.audit.files import TableWriter, arrow_of, as_arrow
from butfor.audit.meta import SamplingDesign
from butfor.audit.observed_steps import step_columns
from butfor.audit.shards.coded import is_logged
from butfor.audit.shards.parts import Part
from butfor.audit.tables import episode_columns
from butfor.log.episodes import rows_of
from butfor.replay.replay import Replay
from butfor.threads import in_order
from butfor.types import Progress

RANGE = 20_000  # approximate number of episodes that are sorted together
SAMPLED = 64  # one id in this many is sampled to divide the ids into ranges
UNSAVED = ["order", "differs"]  # columns of episodes
NAMES = ("episodes", "steps")
WAITING = 2 * len(NAMES)  # tables of ranges that wait to be written

Columns = dict[str, Any]  # of NumPy, pandas or Arrow, by name


def divide_ids(listed: Iterable[NDArray[Any]]) -> list[Any]:
    """Return ids that divide the episodes of all shards into ranges, given each shard's in order.

    A range begins with a shard where one begins nearby, so that its part is read at once.
    """
    sample: list[Any] = []
    spans: list[tuple[Any, Any, int]] = []
    for ids in listed:
        sample += ids[::SAMPLED].tolist()
        if len(ids):
            spans.append((*ids[[0, -1]].tolist(), len(ids)))
    cuts = sorted(sample)[RANGE // SAMPLED :: RANGE // SAMPLED]
    passed, newest, rank = [], None, 0
    for first, last, count in sorted(spans):
        if newest is None or first > newest:  # no shard goes on from before
            passed.append((rank, first))
        newest, rank = last if newest is None else max(newest, last), rank + count
    for number, goal in enumerate(range(RANGE, RANGE * (len(cuts) + 1), RANGE)):
        place = bisect_left(passed, goal, key=lambda one: one[0])
        near, first = min(passed[max(0, place - 1) : place + 1], key=lambda one: abs(one[0] - goal))
        if abs(near - goal) <= RANGE // 2:
            cuts[number] = first
    return sorted(set(cuts))


def stitch_tables(
    folder: Path,
    parts: Sequence[Part],
    cuts: Sequence[Any],
    question: Replay,
    shown: pd.DataFrame,
    design: SamplingDesign,
    progress: Progress | None,
) -> None:
    """Write the tables of episodes and steps of an audit, in the order of ids.

    `cuts` are the ids at which the rows are divided into ranges, and `shown` is the table of the
    episodes shown, with their ids; `design` says how they were chosen.
    """
    ends = [_find_edges(part, cuts) for part in parts]
    about = _About(question, shown, design)
    schemas = about.schemas(*_read(parts[0], np.arange(2), np.array([0, ends[0].lengths[0] + 1])))
    before = np.sum([edges.place for edges in ends], axis=0)  # episodes before each range

    def make(number: int) -> list[Any]:
        found = [
            _read(part, edges.place[number : number + 2], edges.row[number : number + 2])
            for part, edges in zip(parts, ends, strict=True)
            if edges.place[number] < edges.place[number + 1]
        ]
        if not found:
            return []
        columns = about.columns(*join_by_id(found), int(before[number]))
        return [arrow_of(*pair) for pair in zip(columns, schemas, strict=True)]

    writing: deque[Future[None]] = deque()
    # ranges are put together in several threads, while one for each table writes those before
    with ExitStack() as files:
        writers = [
            files.enter_context(TableWriter(folder / f"{name}.parquet", schema))
            for name, schema in zip(NAMES, schemas, strict=True)
        ]
        pools = [files.enter_context(ThreadPoolExecutor(1)) for _ in NAMES]
        for number, tables in enumerate(in_order(make, range(len(cuts) + 1))):
            given = zip(pools, writers, tables, strict=False)  # none of an empty range
            writing += [pool.submit(writer.write, table) for pool, writer, table in given]
            while len(writing) > WAITING:
                writing.popleft().result()
            if progress is not None:
                progress(number + 1, len(cuts) + 1)
        for future in writing:
            future.result()


@dataclass(frozen=True, eq=False)
class _About:
    """What the tables of an audit say of any episodes, besides their parts."""

    question: Replay
    shown: pd.DataFrame
    design: SamplingDesign

    def columns(self, episodes: Any, steps: Any, before: int) -> tuple[Columns, Columns]:
        """Return the columns of both tables for some episodes; `before` are those before them."""
        place = pd.Index(episodes["id"].to_pandas()).get_indexer(pd.Index(self.shown["id"]))
        known = self.shown[place >= 0].drop(columns="id").reset_index(drop=True)
        judged = _by_name(episodes.drop_columns(UNSAVED))
        rows = _by_name(steps)
        logged = {name: rows.pop(name) for name in steps.column_names if is_stepped(name)}
        logged |= {name: logged[name].to_numpy() for name in ("state", "action")}
        lengths, question = episodes["length"].to_numpy(), self.question
        made = step_columns(logged, episodes["id"], lengths, question.target_table, question.log)
        made["episode"] += before
        return episode_columns(judged, known, place[place >= 0], self.design), made | rows

    def schemas(self, episodes: Any, steps: Any) -> tuple[Any, Any]:
        """Return the schemas of both tables, by way of the tables of one episode."""
        table, rows = self.columns(episodes, steps, 0)
        described = steps.select([name for name in steps.column_names if not is_stepped(name)])
        made = {name: rows[name] for name in rows if name not in described.column_names}
        first, second = (
            as_arrow(name, _frame(columns)).schema
            for name, columns in zip(NAMES, (table, made), strict=True)
        )
        return first, _beside(second, described.schema)


def is_stepped(name: str) -> bool:
    """Whether a column of steps is needed to make others; the rest is for readers."""
    return name == "evidence" or is_logged(name)


def _by_name(table: Any) -> Columns:
    return dict(zip(table.column_names, table.columns, strict=True))


def _frame(columns: Columns) -> pd.DataFrame:
    return pd.DataFrame(
        {
            name: values.to_pandas() if isinstance(values, pa.ChunkedArray) else values
            for name, values in columns.items()
        }
    )


def _beside(schema: Any, other: Any) -> Any:
    """Return the fields of both schemas, as pandas would have written them together."""
    kinds = [json.loads(one.metadata[b"pandas"]) for one in (schema, other)]
    kinds[0]["columns"] += [one for one in kinds[1]["columns"] if one["name"] in other.names]
    return pa.schema([*schema, *other], metadata={"pandas": json.dumps(kinds[0])})


@dataclass(frozen=True, eq=False)
class _Edges:
    """Where the ranges of ids begin and end in a part."""

    lengths: NDArray[np.int64]  # [n] of its episodes
    place: NDArray[np.int64]  # [R + 1] among its episodes
    row: NDArray[np.int64]  # [R + 1] among their steps


def _find_edges(part: Part, cuts: Sequence[Any]) -> _Edges:
    episodes = part.table("log", "id", "length").all()
    ids = episodes.column("id").to_numpy(zero_copy_only=False)
    places = np.searchsorted(ids, np.array(cuts, dtype=ids.dtype))
    place = np.concatenate([[0], places, [len(ids)]])
    lengths = episodes.column("length").to_numpy()
    return _Edges(lengths, place, np.append(0, np.cumsum(lengths + 1))[place])


def _read(part: Part, place: NDArray[np.int64], row: NDArray[np.int64]) -> tuple[Any, Any]:
    """Return the episodes from one place to another, and their steps with the evidence."""
    evidence = part.table("cases").rows(*row).column("evidence")
    steps = part.table("rows").rows(*row).append_column("evidence", evidence)
    return part.table("episodes").rows(*place), steps


def join_by_id(found: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Concatenate the rows of several parts and sort them by id."""
    episodes, steps = (pa.concat_tables(tables) for tables in zip(*found, strict=True))
    ids = episodes.column("id").to_numpy(zero_copy_only=False)
    if (ids[1:] > ids[:-1]).all():
        return episodes, steps
    order = np.argsort(ids, kind="stable")
    lengths = episodes.column("length").to_numpy() + 1
    rows = rows_of(np.cumsum(lengths) - lengths, lengths, order)
    return episodes.take(pa.array(order)), steps.take(pa.array(rows))
