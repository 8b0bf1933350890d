"""Events as a table of rows: the episodes they belong to, and one column per variable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from butfor.log.fields import step_size
from butfor.log.files import event_files, explained
from butfor.log.meds.episodes import Stays, find_stays
from butfor.log.meds.events import (
    SPLITS,
    VALUE,
    Events,
    Use,
    check_codes,
    check_file,
    read_events,
    root_of,
    uses_of,
)
from butfor.log.meds.section import MEDS, SourceSection
from butfor.log.sections import Study
from butfor.log.sources import Log, find_files, is_path, stacked

Index = NDArray[np.int64]

OUTSIDE = "events: outside of every episode, left out"
VALUELESS = "events without a numeric value, left out"  # after the name of the column
UNENDED = "events: episodes without an end code"


class EventLog(Log):
    """Rows made of events; messages name them by episode and time."""

    def places(self, rows: Sequence[int], owner: Callable[[int], Any] | None = None) -> str:
        """Name rows by their episodes and times."""
        episode, time = self.table.column(0), self.table.column(1)
        return "; ".join(f"episode {episode[row]} at {str(time[row])[:19]}" for row in rows)


def load_events(source: Any, study: Study) -> Log:
    """Load a MEDS data set, or some of its files, as a table with the columns of the study.

    One row has the values of an episode at one time; where a column has several, there are several
    rows. The last row of an episode that has an end has nothing but the outcome: it is at the end
    of the step in which the episode ends, so that every step before it is a decision.
    """
    files = _find(source)
    if not (isinstance(source, str | Path) and Path(source).is_file()):  # of a part, not all codes
        check_events(files, study)
    tables, halves, done = [], list[Index](), Counter[str]()
    owner: dict[int, Path] = {}
    for path in files:
        made = _read_file(path, study)
        for subject in made.subjects.tolist():
            if owner.setdefault(subject, path) != path:
                raise ValueError(
                    f"subject {subject} is in two files, {owner[subject].name} and {path.name}; "
                    "write all events of a subject into one file"
                )
        tables.append(made.table)
        halves += [] if made.half is None else [made.half]
        done.update(made.done)
    half = np.concatenate(halves) if halves else None
    return EventLog(str(source), stacked(tables, files), half=half, done=dict(done))


def _source(study: Study) -> SourceSection:
    assert study.source is not None  # without it, the log is not read as events
    return study.source


def _find(source: Any) -> list[Path]:
    """Return the data files of a source."""
    if not is_path(source):
        raise ValueError(
            f'[source] format = "{MEDS}": give the folder of the data set, not a '
            f"{type(source).__name__}"
        )
    for part in [source] if isinstance(source, str | Path) else source:
        folder = Path(part)
        if folder.is_dir() and not event_files(folder):
            raise ValueError(
                f"{folder}: there is no data/*.parquet; a MEDS data set is a folder with data/ and "
                "metadata/, so give that folder"
            )
    return find_files(source)


@dataclass(frozen=True, eq=False)
class _Made:
    """The rows made of one file."""

    table: Any
    half: Index | None  # of each row
    subjects: Index  # that have rows
    done: dict[str, int]


def number_columns(study: Study) -> set[str]:
    """Return the columns whose values are numbers."""
    variables = {**study.state, **study.action}
    named = {name for name, section in variables.items() if section.cuts is not None}
    named |= {name for name, section in study.side.items() if section.type == "number"} - (
        variables.keys() - named
    )
    ready = {study.columns.state, study.columns.action} - {None}
    return named | set(study.cluster_columns()) | {str(name) for name in ready}


def check_events(files: Sequence[Path], study: Study) -> dict[str, Any]:
    """Refuse data files that are not as MEDS says, or lack codes that the study names.

    Returns the type of each column that is made of the events.
    """
    source, numbers = _source(study), number_columns(study)
    for path in files:
        check_file(path, uses_of(source, numbers))
    check_codes(files, source)
    return {name: pa.float64() if name in numbers else pa.string() for name in source.columns}


def _read_file(path: Path, study: Study) -> _Made:
    source = _source(study)
    uses = uses_of(source, number_columns(study))
    events = read_events(path, uses)
    splits = _splits(path, source)
    if splits is not None and source.splits is not None:
        kept = [subject for subject, split in splits.items() if split in source.splits]
        events = events.take(np.isin(events.subject, np.array(kept, dtype=np.int64)))
    stays = find_stays(events, uses, source)
    assert study.time is not None  # which would be a mistake of the study
    cells, done = _cells(events, uses, stays)
    table, episode = _pivot(cells, stays, uses, study, step_size(study.time.every))
    half = None
    if splits is not None and source.first_half is not None:
        half = _halves(stays, splits, source.first_half, path)[episode]
    done[UNENDED] = 0 if source.end is None else int(np.isnat(stays.stop).sum())
    subjects = np.unique(stays.subject[episode])
    return _Made(table, half, subjects, {k: n for k, n in done.items() if n})


def _splits(path: Path, source: SourceSection) -> dict[int, str] | None:
    """Return the split of each subject, if the study asks for it."""
    named = [*(source.splits or ()), *(source.first_half or ())]
    if not named:
        return None
    listing = root_of(path) / SPLITS
    with explained(listing):
        table = pq.read_table(listing)
    lost = [name for name in ("subject_id", "split") if name not in table.column_names]
    if lost:
        raise ValueError(f"{listing}: there is no column {lost[0]!r}; write it as MEDS says")
    found = dict(zip(*(table[name].to_pylist() for name in ("subject_id", "split")), strict=True))
    known = sorted(set(found.values()))
    for name in named:
        if name not in known:
            raise ValueError(
                f"[source]: no split {name!r} in {listing}; there are {', '.join(known)}"
            )
    return found


def _halves(stays: Stays, splits: dict[int, str], first: Sequence[str], path: Path) -> Index:
    """Return the half of each stay: 0 for the splits that come first."""
    lost = [subject for subject in stays.subject.tolist() if subject not in splits]
    if lost:
        raise ValueError(f"{path}: subject {lost[0]} is in no split; add it to {SPLITS}")
    return np.array([splits[s] not in first for s in stays.subject.tolist()], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _Cells:
    """Values of columns, each with its stay and time, in order of these and of the file."""

    stay: Index
    time: NDArray[np.datetime64]
    use: Index
    number: NDArray[np.float64]
    text: Index
    texts: list[str]


def _cells(events: Events, uses: Sequence[Use], stays: Stays) -> tuple[_Cells, dict[str, int]]:
    """Return the values of events within stays; those without a time are known from the start."""
    done = {}
    is_value = np.array([use.role == VALUE for use in uses])
    is_number = np.array([use.number for use in uses])
    blank = np.where(is_number[events.use], np.isnan(events.number), events.text < 0)
    for name in {use.name for use in uses if use.number}:
        mine = np.array([use.name == name for use in uses])
        done[f"{name}: {VALUELESS}"] = int((mine[events.use] & blank).sum())
    values = events.take(is_value[events.use] & ~blank)
    static = np.isnat(values.time)
    timed, fixed = values.take(~static), values.take(static)
    stay = stays.at(timed.subject, timed.time)
    done[OUTSIDE] = int((stay < 0).sum())
    timed, stay = timed.take(stay >= 0), stay[stay >= 0]
    event, known = stays.of(fixed.subject)
    time = np.concatenate([stays.start[known], timed.time])
    stay = np.concatenate([known, stay])
    use, number, text = (
        np.concatenate([getattr(fixed, name)[event], getattr(timed, name)])
        for name in ("use", "number", "text")
    )
    order = np.lexsort([time, stay])  # which is stable
    return _Cells(
        stay[order], time[order], use[order], number[order], text[order], events.texts
    ), done


def _pivot(
    cells: _Cells, stays: Stays, uses: Sequence[Use], study: Study, every: float
) -> tuple[Any, Index]:
    """Return the table, and the stay of each of its rows."""
    source, named = _source(study), study.columns
    columns = list(source.columns)
    column = np.array([columns.index(use.name) if use.role == VALUE else -1 for use in uses])
    column = column[cells.use]
    place = _rows(cells, column, len(columns))
    _, first = np.unique(place, return_index=True)
    ends = stays.ends(every)
    begun = np.unique(cells.stay[cells.time == stays.start[cells.stay]])
    begins = np.setdiff1d(np.arange(len(ends)), begun)  # the start is a row, whatever is known
    ended = np.flatnonzero(~np.isnat(ends))
    stay = np.concatenate([begins, cells.stay[first], ended])
    time = np.concatenate([stays.start[begins], cells.time[first], ends[ended]])
    order = np.lexsort([time, stay])  # stable: the outcome is the last row of its time
    put = np.argsort(order)  # where each of these rows is in the table
    table = {
        named.episode: stays.ids(source.start is not None).take(pa.array(stay[order])),
        str(named.time): pa.array(time[order]),
        str(named.subject): pa.array(stays.subject[stay[order]]),
    }
    if named.outcome is not None:
        outcome = np.full(len(stay), -1)
        outcome[put[len(stay) - len(ended) :]] = stays.outcome[ended]
        table[named.outcome] = _texts(outcome, list(source.outcomes))
    numbers = number_columns(study)
    for position, name in enumerate(columns):
        mine = np.flatnonzero(column == position)
        rows = put[len(begins) + place[mine]]
        if name in numbers:
            found = np.full(len(stay), np.nan)
            found[rows] = cells.number[mine]
            table[name] = pa.array(found, mask=np.isnan(found))
        else:
            coded = np.full(len(stay), -1)
            coded[rows] = cells.text[mine]
            table[name] = _texts(coded, cells.texts)
    return pa.table(table), stay[order]


def _texts(codes: Index, texts: Sequence[str]) -> Any:
    """Return a column of texts, given by their positions in a list; none where -1."""
    indices = pa.array(codes.astype(np.int32), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))


def _rows(cells: _Cells, column: Index, columns: int) -> Index:
    """Return the row of each value: one for each stay and time, or several if a column repeats."""
    if len(column) == 0:
        return column
    later = np.append(True, cells.time[1:] != cells.time[:-1])
    new = (np.diff(cells.stay, prepend=-1) != 0) | later
    moment = np.cumsum(new) - 1
    pair = moment * columns + column
    order = np.argsort(pair, kind="stable")
    first = np.append(True, np.diff(pair[order]) != 0)
    begin = np.maximum.accumulate(np.where(first, np.arange(len(pair)), 0))
    again = np.empty(len(pair), dtype=np.int64)  # how often the column was there before
    again[order] = np.arange(len(pair)) - begin
    return np.unique(moment * (int(again.max()) + 1) + again, return_inverse=True)[1].reshape(-1)
