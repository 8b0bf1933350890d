"""Columns as codes: text by the position of its level, numbers by their bin, times in seconds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from butfor.types import Floats

Codes = NDArray[np.int64]

MISSING, UNKNOWN, NOT_A_NUMBER = -1, -2, -3  # codes of cells without a level
# What people and programs write into a cell without a value; a level may still have such a name.
EMPTY = ("", *"NA N/A #N/A n/a NaN nan -nan null NULL None <NA> NaT".split())  # noqa: SIM905
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def text_of(value: Any) -> str:
    """Write a value as a level: integers without a decimal point, booleans in lower case."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating):
        value = float(value)
        whole = math.isfinite(value) and value == math.floor(value) and abs(value) < 2**53
        return str(int(value)) if whole else repr(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def listed(values: Iterable[Any]) -> str:
    """List the first few values, for a message."""
    items = [repr(v) if isinstance(v, str) else text_of(v) for v in values]
    return ", ".join(items[:8]) + (", …" if len(items) > 8 else "")


def encode(column: Any) -> tuple[Codes, list[Any]]:
    """Return the position of each cell among the distinct values, -1 if empty; and the values."""
    column = plain(column)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    column = column.unify_dictionaries().combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 0:
            return np.empty(0, dtype=np.int64), []
        column = column.chunk(0)
    codes = column.indices.cast(pa.int64())
    codes = pc.fill_null(codes, MISSING) if codes.null_count else codes
    positions = np.asarray(codes.to_numpy(zero_copy_only=False))
    values = column.dictionary.to_pylist()
    absent = np.array([value is None or value != value for value in values], dtype=bool)
    if absent.any():
        positions = np.where((positions >= 0) & absent[positions], MISSING, positions)
    return positions, values


def plain(column: Any) -> Any:
    """Return a column with an ordinary type of text; other programs write other types."""
    coded = pa.types.is_dictionary(column.type)
    kind, text = column.type.value_type if coded else column.type, pa.large_string()
    if not is_text(kind) or kind in (pa.string(), text):
        return column
    return column.cast(pa.dictionary(pa.int32(), text) if coded else text)


def code_levels(column: Any, levels: Sequence[str]) -> Codes:
    """Code each cell by its level: as written, without outer spaces, or as the same number."""
    cells, values = encode(column)
    index = {level: position for position, level in enumerate(levels)}
    table = [_level(text_of(value), index) for value in values]
    return np.array([*table, MISSING], dtype=np.int64)[cells]


def _level(text: str, index: dict[str, int]) -> int:
    bare = text.strip()
    for candidate in (text, bare, _canonical(bare)):
        if candidate in index:
            return index[candidate]
    return MISSING if bare in EMPTY else UNKNOWN


def _canonical(text: str) -> str:
    if text.lower() in ("true", "false"):
        return text.lower()
    return text_of(float(text)) if _NUMBER.fullmatch(text) else text


def read_worth(column: Any, worth: Mapping[str, float]) -> tuple[Floats, NDArray[np.bool_]]:
    """Return what each word is worth, nan if there is none; and mark words that are not listed."""
    codes = code_levels(column, list(worth))
    return np.array([*worth.values(), np.nan, np.nan])[codes], codes == UNKNOWN


def bins_of(numbers: Floats, cuts: Sequence[float]) -> Codes:
    """Return the bin of each number: bin i is the half-open interval [cut i - 1, cut i)."""
    return np.searchsorted(np.asarray(cuts, dtype=np.float64), numbers, side="right")


def code_rows(column: Any) -> tuple[Codes, Floats]:
    """Code each number by its row, so that it can be carried forward; also return the numbers."""
    numbers, wrong = read_numbers(column)
    return _mark(np.arange(len(numbers)), numbers, wrong), numbers


def code_filled(column: Any, *, blank: bool) -> Codes:
    """Code each cell that is not empty by its row; if `blank`, empty text is empty."""
    filled = column.is_valid()
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if blank and is_text(kind):
        filled = pc.and_(filled, pc.fill_null(pc.not_equal(column.cast(kind), ""), False))
    return np.where(np.asarray(filled), np.arange(len(column)), MISSING)


def code_integers(column: Any, count: int) -> Codes:
    """Take integers from 0 to `count` - 1 as codes."""
    numbers, wrong = read_numbers(column)
    whole = (numbers >= 0) & (numbers < count) & (numbers == np.floor(numbers))
    return _mark(np.where(whole, numbers, UNKNOWN).astype(np.int64), numbers, wrong)


def _mark(codes: Codes, numbers: Floats, wrong: NDArray[np.bool_]) -> Codes:
    """Mark codes of cells without a number, in place."""
    codes[np.isnan(numbers)] = MISSING
    codes[wrong] = NOT_A_NUMBER
    return codes


def code_wholes(column: Any) -> Codes:
    """Take integers from 0 as they are, however large; -1 and empty cells are missing."""
    numbers = _wholes(column)
    if numbers is not None:
        return np.where(_short(numbers) & (numbers >= MISSING), numbers, NOT_A_NUMBER)
    cells, values = encode(column)
    table = [MISSING]
    for text in (text_of(value).strip() for value in reversed(values)):
        known = int(text) if _is_plain_whole(text) else NOT_A_NUMBER
        table.append(MISSING if text in EMPTY else known)
    codes = np.array(table[::-1], dtype=np.int64)[cells]
    return np.where(codes < MISSING, NOT_A_NUMBER, codes)


def read_numbers(column: Any) -> tuple[Floats, NDArray[np.bool_]]:
    """Return numbers, nan where empty or wrong, and which cells are wrong: text, or infinite."""
    column = plain(column)
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not pa.types.is_null(kind) and not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    ):
        return _parse(column, _to_number)
    numbers = _floats(column)
    wrong = np.isinf(numbers)
    return np.where(wrong, np.nan, numbers), wrong


def read_times(column: Any) -> tuple[Floats, NDArray[np.bool_], bool]:
    """Return times as numbers (of dates, in seconds), which cells are neither, and if dates."""
    column = plain(column)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if is_text(kind):
        try:
            column = column.cast(pa.timestamp("us"))
            kind = column.type
        except pa.ArrowInvalid:
            numbers, wrong = _parse(column, _to_number)
            dates, undated = _parse(column, _to_seconds)
            if undated.sum() < wrong.sum():
                return dates, undated, True
            return numbers, wrong, False
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        unit, column = "us", column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    elif pa.types.is_time(kind) or pa.types.is_duration(kind):
        unit = kind.unit
        column = column.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
    else:
        return (*read_numbers(column), False)
    seconds = _floats(column) / {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[unit]
    return seconds, np.zeros(len(seconds), dtype=bool), True


def identify(column: Any, *, text: bool | None) -> tuple[Codes, NDArray[Any]]:
    """Return the episode of each row, numbered by first row (-1: none), and the ids.

    Ids that are all plainly written integers become numbers, unless `text` is true.
    """
    numbers = None if text else _wholes(column)
    if numbers is not None and _short(numbers).all():
        position, ids = pd.factorize(numbers)
        return position.astype(np.int64), ids
    codes, values = encode(column)
    # integers need not be written as text and read again
    ready = not text and set(map(type, values)) == {int}
    ready = ready and bool(_short(np.array([min(values), max(values)], dtype=object)).all())
    if ready:
        names = np.array(values, dtype=np.int64)
    else:
        names = np.array([text_of(value) for value in values], dtype=object)
        empty = {""} if text else set(EMPTY)
        missing = np.array([value.strip() in empty for value in names] + [True], dtype=bool)
        codes = np.where(missing[codes], MISSING, codes)
    order = pd.unique(codes[codes >= 0])  # by first row
    position = np.full(len(names) + 1, MISSING)
    position[order] = np.arange(len(order))
    ids = names[order]
    if not (ready or text) and all(map(_is_plain_whole, ids)):
        ids = ids.astype(np.int64)
    return position[codes], ids


def _wholes(column: Any) -> Codes | None:
    """Return a column whose type is that of whole numbers, if no cell is empty."""
    if not pa.types.is_signed_integer(column.type) or column.null_count:
        return None
    return np.asarray(column.to_numpy(), dtype=np.int64)


def _short(numbers: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether integers are short enough for `_is_plain_whole`, at most 18 characters."""
    return (numbers > -(10**17)) & (numbers < 10**18)


def _is_plain_whole(text: str) -> bool:
    return len(text) < 19 and re.fullmatch(r"0|-?[1-9][0-9]*", text) is not None


def _floats(column: Any) -> Floats:
    numbers = column.cast(pa.float64(), safe=False)
    return np.array(pc.fill_null(numbers, math.nan).to_numpy(), dtype=np.float64)


def _parse(column: Any, read: Callable[[Any], float | None]) -> tuple[Floats, NDArray[np.bool_]]:
    """Read each distinct cell; `read` returns None for what is not a number."""
    cells, values = encode(column)
    parsed = np.array([read(value) for value in values] + [math.nan], dtype=object)
    bad = np.array([value is None or math.isinf(value) for value in parsed], dtype=bool)
    parsed[bad] = math.nan
    return parsed.astype(np.float64)[cells], bad[cells]


def _to_number(value: Any) -> float | None:
    if isinstance(value, int | float):
        return float(value)
    text = text_of(value).strip()
    if text in EMPTY:
        return math.nan
    if _NUMBER.fullmatch(text) or text.lower().lstrip("+-") in ("inf", "infinity"):
        return float(text)
    return None


def _to_seconds(value: Any) -> float | None:
    if isinstance(value, str):
        if value.strip() in EMPTY:
            return math.nan
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if isinstance(value, datetime):
        return (value.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()
    if isinstance(value, date):
        return float((value - date(1970, 1, 1)).days * 86400)
    return None


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of the types of text."""
    texts = pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()
    return kind in texts
