"""The first rows of a log, in bounded time and memory however large its files are."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from butfor.log.files import explained, is_csv, open_packed
from butfor.log.sources import (
    PIECE,
    Log,
    check_columns,
    checked,
    find_files,
    is_path,
    load_log,
    opened,
    read_csv,
    stacked,
    validated,
)

HEAD = 50_000_000  # bytes read of a CSV file
CELLS = 10_000_000  # that are read of a log with many columns


def load_first_rows(source: Any, rows: int) -> Log:
    """Load all columns of the first `rows` rows of a log; fewer if there are many columns."""
    if not is_path(source):
        log = load_log(source)
        table, whole = _cut(log.table, rows)
        return replace(log, table=table, whole=whole)
    files = find_files(source)
    tables: list[Any] = []
    whole, left = True, rows
    for path in files:
        whole = whole and left > 0
        if whole:
            with explained(path):
                table, whole = (_of_csv if is_csv(path) else _of_parquet)(path, left)
            tables.append(table)
            left -= table.num_rows
    name = str(source) if isinstance(source, str | Path) else str(files[0])
    return Log(name, checked(name, stacked(tables, files[: len(tables)]), None), whole=whole)


def _of_csv(path: Path, rows: int) -> tuple[Any, bool]:
    """Return the first rows of a CSV file, and whether these are all."""
    packed = path.suffix == ".gz"
    if not packed and path.stat().st_size <= HEAD:
        return _cut(read_csv(path, None, ()), rows)
    with open_packed(path) if packed else path.open("rb") as file:
        head, more = file.read(HEAD), file.read(1)
    if more:
        head = head[: head.rfind(b"\n") + 1]
        if head.count(b'"') % 2:  # the last quote opens a cell that is not complete
            head = head[: head.rfind(b"\n", 0, head.rfind(b'"')) + 1]
    table, whole = _cut(read_csv(path, None, (), io.BytesIO(head)), rows)
    return table, whole and not more


def _cut(table: Any, rows: int) -> tuple[Any, bool]:
    rows = _fewer(rows, table.num_columns)
    return table[:rows], table.num_rows <= rows


def _fewer(rows: int, columns: int) -> int:
    return max(1, min(rows, CELLS // max(1, columns)))


def _of_parquet(path: Path, rows: int) -> tuple[Any, bool]:
    """Return the first rows of a Parquet file, and whether these are all."""
    with opened(path) as (file, schema):
        check_columns(str(path), schema.names, None)
        rows = _fewer(rows, len(schema))
        batches = list(islice(file.iter_batches(min(PIECE, rows)), -(-rows // PIECE)))
        table = pa.Table.from_batches(batches, None if batches else file.schema_arrow)
        return validated(path, table[:rows], schema), file.metadata.num_rows <= rows
