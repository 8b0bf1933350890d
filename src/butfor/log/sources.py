"""The columns of a log as they were given: CSV, Parquet, pandas, and Arrow tables.

Of a log of any size, the first rows can be read in bounded time and memory.
"""

from __future__ import annotations

import difflib
import io
import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from butfor.log.coding import EMPTY, is_text, text_of
from butfor.log.fields import show
from butfor.log.files import (
    CSV,
    UNPACKED,
    check_even,
    check_growth,
    delimiter,
    event_files,
    explained,
    is_csv,
    line_numbers,
    open_packed,
    open_text,
    read_header,
)

Coded = TypeVar("Coded")

PARQUET = (".parquet", ".pq")
TEXT = pa.dictionary(pa.int32(), pa.string())
# A Parquet file is refused if it has both more than ROWS rows and more than ROWS_PER_BYTE of them
# for each of its bytes.
ROWS, ROWS_PER_BYTE = 1_000_000, 100
PIECE = 2**17  # rows read at a time if a file is not read whole
HEAD = 50_000_000  # bytes read of a CSV file
CELLS = 10_000_000  # that are read of a log with many columns


@dataclass(frozen=True)
class Log:
    """The columns of a log as they were given, and how messages name its rows."""

    name: str
    table: Any  # a pyarrow Table
    files: tuple[Path, ...] = ()  # empty if it came as a frame
    starts: tuple[int, ...] = (0,)  # the first row of each file
    whole: bool = True  # whether these are all its rows
    half: NDArray[np.int64] | None = None  # of each row when cross-fitting, if it is given
    done: Mapping[str, int] = field(default_factory=dict)  # what was left out on the way

    def code(self, name: str, coder: Callable[[Any], Coded]) -> Coded:
        """Return what `coder` makes of a column; refuse types that it cannot read."""
        try:
            return coder(self.table[name])
        except MemoryError as error:
            raise MemoryError(f"reading the column {name!r}: {error}") from None
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise ValueError(
                f"{self.name}: the column {name!r} has the type {self.table[name].type} and cells "
                "that are neither text nor a number nor a time; convert or remove it"
            ) from None

    def cell(self, name: str, row: int) -> str:
        """Return the text of one cell."""
        return text_of(self.table[name][row].as_py())

    def is_csv(self) -> bool:
        """Whether the log came from CSV files."""
        return bool(self.files) and is_csv(self.files[0])

    def is_text(self, name: str) -> bool:
        """Whether a column is text by its type, which the columns of a CSV file do not have."""
        kind = self.table[name].type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        return not self.is_csv() and is_text(kind)

    def places(self, rows: Sequence[int], owner: Callable[[int], Any] | None = None) -> str:
        """Name rows: by line in a CSV file, otherwise counted from 0.

        Where there is no file to look into, also by the episode that is the `owner` of each.
        """
        if not self.files and owner is not None:
            owned = ((row, owner(row)) for row in rows)
            named = (f"row {n}" if of is None else f"row {n} (episode {of})" for n, of in owned)
            return f"{', '.join(named)}, counted from 0"
        if not self.files:
            return f"{_numbered('row', rows)}, counted from 0"
        found = []
        bounds = pairwise((*self.starts, self.table.num_rows))
        for path, (start, stop) in zip(self.files, bounds, strict=True):
            mine = [row - start for row in rows if start <= row < stop]
            if mine:
                place = f"{_numbered('row', mine)}, counted from 0"
                if is_csv(path):
                    place = _numbered("line", line_numbers(path, mine))
                found.append(f"{path.name} {place}" if len(self.files) > 1 else place)
        return "; ".join(found)


def load_log(
    source: Any, needed: Mapping[str, str] | None = None, text: Collection[str] = ()
) -> Log:
    """Load the columns of a log that are needed, by default all.

    `needed` gives for each column the place that names it in the study; columns in `text` stay
    text, even if all their cells look like numbers.
    """
    if is_path(source):
        return _load_files(source, needed, text)
    if isinstance(source, pd.DataFrame):
        table = _from_pandas(source, needed)
    elif hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        try:
            table = pa.table(source)
        except MemoryError:
            raise
        except (pa.ArrowException, TypeError):
            raise ValueError(
                f"the {type(source).__name__} cannot be converted to an Arrow table; give a data "
                "frame, or write it to Parquet"
            ) from None
        check_columns("the frame", table.column_names, needed)
    else:
        raise ValueError(
            f"a table of type {type(source).__name__}; give a path, a list of paths, a data frame "
            "(pandas, Polars) or an Arrow table (DuckDB: the relation)"
        )
    return Log("the frame", checked("the frame", table, needed))


def is_path(source: Any) -> bool:
    """Whether a source is a path or a list of paths."""
    return isinstance(source, str | Path) or (
        isinstance(source, list | tuple) and all(isinstance(part, str | Path) for part in source)
    )


def _load_files(source: Any, needed: Mapping[str, str] | None, text: Collection[str]) -> Log:
    files = find_files(source)
    tables = []
    for path in files:
        with explained(path):
            tables.append((read_csv if is_csv(path) else _read_parquet)(path, needed, text))
    starts = [0, *accumulate(table.num_rows for table in tables[:-1])]
    whole = isinstance(source, str | Path)
    name = str(source) if whole else f"{files[0]} and {len(files) - 1} more"
    return Log(name, checked(name, stacked(tables, files), needed), tuple(files), tuple(starts))


def find_files(source: Any) -> list[Path]:
    """Return the files of a path, a list of paths or a folder, in the order of their names."""
    given = [Path(source)] if isinstance(source, str | Path) else [Path(part) for part in source]
    if not given:
        raise ValueError("no files; give at least one path")
    files: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = sorted(part for part in path.iterdir() if not part.name.startswith((".", "_")))
            known = [part for part in inside if part.name.lower().endswith((*CSV, *PARQUET))]
            known = known or event_files(path)
            if not known:
                raise ValueError(f"the folder {path} has no .csv or .parquet files; name the files")
            files += known
        elif not path.exists():
            raise FileNotFoundError(f"there is no file {path}; check the path")
        else:
            files.append(path)
    for path in files:
        if not path.name.lower().endswith((*CSV, *PARQUET)):
            raise ValueError(
                f"{path}: unknown kind of file; give {', '.join(CSV)} or {', '.join(PARQUET)}"
            )
    if len({is_csv(path) for path in files}) > 1:
        raise ValueError(f"{files[0].parent}: both CSV and Parquet files; give one kind")
    return files


def read_csv(
    path: Path, needed: Mapping[str, str] | None, text: Collection[str], head: Any = None
) -> Any:
    """Read a CSV file, or only `head`, its first rows."""
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: the file is empty; give a header and at least one row")
    header = read_header(path)
    if needed is not None and len(header) == 1 and not set(needed) <= set(header):
        for mark, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars"), (",", "commas")):
            if mark in header[0]:
                raise ValueError(
                    f"{path}, line 1: the columns are separated by {name}; write it with "
                    f"{'tabs' if path.suffix == '.tsv' else 'commas'}"
                )
    check_columns(str(path), header, needed)
    try:
        table = pa.csv.read_csv(
            head or (open_packed(path) if path.suffix == ".gz" else str(path)),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter(path), newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(text, TEXT),
                include_columns=header if needed is None else list(needed),
                null_values=list(EMPTY),
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        check_even(path, len(header))
        raise
    if any(map(pa.types.is_binary, table.schema.types)):
        raise pa.ArrowInvalid("not UTF-8")  # of which Arrow makes bytes
    return table


def _read_parquet(path: Path, needed: Mapping[str, str] | None, _: Collection[str]) -> Any:
    with opened(path) as (file, schema):
        check_columns(str(path), schema.names, needed)
        columns = None if needed is None else list(needed)
        return validated(path, file.read(columns=columns), schema)


def read_schema(path: Path) -> tuple[Any, int]:
    """Read the schema of a Parquet file and its number of rows."""
    with explained(path):
        about = pa.parquet.read_metadata(path)
        return about.schema.to_arrow_schema(), int(about.num_rows)


def read_columns(path: Path, names: Sequence[str] | None = None) -> pd.DataFrame:
    """Read a Parquet file that butfor wrote, with the types in which it was written.

    With `names`, only those of these columns that the file has.
    """
    with opened(path) as (file, schema):
        wanted = [name for name in schema.names if names is None or name in names]
        return _frame(validated(path, file.read(columns=wanted), schema), schema)


def read_pieces(path: Path, names: Sequence[str] | None = None) -> Iterator[pd.DataFrame]:
    """Read all or some columns of a Parquet file that butfor wrote, piece by piece."""
    with opened(path) as (file, schema):
        for batch in file.iter_batches(PIECE, columns=names):
            yield _frame(validated(path, pa.Table.from_batches([batch]), schema), schema)


def read_rows(path: Path, rows: NDArray[np.int64]) -> pd.DataFrame:
    """Read some rows, given in increasing order, of a Parquet file that butfor wrote.

    Row groups without any of them are skipped.
    """
    with opened(path) as (file, schema):
        kept = [file.schema_arrow.empty_table()]
        sizes = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
        ends = np.cumsum(sizes, dtype=np.int64)
        for group in np.unique(np.searchsorted(ends, rows, side="right")).tolist():
            start = int(ends[group] - sizes[group])
            for batch in file.iter_batches(PIECE, row_groups=[group]):
                table = validated(path, pa.Table.from_batches([batch]), schema)
                stop = start + len(table)
                kept.append(table.take(rows[(rows >= start) & (rows < stop)] - start))
                start = stop
        return _frame(pa.concat_tables(kept), schema)


def count_decisions(source: Any) -> int:
    """Count the rows of a log, without reading it: about its decisions."""
    if not isinstance(source, str | Path | list | tuple):
        return len(source) if hasattr(source, "__len__") else 0
    total = 0
    for path in find_files(source):
        if is_csv(path):
            with explained(path), open_text(path) as file:
                total += sum(block.count("\n") for block in iter(lambda: file.read(1 << 20), ""))
        else:
            total += count_rows(path)
    return total


def count_rows(path: Path) -> int:
    """Return the number of rows of a Parquet file."""
    return read_schema(path)[1]


def _frame(table: Any, schema: Any) -> pd.DataFrame:
    """Return a table as a data frame, with the types of its file."""
    try:
        fields = [schema.field(name) for name in table.column_names]
        return table.cast(pa.schema(fields, schema.metadata)).to_pandas()
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise pa.ArrowInvalid("its schema does not describe its columns") from None


@contextmanager
def opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """Open a Parquet file of no absurd size so that equal texts are stored once; also its schema.

    The schema is that of the file, in which texts are texts.
    """
    with explained(path):
        schema = pa.parquet.read_schema(path)
        words = [field.name for field in schema if is_text(field.type)]
        with pa.parquet.ParquetFile(
            path, read_dictionary=words, page_checksum_verification=True
        ) as file:
            size, metadata = path.stat().st_size, file.metadata
            if metadata.num_rows > max(ROWS, ROWS_PER_BYTE * size):
                raise ValueError(
                    f"{path}: {metadata.num_rows:,} rows in {size:,} bytes; check where the file "
                    "comes from"
                )
            groups = map(metadata.row_group, range(metadata.num_row_groups))
            check_growth(path, sum(group.total_byte_size for group in groups))
            yield file, schema


def validated(path: Path, table: Any, schema: Any) -> Any:
    """Return a table, unless a text that is stored once is repeated in absurdly many rows."""
    table.validate(full=True)
    for name in table.column_names:
        if is_text(schema.field(name).type):
            chunks = [c for c in table.column(name).chunks if pa.types.is_dictionary(c.type)]
            lengths = [pa.compute.binary_length(c.dictionary) for c in chunks]
            most = (pa.compute.max(one).as_py() or 0 for one in lengths)
            if sum(map(operator.mul, map(len, chunks), most)) > UNPACKED:  # perhaps too large
                taken = (one.take(c.indices) for one, c in zip(lengths, chunks, strict=True))
                check_growth(path, sum(pa.compute.sum(part).as_py() or 0 for part in taken))
    return table


def _from_pandas(frame: pd.DataFrame, needed: Mapping[str, str] | None) -> Any:
    names = [str(name) for name in frame.columns]
    check_columns("the frame", names, needed)
    columns = {}
    for position, name in enumerate(names):
        if needed is None or name in needed:
            series = frame.iloc[:, position]
            try:
                columns[name] = pa.array(series, from_pandas=True)
            except MemoryError:
                raise
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                missing = series.isna()  # cells of several types: as text
                texts = [None if m else str(v) for v, m in zip(series, missing, strict=True)]
                columns[name] = pa.array(texts, pa.string())
    return pa.table(columns)


def checked(name: str, table: Any, needed: Mapping[str, str] | None) -> Any:
    """Return the columns of a table that are needed, unless it has no rows."""
    if table.num_rows == 0:
        raise ValueError(f"{name} has no rows; give at least one decision")
    return table if needed is None else table.select(list(needed))


def check_columns(name: str, columns: Sequence[str], needed: Mapping[str, str] | None) -> None:
    """Refuse a log that lacks a column that is needed, or has two of the same name."""
    for column, times in Counter(columns).items():
        if times > 1 and (needed is None or column in needed):
            raise ValueError(f"{name}: two columns are called {show(column)}; rename one")
    lines = []
    for column, place in (needed or {}).items():
        if column not in columns:
            near = difflib.get_close_matches(column, columns, n=1)
            hint = f"; did you mean {show(near[0])}?" if near else ""
            lines.append(f"- {place}: no column {column!r}{hint}")
    if lines:
        has = ", ".join(map(show, columns[:30])) + (", …" if len(columns) > 30 else "")
        head = f"{name}: columns are missing; it has {has}. Correct these names:"
        raise ValueError("\n".join([head, *lines]))


def stacked(tables: Sequence[Any], files: Sequence[Path]) -> Any:
    """Concatenate the tables of several files, with the columns of the first."""
    if len(tables) == 1:
        return tables[0]
    names = tables[0].column_names
    for table, path in zip(tables, files, strict=True):
        lost = [name for name in names if name not in table.column_names]
        if lost:
            raise ValueError(
                f"{path}: there is no column {lost[0]!r}, unlike in {files[0].name}; add it"
            )
    columns = {}
    for name in names:
        parts = [table.column(name) for table in tables]
        kinds = {part.type for part in parts if not pa.types.is_null(part.type)}
        common = next(iter(kinds), pa.null())
        if len(kinds) > 1:
            numbers = all(pa.types.is_integer(k) or pa.types.is_floating(k) for k in kinds)
            common = pa.float64() if numbers else pa.string()
        try:
            cast = [part.cast(common) for part in parts]
        except MemoryError:
            raise
        except pa.ArrowException:
            shown = ", ".join(sorted(str(kind) for kind in kinds))
            raise ValueError(
                f"the column {name!r} has different types in the files ({shown}); convert it"
            ) from None
        columns[name] = pa.chunked_array([chunk for part in cast for chunk in part.chunks], common)
    return pa.table(columns)


def _numbered(noun: str, numbers: Sequence[int]) -> str:
    return f"{noun}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


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
