"""Reading the tables of an audit; everything in them is checked before it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from butfor.audit.files import ADDED, FLAG, NUMBER, OPTIONAL, SCHEMAS, TEXT, WHOLE, WITH_IDS
from butfor.audit.meta import CHANGED, META, REMEDY, Meta
from butfor.checks import ROW_TOLERANCE
from butfor.evaluate.estimators.table import CONTINUED, OBSERVED
from butfor.evaluate.rehearsal import Rehearsal
from butfor.log.checksums import sha256_of
from butfor.log.combinations import MOST_STATES
from butfor.log.recorded import FILLED, RAW, TIME
from butfor.log.sources import count_rows, read_columns, read_pieces, read_rows
from butfor.log.variables import count_levels
from butfor.printed import Table

LONG = ("episodes", "steps")  # tables that grow with the log
PLACES = {"length": WHOLE, "rank": WHOLE, "control": FLAG}  # read of all episodes in any case


def check(right: Any, path: Path, problem: str) -> None:
    """Raise an error about a file of the folder unless a condition holds."""
    if not right:
        raise ValueError(f"{path}: {problem}; {REMEDY}")


def check_digests(folder: Path, digests: Mapping[str, str], names: Sequence[str]) -> None:
    """Check that files are those of which `meta.json` has the SHA-256, if it has any."""
    for name in names if digests else ():
        path = folder / name
        if name != META and (name in digests or path.is_file()):
            check(path.is_file(), path, "is missing")
            check(sha256_of(path) == digests.get(name), path, CHANGED)


def read_tables(
    folder: Path, meta: Meta, drawn_states: int | None = None, *, shown: bool = False
) -> dict[str, pd.DataFrame]:
    """Read all tables, and check that they are about the same episodes and steps.

    `drawn_states` is the number of states of a wide log and its draws together.
    With `shown`, `episodes` and `steps` have only the flagged episodes and the controls; of the
    others only the number, lengths and ranks are checked.
    """
    if shown:
        tables = _read_shown(folder, meta)
    else:
        tables = {name: _read_table(folder / f"{name}.parquet", SCHEMAS[name]) for name in LONG}
        _check_places(folder / "episodes.parquet", tables["episodes"], meta)
    for name in SCHEMAS:
        if name not in LONG:
            tables[name] = _read_table(folder / f"{name}.parquet", SCHEMAS[name])
    tables |= {name: Table(tables[name]) for name in ("estimates", "diagnostics")}
    _check_episodes(folder / "episodes.parquet", tables["episodes"], meta)
    _check_cells(folder / "decomposition.parquet", tables["decomposition"], meta)
    _check_courses(folder / "courses.parquet", tables["courses"], meta)
    _check_steps(folder / "steps.parquet", tables["steps"], tables["episodes"], meta)
    known, horizon = tables["episodes"]["id"], meta.parameters.horizon
    for name in ("draws", "courses", "course_steps"):
        path, table = folder / f"{name}.parquet", tables[name]
        check(table["id"].isin(known).all(), path, "has ids that are not in episodes.parquet")
        _check_range(path, table, "step", 0, horizon)
    drawn = tables["draws"]
    path = folder / "draws.parquet"
    _check_range(path, drawn, "draw", 0, max(1, meta.parameters.draws) - 1)
    states, actions = sizes(meta)
    reached = states if drawn_states is None else drawn_states
    _check_range(path, drawn, "state", 0, reached + len(meta.outcomes) - 1)
    _check_range(path, drawn, "action", -1, actions - 1)
    return name_truly(tables, meta)


def name_truly(tables: dict[str, pd.DataFrame], meta: Meta) -> dict[str, pd.DataFrame]:
    """Return the tables of an audit with what was recorded apart from what the model continues.

    Version 0.2.0 called records that the model continues observed, and kept no others.
    """
    estimates, episodes = tables["estimates"], tables["episodes"]
    continued = meta.counts.censored and meta.parameters.censored == "continue"
    if not continued or "usual_return" in episodes:
        return tables
    named = estimates["estimator"].replace(OBSERVED, CONTINUED)
    pieces = tables["decomposition"]
    return tables | {
        "estimates": estimates.assign(estimator=named),
        "episodes": unrecorded(episodes),
        "decomposition": pieces.assign(observed_mean=np.nan, usual_mean=pieces["observed_mean"]),
    }


def unrecorded(episodes: pd.DataFrame) -> pd.DataFrame:
    """Return a table of episodes whose observed returns are of records that the model continues."""
    if "usual_return" in episodes:  # what was recorded was kept
        return episodes
    return episodes.assign(observed_return=np.nan, usual_return=episodes["observed_return"])


def read_rehearsal(path: Path, meta: Meta) -> Rehearsal | None:
    """Read the rehearsal of an audit that has one."""
    if meta.rehearsal is None:
        return None
    table = _read_table(path, OPTIONAL["rehearsal"])
    check(len(table) > 0, path, "has no rows")
    return Rehearsal(table, meta.rehearsal.value, meta.rehearsal.observed)


def _read_shown(folder: Path, meta: Meta) -> dict[str, pd.DataFrame]:
    """Read the flagged episodes, the controls and their steps, renumbered."""
    path, long = folder / "episodes.parquet", folder / "steps.parquet"
    every = _read_table(path, pa.schema(PLACES), partial(read_columns, names=list(PLACES)))
    _check_places(path, every, meta)
    chosen = np.flatnonzero((every["rank"] > 0) | every["control"])
    rows = every["length"].to_numpy() + 1
    ends = np.cumsum(rows)
    found = _told(long, count_rows)
    check(found == ends[-1], long, f"{found} rows, expected {ends[-1]}")
    mine = [np.arange(ends[i] - rows[i], ends[i]) for i in chosen]
    places = np.concatenate([np.empty(0, dtype=np.int64), *mine])
    steps = _read_table(long, SCHEMAS["steps"], partial(read_rows, rows=places))
    steps["episode"] = pd.Index(chosen).get_indexer(steps["episode"])  # -1: none of them
    episodes = _read_table(path, SCHEMAS["episodes"], partial(read_rows, rows=chosen))
    return {"episodes": episodes, "steps": steps}


def count_decisions(folder: Path, meta: Meta) -> NDArray[np.int64]:
    """Count the decisions of all episodes by state and action, [S, A], in little memory."""
    return np.asarray(_told(folder / "steps.parquet", partial(_count, sizes=sizes(meta))))


def _count(path: Path, sizes: tuple[int, int]) -> NDArray[np.int64]:
    states, actions = sizes
    counts = np.zeros(states * actions, dtype=np.int64)
    for piece in read_pieces(path, ["state", "action"]):
        state, action = (piece[name].to_numpy(dtype=np.float64) for name in ("state", "action"))
        decided = (action >= 0) & (action < actions) & (state >= 0)
        if not ((decided | (action == -1)) & (state >= -1) & (state < states)).all():
            raise ValueError(f"{path}: has a state or action that meta.json does not list")
        pair = state[decided] * actions + action[decided]
        counts += np.bincount(pair.astype(np.int64), minlength=len(counts))
    return counts.reshape(states, actions)


def sizes(meta: Meta) -> tuple[int, int]:
    """Return the numbers of states and actions; a wide log counts the states that occur."""
    states = count_levels(meta.variables.state)
    if states > MOST_STATES or meta.parameters.sampled:
        states = meta.counts.states
    return states, count_levels(meta.variables.action)


def _read_table(
    path: Path, schema: Any, read: Callable[[Path], pd.DataFrame] = read_columns
) -> pd.DataFrame:
    table: pd.DataFrame = _told(path, read)
    for field in schema:
        name, kind = field.name, field.type
        if name not in table and name in ADDED.get(path.stem, {}):
            table[name] = ADDED[path.stem][name]
        check(name in table, path, f"has no column {name!r}")
        right = len(table) == 0 or _is(kind, table[name])
        check(right, path, f"the column {name!r} has the type {table[name].dtype}, not {kind}")
    if path.stem in WITH_IDS and schema is SCHEMAS[path.stem]:
        check("id" in table, path, "has no column 'id'")
        ids = table["id"]
        right = len(table) == 0 or _is(TEXT, ids) or _is(WHOLE, ids)
        check(right and not ids.isna().any(), path, "ids are neither text nor whole numbers")
    return table


def _told(path: Path, read: Callable[[Path], Any]) -> Any:
    """Read a file, and add the remedy to the message of an error."""
    try:
        return read(path)
    except ValueError as error:
        check(type(error) is not ValueError, path, str(error).removeprefix(f"{path}: "))
        raise


def _is(kind: Any, column: Any) -> bool:
    """Whether a column has values of a declared type, of any width."""
    types = pd.api.types
    if pa.types.is_integer(kind):
        return bool(types.is_signed_integer_dtype(column.dtype) and not column.isna().any())
    if pa.types.is_floating(kind):
        return bool(types.is_float_dtype(column.dtype) or _is(WHOLE, column))
    if pa.types.is_boolean(kind):
        return bool(column.dtype == np.bool_)
    return bool(types.is_string_dtype(column.dropna()) or column.isna().all())


def _check_range(path: Path, table: pd.DataFrame, name: str, low: int, high: int) -> None:
    wrong = ((table[name] < low) | (table[name] > high)).to_numpy()
    if wrong.any():
        row = int(wrong.argmax())
        found = table[name].iloc[row]
        check(False, path, f"row {row}: {name} is {found}, outside {low}..{high}")


def _check_places(path: Path, table: pd.DataFrame, meta: Meta) -> None:
    count = meta.counts.episodes
    check(len(table) == count > 0, path, f"has {len(table)} rows, but meta.json counts {count}")
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
        right = column in table and (len(table) == 0 or _is(NUMBER, table[column]))
        check(right, path, f"has no column {column!r} of numbers")
    shown = table[(table["rank"] > 0) | table["control"]]
    for column in ("low_any", "high_any", "low_stable", "high_stable", "survives"):
        known = meta.parameters.sampled or shown[column].notna().all()  # the others may have none
        check(known, path, f"{column} is missing for an episode that is flagged or a control")


def _check_cells(path: Path, table: pd.DataFrame, meta: Meta) -> None:
    """Check that there is one row for each observed and counterfactual outcome."""
    names = meta.outcome_names
    cells = table[table["by"] == "outcome"]
    found = sorted(zip(cells["observed"], cells["counterfactual"], strict=True), key=str)
    right = found == sorted(product(names, names), key=str)
    check(right, path, "does not have one row for each pair of the outcomes in meta.json")


def _check_courses(path: Path, table: pd.DataFrame, meta: Meta) -> None:
    named = meta.variables
    known = [variable.name for variable in (*named.state, *named.hidden, *named.latent)]
    check(
        table["variable"].isin(["", *known]).all(),
        path,
        "has a variable that meta.json does not list",
    )
    right = table["probability"].between(0, 1 + ROW_TOLERANCE).all()
    check(right, path, "has a probability outside 0..1")


def _check_steps(path: Path, table: pd.DataFrame, episodes: pd.DataFrame, meta: Meta) -> None:
    """Check that each episode has its steps in order, and a last row without an action."""
    states, actions = sizes(meta)
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
    check(np.isfinite(table["reward"][~last]).all(), path, "has a non-finite reward")
    for prefix, kind in (("state", "state"), ("action", "action"), ("target", "action")):
        for variable in getattr(meta.variables, kind):
            column = f"{prefix}.{variable.name}"
            check(column in table, path, f"has no column {column!r}")
            labelled = isinstance(table[column].dtype, pd.CategoricalDtype)
            right = labelled or _is(TEXT, table[column])
            check(right, path, f"the column {column!r} has the type {table[column].dtype}")
            right = set(table[column].dropna().unique().tolist()) <= set(variable.levels)
            check(right, path, f"the column {column!r} has levels that meta.json does not list")
    for variable in meta.variables.side:
        column = f"side.{variable.name}"
        check(column in table, path, f"has no column {column!r}")
    _check_record(path, table)


def _check_record(path: Path, table: pd.DataFrame) -> None:
    """Check what the log has behind the states: when steps were, numbers, what was filled in."""
    for column in table.columns:
        kind, right = table[column].dtype, True
        if column == TIME:
            right = kind.kind in "fMm"  # a number, a date, or a length of time
        elif column.startswith(RAW):
            right = len(table) == 0 or _is(NUMBER, table[column])
        elif column.startswith(FILLED):
            name = column.removeprefix(FILLED)
            right = kind == np.bool_
            known = any(f"{group}{name}" in table for group in (RAW, "state.", "action."))
            check(known, path, f"has a column {column!r}, but no values of it")
        check(right, path, f"the column {column!r} has the type {kind}")
