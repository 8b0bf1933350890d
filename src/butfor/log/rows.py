"""The rows of a log as codes, in which every problem is settled: of files, frames and events."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.checks import MOST_NUMBERED
from butfor.log.coding import (
    MISSING,
    NOT_A_NUMBER,
    code_filled,
    code_integers,
    code_levels,
    code_rows,
    code_wholes,
    identify,
    read_numbers,
    read_times,
    read_worth,
)
from butfor.log.column_rules import Key, column_rules
from butfor.log.decisions import Decisions, Index, LogProblems, Mask
from butfor.log.fields import LOST, place, step_size
from butfor.log.grid import fill_missing, put_on_grid
from butfor.log.left_out import Recorded, Sums, count_ends
from butfor.log.recorded import find_measured
from butfor.log.sections import Study
from butfor.log.settle import (
    settle_cells,
    settle_gaps,
    settle_order,
    settle_outcomes,
    settle_transitions,
    settle_unknown,
)
from butfor.log.sources import Log
from butfor.types import Floats

# (group, column) -> what to do about a cell without a level
Remedy = Callable[[str, str], str]


def settled_rows(
    log: Log, study: Study, remedy: Remedy | None = None
) -> tuple[Decisions, NDArray[Any]]:
    """Return the rows of a log in which every problem is settled, and the ids of its episodes.

    Problems that the study does not settle are all reported in one ValueError. `remedy` says what
    to do about cells if there is no study file to change.
    """
    rows, ids, wrong_time = _code_rows(log, study, remedy)
    rules, remedy = column_rules(study), remedy or partial(_study_remedy, study)
    recorded = Recorded(rows, [end.name for end in study.outcomes().values()])
    sums = Sums.of(rows)
    settle_order(rows, wrong_time, merging=study.time is not None)
    column = study.columns.outcome or ""
    settle_outcomes(rows, column, remedy("outcome", column))
    if rules:
        settle_unknown(rows, {key: remedy(*key) for key in rules})
        rows.problems.check(log.name)  # of the rows, before they are changed
    sums = sums.name_losses(rows)
    if study.time is not None:
        added = put_on_grid(rows, step_size(study.time.every), rules)
        sums.check_same(rows, "[time] every")
    rows.measured = find_measured(study, rows)
    fill_missing(rows, rules)
    if study.time is not None:
        _earn_by_state(rows, study, added)
        sums = Sums.of(rows)
    settle_cells(rows, {key: remedy(*key) for key in rows.cells}, limited=rules)
    if study.columns.step is not None:
        sums = sums.name_losses(rows)
        settle_gaps(rows, study.columns.step)
        if rows.problems.policy("gaps") == "fill":
            sums.check_same(rows, "[problems] gaps")
    lost = list(study.outcome).index(LOST) if LOST in study.outcome else None
    settle_transitions(
        rows,
        outcomes=study.columns.outcome is not None,
        horizon=study.evaluation.horizon,
        lost=lost,
        every=study.evaluation.censored == "outcome",
    )
    rows.problems.check(log.name)
    sums.name_losses(rows)
    rows.problems.done |= recorded.count(rows)
    if not study.evaluation.by_step:
        horizon = study.evaluation.horizon
        rows.problems.done |= count_ends(rows, list(study.outcome), horizon or math.inf)
    return rows, ids


def _earn_by_state(rows: Decisions, study: Study, added: Mask) -> None:
    """Let each step of a grid earn what its state is worth, if words of the state are rewards.

    A step that was `added` earns nothing unless the study says so.
    """
    column, worth = study.columns.reward, study.reward
    if worth is None or column not in study.state:
        return
    values = [worth.values.get(level, np.nan) for level in study.state[column].bins()]
    earned = np.array([*values, np.nan])[rows.cells["state", column]]
    earned[added & (not worth.added)] = 0.0
    before = rows.numbers["reward"]
    rows.numbers["reward"] = earned
    differs = ~np.isclose(np.nan_to_num(before), np.nan_to_num(earned))
    for what, some in (("merged", ~added), ("added", added)):
        text = f"reward: {what} steps that earn what their state is worth"
        rows.problems.count(text, int((differs & some).sum()))


def identify_episodes(log: Log, study: Study) -> tuple[Index, NDArray[Any]]:
    """Return the number of each row's episode, and the ids in the order of these numbers."""
    named = study.columns
    kept_as = named.episode_type or ("text" if log.is_text(named.episode) else None)
    text = None if kept_as is None else kept_as == "text"
    return log.code(named.episode, partial(identify, text=text))


def _code_rows(
    log: Log, study: Study, remedy: Remedy | None
) -> tuple[Decisions, NDArray[Any], Mask | None]:
    """Return the rows as codes, the ids of episodes, and which cells of the time hold no time."""
    named = study.columns
    episode, ids = identify_episodes(log, study)
    time, wrong_time, dated = None, None, False
    if named.time is not None:
        time, wrong_time, dated = log.code(named.time, read_times)
        for at, length in study.lengths().items():
            if dated != isinstance(length, str):
                unit = 'dates: give it a unit, such as "4h"' if dated else "numbers: give a number"
                raise ValueError(f"{at}: the column {named.time!r} has {unit}")
    count = log.table.num_rows
    outcome = np.full(count, MISSING)
    if named.outcome is not None:
        # what the study calls the end without an outcome is none
        levels = list(dict.fromkeys([*study.outcome, study.words.none]))
        outcome = log.code(named.outcome, partial(code_levels, levels=levels))
        outcome[outcome == len(study.outcome)] = MISSING
    places = partial(log.places, owner=lambda row: ids[episode[row]] if episode[row] >= 0 else None)
    problems = LogProblems(study.problems, places, in_study=remedy is None, done=dict(log.done))
    cells, pools = _code_cells(log, study)
    rows = Decisions(
        *(problems, log.cell, np.arange(count), episode, time, outcome, cells),
        pools=pools,
        dated=dated,
    )
    for role, column in (("reward", named.reward), ("probability", named.behavior_probability)):
        if column is not None:
            words = study.reward if role == "reward" else None
            coder = partial(read_worth, worth=words.values) if words else read_numbers
            rows.numbers[role], wrong = log.code(column, coder)
            rows.number_columns[role] = column
            rows.cells["number", column] = np.where(wrong, NOT_A_NUMBER, np.arange(count))
    return rows, ids, wrong_time


def _code_cells(log: Log, study: Study) -> tuple[dict[Key, Index], dict[Key, Floats]]:
    """Return the codes of all columns of the state, the action and the side, by group.

    Columns of numbers are coded by their rows; these numbers are returned, too.
    """
    coders: dict[Key, Callable[[Any], Index]] = {}
    numeric: list[Key] = []
    named = study.columns
    for group, ready, size in (
        ("state", named.state, named.states),
        ("action", named.action, named.actions),
    ):
        for column, section in getattr(study, group).items():
            coders[group, column] = partial(code_levels, levels=section.levels or ())
            if section.cuts is not None:
                numeric.append((group, column))
        if ready is not None:
            coders[group, ready] = partial(code_integers, count=size or MOST_NUMBERED)
    numeric += [("state", column) for column in study.cluster_columns()]
    for column, side in study.side.items():
        coders["side", column] = partial(code_filled, blank=log.is_csv())
        if side.levels is not None:
            coders["side", column] = partial(code_levels, levels=side.levels)
        elif side.type == "number":
            numeric.append(("side", column))
    if named.final_key is not None:
        coders["number", named.final_key] = code_wholes
    cells, pools = {}, {}
    for key in dict.fromkeys([*coders, *numeric]):
        if key in numeric:
            cells[key], pools[key] = log.code(key[1], code_rows)
        else:
            cells[key] = log.code(key[1], coders[key])
    return cells, pools


def _study_remedy(study: Study, group: str, column: str) -> str:
    """Say what to do about a cell without a level."""
    if group == "outcome":
        return "Correct it, or add [outcome.<value>] to the study"
    # a side column may have another role too
    at = place(group, column) if group == "side" else study.places()[column]
    if at == f"[columns] {group}":
        at += f" and {group}s, their number; {group}s count from 0"
    return f"Correct the cells, or change {at}"
