"""Estimators that let the target act in a model: exactly, by draws, or fitted to the log itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike, NDArray

from butfor.checks import check_horizon, check_policy, check_whole
from butfor.episodes import Episodes
from butfor.mdp import TabularMDP
from butfor.ope.columns import Columns
from butfor.ope.importance import average, divide
from butfor.ope.problem import Problem
from butfor.streams import Keys, episode_keys, numbered_keys, uniforms
from butfor.variables import Floats

BLOCK = 1 << 21  # numbers that fitted Q evaluation holds for a step at a time


def model_based(columns: Columns, weights: Floats) -> Floats:
    """MB: mean over the first states of the target's value in the model, E[V_H(s_0)], [B]."""
    return average(columns.value, weights, columns.episodes)


def model_sampled(problem: Problem, weights: Floats) -> Floats:
    """MB by draws: mean return of one trajectory in the model from each first state, [B]."""
    log = problem.episodes
    keys = episode_keys(problem.seed, log.id, "model")
    walk = _walk(problem.model, problem.target, log.first_state, keys, problem.horizon)
    return average(walk.reward @ problem.powers, weights)


def fitted_q(problem: Problem, weights: Floats) -> Floats:
    """FQE, tabular: mean over the first states of sum_a pi(a|s) Q_H(s, a), [B].

    Q_h(s, a) is the weighted mean over the logged steps (s, a, r, s') of
    r + discount sum_a' pi(a'|s') Q_{h-1}(s', a'), with nothing to follow an outcome; 0 for pairs
    never logged.
    """
    log = problem.episodes
    used = problem.target[log.state, log.action] > 0  # no other pair has a say
    if not used.any():
        return np.zeros(len(weights))
    states, n = log.n_states + 1, len(log)  # with a last one, of value 0, after outcomes
    reached = log.next_state.astype(np.int64)
    reached[log.offsets[1:][log.outcome >= 0] - 1] = log.n_states
    row = log.state.astype(np.int64) * log.n_actions + log.action
    pair, pair_of = np.unique(row[used], return_inverse=True)
    step, step_of = np.unique(pair_of * states + reached[used], return_inverse=True)
    owner, following = np.divmod(step, states)
    first_step = np.searchsorted(owner, np.arange(len(pair)))
    episode = np.repeat(np.arange(n), log.lengths)[used]
    how_often = _sum_table(np.ones(len(episode)), episode, step_of, (n, len(step)))
    earned = _sum_table(log.reward[used], episode, pair_of, (n, len(pair)))
    starts = _sum_table(np.ones(n), np.arange(n), log.first_state, (n, states))
    chosen = _sum_table(
        problem.target.ravel()[pair],
        np.arange(len(pair)),
        pair // log.n_actions,
        (len(pair), states),
    )
    values = np.empty(len(weights))
    size = max(1, BLOCK // len(step))
    for start in range(0, len(weights), size):
        block = weights[start : start + size]
        count = block @ how_often
        total = np.add.reduceat(count, first_step, axis=1)
        gained = divide(block @ earned, total, otherwise=0.0)
        share = problem.discount * divide(count, total[:, owner], otherwise=0.0)
        value = np.zeros((len(block), states))
        for _ in range(problem.horizon):
            later = np.add.reduceat(share * value[:, following], first_step, axis=1)
            value = (gained + later) @ chosen
        values[start : start + size] = (value * (block @ starts)).sum(axis=1)
    return values / weights.sum(axis=1)


def simulate_model(
    model: TabularMDP,
    policy: ArrayLike,
    episodes: int = 1000,
    *,
    horizon: int,
    seed: int = 0,
    initial: ArrayLike | None = None,
) -> Episodes:
    """Draw a log from a model under a policy.

    An episode depends on the seed and its number only. `initial` [S] is the distribution of the
    first state, by default the model's. A transition into an outcome has no next state (-1).
    """
    check_whole(episodes, "episodes", 1, "a whole number")
    check_horizon(horizon)
    chosen = check_policy(policy, model.n_states, model.n_actions)
    keys = numbered_keys(seed, episodes, "model")
    start = (model if initial is None else model.with_initial(initial)).initial
    first = _choose(np.broadcast_to(_running_share(start), (episodes, len(start))), keys, 0)
    walk = _walk(model, chosen, first, keys, horizon)
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
        states=model.n_states,
        actions=model.n_actions,
        horizon=horizon,
    )


class _Walk(NamedTuple):
    """Drawn steps; past the end -1, and no reward."""

    state: NDArray[np.int64]  # [n, H]
    action: NDArray[np.int64]  # [n, H]
    reached: NDArray[np.int64]  # [n, H] outcome o is S + o
    reward: Floats  # [n, H]


def _walk(
    model: TabularMDP, policy: Floats, first: NDArray[Any], keys: Keys, horizon: int
) -> _Walk:
    """Let the policy act in the model, all episodes at once, a step at a time."""
    shape = (len(first), horizon)
    state, action, reached = (np.full(shape, -1, np.int64) for _ in range(3))
    walk = _Walk(state, action, reached, np.zeros(shape))
    action_share = _running_share(policy)
    sums = np.cumsum(model.probability)
    before = np.append(0.0, sums)[model.start[:-1]]
    end_of_row = model.start[1:] - 1
    going, here = np.arange(len(first)), first.astype(np.int64)
    for t in range(horizon):
        chosen = _choose(action_share[here], keys[going], 1 + 2 * t)
        row = here * model.n_actions + chosen
        low = before[row]
        wanted = low + uniforms(keys[going], 2 + 2 * t) * (sums[end_of_row[row]] - low)
        entry = np.searchsorted(sums, wanted, side="right")
        entry = np.clip(entry, model.start[row], end_of_row[row])
        state[going, t], action[going, t] = here, chosen
        reached[going, t], walk.reward[going, t] = model.next_state[entry], model.reward[entry]
        alive = model.next_state[entry] < model.n_states
        going, here = going[alive], model.next_state[entry][alive].astype(np.int64)
    return walk


def _running_share(rows: Floats) -> Floats:
    sums = np.cumsum(rows, axis=-1)
    return sums / sums[..., -1:]


def _choose(running: Floats, keys: Keys, counter: int) -> NDArray[np.int64]:
    """Draw a column of each row of running shares."""
    return (running <= uniforms(keys, counter)[:, None]).sum(axis=1)


def _sum_table(
    values: Floats, row: NDArray[Any], column: NDArray[Any], shape: tuple[int, int]
) -> sparse.csr_array:
    """Sparse table in which values with the same place are added."""
    return sparse.csr_array((values, (row, column)), shape)
