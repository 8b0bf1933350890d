"""Policies are plain [S, A] arrays of probabilities; these functions make them."""

from __future__ import annotations

from functools import partial
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor.checks import check_choice, check_distributions, check_pseudo_count
from butfor.log.episodes import Episodes
from butfor.models.plan import Plan
from butfor.types import Floats

TERMINALS = ("visits", "icml2019")

BLOCK = 1 << 20  # rows of a log that are counted at a time


def estimate_behavior(
    episodes: Episodes, *, terminal: str = "visits", prior: float = 0.0
) -> Floats:
    """Estimate the behavior policy from how often each action was taken, [S, A].

    `prior` is added to each action's count in visited states; states that were never visited get a
    uniform row. `terminal="icml2019"` adds the pseudo-counts of the published experiment: one for
    every action and distinct final state that ended with an outcome.
    """
    counts = action_counts(episodes)
    if check_choice(terminal, "terminal", TERMINALS) == "icml2019":
        counts += final_states(episodes).sum(axis=1, keepdims=True)
    return behavior_of(counts, prior=prior)


def behavior_of(counts: NDArray[Any], *, prior: float = 0.0) -> Floats:
    """Return the policy whose action frequencies are these counts [S, A], [S, A]."""
    weight = counts + check_pseudo_count(prior, "prior")
    weight[counts.sum(axis=1) == 0] = 1.0
    return np.asarray(weight / weight.sum(axis=1, keepdims=True))


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

    Each final state counts once, however often it was visited, as in the published experiment.
    """
    check_final_states(episodes)
    ended = np.flatnonzero(episodes.outcome >= 0)
    final = episodes.next_state[episodes.offsets[1:] - 1][ended]
    distinct = np.unique(
        np.stack([episodes.final_key[ended], final, episodes.outcome[ended]]), axis=1
    )
    counts = np.zeros((episodes.n_states, len(episodes.outcomes)), dtype=np.int64)
    np.add.at(counts, (distinct[1], distinct[2]), 1)
    return counts


def check_final_states(episodes: Episodes) -> None:
    """Refuse a log in which a final state is unknown."""
    unknown = episodes.next_state[episodes.offsets[1:] - 1] < 0
    if unknown.any():
        raise ValueError(
            f"episode {episodes.id[int(unknown.argmax())]}: its final state is unknown, but "
            "terminal='icml2019' needs it; add a last row without action to the log, or use "
            "terminal='visits'"
        )


def greedy(
    values: ArrayLike, *, prefer: ArrayLike | None = None, tolerance: float = 1e-9
) -> Floats:
    """Return the deterministic policy that takes the action of highest value, [S, A].

    Among actions within `tolerance` of the best, those marked in `prefer` [S, A] are preferred,
    then the lowest index.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"values has shape {table.shape}, expected [states, actions]")
    if np.isnan(table).any():
        state, action = np.argwhere(np.isnan(table))[0]
        raise ValueError(
            f"the value of state {state}, action {action} is nan; every action needs a number"
        )
    best = table >= table.max(axis=1, keepdims=True) - tolerance
    if prefer is not None:
        if np.shape(prefer) != table.shape:
            raise ValueError(f"prefer has shape {np.shape(prefer)}, expected {table.shape}")
        liked = best & np.asarray(prefer, dtype=bool)
        best = np.where(liked.any(axis=1, keepdims=True), liked, best)
    policy = np.zeros_like(table)
    policy[np.arange(len(table)), best.argmax(axis=1)] = 1.0
    return policy


def join_steps(policy: Any, episodes: Episodes) -> Any:
    """Return a policy by step, [T, S, A], as one on states that count steps, [(T + 1) S, A].

    Nothing is decided at the horizon. Any other policy is returned as it is.
    """
    if not isinstance(policy, np.ndarray | list) or np.ndim(policy) != 3:
        return policy
    table, counts = np.asarray(policy, dtype=np.float64), episodes.state_variables[0]
    if not counts.clock:
        raise ValueError(
            "a policy by step, [T, S, A], needs a log that counts steps in its state; use "
            "log.with_step(), or by_step = true in [evaluation] of the study file"
        )
    levels, actions = len(counts.levels), episodes.n_actions
    shape = levels - 1, episodes.n_states // levels, actions
    if table.shape != shape:
        raise ValueError(
            f"the policy has shape {table.shape}, expected {shape}: steps up to the horizon, "
            "states without the step, actions"
        )
    last = np.full((1, *shape[1:]), 1 / actions)
    return np.concatenate([table, last]).reshape(-1, actions)


@overload
def soften(policy: Plan, epsilon: float) -> Plan: ...
@overload
def soften(policy: ArrayLike, epsilon: float) -> Floats: ...
def soften(policy: ArrayLike | Plan, epsilon: float) -> Floats | Plan:
    """Replace the action, with probability `epsilon`, by another one chosen uniformly.

    A softened `Plan` stays a plan.
    """
    if isinstance(policy, Plan):
        return policy.change(partial(softened, epsilon=epsilon))
    return softened(policy, epsilon)


def softened(policy: ArrayLike, epsilon: float) -> Floats:
    """Return the array of `soften`, [S, A]."""
    array = np.asarray(policy, dtype=np.float64)
    if not 0 <= epsilon <= 1:
        raise ValueError(f"epsilon {epsilon}: give a probability, from 0 to 1")
    if array.ndim != 2 or array.shape[1] < 2:
        raise ValueError(f"policy has shape {array.shape}: softening needs at least two actions")
    array = check_distributions(array, "policy", ("state",))
    return (1 - epsilon) * array + epsilon * (1 - array) / (array.shape[1] - 1)


def check_counts(counts: ArrayLike | None, episodes: Episodes, hidden: bool) -> NDArray[np.int64]:
    """Return the logged decisions by state and action, [S, A]; at least those of the episodes."""
    own = action_counts(episodes)
    if counts is None:
        return own
    if hidden:
        raise ValueError("counts: with a hidden state they follow from the episodes; leave it out")
    given = np.asarray(counts)
    if given.shape != own.shape or given.dtype.kind not in "iu":
        raise ValueError(
            f"counts: expected whole numbers of shape {own.shape}, got {given.dtype} of shape "
            f"{given.shape}"
        )
    if (given < own).any():
        state, action = np.argwhere(given < own)[0]
        raise ValueError(
            f"counts: {given[state, action]} at state {state}, action {action}, but these episodes "
            f"alone have {own[state, action]}; give the counts of the whole log"
        )
    return given.astype(np.int64)
