"""The second pass: the part of each shard in the tables and in every sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from butfor.audit.drawing import drawing_order
from butfor.audit.exact import ExactSums
from butfor.audit.files import as_arrow
from butfor.audit.observed_steps import with_finals
from butfor.audit.shards.coded import stored_log
from butfor.audit.shards.count import half_of
from butfor.audit.shards.log import Shard, read_shard
from butfor.audit.shards.packed import Arrays, pack_table
from butfor.audit.shards.setting import Setting
from butfor.audit.tables import judged_table
from butfor.evaluate.decomposition import cells_of, piece_columns
from butfor.evaluate.diagnostics.calibration import group_rows
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimators.columns import GROUPS, group_of
from butfor.log.episodes import Episodes
from butfor.log.read import Reading
from butfor.models.factored import tabular
from butfor.models.row_policy import check_rows, compare_rows
from butfor.random import shard_keys
from butfor.replay.factored import draw_final_states
from butfor.replay.replay import Replay
from butfor.replay.usual import null_changes
from butfor.types import Floats, Keys, Offsets

SHARES = 1000  # bins in which shares are counted for medians
# What is summed in addition to the columns of the estimators.
EXTRA = ("squared_return", "squared_ratio", "unsupported", "unsupported_model", "usual_steps")


@dataclass(frozen=True, eq=False)
class Judged:
    """The results of a shard."""

    # packed: `episodes`, one row per episode, by id, with its order of drawing and whether its
    # outcome differs, and `cases`, those of each step, -1 of final states
    tables: Mapping[str, Any]
    sums: Mapping[str, Arrays]  # packed
    counts: Mapping[str, NDArray[np.int64]]  # sizes: followers, censored, null; shares


def judge_shard(shard: Shard, setting: Setting, folder: Path, counted: str, threads: int) -> Judged:
    """Evaluate the episodes of a shard exactly, in the models learned from all shards.

    `folder` has the parts, and `counted` is the context in which they were counted.
    """
    shard.check()
    log = stored_log(folder, shard.key("count", counted), setting.question.log)
    if log is None:  # the folder is on another machine
        reading = read_shard(shard, setting.study)
        assert isinstance(reading, Reading)  # shards without usable episodes were removed
        log = reading.episodes
    log = log.truncate(setting.question.horizon)
    replay = setting.question.ask(episodes=log, counts=setting.model.counts)
    replay.share(setting.shared[0])
    told = draw_final_states(log, replay.factored) if replay.factors else log
    first, course = find_twins(told)
    distinct = replay.part(first).compute(threads=threads)
    replay.compute_as(distinct, course)
    log, keys = replay.log, shard_keys(log.unit, setting.seed)
    order = drawing_order(log.id, setting.digest, setting.seed)
    result, walked = replay.outcomes(), distinct.steps()
    sample = EpisodeColumns(replay, setting.seed, keys=keys)
    extra = {
        "squared_return": sample.returns**2,
        "squared_ratio": sample.ratio[:, -1] ** 2,
        "unsupported": replay.support(),
        "unsupported_model": setting.unsupported[log.first_state],
        "usual_steps": distinct.usual_steps[course],
    }
    blocks = [*sample.columns.blocks(), np.column_stack([extra[name] for name in EXTRA])]
    changed = null_changes(distinct, threads=threads)
    null = (len(log), int(changed[course].sum())) if len(changed) else (0, 0)
    cell, size = cells_of(result), len(result.outcome_names)
    found = distinct.outcomes()
    table = judged_table(distinct, continued=setting.continued)
    table["differs"] = found.most_likely != found.usual_outcome
    tables = {
        "episodes": _judge_alike(table, course, log).append_column("order", pa.array(order)),
        "cases": pa.table({"evidence": with_finals(log, replay.step_cases(), -1)}),
    }
    sums = {
        "cells": _sums(cell, piece_columns(result), size * size),
        "expected": _sums(cell // size, result.probability, size),
        "usual": _sums(np.zeros_like(cell), replay.usual.probability, 1),
        "by_state": _sums(log.first_state, piece_columns(result), log.n_states),
        "calibration": _calibrate(log, keys, setting),
        "halves": _cross_fit(replay, course, keys, setting, threads),
        "averaged": _average(replay),
    }
    return Judged(
        tables={name: pack_table(table) for name, table in tables.items()},
        sums={
            "groups": ExactSums.pack(group_of(keys), blocks, GROUPS, wide=True),  # of huge weights
            **{name: found.packed() for name, found in sums.items()},
        },
        counts={
            "sizes": np.array([sample.followers, sample.censored, *null]),
            "about": _shares(walked.share_about[course]),
            "after": _shares(walked.share_after[course]),
        },
    )


def _judge_alike(table: pd.DataFrame, course: NDArray[np.int64], log: Episodes) -> Any:
    """Return the table of all episodes, of which those of a course differ in id and last key only.

    One more column tells whether the most likely outcome is another.
    """
    alike = as_arrow("episodes", table).take(pa.array(course))
    for name in ("id", "final_key"):
        place = alike.schema.get_field_index(name)
        field = alike.schema.field(name)
        alike = alike.set_column(place, field, pa.array(getattr(log, name), field.type))
    return alike


def _sums(group: NDArray[Any], values: Floats, groups: int) -> ExactSums:
    sums = ExactSums.make(groups, values.shape[1])
    sums.add(group.astype(np.int64), values)
    return sums


def _shares(shares: Floats) -> NDArray[np.int64]:
    """Count shares by their thousandth, [SHARES + 1]."""
    return np.bincount(np.rint(shares * SHARES).astype(np.int64), minlength=SHARES + 1)


def _cross_fit(
    replay: Replay, course: NDArray[np.int64], keys: Keys, setting: Setting, threads: int
) -> ExactSums:
    """Evaluate each half in its own model, with the other half's target, [2, 5 + O + 1].

    Episodes of the same course are evaluated once. These are numbers of episodes, and sums of the
    fields of `CrossFitted`, of chances at last.
    """
    sums = ExactSums.make(2, 5 + len(setting.model.outcomes) + 1)
    if not (setting.learned and setting.halves):
        return sums
    half = half_of(replay.log, keys)
    for number, judge in enumerate(setting.halves):
        mine = np.flatnonzero(half == number)
        if len(mine) == 0:
            continue
        _, chosen, same = np.unique(course[mine], return_index=True, return_inverse=True)
        some = replay.log.select(mine[chosen])
        counts = tabular(judge.model).counts
        part = replay.ask(episodes=some, model=judge.model, target=judge.target, counts=counts)
        part.share(setting.shared[1 + number])
        first = replay.log.first_state[mine]
        found = (
            np.ones(len(mine)),
            judge.value[first],
            part.outcomes(threads=threads).expected_return[same],
            judge.unsupported[first],
            part.support(threads=threads)[same],
            judge.outcomes[first],
        )
        sums.add(np.full(len(mine), number), np.column_stack(found))
    return sums


def _average(replay: Replay) -> ExactSums:
    """Add up how far rows of a policy on more than the state differ from their average, [1, 3]."""
    sums, log = ExactSums.make(1, 3), replay.log
    if replay.by_row:
        compared = compare_rows(log, check_rows(log), replay.target_table)
        sums.add(np.zeros(len(compared), np.int64), compared)
    return sums


def _calibrate(log: Episodes, keys: Keys, setting: Setting) -> ExactSums:
    """Compare the predictions from each half with what happened in the other, by group."""
    sums = ExactSums.make(len(setting.cuts) + 1, 5)
    if not setting.halves or not setting.bad.any():
        return sums
    known = (log.outcome >= 0) | (log.lengths == setting.question.horizon)
    episode = np.repeat(np.arange(len(log)), log.lengths)
    half = half_of(log, keys)[episode]
    seen = np.stack([judge.seen for judge in setting.halves])
    chance = np.stack([judge.chance for judge in setting.halves])
    rows = np.flatnonzero(known[episode] & seen[1 - half, log.state])
    predicted = chance[1 - half[rows], setting.question.horizon - log.time[rows], log.state[rows]]
    happened = np.append(setting.bad, False)[log.outcome[episode[rows]]]
    sums.add(*group_rows(predicted, happened, episode[rows], setting.cuts))
    return sums


def find_twins(log: Episodes) -> tuple[Offsets, Offsets]:
    """Return the first episode of each distinct course, [m], and the course of each episode, [n].

    A course is all states, actions, rewards and the outcome; ids may differ.
    """
    paid = _number(log.reward)
    taken = log.state.astype(np.int64) * log.n_actions + log.action
    kind = _number(taken * (paid.max() + 1) + paid)
    kinds = int(kind.max()) + 1
    final = log.next_state[log.offsets[1:] - 1].astype(np.int64) + 1
    course = _number((log.outcome + 1) * (log.n_states + 1) + final)
    # step by step: courses that are the same so far differ if this step does
    for step in range(int(log.lengths.max())):
        going = np.flatnonzero(log.lengths > step)
        course[going] = _number(course[going] * kinds + kind[log.offsets[going] + step])
    course = _number(course * (int(log.lengths.max()) + 1) + log.lengths)
    first = np.flatnonzero(np.diff(np.maximum.accumulate(course), prepend=-1))
    return first, course


def _number(keys: Offsets | Floats) -> Offsets:
    """Number distinct keys in the order in which they come."""
    return pd.factorize(keys)[0].astype(np.int64)
