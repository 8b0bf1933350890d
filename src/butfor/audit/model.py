"""The model and policies of an audit as files of arrays, and a digest of all inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray

from butfor.audit.arrays import read_arrays
from butfor.audit.meta import REMEDY, Meta, explain
from butfor.audit.reading import check, sizes
from butfor.checks import ROW_TOLERANCE, check_policy
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.pairs import behavior_arrays
from butfor.log.clusters import Clusters
from butfor.log.combinations import Combinations, check_combinations, state_durations
from butfor.log.variables import count_levels
from butfor.models.factored import Factor, FactoredModel, Rewards, factor_arrays, logged_codes
from butfor.models.mdp import TabularMDP
from butfor.replay.engine import Model
from butfor.replay.replay import Replay
from butfor.types import Floats

MODEL, CLUSTERS = "model.npz", "clusters.npz"
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


def digest_of(replay: Replay) -> str:
    """Hash all numeric inputs: equal inputs give equal digests."""
    episodes, model = replay.episodes, replay.model
    log = [getattr(episodes, name) for name in ("state", "action", "next_state", "reward")]
    arrays = [*log, episodes.offsets, episodes.outcome, *_arrays(replay)]
    if episodes.behavior_probability is not None:
        arrays.append(episodes.behavior_probability)
    if replay.by_row and episodes.target_probability is not None:
        arrays.append(episodes.target_probability)
    if episodes.durations is not None:
        arrays.append(episodes.durations)
    if replay.hidden:
        stored = model.stored_arrays()
        arrays += [stored[name] for name in stored if name not in ROWS]
        given = behavior_arrays(episodes, replay.pomdp, replay.behavior)
        arrays += [stored["initial"], *given.rows, np.array(given.kind)]
    return hash_arrays(arrays, "\0".join(map(str, episodes.id.tolist())))


def digest_of_shards(log: NDArray[np.uint64], question: Replay) -> str:
    """Hash all numeric inputs, for a log that was hashed shard by shard."""
    return hash_arrays([log, *_arrays(question)])


def hash_arrays(arrays: Iterable[NDArray[Any]], words: str = "") -> str:
    """Hash arrays with their types and shapes, and some text."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(words.encode())
    return digest.hexdigest()


def _arrays(replay: Replay) -> list[NDArray[Any]]:
    if replay.sampled:
        codes = logged_codes(replay.log)  # what is predicted on demand has no table
        known = [f.table if isinstance(f, Factor) else f.rows(codes) for f in replay.factors]
        return [*known, replay.target_table, replay.behavior_table]
    stored = replay.model.stored_arrays()
    rows = [stored[name] for name in ("start", "next_state", "probability", "reward", "labels")]
    return [*rows, replay.target_table, replay.behavior_table]


class Stored(NamedTuple):
    """What the file of the model holds."""

    model: Model
    behavior: Floats  # [S, A]
    target: Floats  # [S, A]
    latent_behavior: Floats | None = None  # on hidden states, if it depended on them
    combinations: Combinations | None = None  # of the states of a wide log, then of drawn ones


def read_model(path: Path, meta: Meta) -> Stored:
    """Read the model, the behavior and the target, and check that they fit together."""
    if meta.parameters.sampled:
        return _read_wide(path, meta)
    hidden = meta.parameters.hidden
    saw = hidden and meta.parameters.latent_behavior
    kinds = ROWS | POLICIES | (EMISSION if hidden else {}) | (LATENT if saw else {})
    kinds |= dict.fromkeys(factor_arrays(len(meta.parameters.factors)), "f")
    stored = read_arrays(path, kinds, REMEDY)
    states, actions = sizes(meta)
    behavior, target = (stored[name] for name in POLICIES)
    for name in POLICIES:
        explain(path, check_policy, stored[name], states, actions, name)
    outcomes, terminal = meta.outcome_details, meta.parameters.terminal
    size = count_levels(meta.variables.latent) if hidden else states
    rows = {name: stored[name] for name in ROWS}
    ends_of = () if hidden else outcomes
    durations = None if hidden else state_durations(meta.variables.state)
    dynamics = TabularMDP(
        **rows, outcomes=ends_of, terminal=terminal, prior=None, durations=durations, taught=None
    )
    ends = np.zeros(size, dtype=bool)
    if hidden:
        given = stored["outcome"]
        check(given.shape == (size,), path, f"outcome has shape {given.shape}, not ({size},)")
        inside = ((given >= -1) & (given < len(outcomes))).all()
        check(inside, path, f"outcome has values outside -1..{len(outcomes) - 1}")
        ends = given >= 0
    _check_rows(path, dynamics, size, actions, ends)
    if meta.parameters.factors:
        return Stored(_factored(path, stored, meta), behavior, target)
    if not hidden:
        return Stored(dynamics, behavior, target)
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
    return Stored(model, behavior, target, stored.get("latent_behavior"))


def _read_wide(path: Path, meta: Meta) -> Stored:
    """Read a model whose transitions have no rows, and policies in the states of its log."""
    kinds = POLICIES | {"initial": "f", "counts": "iu", "combinations": "iu"}
    kinds |= dict.fromkeys(factor_arrays(len(meta.parameters.factors)), "f")
    stored = read_arrays(path, kinds, REMEDY)
    states, actions = sizes(meta)
    for name in POLICIES:
        explain(path, check_policy, stored[name], states, actions, name)
    table = explain(path, check_combinations, meta.variables.state, stored["combinations"])
    check(len(table) >= states, path, f"combinations has {len(table)} rows, fewer than {states}")
    for name, shape in (("initial", (states,)), ("counts", (states, actions))):
        found = stored[name].shape
        check(found == shape, path, f"{name} has shape {found}, expected {shape}")
    model = _factored(path, stored, meta, table[:states])
    return Stored(model, stored["behavior"], stored["target"], None, table)


def _factored(
    path: Path,
    stored: dict[str, NDArray[Any]],
    meta: Meta,
    combinations: Combinations | None = None,
) -> FactoredModel:
    """Make a factored model of its stored tables, and check them."""
    factors = tuple(
        Factor(
            told.variable,
            told.parents,
            stored[f"factor_{number}_table"],
            stored[f"factor_{number}_cases"],
            told.source,
            np.nan if told.strength is None else told.strength,
            np.nan if told.score is None else told.score,
            told.every,
        )
        for number, told in enumerate(meta.parameters.factors)
    )
    return explain(
        path,
        lambda: FactoredModel(
            meta.variables.state,
            meta.variables.action,
            meta.outcome_details,
            factors,
            Rewards(meta.parameters.reward_parents, stored["factor_rewards"]),
            stored["initial"],
            stored["counts"],
            combinations,
        ),
    )


def _check_rows(
    path: Path, model: TabularMDP, states: int, actions: int, ends: NDArray[np.bool_]
) -> None:
    """Check that rows are distributions over states and outcomes, and that ends have no rows."""
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
    check(inside, path, f"next_state has values outside 0..{columns - 1}")
    gone = np.repeat(ends, actions)
    _check_sums(path, "probability", model.probability, model.start, gone)
    check((np.diff(model.start)[gone] == 0).all(), path, "a state that is an outcome has rows")
    check(np.isfinite(model.reward).all(), path, "reward has a non-finite value")
    check((model.counts >= 0).all(), path, "counts has a negative value")
    whole = np.array([0, len(model.initial)])
    _check_sums(path, "initial", model.initial, whole, np.zeros(1, dtype=bool), zero=True)
    check((model.labels >= 0).all(), path, "labels has a negative value")
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
    """Check that values are probabilities that sum to one in each row that must not be empty."""
    low = values >= 0 if zero else values > 0
    check((np.isfinite(values) & low).all(), path, f"{name} has an invalid probability")
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
    check(inside, path, f"emission_observation has values outside 0..{shown - 1}")
    _check_sums(path, "emission_probability", data, start, ends)
    return sparse.csr_array((data, column, start), shape=(size, shown))


def read_clusters(path: Path) -> Clusters:
    """Read the clusters that the states are."""
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
        check(np.isfinite(stored[name]).all(), path, f"{name} has a non-finite value")
    check((stored["scale"] > 0).all(), path, "scale has a value that is not positive")
    check((stored["counts"] >= 0).all(), path, "counts has a negative value")
    return Clusters.from_arrays(stored)
