"""The tables of an audit as Parquet files: their schemas, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet

ROW_GROUP = 2**17  # rows
TEXT, NUMBER, WHOLE, SHORT, FLAG = pa.string(), pa.float64(), pa.int64(), pa.int32(), pa.bool_()

# columns that audits of version 0.1 lack, with what is read instead
ADDED: dict[str, dict[str, Any]] = {
    "estimates": {"low_these": math.nan, "high_these": math.nan},
    "episodes": {"usual_outcome": "", "stratum": -1, "probability": math.nan},
}
# The columns that every audit has. Others depend on the log: ids (text or integers), `p_…` of each
# outcome and their bounds, credible intervals, `state.…`, `action.…`, `target.…`, `side.…`,
# `behavior_probability`, `target_probability.…`, and of what is recorded `time`, `raw.…` and
# `filled.…`.
SCHEMAS = {
    "estimates": pa.schema(
        {
            "estimator": TEXT,
            "value": NUMBER,
            "low": NUMBER,
            "high": NUMBER,
            "low_these": NUMBER,
            "high_these": NUMBER,
            "episodes": WHOLE,
            "effective": NUMBER,
            "warning": TEXT,
            "low_credible": NUMBER,
            "high_credible": NUMBER,
        }
    ),
    "diagnostics": pa.schema({"check": TEXT, "value": NUMBER, "light": TEXT, "sentence": TEXT}),
    "episodes": pa.schema(
        {
            "length": WHOLE,
            "observed_outcome": TEXT,
            "usual_outcome": TEXT,
            "observed_return": NUMBER,
            "expected_return": NUMBER,
            "difference": NUMBER,
            "most_likely": TEXT,
            "low_any": NUMBER,
            "high_any": NUMBER,
            "low_stable": NUMBER,
            "high_stable": NUMBER,
            "survives": TEXT,
            "first_change": WHOLE,
            "unsupported": NUMBER,
            "evidence_min": NUMBER,
            "thin_share": NUMBER,
            "influence": NUMBER,
            "influence_ends": WHOLE,
            "rank": WHOLE,
            "step_that_matters": WHOLE,
            "reason": TEXT,
            "final_key": WHOLE,
            "control": FLAG,
            "stratum": WHOLE,
            "probability": NUMBER,
        }
    ),
    "decomposition": pa.schema(
        {
            "by": TEXT,
            "observed": TEXT,
            "counterfactual": TEXT,
            "first_state": WHOLE,
            "episodes": WHOLE,
            "expected_episodes": NUMBER,
            "observed_mean": NUMBER,
            "counterfactual_mean": NUMBER,
            "difference": NUMBER,
            "contribution": NUMBER,
        }
    ),
    "steps": pa.schema(
        {
            "episode": WHOLE,
            "step": WHOLE,
            "state": SHORT,
            "action": SHORT,
            "target_action": WHOLE,
            "reward": NUMBER,
            "evidence": WHOLE,
        }
    ),
    "draws": pa.schema(
        {"draw": WHOLE, "step": WHOLE, "state": SHORT, "action": SHORT, "reward": NUMBER}
    ),
    "courses": pa.schema(
        {"step": WHOLE, "variable": TEXT, "level": TEXT, "probability": NUMBER, "world": TEXT}
    ),
    "course_steps": pa.schema(
        {"step": WHOLE, "mass": NUMBER, "evidence": NUMBER, "thin": NUMBER, "influence": NUMBER}
    ),
}
OPTIONAL = {
    "rehearsal": pa.schema({"hidden": TEXT, "promised": NUMBER, "judged": NUMBER, "error": NUMBER})
}
TARGET = "target_probability."  # columns of steps: a policy that is known row by row, by action
WITH_IDS = ("episodes", "steps", "draws", "courses", "course_steps")


def as_arrow(name: str, frame: pd.DataFrame, types: Mapping[str, Any] | None = None) -> Any:
    """Convert a table to an Arrow table whose schema does not depend on its values.

    `types` are those of side columns that are copied from the log.
    """
    known = {field.name: field.type for field in (SCHEMAS | OPTIONAL)[name]} | dict(types or {})
    empty = frame.iloc[:0].copy()
    for column in known.keys() & set(frame):
        empty[column] = pd.Series([], dtype=object)
    found = pa.Schema.from_pandas(empty, preserve_index=False)
    fields = []
    for field in found:
        text = pa.types.is_null(field.type) or pa.types.is_large_string(field.type)
        fields.append(pa.field(field.name, known.get(field.name, TEXT if text else field.type)))
    return arrow_of(frame, pa.schema(fields, metadata=found.metadata))


def arrow_of(columns: Mapping[str, Any] | pd.DataFrame, schema: Any) -> Any:
    """Return columns, of pandas, NumPy or Arrow, as an Arrow table with this schema."""
    arrays = []
    for field in schema:
        column = columns[field.name]
        if isinstance(column, pa.ChunkedArray):
            arrays.append(column.cast(field.type))
        else:
            arrays.append(pa.array(column, field.type, from_pandas=True))
    return pa.Table.from_arrays(arrays, schema=schema)


def write_table(path: Path, name: str, frame: pd.DataFrame) -> None:
    """Write a whole table: the same rows give the same bytes."""
    table = as_arrow(name, frame, _types_of_objects(frame))
    with TableWriter(path, table.schema) as file:
        file.write(table)


def _types_of_objects(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the types of side columns that pandas holds as objects, such as numbers with gaps."""
    objects = [name for name in frame if name.startswith("side.") and frame[name].dtype == object]
    types = {name: pa.array(frame[name], from_pandas=True).type for name in objects}
    return {name: kind for name, kind in types.items() if not pa.types.is_null(kind)}


class TableWriter:
    """Writes Arrow tables one after another to a Parquet file, in row groups of equal size."""

    def __init__(self, path: Path, schema: Any) -> None:
        self._schema = schema
        # the lowest and the highest level of many rows tell nothing, and finding them takes long
        plain = [field.name for field in schema if not pa.types.is_dictionary(field.type)]
        self._file = pa.parquet.ParquetWriter(
            path, schema, write_page_checksum=True, write_statistics=plain
        )
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
        """Append the rows of a table; categories must have the same levels each time."""
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
