"""Tables as CSV files in which no cell is a formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from butfor.log.whole_files import whole_file

# What a spreadsheet may take for a formula: a sign in front, perhaps a full-width one and after
# characters that programs trim or do not show. Apostrophes before it are those of `guarded`.
SIGNS = "-=+@－＝＋＠﹣﹦﹢﹫"
UNSEEN = r"\s\x00-\x1f\u200b-\u200f\u2060\ufeff"
FORMULA = re.compile(f"'*(?:[\t\r\n]|[{UNSEEN}]*[{SIGNS}])")
BLOCK = 50_000  # rows that are written together


def guarded(value: Any) -> Any:
    """Return a cell: text that starts like a formula gets an apostrophe, numbers stay numbers.

    Text that looks as if it had one already gets another, so that `restored` finds what was there.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and FORMULA.match(value):
        return f"'{value}"
    return value


def restored(cell: str) -> str:
    """Undo `guarded` for text."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def csv_text(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return rows as CSV."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([guarded(name) for name in columns])
    writer.writerows([guarded(row.get(name)) for name in columns] for row in rows)
    return text.getvalue()


def write_csv(path: Path, pieces: Iterable[pd.DataFrame], *, overwrite: bool = False) -> int:
    """Write a table, given in pieces, without its index; return the number of its rows.

    Missing values are empty cells. The file is written whole, and over another one only if asked.
    """
    rows = 0
    with (
        whole_file(path, overwrite=overwrite) as new,
        new.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file)
        for number, piece in enumerate(pieces):
            if number == 0:
                writer.writerow([guarded(str(name)) for name in piece.columns])
            for start in range(0, len(piece), BLOCK):
                block = piece.iloc[start : start + BLOCK]
                writer.writerows(zip(*(_cells(block[name]) for name in block), strict=True))
            rows += len(piece)
    return rows


def _cells(column: pd.Series) -> list[Any]:
    values = column.astype(object)
    return [guarded(value) for value in values.where(values.notna(), None).tolist()]
