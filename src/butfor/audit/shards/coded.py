"""The log of a shard as tables, so that its file is read and coded once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from butfor.audit.files import TARGET, as_arrow
from butfor.audit.observed_steps import described_rows, logged_columns
from butfor.audit.shards.packed import PackedTable, table_file
from butfor.log.episodes import Episodes
from butfor.log.sections import Study

PROBABILITY = "behavior_probability"
LOGGED = ("state", "action", "reward", PROBABILITY)  # and TARGET; other columns are for readers
OPTIONAL = ("subject", "half")  # of episodes
LOG = ("log", "rows")  # names of the tables: one row per episode; per step and final state


def side_types(study: Study, types: dict[str, Any]) -> dict[str, Any]:
    """Return the types of the side columns that are copied from the log, where they are known."""
    plain = {
        f"side.{section.name or column}": types.get(column)
        for column, section in study.side.items()
        if section.levels is None and section.type != "number"
    }
    return {name: kind for name, kind in plain.items() if kind is not None}


def code_episodes(log: Episodes) -> Any:
    """Return a table with one row per episode."""
    columns = {"id": log.id, "length": log.lengths}
    columns |= {"outcome": log.outcome, "final_key": log.final_key}
    columns |= {name: getattr(log, name) for name in OPTIONAL if getattr(log, name) is not None}
    return pa.table(columns)


def code_steps(log: Episodes, types: Mapping[str, Any]) -> Any:
    """Return a table with one row per step and final state; `types` are those of side columns."""
    table = pd.concat([pd.DataFrame(logged_columns(log)), described_rows(log)], axis=1)
    return as_arrow("steps", table, types)


def stored_log(folder: Path, key: str, like: Episodes) -> Episodes | None:
    """Return the log that was stored under this key; None if the folder is out of reach."""
    if not all(table_file(folder, name, key).exists() for name in LOG):
        return None
    return decode_log(PackedTable(folder, LOG[0], key).all(), logged_steps(folder, key), like)


def logged_steps(folder: Path, key: str) -> Any:
    """Return the stored steps without what only readers see."""
    return PackedTable(folder, LOG[1], key, is_logged).all()


def is_logged(name: str) -> bool:
    """Whether a column of steps is part of the log; the others are for readers."""
    return name in LOGGED or name.startswith(TARGET)


def decode_log(episodes: Any, steps: Any, like: Episodes) -> Episodes:
    """Return the log of these tables, without what only readers see, with the variables of another.

    The episodes have an outcome, as a number, and an id.
    """
    state, action, reward = (
        steps.column(name).to_numpy() for name in ("state", "action", "reward")
    )
    lengths = episodes.column("length").to_numpy()
    offsets = np.append(0, np.cumsum(lengths))
    last = offsets[1:] + np.arange(len(lengths))  # the rows of final states
    inside = np.ones(len(state), dtype=bool)
    inside[last] = False
    own = [name for name in steps.column_names if name.startswith(TARGET)]
    given = [steps.column(name).to_numpy() for name in own]
    taken = PROBABILITY in steps.column_names
    optional = {
        name: episodes.column(name).to_numpy(zero_copy_only=False)
        for name in OPTIONAL
        if name in episodes.column_names
    }
    return replace(
        like,
        state=state[inside],
        action=action[inside],
        next_state=np.roll(state, -1)[inside],
        reward=reward[inside],
        offsets=offsets,
        outcome=episodes.column("outcome").to_numpy().astype(np.int32),
        id=episodes.column("id").to_numpy(zero_copy_only=False),
        final_key=episodes.column("final_key").to_numpy(),
        horizon=max(like.horizon, int(lengths.max())),
        behavior_probability=steps.column(PROBABILITY).to_numpy()[inside] if taken else None,
        target_probability=np.stack(given, axis=1)[inside] if given else None,
        **optional,
    )
