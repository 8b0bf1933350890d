"""Policies: plain [S, A] arrays of probabilities, and the functions that make them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor.episodes import Episodes, Floats

ROW_TOLERANCE = 1e-6  # a row may miss 1 by this much and is then scaled; more is an error
BLOCK = 1 << 20  # rows of a log that are looked at together


def check_distributions(rows: ArrayLike, name: str, index: tuple[str, ...] = ("row",)) -> Floats:
    """Return distributions along the last axis as floats that sum to one, or say what is wrong.

    `index` names the leading axes, so that a message can say where the bad row is.
    """
    array = np.array(rows, dtype=np.float64)
    bad = ~np.isfinite(array) | (array < 0)
    if bad.any():
        *place, column = np.argwhere(bad)[0]
        raise ValueError(
            f"{name}: {_place(index, place)} has probability {array[(*place, column)]} at "
            f"{column}; probabilities are numbers from 0 to 1"
        )
    totals = array.sum(axis=-1)
    wrong = np.abs(totals - 1) > ROW_TOLERANCE
    if wrong.any():
        place = list(np.argwhere(wrong)[0])
        raise ValueError(
            f"{name}: {_place(index, place)} sums to {totals[tuple(place)]:.9g}, not to 1; "
            "divide each row by its sum if that is what is meant"
        )
    return array / totals[..., None]


def check_policy(policy: ArrayLike, states: int, actions: int, name: str = "policy") -> Floats:
    """Return a policy as an [S, A] array of floats, or say what is wrong with it."""
    array = np.asarray(policy, dtype=np.float64)
    if array.shape != (states, actions):
        raise ValueError(
            f"{name} has shape {array.shape}, expected ({states}, {actions}): "
            "a row for each state, a column for each action"
        )
    return check_distributions(array, name, ("state",))


def estimate_behavior(
    episodes: Episodes, *, terminal: str = "visits", prior: float = 0.0
) -> Floats:
    """Estimate the policy that made the log from how often each action was taken, [S, A].

    `prior` is added to each action's count in visited states; states never visited get a
    uniform row. `terminal="icml2019"` adds the pseudo-counts of the published experiment:
    one for every action and distinct final state that ended with an outcome.
    """
    if not np.isfinite(prior) or prior < 0:
        raise ValueError(f"prior {prior}: give a number, 0 or more")
    counts = action_counts(episodes).astype(np.float64)
    if terminal == "icml2019":
        counts += final_states(episodes).sum(axis=1, keepdims=True)
    elif terminal != "visits":
        raise ValueError(f"terminal {terminal!r}: give 'visits' or 'icml2019'")
    visited = counts.sum(axis=1) > 0
    counts[visited] += prior
    counts[~visited] = 1.0
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def action_counts(episodes: Episodes) -> NDArray[np.int64]:
    """Count the logged decisions by state and action, [S, A]."""
    states, actions = episodes.n_states, episodes.n_actions
    counts = np.zeros(states * actions, dtype=np.int64)
    for start in range(0, len(episodes.state), BLOCK):
        rows = slice(start, start + BLOCK)
        pair = episodes.state[rows].astype(np.int64) * actions + episodes.action[rows]
        counts += np.bincount(pair, minlength=len(counts))
    return counts.reshape(states, actions)


def final_states(episodes: Episodes) -> NDArray[np.int64]:
    """Count the distinct unreduced final states by state and outcome, [S, O].

    However often a final state was visited, it counts once: the published experiment's way.
    """
    ended = np.flatnonzero(episodes.outcome >= 0)
    final = episodes.next_state[episodes.offsets[1:] - 1][ended]
    if (final < 0).any():
        first = episodes.id[ended[final < 0][0]]
        raise ValueError(
            f"episode {first}: its final state is unknown, which terminal='icml2019' needs; "
            "add a last row without action to the log, or use terminal='visits'"
        )
    distinct = np.unique(
        np.stack([episodes.final_key[ended], final, episodes.outcome[ended]]), axis=1
    )
    counts = np.zeros((episodes.n_states, len(episodes.outcomes)), dtype=np.int64)
    np.add.at(counts, (distinct[1], distinct[2]), 1)
    return counts


def greedy(
    values: ArrayLike, *, prefer: ArrayLike | None = None, tolerance: float = 1e-9
) -> Floats:
    """Return the deterministic policy that takes the action of highest value, [S, A].

    Among actions within `tolerance` of the best those marked in `prefer` [S, A] come first,
    then the lowest index.
    """
    table = np.asarray(values, dtype=np.float64)
    best = table >= table.max(axis=1, keepdims=True) - tolerance
    if prefer is not None:
        liked = best & np.asarray(prefer, dtype=bool)
        best = np.where(liked.any(axis=1, keepdims=True), liked, best)
    policy = np.zeros_like(table)
    policy[np.arange(len(table)), best.argmax(axis=1)] = 1.0
    return policy


def soften(policy: ArrayLike, epsilon: float) -> Floats:
    """Replace the action, with probability `epsilon`, by one of the others, all alike."""
    array = np.asarray(policy, dtype=np.float64)
    if not 0 <= epsilon <= 1:
        raise ValueError(f"epsilon {epsilon}: give a probability")
    if array.ndim != 2 or array.shape[1] < 2:
        raise ValueError(f"policy has shape {array.shape}: softening needs at least two actions")
    array = check_distributions(array, "policy", ("state",))
    return (1 - epsilon) * array + epsilon * (1 - array) / (array.shape[1] - 1)


def _place(index: tuple[str, ...], place: list[int]) -> str:
    return ", ".join(f"{name} {at}" for name, at in zip(index, place, strict=False)) or "the row"
