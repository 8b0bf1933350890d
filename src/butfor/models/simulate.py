"""Simulate logs from a model under a policy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor.checks import check_horizon, check_policy, check_whole
from butfor.log.episodes import Episodes
from butfor.log.variables import Variable
from butfor.models.mdp import TabularMDP
from butfor.random import numbered_keys, uniforms
from butfor.types import Floats, Keys, Offsets


def simulate_model(
    model: TabularMDP,
    policy: ArrayLike,
    episodes: int = 1000,
    *,
    horizon: int,
    seed: int = 0,
    initial: ArrayLike | None = None,
) -> Episodes:
    """Simulate a log from a model under a policy.

    An episode depends only on the seed and its number. `initial` [S] is the distribution of the
    first state, by default the model's. A transition into an outcome has no next state (-1).
    """
    check_whole(episodes, "episodes", 1, "a whole number")
    check_horizon(horizon)
    chosen = check_policy(policy, model.n_states, model.n_actions)
    keys = numbered_keys(seed, episodes, "model")
    start = (model if initial is None else model.with_initial(initial)).initial
    first = choose(np.broadcast_to(running_shares(start), (episodes, len(start))), keys, 0)
    walk = walk_model(model, chosen, first, keys, horizon)
    taken = walk.action >= 0
    length = taken.sum(axis=1)
    final = walk.reached[np.arange(episodes), length - 1]
    ended = final >= model.n_states
    next_state = np.where(walk.reached >= model.n_states, -1, walk.reached)
    return Episodes.from_arrays(
        walk.state[taken],
        walk.action[taken],
        next_state[taken],
        reward=walk.reward[taken],
        offsets=np.append(0, np.cumsum(length)),
        outcome=np.where(ended, final - model.n_states, -1),
        outcomes=model.outcomes,
        states=_states(model),
        actions=model.n_actions,
        horizon=horizon,
    )


def _states(model: TabularMDP) -> int | list[Variable]:
    """Return the number of states, or a variable that knows how long each decision took."""
    if model.durations is None:
        return model.n_states
    levels = tuple(map(str, range(model.n_states)))
    return [Variable("state", levels, durations=tuple(model.durations.tolist()))]


class Walk(NamedTuple):
    """Simulated steps; after the end -1, and no reward."""

    state: NDArray[np.int64]  # [n, H]
    action: NDArray[np.int64]  # [n, H]
    reached: NDArray[np.int64]  # [n, H] outcome o is S + o
    reward: Floats  # [n, H]


def walk_model(
    model: TabularMDP, policy: Floats, first: NDArray[Any], keys: Keys, horizon: int
) -> Walk:
    """Let the policy act in the model, all episodes at once, one step at a time."""
    shape = (len(first), horizon)
    state, action, reached = (np.full(shape, -1, np.int64) for _ in range(3))
    walk = Walk(state, action, reached, np.zeros(shape))
    shares = running_shares(policy)
    moves = SparseSampler(model.start, model.probability)
    going, here = np.arange(len(first)), first.astype(np.int64)
    for t in range(horizon):
        chosen = choose(shares[here], keys[going], 1 + 2 * t)
        entry = moves.draw(here * model.n_actions + chosen, keys[going], 2 + 2 * t)
        state[going, t], action[going, t] = here, chosen
        reached[going, t], walk.reward[going, t] = model.next_state[entry], model.reward[entry]
        alive = model.next_state[entry] < model.n_states
        going, here = going[alive], model.next_state[entry][alive].astype(np.int64)
    return walk


class SparseSampler:
    """Draws entries of sparse rows."""

    def __init__(self, start: Offsets, probability: Floats) -> None:
        self.start = start
        self.sums = np.append(0.0, np.cumsum(probability))

    def draw(self, row: NDArray[Any], keys: Keys, counter: int) -> NDArray[np.int64]:
        """Return an entry of each row, by the counter-th number of its key; -1 if it is empty."""
        first, last = self.start[row], self.start[row + 1] - 1
        low, high = self.sums[first], self.sums[last + 1]
        wanted = low + uniforms(keys, counter) * (high - low)
        entry = np.searchsorted(self.sums[1:], wanted, side="right")
        return np.where(last < first, -1, np.clip(entry, first, np.maximum(first, last)))


def running_shares(rows: Floats) -> Floats:
    """Return running sums along the last axis, divided by the total."""
    sums = np.cumsum(rows, axis=-1)
    return sums / sums[..., -1:]


def choose(running: Floats, keys: Keys, counter: int) -> NDArray[np.int64]:
    """Draw a column of each row of running shares."""
    return (running <= uniforms(keys, counter)[:, None]).sum(axis=1)
