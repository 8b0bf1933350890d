"""Opening the files of a log: errors explained, and packed content that grows absurdly refused."""

from __future__ import annotations

import csv
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
    except (
        pa.ArrowException,
        OSError,
        EOFError,
        csv.Error,
        zlib.error,
        UnicodeDecodeError,
    ) as error:
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
        lines = {row: line for row, (line, _) in numbered if row in wanted}
    return [lines.get(row, row + 2) for row in rows]


def check_even(path: Path, expected: int) -> None:
    """Refuse rows with more or fewer cells than the header."""
    uneven = (row for row in _read_rows(path) if len(row[1]) != expected)
    lines = [f"line {line} has {len(cells)}" for line, cells in islice(uneven, 3)]
    if lines:
        count = len(lines) + sum(1 for _ in uneven)
        raise ValueError(
            f"{path}: {count} row{'s' if count > 1 else ''} without the {expected} cells of the "
            f"header ({', '.join(lines)}); put cells with commas or line breaks in double quotes"
        )


def _read_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file that are not blank, each with the line on which it ends."""
    with open_text(path) as file:
        reader = csv.reader(file, delimiter=delimiter(path))
        for cells in reader:
            if cells:
                yield reader.line_num, cells


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
