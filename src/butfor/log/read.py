"""Reading a log into Episodes, as its study says: CSV, Parquet, pandas, and Arrow tables."""

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
from numpy.typing import NDArray

from butfor.log.clusters import CLUSTER, fit_clusters
from butfor.log.coding import (
    MISSING,
    bins_of,
    identify,
)
from butfor.log.combinations import MOST_STATES, rows_of_codes
from butfor.log.decisions import Decisions, Index, begins, last_rows
from butfor.log.episodes import Episodes, mean_last_reward
from butfor.log.grid import INDICATOR, code_durations, code_steps
from butfor.log.irregular import indicator_name
from butfor.log.left_out import OUTCOMES_LOST, REWARDS_LOST, check_ends, check_left_out
from butfor.log.meds.table import load_events
from butfor.log.recorded import given_side, record
from butfor.log.row_targets import read_target
from butfor.log.rows import identify_episodes, settled_rows
from butfor.log.sections import Study
from butfor.log.sources import Log, load_log
from butfor.log.study import StudySource, read_study
from butfor.log.variables import Outcome, Variable, count_levels, ravel
from butfor.types import Floats

# (values [R, d] of rows, names of the d columns, number of clusters) -> the cluster of each row [R]
Clusterer = Callable[[Floats, Sequence[str], int], NDArray[Any]]


def _fit_and_assign(values: Floats, columns: Sequence[str], count: int) -> NDArray[Any]:
    return fit_clusters(values, columns, count).assign(values)


@dataclass(frozen=True, eq=False)
class Reading:
    """A log as it was read."""

    episodes: Episodes
    done: dict[str, int]  # how problems were settled, and in how many rows or episodes


@dataclass(frozen=True)
class NothingLeft:
    """A log none of whose episodes is left after problems were settled as the study says."""

    name: str
    done: dict[str, int]  # how problems were settled, and in how many rows or episodes


def read_episodes(
    source: Any, study: StudySource, *, clusterer: Clusterer | None = None
) -> Episodes:
    """Read a log into Episodes, as its study says: `read_log` without the record of problems."""
    return read_log(source, study, clusterer=clusterer).episodes


def read_log(source: Any, study: StudySource, *, clusterer: Clusterer | None = None) -> Reading:
    """Read a log, as its study says.

    Parameters
    ----------
    source
        The path of a CSV or Parquet file, a list of paths, or a folder of such files; a pandas
        frame, or anything with the Arrow C stream (Polars, DuckDB relations, Arrow tables).
    study
        The path of a study file, or its content.
    clusterer : optional
        Assigns rows to the clusters of a study with [cluster]; it is given the rows without missing
        values. By default the clusters are found in this log (`fit_clusters`); to use those of an
        audit, give `lambda values, columns, count: audit.clusters.assign(values)`.

    Notes
    -----
    Each row is a decision. The last row of an episode has its outcome. A last row without an action
    gives the final state; if there is neither such a row nor an outcome, the last decision is not a
    transition. Problems that the study does not settle are all reported in one ValueError.
    """
    study = read_study(study)
    reading = read_part(source, study, clusterer=clusterer)
    if isinstance(reading, NothingLeft):
        raise ValueError(
            f"{reading.name}: no episode is left; drop less in [problems] of the study"
        )
    name = str(source) if isinstance(source, str | Path) else "the log"
    check_ends(reading.done, name)
    return replace(reading, done=check_left_out(reading.done, study.drop_at_most, name))


def read_part(
    source: Any, study: StudySource, *, clusterer: Clusterer | None = None
) -> Reading | NothingLeft:
    """Read a log that may be one part of several, as `read_log` does; a part may end up empty."""
    study = read_study(study)
    log = _load(source, study)
    if log.table.num_rows == 0:
        return NothingLeft(log.name, dict(log.done))
    rows, ids = settled_rows(log, study)
    if len(rows) == 0:
        return NothingLeft(log.name, dict(rows.problems.done))
    return _assemble(log, study, rows, ids, clusterer or _fit_and_assign)


def read_ids(source: Any, study: Study) -> NDArray[Any]:
    """Read only the ids of all episodes of a log."""
    return identify_episodes(_load(source, study, ids=True), study)[1]


def _load(source: Any, study: Study, *, ids: bool = False) -> Log:
    """Load the columns that the study names, or only the ids of episodes."""
    if study.source is not None:
        return load_events(source, study)
    needed = {study.columns.episode: "[columns] episode"} if ids else study.places()
    return load_log(source, needed, study.text_columns())


def _assemble(
    log: Log, study: Study, rows: Decisions, ids: NDArray[Any], clusterer: Clusterer
) -> Reading:
    """Make Episodes of rows in which every problem is settled."""
    levels, states = _group_codes(study, rows, "state", clusterer)
    blank = np.logical_or.reduce([code < 0 for code in levels])
    wide = count_levels(states) > MOST_STATES
    # the states of a wide log are numbered once it is known which rows are transitions
    state = np.where(blank, -1, np.arange(len(rows)) if wide else ravel(states, levels))
    codes, actions = _group_codes(study, rows, "action", clusterer)
    arrays = rows.arrays(state, ravel(actions, codes), ids)
    if wide:
        arrays |= rows_of_codes(np.stack(levels, axis=1), arrays["state"], arrays["next_state"])
    kept, _ = rows.transitions()
    last = np.flatnonzero(last_rows(rows.episode))
    final = np.where(kept[last], -1, last)  # the row of each final state, -1 if there is none
    described = np.append(np.flatnonzero(kept), final)
    side, side_variables = _side(log, study, rows, described)
    key = study.columns.final_key
    episodes = Episodes.from_arrays(
        **arrays,
        outcomes=_outcomes(study, arrays),
        final_key=None if key is None else rows.cells["number", key][last],
        states=states,
        actions=actions,
        none_name=study.words.none,
        side=side,
    )
    clock = study.columns.time
    kind = None if clock is None else log.table[clock].type
    episodes = replace(
        episodes,
        side_variables=side_variables,
        side_given=given_side(study),
        recorded=record(study, rows, described, kind),
    )
    if numbered := study.number_columns():
        columns = {
            name: np.where(described < 0, np.nan, rows.numbers_of("state", column)[described])
            for column, name in numbered.items()
        }
        episodes = episodes.with_numbers(pd.DataFrame(columns))
    if "probability" in rows.numbers:
        episodes = episodes.with_behavior_probability(rows.numbers["probability"][kept])
    target = read_target(log, study, rows.row[kept], actions)
    if target is not None:
        episodes = episodes.with_target_probability(target)
    if study.columns.subject is not None:
        episodes = replace(episodes, subject=_subjects(log, study, rows)[last])
    if log.half is not None:
        episodes = replace(episodes, half=log.half[rows.row[last]])
    if study.evaluation.horizon is not None:
        whole, episodes = episodes, episodes.truncate(study.evaluation.horizon)
        unpaid = int((whole.reward != 0).sum() - (episodes.reward != 0).sum())
        rows.problems.count(REWARDS_LOST, unpaid)
        rows.problems.count(OUTCOMES_LOST, int((whole.outcome != episodes.outcome).sum()))
    return Reading(episodes, dict(rows.problems.done))


def _subjects(log: Log, study: Study, rows: Decisions) -> NDArray[Any]:
    """Return whose episode each row belongs to, [M]."""
    column = str(study.columns.subject)
    code, names = log.code(column, partial(identify, text=None))
    begin = begins(rows.episode)
    mine = code[np.where(rows.row < 0, rows.row[begin], rows.row)]  # those filled in have none
    if (mine < 0).any() or (mine != mine[begin]).any():
        raise ValueError(
            f"{log.name}: [columns] subject: an episode has no {column!r}, or several; give each "
            "row of an episode the same one"
        )
    return names[mine]


def group_variables(study: Study, group: str, count: int) -> tuple[Variable, ...]:
    """Return the variables of the state or the action, without clusters.

    `count` is the number of levels if the state or action is ready-made.
    """
    ready = getattr(study.columns, group)
    if ready is not None:
        known = Variable(ready, tuple(map(str, range(count))))
        return (*study.counted(), known, *study.timed()) if group == "state" else (known,)
    return study.state_variables() if group == "state" else study.action_variables()


def _group_codes(
    study: Study, rows: Decisions, group: str, clusterer: Clusterer
) -> tuple[list[Index], tuple[Variable, ...]]:
    """Return the codes and variables of the state or the action."""
    cells = rows.group(group)
    ready = getattr(study.columns, group)
    counted: list[Index] = []
    timed: list[Index] = []
    if group == "state":
        counted = [code_steps(rows, len(one.levels) - 1) for one in study.counted()]
        timed = [code_durations(rows, study.durations)] if study.durations else []
    if ready is not None:
        count = getattr(study.columns, f"{group}s") or int(cells[ready].max(initial=0)) + 1
        return [*counted, cells[ready], *timed], group_variables(study, group, count)
    variables, sections = group_variables(study, group, 0), getattr(study, group)
    for column, section in sections.items():
        if section.cuts is not None:
            numbers = rows.numbers_of(group, column)
            bins = bins_of(numbers, section.cuts)
            # a cell that is filled, but not with a number, has the level "missing"
            bins[np.isnan(numbers)] = len(section.bins())
            cells[column] = np.where(cells[column] < 0, cells[column], bins)
    codes = [*counted, *(cells[column] for column in sections)]
    if group == "state":
        codes += [rows.cells[INDICATOR, column] for column in study.indicators(sections)]
        codes += timed
    if group == "state" and study.cluster is not None:
        codes.append(_cluster(study, rows, clusterer))
        known = tuple(map(str, range(study.cluster.count)))
        variables = (*variables, Variable(CLUSTER, known))
    return codes, variables


def _cluster(study: Study, rows: Decisions, clusterer: Clusterer) -> Index:
    """Return the cluster of each row by the clustered columns and their indicators."""
    names, told = study.cluster_columns(), study.indicators(study.cluster_columns())
    columns = [rows.numbers_of("state", name) for name in names]
    columns += [rows.cells[INDICATOR, name].astype(np.float64) for name in told]
    values = np.stack(columns, axis=1)
    known = np.isfinite(values).all(axis=1)
    found = np.full(len(rows), MISSING)
    called = [*names, *map(indicator_name, told)]
    count = study.cluster.count if study.cluster else 0
    found[known] = np.asarray(clusterer(values[known], called, count), dtype=np.int64)
    return found


def _outcomes(study: Study, arrays: Mapping[str, Any]) -> list[Outcome]:
    """Return the outcomes; one without a reward gets the mean last reward of its episodes."""
    named = list(study.outcomes().values())
    for index, outcome in enumerate(named):
        if np.isnan(outcome.reward):
            reward = mean_last_reward(index, arrays["outcome"], arrays["reward"], arrays["offsets"])
            named[index] = replace(outcome, reward=reward)
    return named


def _side(
    log: Log, study: Study, rows: Decisions, chosen: Index
) -> tuple[pd.DataFrame | None, tuple[Variable, ...]]:
    """Return the side columns at these rows, missing where a row is -1, and their variables."""
    if not study.side:
        return None, ()
    columns: dict[str, Any] = {}
    variables = []
    source = np.where(chosen < 0, -1, rows.row[chosen])
    for column, section in study.side.items():
        name, variable = section.name or column, section.variable(column)
        if variable is not None:
            codes = np.where(source < 0, MISSING, rows.cells["side", column][chosen])
            columns[name] = pd.Categorical.from_codes(codes, list(variable.levels), ordered=True)
            if (codes >= 0).all():
                variables.append(variable)
        elif section.type == "number":
            columns[name] = np.where(chosen < 0, np.nan, rows.numbers_of("side", column)[chosen])
        else:
            taken = np.where(source < 0, MISSING, rows.cells["side", column][chosen])
            columns[name] = _plain_side(log, column, pa.array(taken, mask=taken < 0))
    return pd.DataFrame(columns), tuple(variables)


def _plain_side(log: Log, column: str, taken: Any) -> Any:
    """Return a column as it is; an empty cell of a CSV file is missing."""
    cells = log.table[column]
    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    cells = cells.combine_chunks().take(taken)
    if log.is_csv() and pa.types.is_string(cells.type):
        cells = pa.compute.if_else(pa.compute.equal(cells, ""), None, cells)
    if not (pa.types.is_integer(cells.type) and cells.null_count):
        return cells.to_pandas()
    signed = pa.types.is_signed_integer(cells.type)
    whole = pd.Int64Dtype() if signed else pd.UInt64Dtype()  # floats would change long integers
    return cells.to_pandas(types_mapper=lambda _: whole)
