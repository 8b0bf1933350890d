"""Reading a log, by its study, into Episodes: CSV, Parquet, pandas, and anything with Arrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from butfor.log.clusters import fit_clusters
from butfor.log.coding import (
    MISSING,
    NOT_A_NUMBER,
    code_cuts,
    code_integers,
    code_levels,
    code_wholes,
    identify,
    read_numbers,
    read_times,
    text_of,
)
from butfor.log.episodes import Episodes
from butfor.log.problems import (
    Index,
    Problems,
    Rows,
    last_rows,
    settle_cells,
    settle_gaps,
    settle_order,
    settle_outcomes,
)
from butfor.log.sections import MOST_NUMBERED, Study, place
from butfor.log.sources import Log, is_csv, load_log
from butfor.log.study import read_study
from butfor.log.variables import Outcome, Variable, ravel
from butfor.types import Floats

# Values [R, d] of rows, the names of the d columns and the number of clusters -> clusters [R].
Clusterer = Callable[[Floats, Sequence[str], int], NDArray[Any]]


def _fitted(values: Floats, columns: Sequence[str], count: int) -> NDArray[Any]:
    """Find clusters in the log itself."""
    return fit_clusters(values, columns, count).assign(values)


@dataclass(frozen=True, eq=False)
class Reading:
    """A log as it was read."""

    episodes: Episodes
    behavior_probability: Floats | None  # [N] of the action taken, if the log tells
    done: dict[str, int]  # what was done about problems, and to how many rows or episodes


def read_episodes(
    source: Any,
    study: str | Path | Mapping[str, Any] | Study,
    *,
    clusterer: Clusterer | None = None,
) -> Episodes:
    """Read a log, as its study says, into Episodes: `read_log` without its record."""
    return read_log(source, study, clusterer=clusterer).episodes


def read_log(
    source: Any,
    study: str | Path | Mapping[str, Any] | Study,
    *,
    clusterer: Clusterer | None = None,
) -> Reading:
    """Read a log, as its study says.

    Parameters
    ----------
    source
        The path of a CSV or Parquet file, a list of such, a folder of parts; a pandas frame, or
        anything with the Arrow C stream (Polars, DuckDB relations, Arrow tables).
    study
        The path of a study file, or its content.
    clusterer : optional
        Finds the clusters of a study with [cluster]; rows whose numbers are known are given. By
        default they are found in this log (`fit_clusters`); to use those of an audit, give
        `lambda values, columns, count: audit.clusters.assign(values)`.

    Notes
    -----
    A row is a decision. The outcome stands on the last row of an episode. A last row without
    action gives the final state; without it and without an outcome the last decision is no
    transition. Problems that the study does not settle are all reported in one ValueError.
    """
    reading = read_part(source, study, clusterer=clusterer)
    if isinstance(reading, NothingLeft):
        raise ValueError(
            f"{reading.name}: no episode is left; drop less in [problems] of the study"
        )
    return reading


@dataclass(frozen=True)
class NothingLeft:
    """A log of which the study, by what it says about problems, leaves no episode."""

    name: str
    done: dict[str, int]  # what was done about problems, and to how many rows or episodes


def read_part(
    source: Any,
    study: str | Path | Mapping[str, Any] | Study,
    *,
    clusterer: Clusterer | None = None,
) -> Reading | NothingLeft:
    """Read what may be a part of a log, as `read_log` does; of a part nothing may be left."""
    study = read_study(study)
    log = load_log(source, study.places(), study.text_columns())
    problems = Problems(study.problems, log.places)
    rows, ids = _code_rows(log, study, problems)
    settle_cells(rows, _remedies(study))
    if study.columns.step is not None:
        settle_gaps(rows, study.columns.step)
    kept = _settle_transitions(rows, study)
    problems.check(log.name)
    if len(rows) == 0:
        return NothingLeft(log.name, dict(problems.done))
    return _assemble(log, study, rows, kept, ids, clusterer or _fitted)


def read_ids(source: Any, study: Study) -> NDArray[Any]:
    """Read the names of all episodes of a log, and nothing else of it."""
    named = study.columns
    needed = {named.episode: "[columns] episode"}
    return _identify(load_log(source, needed, study.text_columns()), study)[1]


def _identify(log: Log, study: Study) -> tuple[Index, NDArray[Any]]:
    """Return the number of each row's episode, and the ids in the order of these numbers."""
    named = study.columns
    kept_as = named.episode_type or ("text" if log.is_text(named.episode) else None)
    text = None if kept_as is None else kept_as == "text"
    return _code(log, named.episode, partial(identify, text=text))


def _code_rows(log: Log, study: Study, problems: Problems) -> tuple[Rows, NDArray[Any]]:
    """Return the rows as codes, sorted, with the outcome of each episode; and the ids."""
    named = study.columns
    episode, ids = _identify(log, study)
    time, wrong_time = None, None
    if named.time is not None:
        time, wrong_time, dated = _code(log, named.time, read_times)
        if named.time_step is not None and dated != isinstance(named.time_step, str):
            unit = 'dates: give it a unit, such as "4h"' if dated else "numbers: give a number"
            raise ValueError(f"[columns] time_step: the column {named.time!r} has {unit}")
    count = log.table.num_rows
    outcome = np.full(count, MISSING)
    if named.outcome is not None:
        outcome = _code(log, named.outcome, partial(code_levels, levels=list(study.outcome)))
    cells: dict[tuple[str, str], Index] = {}
    for group, ready, size in (
        ("state", named.state, named.states),
        ("action", named.action, named.actions),
    ):
        for column, section in getattr(study, group).items():
            coder: Any = partial(code_levels, levels=section.levels)
            if section.cuts is not None:
                coder = partial(code_cuts, cuts=section.cuts)
            cells[group, column] = _code(log, column, coder)
        if ready is not None:
            cells[group, ready] = _code(
                log, ready, partial(code_integers, count=size or MOST_NUMBERED)
            )
    for column in study.cluster.columns if study.cluster else ():
        cells["state", column] = _code(log, column, _number_rows)
    for column, side in study.side.items():
        if side.levels is not None:
            cells["side", column] = _code(log, column, partial(code_levels, levels=side.levels))
        elif side.type == "number":
            cells["side", column] = _code(log, column, _number_rows)
    if named.final_key is not None:
        cells["number", named.final_key] = _code(log, named.final_key, code_wholes)
    numbers: dict[str, Floats] = {}
    for key, name in (("reward", named.reward), ("probability", named.behavior_probability)):
        if name is not None:
            numbers[key], wrong = _code(log, name, read_numbers)
            cells["number", name] = np.where(wrong, NOT_A_NUMBER, np.arange(count))

    def show(column: str, row: int) -> str:
        return text_of(log.column(column)[row].as_py())

    rows = Rows(problems, show, np.arange(count), episode, time, outcome, cells, numbers)
    settle_order(rows, wrong_time)
    remedy = "Correct it, or add [outcome.<value>] to the study"
    settle_outcomes(rows, named.outcome or "", remedy)
    return rows, ids


def _code(log: Log, column: str, coder: Callable[[Any], Any]) -> Any:
    try:
        return coder(log.column(column))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise ValueError(
            f"{log.name}: the column {column!r} has the type {log.column(column).type}, and cells "
            "that are neither text nor a number nor a time; convert it"
        ) from None


def _number_rows(column: Any) -> Index:
    """Code a number that is kept as it is by its row, from where it can be carried forward."""
    numbers, wrong = read_numbers(column)
    known = np.where(np.isnan(numbers), MISSING, np.arange(len(numbers)))
    return np.where(wrong, NOT_A_NUMBER, known)


def _remedies(study: Study) -> dict[tuple[str, str], str]:
    """Say for each column what would help against a cell without a level."""
    found: dict[tuple[str, str], str] = {}
    for group in ("state", "action", "side"):
        for column in getattr(study, group):
            found[group, column] = f"Correct the cells, or change {place(group, column)}"
    for key, column in study.columns.roles().items():
        group = key if key in ("state", "action") else "number"
        found[group, column] = f"Correct the cells, or change [columns] {key}"
        if group != "number":
            found[group, column] += f" and {key}s, how many there are; they count from 0"
    for column in study.cluster.columns if study.cluster else ():
        found["state", column] = "Correct the cells, or change [cluster] columns"
    return found


def _settle_transitions(rows: Rows, study: Study) -> NDArray[np.bool_]:
    """Leave episodes that have transitions, outcomes and probabilities; mark the transitions."""
    problems, horizon = rows.problems, study.evaluation.horizon
    kept, lengths = _transitions(rows)
    present = np.unique(rows.episode)
    found = [("no_transition", present[lengths[present] == 0])]
    if study.columns.outcome is not None:
        short = lengths[present] < (np.inf if horizon is None else horizon)
        open_end = (rows.ends[present] < 0) & (lengths[present] > 0) & short
        found.append(("no_outcome", present[open_end]))
    if "probability" in rows.numbers:
        given = rows.numbers["probability"]
        code = rows.cells["number", str(study.columns.behavior_probability)]
        wrong = kept & ~((given > 0) & (given <= 1)) & (code != NOT_A_NUMBER)
        found.append(("behavior_probability", np.unique(rows.episode[wrong])))
    if horizon is not None:
        found.append(("beyond_horizon", present[lengths[present] > horizon]))
    for kind, all_of_them in found:
        episodes = rows.sound(all_of_them)
        if len(episodes):
            what, remedy = _EPISODE_PROBLEMS[kind]
            first = rows.first_row_of(episodes)
            if problems.find(kind, first, what, remedy, noun="episode") == "drop":
                rows.drop_episodes(episodes)
    kept, _ = _transitions(rows)
    if "reward" in rows.numbers:
        code = rows.cells["number", str(study.columns.reward)]
        empty = kept & np.isnan(rows.numbers["reward"]) & (code >= 0)
        if empty.any():
            rows.find("missing_reward", empty, "have no reward", "Fill it in")
        rows.numbers["reward"] = np.nan_to_num(rows.numbers["reward"])
    left = last_rows(rows.episode) & rows.decided() & ~kept if len(rows) else kept
    if "reward" in rows.numbers and (lost := left & (rows.numbers["reward"] != 0)).any():
        rows.find(
            "lost_reward",
            lost,
            "are a last decision that earns a reward, with neither a final state nor an outcome "
            "after it, so that it is no transition",
            "Add a last row without action that gives the final state, or an outcome",
        )
    problems.count("last decision, with nothing after it: rows left out", int(left.sum()))
    return kept


_EPISODE_PROBLEMS = {
    "no_transition": (
        "have no transition: no decision that is followed by a state or an outcome",
        "Complete or remove them",
    ),
    "no_outcome": ("end without an outcome", "Put it on the last row"),
    "behavior_probability": (
        "have a decision whose behavior_probability is missing or outside 0 to 1",
        "It is the probability of the action taken, above 0; correct it",
    ),
    "beyond_horizon": (
        "are longer than the horizon",
        "Raise [evaluation] horizon, or leave it out",
    ),
}


def _transitions(rows: Rows) -> tuple[NDArray[np.bool_], Index]:
    """Mark the rows that are transitions; count them by episode."""
    if len(rows) == 0:
        return np.zeros(0, dtype=bool), np.zeros(len(rows.ends), dtype=np.int64)
    open_end = last_rows(rows.episode) & (rows.ends[rows.episode] < 0)
    kept = rows.decided() & ~open_end
    return kept, np.bincount(rows.episode[kept], minlength=len(rows.ends))


def _assemble(
    log: Log,
    study: Study,
    rows: Rows,
    kept: NDArray[np.bool_],
    ids: NDArray[Any],
    clusterer: Clusterer | None,
) -> Reading:
    """Make Episodes of rows in which every problem is settled."""
    last = last_rows(rows.episode)
    present = rows.episode[last]
    lengths = np.bincount(rows.episode[kept], minlength=len(rows.ends))[present]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    codes, states = _group_codes(log, study, rows, "state", clusterer)
    blank = np.logical_or.reduce([code < 0 for code in codes])
    state = np.where(blank, -1, ravel(states, codes))
    following = np.where(last, -1, np.append(state[1:], -1))
    codes, actions = _group_codes(log, study, rows, "action", None)
    reached = last & ~kept  # rows of final states
    reward = None
    if "reward" in rows.numbers:
        earned, final = rows.numbers["reward"], last & ~rows.decided()
        reward = earned[kept]  # what a final row earns belongs to the transition before it
        reward[offsets[1:][final[last]] - 1] += earned[final]
    ends = rows.ends[present]
    key = None
    if study.columns.final_key is not None:
        key = rows.cells["number", study.columns.final_key][last]
    final_rows = np.where(reached[last], rows.row[last], -1)
    source = np.concatenate([rows.row[kept], final_rows])
    chosen = np.concatenate(
        [np.flatnonzero(kept), np.where(reached[last], np.flatnonzero(last), -1)]
    )
    side, side_variables = _side(log, study, rows, source, chosen)
    episodes = Episodes.from_arrays(
        state=state[kept],
        action=ravel(actions, codes)[kept],
        next_state=following[kept],
        reward=reward,
        offsets=offsets,
        outcome=ends,
        outcomes=_outcomes(study, ends, reward, offsets),
        id=ids[present],
        final_key=key,
        states=states,
        actions=actions,
        none_name=study.words.none,
        side=side,
    )
    episodes = replace(episodes, side_variables=side_variables)
    probability = rows.numbers["probability"][kept] if "probability" in rows.numbers else None
    if study.evaluation.horizon is not None:
        if probability is not None:
            probability = probability[episodes.time < study.evaluation.horizon]
        episodes = episodes.truncate(study.evaluation.horizon)
    return Reading(episodes, probability, dict(rows.problems.done))


def group_variables(study: Study, group: str, count: int) -> tuple[Variable, ...]:
    """Return the variables of state or action, clusters apart; `count` of a ready-made one."""
    ready = getattr(study.columns, group)
    if ready is not None:
        return (Variable(ready, tuple(map(str, range(count)))),)
    return study.state_variables() if group == "state" else study.action_variables()


def _group_codes(
    log: Log, study: Study, rows: Rows, group: str, clusterer: Clusterer | None
) -> tuple[list[Index], tuple[Variable, ...]]:
    """Return the codes and variables of the state or the action."""
    cells = rows.group(group)
    ready = getattr(study.columns, group)
    if ready is not None:
        count = getattr(study.columns, f"{group}s") or int(cells[ready].max(initial=0)) + 1
        return [cells[ready]], group_variables(study, group, count)
    variables = group_variables(study, group, 0)
    codes = [cells[column] for column in getattr(study, group)]
    if group == "state" and study.cluster is not None and clusterer is not None:
        names, count = study.cluster.columns, study.cluster.count
        from_rows = np.stack([cells[name] for name in names], axis=1)
        values = np.stack([read_numbers(log.column(name))[0] for name in names], axis=1)
        known = (from_rows >= 0).all(axis=1)
        found = np.full(len(rows), MISSING)
        taken = values[from_rows[known], np.arange(len(names))]
        found[known] = np.asarray(clusterer(taken, names, count), dtype=np.int64)
        codes.append(found)
        variables = (*variables, Variable("cluster", tuple(map(str, range(count)))))
    return codes, variables


def _outcomes(study: Study, ends: Index, reward: Floats | None, offsets: Index) -> list[Outcome]:
    """Return the outcomes; one without reward takes the mean last reward of its episodes."""
    named = list(study.outcomes().values())
    for index, outcome in enumerate(named):
        if np.isnan(outcome.reward):
            mine = np.zeros(0) if reward is None else reward[offsets[1:] - 1][ends == index]
            named[index] = replace(outcome, reward=float(mine.mean()) if len(mine) else 0.0)
    return named


def _side(
    log: Log, study: Study, rows: Rows, source: Index, chosen: Index
) -> tuple[pd.DataFrame | None, tuple[Variable, ...]]:
    """Return the side columns at these rows, missing where a row is -1, and their variables."""
    if not study.side:
        return None, ()
    columns: dict[str, Any] = {}
    variables = []
    taken = pa.array(source, mask=source < 0)
    for column, section in study.side.items():
        name, variable = section.name or column, section.variable(column)
        if variable is not None:
            codes = np.where(
                (chosen < 0) | (source < 0), MISSING, rows.cells["side", column][chosen]
            )
            columns[name] = pd.Categorical.from_codes(codes, list(variable.levels), ordered=True)
            if (codes >= 0).all():
                variables.append(variable)
        elif section.type == "number":
            numbers = read_numbers(log.column(column))[0]
            codes = np.where(chosen < 0, MISSING, rows.cells["side", column][chosen])
            columns[name] = np.where(codes < 0, np.nan, numbers[codes])
        else:
            columns[name] = _plain_side(log, column, taken)
    return pd.DataFrame(columns), tuple(variables)


def _plain_side(log: Log, column: str, taken: Any) -> Any:
    """Return a column as it is; an empty cell of a CSV file is missing."""
    cells = log.column(column)
    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    cells = cells.combine_chunks().take(taken)
    if log.files and is_csv(log.files[0]) and pa.types.is_string(cells.type):
        cells = pa.compute.if_else(pa.compute.equal(cells, ""), None, cells)
    return cells.to_pandas(integer_object_nulls=True)  # as decimal numbers long ones would change
