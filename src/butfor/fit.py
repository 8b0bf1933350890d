"""Learning a TabularMDP from a log by counting."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor.episodes import Episodes, Floats, Offsets, Outcome, total_by
from butfor.mdp import TabularMDP, assemble, coalesce
from butfor.policy import action_counts, final_states

TERMINALS = ("visits", "icml2019")


def fit_mdp(
    episodes: Episodes,
    *,
    terminal: str = "visits",
    unseen: str | None = None,
    prior: float = 0.0,
    labels: ArrayLike | None = None,
) -> TabularMDP:
    """Learn a model from the transitions of a log by counting.

    Parameters
    ----------
    terminal : "visits" or "icml2019"
        How ends are counted. `visits`: the last transition of an episode with an outcome leads
        straight into it. `icml2019`: it leads to the final state, and each distinct unreduced
        final state adds one count, for every action, from its state into its outcome (what the
        published code of the paper does; kept to reproduce its numbers).
    unseen : optional
        Where a state-action pair that was never seen leads: the name of an outcome (default: the
        one of lowest reward); "uniform", over what followed that state under any action; or
        "self-loop". States from which nothing was seen loop in the last two.
    prior : number, optional
        Added to the count of every next state seen from that state under any action and of every
        outcome, in the rows of seen pairs.
    labels : optional
        See `TabularMDP.with_labels`.

    Notes
    -----
    The reward of a transition is the mean of those logged, with a warning where they vary. The
    model is causal only as far as the log's states hold all that moved both treatment and course.
    """
    if terminal not in TERMINALS:
        raise ValueError(f"terminal {terminal!r}: give one of {', '.join(TERMINALS)}")
    if not np.isfinite(prior) or prior < 0:
        raise ValueError(f"prior {prior}: give a number, 0 or more")
    states, actions, ends = episodes.n_states, episodes.n_actions, episodes.outcomes
    columns = states + len(ends)
    counts = action_counts(episodes)
    row = episodes.state.astype(np.int64) * actions + episodes.action
    logged = row * columns + destinations(episodes, terminal)
    keys, weight, reward = coalesce(logged, np.ones(len(row)), _step_rewards(episodes, terminal))
    _warn_of_varying_rewards(episodes, logged, keys, reward, terminal)

    if terminal == "icml2019":
        finals = final_states(episodes)
        state, end = np.nonzero(finals)
        extra = ((state[:, None] * actions + np.arange(actions)) * columns).ravel() + np.repeat(
            states + end, actions
        )
        value = np.array([outcome.reward for outcome in ends])[end]
        keys, weight, reward = coalesce(
            np.concatenate([keys, extra]),
            np.concatenate([weight, np.repeat(finals[state, end], actions).astype(np.float64)]),
            np.concatenate([reward, np.repeat(value, actions)]),
        )
    made_up = np.ones(states * actions, dtype=bool)
    made_up[keys // columns] = False
    followers = np.unique(keys // columns // actions * columns + keys % columns)  # (state, next)
    if prior > 0:
        keys, weight, reward = _add_prior(
            keys, weight, reward, prior, followers, ~made_up.reshape(states, actions), ends
        )
    if made_up.any():
        filled = _fill_unseen(np.flatnonzero(made_up), unseen, followers, actions, columns, ends)
        keys, weight, reward = (
            np.concatenate(pair) for pair in zip((keys, weight, reward), filled, strict=True)
        )
    return assemble(
        keys,
        weight,
        reward,
        states=states,
        actions=actions,
        outcomes=ends,
        labels=labels,
        initial=np.bincount(episodes.first_state, minlength=states) / len(episodes),
        counts=counts,
        unseen=made_up.reshape(states, actions),
        terminal=terminal,
    )


def destinations(episodes: Episodes, terminal: str) -> NDArray[np.int64]:
    """Return where each transition of a log leads in a model with these ends, [N]."""
    reached = episodes.next_state.astype(np.int64)
    last = episodes.offsets[1:] - 1
    if terminal == "visits":
        ended = episodes.outcome >= 0
        reached[last[ended]] = episodes.n_states + episodes.outcome[ended]
    elif (reached[last] < 0).any():
        final_states(episodes)  # says which episode's final state is missing
    return reached


def _step_rewards(episodes: Episodes, terminal: str) -> Floats:
    """Rewards of the transitions; with icml2019 ends the outcome's share is earned later."""
    reward = episodes.reward.copy()
    if terminal == "icml2019" and episodes.outcomes:
        ended = np.flatnonzero(episodes.outcome >= 0)
        value = np.array([outcome.reward for outcome in episodes.outcomes])
        reward[episodes.offsets[1:][ended] - 1] -= value[episodes.outcome[ended]]
    return reward


def _warn_of_varying_rewards(
    episodes: Episodes, logged: Offsets, keys: Offsets, mean: Floats, terminal: str
) -> None:
    gap = np.abs(_step_rewards(episodes, terminal) - mean[np.searchsorted(keys, logged)])
    if (gap > 1e-9).any():
        first = int(np.flatnonzero(gap > 1e-9)[0])
        warnings.warn(
            f"the reward of {len(np.unique(logged[gap > 1e-9]))} transitions varies for the same "
            f"state, action and next state (first at row {first}: state {episodes.state[first]}, "
            f"action {episodes.action[first]}); the model uses the mean, so that expected returns "
            "differ from observed ones even where nothing else does",
            stacklevel=3,
        )


def _add_prior(
    keys: Offsets,
    weight: Floats,
    reward: Floats,
    prior: float,
    followers: Offsets,
    seen: NDArray[np.bool_],
    ends: tuple[Outcome, ...],
) -> tuple[Offsets, Floats, Floats]:
    """Add the prior to seen rows; a transition never logged earns what others to there earn."""
    states, actions = seen.shape
    columns = states + len(ends)
    visited = np.flatnonzero(seen.any(axis=1))
    into_ends = (visited[:, None] * columns + states + np.arange(len(ends))).ravel()
    pairs = np.union1d(followers, into_ends)
    pair_of_key = np.searchsorted(pairs, keys // columns // actions * columns + keys % columns)
    total = total_by(pair_of_key, weight, len(pairs))
    usual = total_by(pair_of_key, weight * reward, len(pairs)) / np.maximum(total, 1e-300)
    end = pairs % columns - states
    if ends:
        value = np.array([outcome.reward for outcome in ends])
        usual = np.where((total == 0) & (end >= 0), value[np.maximum(end, 0)], usual)
    pair, action = np.nonzero(seen[pairs // columns])
    extra = (pairs[pair] // columns * actions + action) * columns + pairs[pair] % columns
    both, position = np.unique(np.concatenate([keys, extra]), return_inverse=True)
    summed = total_by(position, np.concatenate([weight, np.full(len(extra), prior)]), len(both))
    earned = np.empty(len(both))
    earned[position[len(keys) :]] = usual[pair]
    earned[position[: len(keys)]] = reward
    return both, summed, earned


def _fill_unseen(
    rows: Offsets,
    rule: str | None,
    followers: Offsets,
    actions: int,
    columns: int,
    ends: tuple[Outcome, ...],
) -> tuple[Offsets, Floats, Floats]:
    """Return keys, weights and rewards of the rows that nothing was seen of."""
    names = [outcome.name for outcome in ends]
    states = columns - len(ends)
    if rule is None and not ends:
        raise ValueError(
            f"{len(rows)} state-action pairs were never seen and there is no outcome to send them "
            "to; choose unseen='uniform' or unseen='self-loop'"
        )
    if rule is None or rule in names:
        value = np.array([outcome.reward for outcome in ends])
        end = int(value.argmin()) if rule is None else names.index(rule)
        return rows * columns + states + end, np.ones(len(rows)), np.full(len(rows), value[end])
    if rule not in ("uniform", "self-loop"):
        raise ValueError(
            f"unseen {rule!r}: give an outcome ({', '.join(names)}), 'uniform' or 'self-loop'"
        )
    loops = rows * columns + rows // actions
    if rule == "self-loop":
        return loops, np.ones(len(rows)), np.zeros(len(rows))
    bounds = np.searchsorted(followers, np.arange(states + 1) * columns)
    count = np.diff(bounds)[rows // actions]
    alone = count == 0
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    column = followers[np.repeat(bounds[rows // actions], count) + within] % columns
    value = np.array([0.0] * states + [outcome.reward for outcome in ends])
    keys = np.concatenate([np.repeat(rows, count) * columns + column, loops[alone]])
    reward = np.concatenate([value[column], np.zeros(alone.sum())])
    return keys, np.ones(len(keys)), reward
