"""Joining the parts of shards into the tables of an audit, in the order of ids."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from butfor.audit.files import TableWriter, as_arrow
from butfor.audit.meta import SamplingDesign
from butfor.audit.observed_steps import step_table
from butfor.audit.shards.coded import decode_log, is_logged
from butfor.audit.shards.parts import Part
from butfor.audit.tables import episode_table
from butfor.log.episodes import Episodes, rows_of
from butfor.replay.replay import Replay
from butfor.types import Progress

RANGE = 20_000  # approximate number of episodes that are sorted together
UNSAVED = ["order", "differs", "outcome"]  # columns of episodes


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
    done = 0
    writing: list[Future[None]] = []
    writers: list[TableWriter] = []
    # both tables are written while the next range is put together
    with ExitStack() as files, ThreadPoolExecutor(2) as pool:
        for number, (episodes, steps) in enumerate(_gather(parts, cuts)):
            judged = episodes.drop_columns(UNSAVED).to_pandas()
            place = pd.Index(judged["id"]).get_indexer(pd.Index(shown["id"]))
            known = shown[place >= 0].drop(columns="id").reset_index(drop=True)
            table = as_arrow("episodes", episode_table(judged, known, place[place >= 0], design))
            log = decode_log(episodes, steps, question.log)
            rows = _describe_steps(log, steps, question, done)
            if not writers:
                writers = [
                    files.enter_context(TableWriter(folder / f"{name}.parquet", schema))
                    for name, schema in (("episodes", table.schema), ("steps", rows.schema))
                ]
            _wait(writing)
            given = zip(writers, (table, rows), strict=True)
            writing = [pool.submit(writer.write, some) for writer, some in given]
            done += len(judged)
            if progress is not None:
                progress(number + 1, len(cuts) + 1)
        _wait(writing)


def _wait(writing: Sequence[Future[None]]) -> None:
    for future in writing:
        future.result()


def _describe_steps(log: Episodes, steps: Any, question: Replay, done: int) -> Any:
    """Return the table of steps; `done` episodes came before."""
    evidence = steps.column("evidence").to_numpy()
    cases = evidence[steps.column("action").to_numpy() >= 0]  # final states have no action
    table = step_table(log, question.target_table, cases)
    table["episode"] += done
    found = as_arrow("steps", table)
    names = [name for name in steps.column_names if not (is_logged(name) or name == "evidence")]
    return _beside(found, steps.select(names))


def _beside(table: Any, other: Any) -> Any:
    """Return the columns of both tables, as pandas would have written them together."""
    kinds = [json.loads(one.schema.metadata[b"pandas"]) for one in (table, other)]
    mine = [column for column in kinds[1]["columns"] if column["name"] in other.column_names]
    kinds[0]["columns"] += mine
    for field, column in zip(other.schema, other.columns, strict=True):
        table = table.append_column(field, column)
    return table.replace_schema_metadata({"pandas": json.dumps(kinds[0])})


def _gather(parts: Sequence[Part], cuts: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the episodes and the steps between one cut and the next, in order."""
    edges = [_find_edges(part, cuts) for part in parts]
    for number in range(len(cuts) + 1):
        found: list[tuple[Any, Any]] = []
        for part, (place, row) in zip(parts, edges, strict=True):
            some, rows = place[number : number + 2], row[number : number + 2]
            if some[0] < some[1]:
                outcome = part.table("log", "outcome").rows(*some).column("outcome")
                evidence = part.table("cases").rows(*rows).column("evidence")
                found.append(
                    (
                        part.table("episodes").rows(*some).append_column("outcome", outcome),
                        part.table("rows").rows(*rows).append_column("evidence", evidence),
                    )
                )
        if found:
            yield join_by_id(found)


def _find_edges(part: Part, cuts: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Positions of the cuts among the episodes of a part and among their steps, with both ends."""
    episodes = part.table("log", "id", "length").all()
    ids = episodes.column("id")
    places = [bisect_left(range(len(ids)), cut, key=lambda i: ids[i].as_py()) for cut in cuts]
    place = [0, *places, len(ids)]
    rows = np.append(0, np.cumsum(episodes.column("length").to_numpy() + 1))
    return place, rows[place].tolist()


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
