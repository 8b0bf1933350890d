"""Writing Episodes as a log, with the study file that reads it back."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from butfor.log.decisions import last_rows
from butfor.log.episodes import Episodes
from butfor.log.fields import place, quoted
from butfor.log.study import read_study
from butfor.log.variables import Variable, check_distinct, unravel
from butfor.log.whole_files import check_new_file, whole_file


def write_episodes(
    episodes: Episodes, path: str | Path, study_path: str | Path | None = None
) -> Path:
    """Write a log as CSV or Parquet, and a study file with which `read_episodes` reads it back.

    Each row is a decision; a last row without an action gives the final state if it is known. The
    study file has the name of the log with the ending .toml, unless `study_path` is given; its path
    is returned. Side columns are written as numbers or text (as levels if they came from `hide`).
    Numbers behind levels (`Episodes.numbers`, `recorded`), times, and a policy that is known row by
    row (`target_probability`) are not written.
    """
    goal = Path(path)
    if goal.suffix.lower() not in (".csv", ".parquet"):
        raise ValueError(f"{goal}: unknown kind of file; end the name in .csv or .parquet")
    study_goal = goal.with_suffix(".toml") if study_path is None else Path(study_path)
    for file in (goal, study_goal):
        check_new_file(file, overwrite=True)
    if episodes.durations is not None:
        raise ValueError(
            "the states of these episodes have durations or count steps, which is not written; "
            "keep the log and the study that they were read from"
        )
    table, study = _log_and_study(episodes)
    text = write_toml(study)
    try:
        text.encode("utf-8")
        read_study(tomllib.loads(text))  # what cannot be read back is not written
    except UnicodeEncodeError as error:
        raise ValueError(
            f"a name has the character {error.object[error.start]!r}, which cannot be written as "
            "UTF-8; rename it"
        ) from None
    except ValueError as error:
        raise ValueError(f"these episodes cannot be written as a log: {error}") from None
    with whole_file(goal, overwrite=True) as new, whole_file(study_goal, overwrite=True) as told:
        if goal.suffix.lower() == ".csv":
            pa.csv.write_csv(table, new)
        else:
            pa.parquet.write_table(table, new, write_page_checksum=True)
        told.write_text(text, encoding="utf-8", newline="\n")
    return study_goal


def write_toml(
    content: Mapping[str, Any],
    comments: Mapping[str, str] | None = None,
    hints: Mapping[str, str] | None = None,
) -> str:
    """Write sections of plain values as TOML.

    By the head of a section, comments come before it, hints (keys that could be added) at its end.
    """
    blocks = []
    for section, entries in content.items():
        nested = entries and all(isinstance(value, Mapping) for value in entries.values())
        heads = {place(section, key): value for key, value in entries.items()} if nested else {}
        for head, values in (heads or {f"[{section}]": entries}).items():
            comment = (comments or {}).get(head, "")
            lines = [comment_lines(comment)] if comment else []
            lines += [head, *(f"{key} = {toml_value(value)}" for key, value in values.items())]
            hint = (hints or {}).get(head, "")
            lines += [comment_lines(hint)] if hint else []
            blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def comment_lines(text: str) -> str:
    """Write text as comments; characters that TOML forbids there become question marks."""
    allowed = ("".join(c if c.isprintable() else "?" for c in line) for line in text.splitlines())
    return "\n".join(f"# {line}" for line in allowed)


def toml_value(value: Any) -> str:
    """Write one value as TOML."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool | int | float):
        return str(value).lower()
    if isinstance(value, Mapping):
        inside = (f"{quoted(key)} = {toml_value(entry)}" for key, entry in value.items())
        return f"{{ {', '.join(inside)} }}"
    return f"[{', '.join(toml_value(entry) for entry in value)}]"


class _Columns(dict[str, Any]):
    """The columns of the table; names that are taken are avoided."""

    def add(self, values: Any, *wanted: str) -> str:
        """Add a column under the first name wanted that is free, or the last one with a number."""
        numbered = (f"{wanted[-1]} {number}" for number in range(2, len(self) + 3))
        free = next(name for name in (*wanted, *numbered) if name.strip() and name not in self)
        self[free] = values
        return free


def _log_and_study(log: Episodes) -> tuple[Any, dict[str, Any]]:
    """Return the log as a table, and the content of the study file."""
    finals = log.next_state[log.offsets[1:] - 1]
    ends = np.flatnonzero((finals >= 0) | (log.side is not None))  # get a row for the final state
    # decisions are rows 0..N-1, the final state of episode i is row N + i
    count = len(log.state)
    episode = np.concatenate([np.repeat(np.arange(len(log)), log.lengths), ends])
    step = np.concatenate([log.time, log.lengths[ends]])
    order = np.lexsort([step, episode])
    row = np.concatenate([np.arange(count), count + ends])[order]
    episode, step = episode[order], step[order]
    last = last_rows(episode)

    columns = _Columns()
    ids, kind = _ids(log.id, episode)
    roles: dict[str, Any] = {"episode": columns.add(ids, "episode")} | kind
    if log.subject is not None:
        roles["subject"] = columns.add(pa.array(log.subject[episode]), "subject")
    roles["time"] = columns.add(pa.array(step), "time")
    if log.outcomes:
        ending = np.where(last, log.outcome[episode], -1)
        names = [outcome.name for outcome in log.outcomes]
        roles["outcome"] = columns.add(_labels(names, ending), "outcome")
    roles["reward"] = columns.add(_partly(log.reward, row, row < count), "reward")
    if log.behavior_probability is not None:
        given = _partly(log.behavior_probability, row, row < count)
        roles["behavior_probability"] = columns.add(given, "behavior_probability")
    if not np.array_equal(log.final_key, finals):
        roles["final_key"] = columns.add(_partly(log.final_key, episode, last), "final_key")
    states = np.concatenate([log.state, finals])[row]
    actions = np.concatenate([log.action, np.full(len(log), -1)])[row]
    study: dict[str, Any] = {
        "columns": roles,
        "state": _variables(
            columns, "state", log.state_variables, states, log.codes(np.maximum(states, 0))
        ),
        "action": _variables(
            columns,
            "action",
            log.action_variables,
            actions,
            unravel(log.action_variables, np.maximum(actions, 0)),
        ),
    }
    if log.outcomes:
        study["outcome"] = {
            outcome.name: {"reward": float(outcome.reward)} | ({"bad": True} if outcome.bad else {})
            for outcome in log.outcomes
        }
    if log.side is not None:
        study["side"] = _side(columns, log.side.iloc[row], log.side_variables)
    if (log.outcome < 0).any() and log.outcomes:
        study["problems"] = {"no_outcome": "keep"}
    study["words"] = {"none": log.none_name}
    study["evaluation"] = {"horizon": log.horizon}
    return pa.table(dict(columns)), study


def _variables(
    columns: _Columns,
    group: str,
    variables: Sequence[Variable],
    codes: NDArray[Any],
    levels: Mapping[str, NDArray[Any]],
) -> dict[str, Any]:
    """Add the columns of the state or the action to the table, and return their sections."""
    sections = {}
    for variable in variables:
        labels = _labels(variable.levels, np.where(codes < 0, -1, levels[variable.name]))
        key = columns.add(labels, variable.name, f"{group} {variable.name}")
        sections[key] = _variable(variable, key)
    return sections


def _side(columns: _Columns, side: pd.DataFrame, variables: Sequence[Variable]) -> dict[str, Any]:
    """Add the side columns to the table, and return their sections."""
    sections: dict[str, Any] = {}
    known = {variable.name: variable for variable in variables}
    for name, series in side.items():
        values, kind = _side_values(series, str(name), known.get(str(name)))
        key = columns.add(values, str(name), f"side {name}")
        if name in known:
            sections[key] = _variable(known[str(name)], key)
        else:
            sections[key] = ({} if key == str(name) else {"name": str(name)}) | kind
    return sections


def _side_values(
    series: pd.Series[Any], name: str, variable: Variable | None
) -> tuple[Any, dict[str, str]]:
    if variable is not None:
        return _labels(variable.levels, pd.Categorical(series, list(variable.levels)).codes), {}
    kind = series.dtype
    if pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_datetime64_any_dtype(kind):
        # a number even if all of them are whole
        number = {"type": "number"} if pd.api.types.is_float_dtype(kind) else {}
        return pa.array(series, from_pandas=True), number
    texts = [None if m else str(v) for v, m in zip(series, series.isna(), strict=True)]
    if "" in texts:
        raise ValueError(
            f"the side column {name!r} has empty text, which means missing; fill it in"
        )
    return _encoded(texts), {"type": "text"}


def _variable(variable: Variable, column: str) -> dict[str, Any]:
    section = {
        "name": "" if column == variable.name else variable.name,
        "levels": list(variable.levels),
        "normal": list(variable.normal),
        "static": variable.static,
    }
    return {key: value for key, value in section.items() if value}


def _ids(ids: NDArray[Any], episode: NDArray[Any]) -> tuple[Any, dict[str, str]]:
    if ids.dtype.kind in "iu":
        return pa.array(ids.astype(np.int64)[episode]), {}
    texts = [str(identifier) for identifier in ids.tolist()]
    check_distinct(texts, "id")
    if any(not text.strip() for text in texts):
        raise ValueError("an episode has an empty id, which means missing; give it a name")
    return _labels(texts, episode), {"episode_type": "text"}


def _labels(levels: Sequence[str], codes: Iterable[Any]) -> Any:
    """Return the texts of codes, missing where a code is negative."""
    positions = np.asarray(codes, dtype=np.int64)
    return _encoded(levels).take(pa.array(positions, mask=positions < 0))


def _encoded(texts: Sequence[str | None]) -> Any:
    try:
        return pa.array(texts, pa.string())
    except MemoryError:
        raise
    except (UnicodeEncodeError, pa.ArrowException):
        bad = next(text for text in texts if re.search("[\ud800-\udfff]", text or ""))
        raise ValueError(
            f"{bad!r} has a character that cannot be written as UTF-8; rename it"
        ) from None


def _partly(values: NDArray[Any], index: NDArray[Any], where: NDArray[np.bool_]) -> Any:
    return pa.array(values[np.where(where, index, 0)], mask=~where)
