"""Writing the tables of an audit: the same rows give the same bytes, however they come."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet

ROW_GROUP = 2**17  # rows


class TableWriter:
    """A Parquet file that takes Arrow tables one after another, in row groups of one size."""

    def __init__(self, path: Path, schema: Any) -> None:
        self._schema = schema
        self._file = pa.parquet.ParquetWriter(path, schema)
        self._waiting: list[Any] = []
        self._rows = 0

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._file:
            if error is None and self._rows:
                self._write_groups(least=1)

    def write(self, table: Any) -> None:
        """Add the rows of a table; categories must have the same levels each time."""
        self._waiting.append(table.cast(self._schema))
        self._rows += table.num_rows
        if self._rows >= ROW_GROUP:
            self._write_groups(least=ROW_GROUP)

    def _write_groups(self, least: int) -> None:
        table = pa.concat_tables(self._waiting)
        while table.num_rows >= least:
            group = table.slice(0, ROW_GROUP).combine_chunks()
            self._file.write_table(group, row_group_size=ROW_GROUP)
            table = table.slice(ROW_GROUP)
        self._waiting, self._rows = [table], table.num_rows


def write_frame(path: Path, frame: pd.DataFrame) -> None:
    """Write a whole table."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    with TableWriter(path, table.schema) as file:
        file.write(table)
