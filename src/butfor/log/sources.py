"""The columns of a log as they were given: CSV, Parquet, pandas, and anything with Arrow."""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from butfor.log.coding import EMPTY, is_text, text_of

CSV = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz")
PARQUET = (".parquet", ".pq")
TEXT = pa.dictionary(pa.int32(), pa.string())
# A packed file whose content is both larger than UNPACKED and more than TIMES its own size, or that
# has more than ROWS rows and than ROWS_A_BYTE rows for each of its bytes, is no log.
UNPACKED, TIMES = 32_000_000, 500
ROWS, ROWS_A_BYTE = 1_000_000, 100
PIECE = 2**17  # rows that are looked at together where a file is not read whole


@dataclass(frozen=True)
class Log:
    """The columns of a log as they were given, with what messages need to name its rows."""

    name: str
    table: Any  # a pyarrow Table
    files: tuple[Path, ...] = ()  # none: it came as a frame
    starts: tuple[int, ...] = (0,)  # the first row of each file
    text: frozenset[str] = field(default_factory=frozenset)  # columns that were read as text

    def column(self, name: str) -> Any:
        """Return one column."""
        return self.table.column(name)

    def cell(self, name: str, row: int) -> str:
        """Return the text of one cell."""
        return text_of(self.column(name)[row].as_py())

    def is_csv(self) -> bool:
        """Whether the log came from CSV files."""
        return bool(self.files) and is_csv(self.files[0])

    def is_text(self, name: str) -> bool:
        """Whether a column is text by its type, which the columns of a CSV file do not have."""
        kind = self.column(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        return not self.is_csv() and is_text(kind)

    def places(self, rows: Sequence[int]) -> str:
        """Name rows: by file and line if it is a CSV file, else counted from 0."""
        if not self.files:
            return f"row{'s' if len(rows) > 1 else ''} {_join(rows)}, counted from 0"
        found = []
        for number, path in enumerate(self.files):
            stop = (*self.starts[1:], self.table.num_rows)[number]
            mine = [row - self.starts[number] for row in rows if self.starts[number] <= row < stop]
            if mine:
                prefix = f"{path.name} " if len(self.files) > 1 else ""
                plural = "s" if len(mine) > 1 else ""
                if is_csv(path):
                    found.append(f"{prefix}line{plural} {_join(line_numbers(path, mine))}")
                else:
                    found.append(f"{prefix}row{plural} {_join(mine)}, counted from 0")
        return "; ".join(found)


def load_log(
    source: Any, needed: Mapping[str, str] | None = None, text: Collection[str] = ()
) -> Log:
    """Load the columns of a log that are needed (default: all).

    `needed` says for each column where the study asks for it; columns in `text` stay text, even if
    all their cells look like numbers.
    """
    if isinstance(source, str | Path) or (
        isinstance(source, list | tuple) and all(isinstance(part, str | Path) for part in source)
    ):
        return _load_files(source, needed, text)
    if isinstance(source, pd.DataFrame):
        return _checked("the frame", _from_pandas(source, needed), needed)
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        try:
            table = pa.table(source)
        except (pa.ArrowException, TypeError):
            raise ValueError(
                f"the {type(source).__name__} cannot be turned into an Arrow table; give a data "
                "frame, or write it to Parquet"
            ) from None
        check_columns("the frame", table.column_names, needed)
        return _checked("the frame", table, needed)
    raise ValueError(
        f"a log of type {type(source).__name__}; give a path, a list of paths, a data frame "
        "(pandas, Polars) or an Arrow table (DuckDB: the relation)"
    )


def is_csv(path: Path) -> bool:
    """Whether a file is CSV by its name."""
    return path.name.lower().endswith(CSV)


def line_numbers(path: Path, rows: Sequence[int]) -> list[int]:
    """Return the line at which each row of a CSV file ends, counting the header as line 1."""
    wanted, lines = set(rows), {}
    with _explained(path), _open_text(path) as file:
        reader = csv.reader(file, delimiter=_delimiter(path))
        row = -2
        for cells in reader:
            if cells:
                row += 1
                if row in wanted:
                    lines[row] = reader.line_num
                    if len(lines) == len(wanted):
                        break
    return [lines.get(row, row + 2) for row in rows]


def _load_files(source: Any, needed: Mapping[str, str] | None, text: Collection[str]) -> Log:
    files = find_files(source)
    tables = []
    for path in files:
        with _explained(path):
            tables.append((_read_csv if is_csv(path) else _read_parquet)(path, needed, text))
    starts = [0]
    for table in tables[:-1]:
        starts.append(starts[-1] + table.num_rows)
    whole = isinstance(source, str | Path)
    name = str(source) if whole else f"{files[0]} and {len(files) - 1} more"
    log = _checked(name, _stacked(tables, files), needed)
    return Log(name, log.table, tuple(files), tuple(starts), frozenset(text))


def find_files(source: Any) -> list[Path]:
    """Return the files that a path, a list of paths or a folder stands for, by name."""
    given = [Path(source)] if isinstance(source, str | Path) else [Path(part) for part in source]
    if not given:
        raise ValueError("no files; give at least one path")
    files: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = sorted(part for part in path.iterdir() if not part.name.startswith((".", "_")))
            known = [part for part in inside if part.name.lower().endswith((*CSV, *PARQUET))]
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
        raise ValueError(f"{files[0].parent}: CSV and Parquet together; give one of the two")
    return files


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say in our words why a file cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}; check the path") from None
    except PermissionError:
        raise PermissionError(f"no permission to read {path}; change its permissions") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}{_bad_line(path)}: not UTF-8; save it as UTF-8") from None
    except (pa.ArrowException, OSError, EOFError, csv.Error, zlib.error) as error:
        if "utf8" in str(error).lower().replace("-", ""):
            raise ValueError(f"{path}{_bad_line(path)}: not UTF-8; save it as UTF-8") from None
        kind = "CSV" if is_csv(path) else "Parquet"
        raise ValueError(
            f"{path}: damaged, or not {kind}; see whether it is whole, and write it again"
        ) from None


def _read_csv(path: Path, needed: Mapping[str, str] | None, text: Collection[str]) -> Any:
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: the file is empty; give a header and at least one row")
    with _open_text(path) as file:
        header = next(csv.reader(file, delimiter=_delimiter(path)), [])
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
            io.BufferedReader(_Unpacked(path)) if path.suffix == ".gz" else str(path),
            parse_options=pa.csv.ParseOptions(delimiter=_delimiter(path), newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(text, TEXT),
                include_columns=header if needed is None else list(needed),
                null_values=list(EMPTY),
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        _check_even(path, len(header))
        raise
    for name in table.column_names:
        if pa.types.is_binary(table.column(name).type):
            raise ValueError(f"{path}{_bad_line(path)}: not UTF-8; save it as UTF-8")
    return table


def _read_parquet(path: Path, needed: Mapping[str, str] | None, text: Collection[str]) -> Any:
    names = pa.parquet.read_schema(path).names
    check_columns(str(path), names, needed)
    return _unpack(path, names if needed is None else list(needed))


def read_schema(path: Path) -> tuple[Any, int]:
    """Read the columns of a Parquet file and their types, and how many rows it has."""
    with _explained(path):
        about = pa.parquet.read_metadata(path)
        return about.schema.to_arrow_schema(), int(about.num_rows)


def read_columns(path: Path, names: Sequence[str] | None = None) -> pd.DataFrame:
    """Read a Parquet file that butfor wrote, in the types in which it was written.

    With `names` only the columns of these names, as far as it has them.
    """
    with _explained(path):
        schema = pa.parquet.read_schema(path)
        wanted = [name for name in schema.names if names is None or name in names]
        return _frame(_unpack(path, wanted), schema)


def read_pieces(path: Path, names: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Read some columns of such a file, some rows at a time."""
    with _explained(path):
        schema = pa.parquet.read_schema(path)
        with _opened(path, names) as (file, words):
            for batch in file.iter_batches(PIECE, columns=names):
                table = pa.Table.from_batches([batch])
                _check_table(path, table, words)
                yield _frame(table, schema)


def read_rows(path: Path, rows: NDArray[np.int64]) -> pd.DataFrame:
    """Read some rows of such a file, given by rising number: only row groups that have any."""
    with _explained(path):
        schema = pa.parquet.read_schema(path)
        with _opened(path, schema.names) as (file, words):
            kept = [file.schema_arrow.empty_table()]
            sizes = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
            ends = np.cumsum(sizes, dtype=np.int64)
            for group in np.unique(np.searchsorted(ends, rows, side="right")).tolist():
                start = int(ends[group] - sizes[group])
                for batch in file.iter_batches(PIECE, row_groups=[group]):
                    table = pa.Table.from_batches([batch])
                    _check_table(path, table, words)
                    stop = start + len(table)
                    kept.append(table.take(rows[(rows >= start) & (rows < stop)] - start))
                    start = stop
        return _frame(pa.concat_tables(kept), schema)


def count_rows(path: Path) -> int:
    """Say how many rows a Parquet file has."""
    with _explained(path):
        return int(pa.parquet.read_metadata(path).num_rows)


def _frame(table: Any, schema: Any) -> pd.DataFrame:
    """Return a table as pandas has it, in the types of its file."""
    try:
        fields = [schema.field(name) for name in table.column_names]
        return table.cast(pa.schema(fields, schema.metadata)).to_pandas()
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise pa.ArrowInvalid("what it says of its own columns is wrong") from None


def _unpack(path: Path, names: Sequence[str]) -> Any:
    """Return columns whose text is stored once for equal cells."""
    with _opened(path, names) as (file, words):
        table = file.read(columns=names)
    _check_table(path, table, words)
    return table


@contextmanager
def _opened(path: Path, names: Sequence[str]) -> Iterator[tuple[Any, list[str]]]:
    """Open a Parquet file so that text is stored once for equal cells; say which columns are."""
    schema = pa.parquet.read_schema(path)
    words = [name for name in names if is_text(schema.field(name).type)]
    with pa.parquet.ParquetFile(path, read_dictionary=words) as file:
        _check_metadata(path, file.metadata)
        yield file, words


def _check_table(path: Path, table: Any, words: Sequence[str]) -> None:
    table.validate(full=True)
    for name in words:
        _check_texts(path, table.column(name))


def _check_metadata(path: Path, metadata: Any) -> None:
    """Refuse a Parquet file that promises absurdly much, before it is read."""
    size, rows = path.stat().st_size, metadata.num_rows
    if rows > max(ROWS, ROWS_A_BYTE * size):
        raise ValueError(f"{path}: {rows:,} rows in {size:,} bytes; see where it comes from")
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    _check_growth(path, sum(group.total_byte_size for group in groups))


def _check_texts(path: Path, column: Any) -> None:
    """Refuse texts that are stored once and stand in absurdly many rows."""
    whole = sum(
        pa.compute.sum(pa.compute.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0
        for chunk in column.chunks
        if pa.types.is_dictionary(chunk.type)
    )
    _check_growth(path, whole)


def _check_growth(path: Path, unpacked: int) -> None:
    size = path.stat().st_size
    if unpacked > max(UNPACKED, TIMES * size):
        raise ValueError(
            f"{path}: {size:,} bytes that would become more than {unpacked // 10**6:,} MB; see "
            "where it comes from; if it is in order, write it as plain CSV"
        )


def _from_pandas(frame: pd.DataFrame, needed: Mapping[str, str] | None) -> Any:
    names = [str(name) for name in frame.columns]
    check_columns("the frame", names, needed)
    columns = {}
    for position, name in enumerate(names):
        if needed is None or name in needed:
            series = frame.iloc[:, position]
            try:
                columns[name] = pa.array(series, from_pandas=True)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                missing = series.isna()  # several kinds of things in one column: as text
                texts = [None if m else str(v) for v, m in zip(series, missing, strict=True)]
                columns[name] = pa.array(texts, pa.string())
    return pa.table(columns)


def _checked(name: str, table: Any, needed: Mapping[str, str] | None) -> Log:
    if table.num_rows == 0:
        raise ValueError(f"{name} has no rows; give at least one decision")
    return Log(name, table if needed is None else table.select(list(needed)))


def check_columns(name: str, columns: Sequence[str], needed: Mapping[str, str] | None) -> None:
    """Refuse a log without the columns that its study asks for, or with two of one name."""
    twice = [column for column, times in Counter(columns).items() if times > 1]
    for column in twice:
        if needed is None or column in needed:
            raise ValueError(f"{name}: two columns are called {column!r}; rename one")
    lost = [column for column in needed or () if column not in columns]
    if lost:
        lines = []
        for column in lost:
            near = difflib.get_close_matches(column, columns, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            lines.append(f"- {(needed or {})[column]}: no column {column!r}{hint}")
        has = ", ".join(repr(column) for column in list(columns)[:30])
        more = ", …" if len(columns) > 30 else ""
        raise ValueError(
            "\n".join(
                [f"{name}: columns are missing; it has {has}{more}. Correct the study", *lines]
            )
        )


def _stacked(tables: Sequence[Any], files: Sequence[Path]) -> Any:
    """Put the tables of several files below each other, in the columns of the first."""
    if len(tables) == 1:
        return tables[0]
    names = tables[0].column_names
    for table, path in zip(tables, files, strict=True):
        lost = [name for name in names if name not in table.column_names]
        if lost:
            raise ValueError(f"{path}: no column {lost[0]!r}, which {files[0].name} has; add it")
    columns = {}
    for name in names:
        parts = [table.column(name) for table in tables]
        kinds = {part.type for part in parts if not pa.types.is_null(part.type)}
        if len(kinds) > 1:
            numbers = all(pa.types.is_integer(k) or pa.types.is_floating(k) for k in kinds)
            common = pa.float64() if numbers else pa.string()
        else:
            common = next(iter(kinds), pa.null())
        try:
            cast = [
                pa.chunked_array([pa.nulls(len(part), common)])
                if pa.types.is_null(part.type)
                else part.cast(common)
                for part in parts
            ]
        except pa.ArrowException:
            shown = ", ".join(sorted(str(kind) for kind in kinds))
            raise ValueError(
                f"the column {name!r} is of different types in the files ({shown}); convert it"
            ) from None
        columns[name] = pa.chunked_array([chunk for part in cast for chunk in part.chunks], common)
    return pa.table(columns)


def _check_even(path: Path, expected: int) -> None:
    """Refuse rows that have more or fewer cells than the header."""
    lines, count = [], 0
    with _open_text(path) as file:
        reader = csv.reader(file, delimiter=_delimiter(path))
        for cells in reader:
            if cells and len(cells) != expected:
                count += 1
                if count <= 3:
                    lines.append(f"line {reader.line_num} has {len(cells)}")
    if count:
        raise ValueError(
            f"{path}: rows without {expected} cells like the header: {count} "
            f"({', '.join(lines)}); put cells that contain commas or line breaks in double quotes"
        )


def _bad_line(path: Path) -> str:
    if path.suffix == ".gz":
        return ""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return f", line {number}"
    return ""


class _Unpacked(io.RawIOBase):
    """The content of a .gz file; refuses to go on when it grows absurd."""

    def __init__(self, path: Path) -> None:
        self.path, self.file, self.done = path, gzip.open(path), 0  # noqa: SIM115  closed below

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self.file.readinto(buffer)
        self.done += count
        _check_growth(self.path, self.done)
        return count

    def close(self) -> None:
        self.file.close()
        super().close()


def _open_text(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return io.TextIOWrapper(
            io.BufferedReader(_Unpacked(path)), encoding="utf-8-sig", newline=""
        )
    return path.open(encoding="utf-8-sig", newline="")


def _delimiter(path: Path) -> str:
    return "\t" if ".tsv" in path.name.lower() else ","


def _join(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)
