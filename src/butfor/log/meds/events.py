"""The events of a MEDS data set that a study names, read file by file."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from butfor.log.coding import is_text, plain, text_of
from butfor.log.files import explained
from butfor.log.meds.section import ANY, ITSELF, SourceSection
from butfor.log.sources import PIECE, opened, validated
from butfor.types import Floats

Index = NDArray[np.int64]
Times = NDArray[np.datetime64]  # in microseconds; NaT: an event without a time

REQUIRED = ("subject_id", "time", "code")
VALUES = ("numeric_value", "text_value")
CODES, SPLITS = "metadata/codes.parquet", "metadata/subject_splits.parquet"
DEATH = "MEDS_DEATH"
START, END, OUTCOME, VALUE = "start", "end", "outcome", "value"  # what events are used for
NOT_FOUND = 5  # patterns without codes that a message lists


@dataclass(frozen=True)
class Use:
    """What events with some codes are used for."""

    role: str
    name: str = ""  # of the outcome or the column
    codes: tuple[str, ...] = ()
    level: str = ITSELF  # that an event stands for
    number: bool = False  # whether the value is a number

    def value_in(self, code: str) -> str | None:
        """Return the text that a code alone gives, "" if it gives none; None for other codes."""
        if code in self.codes:
            return self.level
        starts = [one[:-1] for one in self.codes if one.endswith(ANY) and code.startswith(one[:-1])]
        return (self.level or code[len(max(starts, key=len)) :]) if starts else None


@dataclass(frozen=True, eq=False)
class Events:
    """The events of one file that are used, in its order, once for each use."""

    subject: Index  # [E]
    time: Times  # [E]
    use: Index  # [E] index into the uses
    number: Floats  # [E] nan if there is none
    text: Index  # [E] index into `texts`, -1 if there is none
    texts: list[str]

    def take(self, kept: NDArray[Any]) -> Events:
        """Return some of the events, given by a mask or by position."""
        return Events(
            self.subject[kept],
            self.time[kept],
            self.use[kept],
            self.number[kept],
            self.text[kept],
            self.texts,
        )


@dataclass
class _Texts:
    """Distinct texts, numbered as they come."""

    index: dict[str, int] = field(default_factory=dict)

    def code(self, text: str) -> int:
        return self.index.setdefault(text, len(self.index)) if text else -1


def uses_of(source: SourceSection, numbers: Iterable[str]) -> list[Use]:
    """Return what the study uses events for; `numbers` are the columns of numbers."""
    found = [Use(START, codes=tuple(source.start or ())), Use(END, codes=tuple(source.end or ()))]
    found += [Use(OUTCOME, name, tuple(codes)) for name, codes in source.outcomes.items()]
    known = set(numbers)
    for name, levels in source.columns.items():
        for level, codes in levels.items():
            found.append(Use(VALUE, name, tuple(codes), level, name in known))
    return found


def check_file(path: Path, uses: Sequence[Use]) -> list[str]:
    """Return the columns to read of a file; refuse one that is not as MEDS says."""
    with explained(path):
        schema = pq.read_schema(path)
    lost = [name for name in REQUIRED if name not in schema.names]
    if lost:
        raise ValueError(
            f"{path}: columns are missing: {', '.join(lost)}; a MEDS file has subject_id, time, "
            f"code and numeric_value, this one {', '.join(schema.names[:30])}"
        )
    kinds = [schema.field(name).type for name in REQUIRED]
    kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds]
    right = pa.types.is_integer(kinds[0]), pa.types.is_timestamp(kinds[1]), is_text(kinds[2])
    for name, kind, good, wanted in zip(
        REQUIRED, kinds, right, ("an integer", "a timestamp", "text"), strict=True
    ):
        if not good:
            raise ValueError(f"{path}: {name} has the type {kind}, expected {wanted}; convert it")
    numeric = [use.name for use in uses if use.number]
    if numeric and "numeric_value" not in schema.names:
        raise ValueError(
            f"{path}: there is no numeric_value, which {numeric[0]!r} needs; add the column"
        )
    return [*REQUIRED, *(name for name in VALUES if name in schema.names)]


def read_events(path: Path, uses: Sequence[Use]) -> Events:
    """Read the events of a file that are used, piece by piece."""
    columns = check_file(path, uses)
    order, texts = _Order(path), _Texts()
    values = [cache(use.value_in) for use in uses]
    pieces: list[tuple[NDArray[Any], ...]] = []
    with opened(path) as (file, schema):
        for batch in file.iter_batches(PIECE, columns=columns):
            table = validated(path, pa.Table.from_batches([batch]), schema)
            subject, time = order.check(table)
            pieces += _used(table, subject, time, uses, values, texts)
    kinds = (np.int64, "datetime64[us]", np.int64, np.float64, np.int64)
    empty = tuple(np.empty(0, kind) for kind in kinds)
    joined = [np.concatenate(parts) for parts in zip(empty, *pieces, strict=True)]
    return Events(joined[0], joined[1], joined[2], joined[3], joined[4], list(texts.index))


@dataclass
class _Order:
    """Whether subjects are contiguous and their events in the order of time, piece by piece."""

    path: Path
    done: int = 0  # rows
    seen: set[int] = field(default_factory=set)
    last: tuple[int, np.datetime64] | None = None  # subject and time of the last event with one
    subject: int = 0  # of the last event

    def check(self, table: Any) -> tuple[Index, Times]:
        """Return subjects and times of the next rows, unless they are out of order."""
        for name in ("subject_id", "code"):
            self._refuse(np.asarray(table[name].is_null()), f"there is no {name}", "fill it in")
        subject = table["subject_id"].cast(pa.int64()).to_numpy()
        stamps = table["time"].cast(pa.timestamp("us"), safe=False)
        time = stamps.to_numpy().astype("datetime64[us]")
        new = np.append(self.subject, subject[:-1]) != subject
        new[:1] |= self.done == 0
        again = np.zeros(len(subject), dtype=bool)
        for row in np.flatnonzero(new).tolist():
            again[row] = subject[row] in self.seen
            self.seen.add(int(subject[row]))
        sort = "sort the file by subject_id and time"
        self._refuse(
            again, "events of another subject come between those of subject {}", sort, subject
        )
        timed = np.flatnonzero(~np.isnat(time))
        whose, when = subject[timed], time[timed]
        if self.last is not None:
            whose, when = np.append(self.last[0], whose), np.append(self.last[1], when)
            timed = np.append(-1, timed)
        late = timed[1:][(whose[1:] == whose[:-1]) & (when[1:] < when[:-1])]
        back = np.isin(np.arange(len(subject)), late)
        self._refuse(
            back, "an event of subject {} is earlier than the one before it", sort, subject
        )
        if len(whose):
            self.last = int(whose[-1]), when[-1]
        self.subject = int(subject[-1])
        self.done += len(subject)
        return subject, time

    def _refuse(
        self, wrong: NDArray[np.bool_], what: str, remedy: str, subject: Index | None = None
    ) -> None:
        if wrong.any():
            row = int(wrong.argmax())
            who = "" if subject is None else subject[row]
            place = f"{self.path}, row {self.done + row}, counted from 0"
            raise ValueError(f"{place}: {what.format(who)}; {remedy}")


def _used(
    table: Any,
    subject: Index,
    time: Times,
    uses: Sequence[Use],
    values: Sequence[Callable[[str], str | None]],
    texts: _Texts,
) -> Iterator[tuple[NDArray[Any], ...]]:
    """Yield the events of a piece that are used: subject, time, use, number and text.

    `values` has the `value_in` of each use.
    """
    column = plain(table["code"])
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.unify_dictionaries().combine_chunks()
    codes = codes.chunk(0) if isinstance(codes, pa.ChunkedArray) else codes
    known, code = codes.dictionary.to_pylist(), codes.indices.to_numpy()
    found = []
    for position, use in enumerate(uses):
        told = [values[position](one) for one in known]
        named = np.array([value is not None for value in told], dtype=bool)
        if not named.any():
            continue
        rows = np.flatnonzero(named[code])
        given = np.full(len(rows), np.nan)
        if use.number:
            given = _numbers(table["numeric_value"].take(rows))
        text = np.array([texts.code(value or "") for value in told])[code[rows]]
        if use.role == VALUE and not use.number:
            blank = np.flatnonzero(text < 0)
            text[blank] = [texts.code(one) for one in _texts(table, rows[blank])]
        found.append((rows, np.full(len(rows), position), given, text))
    if found:
        rows, use_of, given, text = (np.concatenate(part) for part in zip(*found, strict=True))
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        yield subject[rows], time[rows], use_of[order], given[order], text[order]


def _numbers(column: Any) -> Floats:
    """Return numbers, nan where missing; a single-precision one as the decimal it stands for.

    7.35 in single precision is slightly less than the cut 7.35 in double precision.
    """
    numbers = np.array(pc.fill_null(column.cast(pa.float64(), safe=False), np.nan).to_numpy())
    if column.type not in (pa.float32(), pa.float16()):
        return numbers
    kind = np.float32 if column.type == pa.float32() else np.float16
    distinct, place = np.unique(numbers, return_inverse=True)
    return np.array([float(str(kind(value))) for value in distinct])[place]


def _texts(table: Any, rows: Index) -> list[str]:
    """Return the text of events whose code gives none: text_value, or else numeric_value."""
    found = [""] * len(rows)
    if "numeric_value" in table.column_names:
        numbers = _numbers(table["numeric_value"].take(rows))
        found = ["" if np.isnan(number) else text_of(number) for number in numbers]
    if "text_value" in table.column_names:
        texts = table["text_value"].take(rows).to_pylist()
        found = [text or other for text, other in zip(texts, found, strict=True)]
    return found


def check_codes(files: Sequence[Path], source: SourceSection) -> None:
    """Refuse patterns that match no code of a data set, and name codes that are similar."""
    patterns = source.patterns()
    known = _listed_codes(files[0])
    missing = _unmatched(patterns, known)
    if missing:
        for path in files:
            with opened(path) as (file, _):
                for batch in file.iter_batches(PIECE, columns=["code"]):
                    known |= set(batch.column(0).unique().to_pylist())
        missing = _unmatched(patterns, known)
    if not missing:
        return
    lines = []
    for at, pattern in missing[:NOT_FOUND]:
        near = difflib.get_close_matches(pattern.rstrip(ANY), sorted(filter(None, known)), n=3)
        hint = f"; close: {', '.join(map(repr, near))}" if near else ""
        kind = "starts with" if pattern.endswith(ANY) else "is"
        lines.append(f"- {at}: no code {kind} {pattern.rstrip(ANY)!r}{hint}")
    if len(missing) > NOT_FOUND:
        lines.append(f"… and {len(missing) - NOT_FOUND} more")
    head = f"{root_of(files[0])}: {len(known):,} codes, but not these; correct the study:"
    raise ValueError("\n".join([head, *lines]))


def _unmatched(patterns: dict[str, list[str]], known: set[str]) -> list[tuple[str, str]]:
    return [
        (at, one)
        for at, several in patterns.items()
        for one in several
        if one not in known
        and not (one.endswith(ANY) and any((code or "").startswith(one[:-1]) for code in known))
    ]


def root_of(path: Path) -> Path:
    """Return the folder of the data set that a data file belongs to."""
    folders = [folder for folder in path.absolute().parents if folder.name == "data"]
    return folders[0].parent if folders else path.absolute().parent


def _listed_codes(path: Path) -> set[str]:
    """Return the codes in a data set's metadata, empty if there are none."""
    listing = root_of(path) / CODES
    if not listing.exists():
        return set()
    with explained(listing):
        return set(pq.read_table(listing, columns=["code"]).column(0).to_pylist())
