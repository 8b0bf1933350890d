"""Reading the folder of an audit: nothing in it is trusted before it was looked at."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sparse
from numpy.typing import NDArray

from butfor.audit.arrays import read_arrays
from butfor.audit.meta import REMEDY, Meta, explain
from butfor.checks import ROW_TOLERANCE, check_policy
from butfor.hidden.model import TabularPOMDP
from butfor.log.clusters import Clusters
from butfor.log.sources import count_rows, read_columns, read_pieces, read_rows
from butfor.log.variables import count_levels
from butfor.models.mdp import TabularMDP
from butfor.types import Floats

MODEL, CLUSTERS = "model.npz", "clusters.npz"

# Columns that tables must have: text, number, whole number, flag, or any of them.
EPISODE = "id:any length:whole observed_outcome:text observed_return:number expected_return:number"
EPISODE += " difference:number most_likely:text low_any:number high_any:number low_stable:number"
EPISODE += " high_stable:number survives:text first_change:whole unsupported:number rank:whole"
EPISODE += " evidence_min:number thin_share:number influence:number influence_ends:whole"
EPISODE += " step_that_matters:whole reason:text final_key:whole control:flag"
TABLES = {
    "estimates": "estimator:text value:number low:number high:number episodes:whole "
    "effective:number warning:text low_credible:number high_credible:number",
    "diagnostics": "check:text value:number light:text sentence:text",
    "episodes": EPISODE,
    "decomposition": "by:text observed:text counterfactual:text first_state:whole episodes:whole "
    "expected_episodes:number observed_mean:number counterfactual_mean:number "
    "difference:number contribution:number",
    "steps": "episode:whole id:any step:whole state:whole action:whole target_action:whole "
    "reward:number evidence:whole",
    "draws": "id:any draw:whole step:whole state:whole action:whole reward:number",
    "courses": "id:any step:whole variable:text level:text probability:number world:text",
    "course_steps": "id:any step:whole mass:number evidence:number thin:number influence:number",
}
LONG = ("episodes", "steps")  # tables that grow with the log
PLACES = "length:whole rank:whole control:flag"  # of all episodes, where few are read

ROWS = {
    "start": "iu",
    "next_state": "iu",
    "probability": "f",
    "reward": "f",
    "labels": "iu",
    "initial": "f",
    "counts": "iu",
    "unseen": "b",
}
POLICIES = {"behavior": "f", "target": "f"}
EMISSION = {
    "emission_start": "iu",
    "emission_observation": "iu",
    "emission_probability": "f",
    "outcome": "iu",
    "reward_seen": "b",
}
LATENT = {"latent_behavior": "f"}
GROUPS = {
    "columns": "U",
    "mean": "f",
    "scale": "f",
    "centers": "f",
    "counts": "iu",
}


def check(right: Any, path: Path, problem: str) -> None:
    """Refuse a file of the folder unless something holds of it."""
    if not right:
        raise ValueError(f"{path}: {problem}; {REMEDY}")


# tables


def read_tables(folder: Path, meta: Meta, *, shown: bool = False) -> dict[str, pd.DataFrame]:
    """Read all tables, and see that they are about the same episodes and steps.

    With `shown` only the flagged episodes and controls of `episodes`, and their steps: of the
    others no more than their number, lengths and ranks is looked at.
    """
    if shown:
        tables = _read_shown(folder, meta)
    else:
        tables = {name: _read_table(folder / f"{name}.parquet", TABLES[name]) for name in LONG}
        _check_places(folder / "episodes.parquet", tables["episodes"], meta)
    for name in TABLES:
        if name not in LONG:
            tables[name] = _read_table(folder / f"{name}.parquet", TABLES[name])
    _check_episodes(folder / "episodes.parquet", tables["episodes"], meta)
    _check_cells(folder / "decomposition.parquet", tables["decomposition"], meta)
    _check_courses(folder / "courses.parquet", tables["courses"], meta)
    _check_steps(folder / "steps.parquet", tables["steps"], tables["episodes"], meta)
    known, horizon = tables["episodes"]["id"], meta.parameters.horizon
    for name in ("draws", "courses", "course_steps"):
        path, table = folder / f"{name}.parquet", tables[name]
        check(table["id"].isin(known).all(), path, "episodes that episodes.parquet does not have")
        _check_range(path, table, "step", 0, horizon)
    drawn = tables["draws"]
    path = folder / "draws.parquet"
    _check_range(path, drawn, "draw", 0, max(1, meta.parameters.draws) - 1)
    states, actions = _sizes(meta)
    _check_range(path, drawn, "state", 0, states + len(meta.outcomes) - 1)
    _check_range(path, drawn, "action", -1, actions - 1)
    return tables


def _read_shown(folder: Path, meta: Meta) -> dict[str, pd.DataFrame]:
    """Read the flagged episodes, the controls and their steps, numbered anew."""
    path, long = folder / "episodes.parquet", folder / "steps.parquet"
    names = [column.partition(":")[0] for column in PLACES.split()]
    every = _read_table(path, PLACES, partial(read_columns, names=names))
    _check_places(path, every, meta)
    chosen = np.flatnonzero((every["rank"] > 0) | every["control"])
    rows = every["length"].to_numpy() + 1
    ends = np.cumsum(rows)
    found = _told(long, count_rows)
    check(found == ends[-1], long, f"{found} rows, expected {ends[-1]}")
    mine = [np.arange(ends[i] - rows[i], ends[i]) for i in chosen]
    places = np.concatenate([np.empty(0, dtype=np.int64), *mine])
    steps = _read_table(long, TABLES["steps"], partial(read_rows, rows=places))
    steps["episode"] = pd.Index(chosen).get_indexer(steps["episode"])  # -1: none of them
    episodes = _read_table(path, TABLES["episodes"], partial(read_rows, rows=chosen))
    return {"episodes": episodes, "steps": steps}


def count_decisions(folder: Path, meta: Meta) -> NDArray[np.int64]:
    """Count the decisions of all episodes by state and action, [S, A], some steps at a time."""
    return np.asarray(_told(folder / "steps.parquet", partial(_count, sizes=_sizes(meta))))


def _count(path: Path, sizes: tuple[int, int]) -> NDArray[np.int64]:
    states, actions = sizes
    counts = np.zeros(states * actions, dtype=np.int64)
    for piece in read_pieces(path, ["state", "action"]):
        state, action = (piece[name].to_numpy(dtype=np.float64) for name in ("state", "action"))
        decided = (action >= 0) & (action < actions) & (state >= 0)
        if not ((decided | (action == -1)) & (state >= -1) & (state < states)).all():
            raise ValueError(f"{path}: a state or action that meta.json does not list")
        pair = state[decided] * actions + action[decided]
        counts += np.bincount(pair.astype(np.int64), minlength=len(counts))
    return counts.reshape(states, actions)


def _sizes(meta: Meta) -> tuple[int, int]:
    return count_levels(meta.variables.state), count_levels(meta.variables.action)


def _read_table(
    path: Path, columns: str, read: Callable[[Path], pd.DataFrame] = read_columns
) -> pd.DataFrame:
    table: pd.DataFrame = _told(path, read)
    for column in columns.split():
        name, _, kind = column.partition(":")
        check(name in table, path, f"has no column {name!r}")
        right = len(table) == 0 or _is(kind, table[name])
        check(right, path, f"the column {name!r} has the type {table[name].dtype}, not {kind}")
    return table


def _told(path: Path, read: Callable[[Path], Any]) -> Any:
    """Read a file; what is wrong with it is said together with the remedy."""
    try:
        return read(path)
    except ValueError as error:
        check(type(error) is not ValueError, path, str(error).removeprefix(f"{path}: "))
        raise


def _is(kind: str, column: Any) -> bool:
    types = pd.api.types
    if kind == "whole":
        return bool(types.is_signed_integer_dtype(column.dtype) and not column.isna().any())
    if kind == "number":
        return bool(types.is_float_dtype(column.dtype) or _is("whole", column))
    if kind == "flag":
        return bool(column.dtype == np.bool_)
    if kind == "text":
        return bool(types.is_string_dtype(column.dropna()) or column.isna().all())
    return bool(_is("whole", column) or _is("text", column)) and not column.isna().any()


def _check_range(path: Path, table: pd.DataFrame, name: str, low: int, high: int) -> None:
    wrong = ((table[name] < low) | (table[name] > high)).to_numpy()
    if wrong.any():
        row = int(wrong.argmax())
        found = table[name].iloc[row]
        check(False, path, f"row {row}: {name} is {found}, outside {low}..{high}")


def _check_places(path: Path, table: pd.DataFrame, meta: Meta) -> None:
    count = meta.counts.episodes
    check(len(table) == count > 0, path, f"{len(table)} rows, but meta.json counts {count}")
    _check_range(path, table, "length", 1, meta.parameters.horizon)
    _check_range(path, table, "rank", 0, count)


def _check_episodes(path: Path, table: pd.DataFrame, meta: Meta) -> None:
    names = meta.outcome_names
    for column in ("observed_outcome", "most_likely"):
        check(
            table[column].isin(names).all(),
            path,
            f"{column} has a value that meta.json does not list",
        )
    for column in (*(f"p_{name}" for name in meta.outcomes), "p_none"):
        right = column in table and (len(table) == 0 or _is("number", table[column]))
        check(right, path, f"has no column {column!r} of numbers")
    shown = table[(table["rank"] > 0) | table["control"]]
    for column in ("low_any", "high_any", "low_stable", "high_stable", "survives"):
        known = shown[column].notna().all()  # of the others it need not be worked out
        check(known, path, f"{column} is missing where an episode is flagged or a control")


def _check_cells(path: Path, table: pd.DataFrame, meta: Meta) -> None:
    """See that each observed outcome has one row for each counterfactual one."""
    names = meta.outcome_names
    cells = table[table["by"] == "outcome"]
    found = sorted(zip(cells["observed"], cells["counterfactual"], strict=True), key=str)
    right = found == sorted(product(names, names), key=str)
    check(right, path, "outcomes are not those of meta.json, each with each once")


def _check_courses(path: Path, table: pd.DataFrame, meta: Meta) -> None:
    named = meta.variables
    known = [variable.name for variable in (*named.state, *named.hidden, *named.latent)]
    check(
        table["variable"].isin(["", *known]).all(), path, "a variable that meta.json does not list"
    )
    right = table["probability"].between(0, 1 + ROW_TOLERANCE).all()
    check(right, path, "a probability outside 0 to 1")


def _check_steps(path: Path, table: pd.DataFrame, episodes: pd.DataFrame, meta: Meta) -> None:
    """See that each episode has its steps in order, and a last row without action."""
    states, actions = _sizes(meta)
    rows = episodes["length"].to_numpy() + 1
    owner = np.repeat(np.arange(len(rows)), rows)
    check(len(table) == len(owner), path, f"{len(table)} rows, expected {len(owner)}")
    check((table["episode"] == owner).all(), path, "episodes are not those of episodes.parquet")
    same = table["id"].to_numpy() == episodes["id"].to_numpy()[owner]
    check(np.all(same), path, "ids are not those of episodes.parquet")
    ends = np.cumsum(rows)
    step = np.arange(len(owner)) - np.repeat(ends - rows, rows)
    check((table["step"] == step).all(), path, "steps are not counted from 0")
    last = np.zeros(len(owner), dtype=bool)
    last[ends - 1] = True
    _check_range(path, table[~last], "action", 0, actions - 1)
    _check_range(path, table[~last], "state", 0, states - 1)
    _check_range(path, table[last], "action", -1, -1)
    _check_range(path, table[last], "state", -1, states - 1)
    _check_range(path, table, "target_action", -1, actions - 1)
    check(np.isfinite(table["reward"][~last]).all(), path, "a reward that is no finite number")
    for prefix, kind in (("state", "state"), ("action", "action"), ("target", "action")):
        for variable in getattr(meta.variables, kind):
            column = f"{prefix}.{variable.name}"
            check(column in table, path, f"has no column {column!r}")
            labelled = isinstance(table[column].dtype, pd.CategoricalDtype)
            right = labelled or _is("text", table[column])
            check(right, path, f"the column {column!r} is of the type {table[column].dtype}")
            right = set(table[column].dropna().unique().tolist()) <= set(variable.levels)
            check(right, path, f"the column {column!r} has levels that meta.json does not list")
    for variable in meta.variables.side:
        column = f"side.{variable.name}"
        check(column in table, path, f"has no column {column!r}")


# models


def read_model(
    path: Path, meta: Meta
) -> tuple[TabularMDP | TabularPOMDP, Floats, Floats, Floats | None]:
    """Read the model, the behaviour and the target, and see that they fit together.

    The last one is the behaviour on hidden states, if it saw them.
    """
    hidden = meta.parameters.hidden
    saw = hidden and meta.parameters.latent_behavior
    kinds = ROWS | POLICIES | (EMISSION if hidden else {}) | (LATENT if saw else {})
    stored = read_arrays(path, kinds, REMEDY)
    states, actions = _sizes(meta)
    behavior, target = (stored[name] for name in POLICIES)
    for name in POLICIES:
        explain(path, check_policy, stored[name], states, actions, name)
    outcomes, terminal = meta.outcome_details, meta.parameters.terminal
    size = count_levels(meta.variables.latent) if hidden else states
    rows = {name: stored[name] for name in ROWS}
    dynamics = TabularMDP(**rows, outcomes=() if hidden else outcomes, terminal=terminal)
    ends = np.zeros(size, dtype=bool)
    if hidden:
        given = stored["outcome"]
        check(given.shape == (size,), path, f"outcome has shape {given.shape}, not ({size},)")
        inside = ((given >= -1) & (given < len(outcomes))).all()
        check(inside, path, f"outcome has numbers outside -1..{len(outcomes) - 1}")
        ends = given >= 0
    _check_rows(path, dynamics, size, actions, ends)
    if not hidden:
        return dynamics, behavior, target, None
    for name in LATENT if saw else ():
        explain(path, check_policy, stored[name], size, actions, name)
    model = TabularPOMDP(
        dynamics=dynamics,
        emission=_emission(path, stored, size, states, ends),
        outcome=stored["outcome"],
        outcomes=outcomes,
        state_variables=meta.variables.latent,
        observation_variables=meta.variables.state,
        action_variables=meta.variables.action,
        reward_seen=bool(stored["reward_seen"]),
    )
    return model, behavior, target, stored.get("latent_behavior")


def _check_rows(
    path: Path, model: TabularMDP, states: int, actions: int, ends: NDArray[np.bool_]
) -> None:
    """See that rows are distributions over states and outcomes; those of ends are empty."""
    columns, entries = states + len(model.outcomes), len(np.atleast_1d(model.next_state))
    for name, shape in (
        ("start", (states * actions + 1,)),
        ("next_state", (entries,)),
        ("probability", (entries,)),
        ("reward", (entries,)),
        ("labels", (columns,)),
        ("initial", (states,)),
        ("counts", (states, actions)),
        ("unseen", (states, actions)),
    ):
        found = getattr(model, name).shape
        check(found == shape, path, f"{name} has shape {found}, expected {shape}")
    _check_starts(path, "start", model.start, entries)
    inside = ((model.next_state >= 0) & (model.next_state < columns)).all()
    check(inside, path, f"next_state has numbers outside 0..{columns - 1}")
    gone = np.repeat(ends, actions)
    _check_sums(path, "probability", model.probability, model.start, gone)
    check((np.diff(model.start)[gone] == 0).all(), path, "an end has rows")
    check(np.isfinite(model.reward).all(), path, "reward has a value that is no finite number")
    check((model.counts >= 0).all(), path, "counts has a number below 0")
    whole = np.array([0, len(model.initial)])
    _check_sums(path, "initial", model.initial, whole, np.zeros(1, dtype=bool), zero=True)
    check((model.labels >= 0).all(), path, "labels has a number below 0")
    rising = (np.diff(model.entry_label) > 0) | (np.diff(model.entry_row) > 0)
    check(rising.all(), path, "labels do not increase within each row")


def _check_starts(path: Path, name: str, start: NDArray[Any], entries: int) -> None:
    right = start[0] == 0 and start[-1] == entries and (start[1:] >= start[:-1]).all()
    check(right, path, f"{name} does not increase from 0 to {entries}")


def _check_sums(
    path: Path,
    name: str,
    values: Floats,
    start: NDArray[Any],
    empty: NDArray[np.bool_],
    *,
    zero: bool = False,
) -> None:
    """See that values are probabilities, and sum to one in each row that may not be empty."""
    low = values >= 0 if zero else values > 0
    check((np.isfinite(values) & low).all(), path, f"{name} has a value that is no probability")
    total = np.diff(np.concatenate([[0.0], np.cumsum(values)])[start])
    wrong = (np.abs(total - 1) > ROW_TOLERANCE) & ~(empty & (np.diff(start) == 0))
    row = int(wrong.argmax())
    check(not wrong.any(), path, f"{name}: row {row} sums to {total[row]:.9g}, not to 1")


def _emission(
    path: Path, stored: dict[str, NDArray[Any]], size: int, shown: int, ends: NDArray[np.bool_]
) -> sparse.csr_array:
    data, column, start = (stored[name] for name in list(EMISSION)[2::-1])
    for array, name, shape in (
        (start, "emission_start", (size + 1,)),
        (column, "emission_observation", data.shape),
        (data, "emission_probability", (data.size,)),
        (stored["reward_seen"], "reward_seen", ()),
    ):
        check(array.shape == shape, path, f"{name} has shape {array.shape}, expected {shape}")
    _check_starts(path, "emission_start", start, len(data))
    inside = ((column >= 0) & (column < shown)).all()
    check(inside, path, f"emission_observation has numbers outside 0..{shown - 1}")
    _check_sums(path, "emission_probability", data, start, ends)
    return sparse.csr_array((data, column, start), shape=(size, shown))


def read_clusters(path: Path) -> Clusters:
    """Read what the states are made of."""
    stored = read_arrays(path, GROUPS, REMEDY)
    count, width = len(np.atleast_1d(stored["counts"])), len(np.atleast_1d(stored["columns"]))
    for name, shape in (
        ("columns", (width,)),
        ("mean", (width,)),
        ("scale", (width,)),
        ("centers", (count, width)),
        ("counts", (count,)),
    ):
        found = stored[name].shape
        check(found == shape and 0 not in shape, path, f"{name} has shape {found}, not {shape}")
    for name in ("mean", "scale", "centers"):
        check(np.isfinite(stored[name]).all(), path, f"{name} has a value that is no finite number")
    check((stored["scale"] > 0).all(), path, "scale has a value that is not above 0")
    check((stored["counts"] >= 0).all(), path, "counts has a number below 0")
    return Clusters.from_arrays(stored)
