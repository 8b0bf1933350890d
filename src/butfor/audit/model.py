"""The model and the policies of an audit as arrays that are stored, and as a digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.audit.reading import ROWS
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.task import behavior_arrays
from butfor.log.variables import Variable
from butfor.models.mdp import TabularMDP
from butfor.replay.replay import Replay
from butfor.types import Floats


def model_arrays(model: TabularMDP | TabularPOMDP) -> dict[str, NDArray[Any]]:
    """Return a model as arrays to be stored."""
    if not isinstance(model, TabularPOMDP):
        return {name: getattr(model, name) for name in ROWS}
    return {
        **{name: getattr(model.dynamics, name) for name in ROWS},
        "emission_start": model.emission.indptr.astype(np.int64),
        "emission_observation": model.emission.indices.astype(np.int32),
        "emission_probability": model.emission.data,
        "outcome": model.outcome,
        "reward_seen": np.array(model.reward_seen),
    }


def model_variables(model: TabularMDP | TabularPOMDP) -> dict[str, tuple[Variable, ...]]:
    """Return what is hidden, and all variables of a hidden state, for `meta`."""
    if not isinstance(model, TabularPOMDP):
        return {}
    return {
        "hidden": model.hidden_variables,
        "latent": model.state_variables,
    }


def digest_of(replay: Replay) -> str:
    """Hash of all numbers that went in: equal inputs, equal digest."""
    episodes, model = replay.episodes, replay.model
    target, known = replay.target_table, replay.behavior_table
    log = [getattr(episodes, name) for name in ("state", "action", "next_state", "reward")]
    arrays = [*log, episodes.offsets, episodes.outcome, *_arrays(model, target, known)]
    if isinstance(model, TabularPOMDP):
        stored = model_arrays(model)
        arrays += [stored[name] for name in stored if name not in ROWS]
        given = behavior_arrays(episodes, model, replay.behavior)
        arrays += [model.dynamics.initial, *given.rows, np.array(given.kind)]
    return hash_arrays(arrays, "\0".join(map(str, episodes.id.tolist())))


def digest_of_shards(log: NDArray[np.uint64], question: Replay) -> str:
    """Hash all numbers that went in, for a log that was hashed shard by shard."""
    policies = question.target_table, question.behavior_table
    return hash_arrays([log, *_arrays(question.model, *policies)])


def hash_arrays(arrays: Iterable[NDArray[Any]], words: str = "") -> str:
    """Hash arrays, their types and shapes, and some words."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(words.encode())
    return digest.hexdigest()


def _arrays(model: TabularMDP | TabularPOMDP, target: Floats, known: Floats) -> list[NDArray[Any]]:
    rows = model.dynamics if isinstance(model, TabularPOMDP) else model
    return [
        rows.start,
        rows.next_state,
        rows.probability,
        rows.reward,
        rows.labels,
        target,
        known,
    ]
