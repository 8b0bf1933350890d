"""Opening the files of a log: errors explained, and packed content that grows absurdly refused."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

CSV = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz")
# A packed file is refused if its content is both larger than UNPACKED bytes and more than TIMES its
# own size.
UNPACKED, TIMES = 32_000_000, 500
MOST_ROW = 2**20  # bytes of a row of a CSV file: Arrow reads blocks of this size
SHOWN = 3  # rows that a message names


def event_files(folder: Path) -> list[Path]:
    """Return the data files of a MEDS data set, in order; none if the folder is none."""
    return sorted((folder / "data").rglob("*.parquet"))


def is_csv(path: Path) -> bool:
    """Whether a file is CSV by its name."""
    return path.name.lower().endswith(CSV)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the errors of libraries into messages that name the file and the remedy."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}; check the path") from None
    except PermissionError:
        raise PermissionError(f"no permission to read {path}; change its permissions") from None
    except MemoryError as error:  # one of Arrow's is an ArrowException, too
        raise MemoryError(f"reading {path}: {error}") from None
    except (
        pa.ArrowException,
        OSError,
        EOFError,
        csv.Error,
        zlib.error,
        UnicodeDecodeError,
    ) as error:
        if getattr(error, "errno", None) == errno.ENOMEM:
            raise MemoryError(f"reading {path}: {error}") from None
        if "utf8" in str(error).lower().replace("-", ""):
            raise ValueError(f"{path}{_bad_line(path)}: not UTF-8; save it as UTF-8") from None
        kind = "CSV" if is_csv(path) else "Parquet"
        raise ValueError(
            f"{path}: damaged, or not {kind}; check that it is complete, or write it again"
        ) from None


def line_numbers(path: Path, rows: Sequence[int]) -> list[int]:
    """Return the line on which each row of a CSV file ends; the header is line 1."""
    wanted = set(rows)
    with explained(path):
        numbered = enumerate(islice(_read_rows(path), max(rows) + 2), -1)  # the header is row -1
        lines = {row: line for row, (_, line, _) in numbered if row in wanted}
    return [lines.get(row, row + 2) for row in rows]


def check_even(path: Path, expected: int) -> None:
    """Refuse rows that are too long, or have more or fewer cells than the header."""
    uneven: list[str] = []
    count = 0
    for first, line, cells in _read_rows(path):
        if sum(len(cell.encode()) for cell in cells) > MOST_ROW:
            raise _too_long(path, first)
        if len(cells) != expected:
            count += 1
            uneven += [f"line {line} has {len(cells)}"] * (count <= SHOWN)
    if count:
        raise ValueError(
            f"{path}: {count} row{'s' if count > 1 else ''} without the {expected} cells of the "
            f"header ({', '.join(uneven)}); put cells with commas or line breaks in double quotes"
        )


def read_header(path: Path) -> list[str]:
    """Return the names of the columns of a CSV file."""
    return next((cells for _, _, cells in _read_rows(path)), [])


def _read_rows(path: Path) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the rows of a CSV file that are not blank, with their first and last lines."""
    csv.field_size_limit(max(csv.field_size_limit(), 2 * MOST_ROW))  # Arrow looks two blocks ahead
    with open_text(path) as file:
        reader, last = csv.reader(file, delimiter=delimiter(path)), 0
        try:
            for cells in reader:
                first, last = last + 1, reader.line_num
                if cells:
                    yield first, last, cells
        except csv.Error:
            raise _too_long(path, last + 1) from None


def _too_long(path: Path, line: int) -> ValueError:
    return ValueError(
        f"{path}: the row that begins in line {line} has more than {MOST_ROW:,} bytes; add a "
        "double quote if one is missing there, or shorten the row"
    )


def _bad_line(path: Path) -> str:
    """Name the first line of a file that is not UTF-8, to follow its path in a message."""
    if path.suffix == ".gz":
        return ""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return f", line {number}"
    return ""


def check_growth(path: Path, unpacked: int) -> None:
    """Refuse a packed file whose content is absurdly large."""
    size = path.stat().st_size
    if unpacked > max(UNPACKED, TIMES * size):
        raise ValueError(
            f"{path}: {size:,} bytes that would unpack to more than {unpacked // 10**6:,} MB; "
            "check where the file comes from; if it is genuine, write it as plain CSV"
        )


class _Unpacked(io.RawIOBase):
    """The content of a .gz file; reading stops when it grows absurdly large."""

    def __init__(self, path: Path) -> None:
        self.path, self.file, self.done = path, gzip.open(path), 0  # noqa: SIM115  closed below

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self.file.readinto(buffer)
        self.done += count
        check_growth(self.path, self.done)
        return count

    def close(self) -> None:
        self.file.close()
        super().close()


def open_text(path: Path) -> IO[str]:
    """Open a CSV file, packed or not, as text."""
    if path.suffix == ".gz":
        return io.TextIOWrapper(open_packed(path), encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def open_packed(path: Path) -> io.BufferedReader:
    """Open the content of a .gz file."""
    return io.BufferedReader(_Unpacked(path))


def delimiter(path: Path) -> str:
    """Return the character between the cells of a CSV file."""
    return "\t" if ".tsv" in path.name.lower() else ","
