"""Values of the target in the model at what was logged."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from butfor.log.episodes import Episodes
from butfor.models.mdp import TabularMDP
from butfor.types import Floats


class Values(NamedTuple):
    """Expected returns of the target in the model, with h = H - t steps left at step t."""

    state: Floats  # [N] V_h(s_t) of each logged state
    action: Floats  # [N] Q_h(s_t, a_t) of each logged pair
    final: Floats  # [n] of the state in which an episode stopped without an outcome, else 0


def values_from_table(
    values: Floats,
    model: TabularMDP,
    log: Episodes,
    horizon: int,
    discounts: Floats,
    *,
    rows: Floats | None = None,
) -> Values:
    """Return the values at what was logged, from those by steps left and state, [H + 1, S].

    Q_h(s, a) = sum_j P(j|s, a) (r + d(j) V_{h - 1}(j)), where nothing follows an outcome, with
    `discounts` d [S] of the states reached.

    `rows` [N, A] is what a policy on more than the state does: it decides the value of each logged
    state, sum_a pi(a|row) Q_h(s, a), and is followed by its average.
    """
    left = horizon - log.time
    state, action = values[left, log.state], np.zeros(len(left))
    # the narrowest integers, which are sorted fastest
    order = np.argsort(left.astype(np.min_scalar_type(horizon)), kind="stable")
    pair = log.state.astype(np.int64) * model.n_actions + log.action
    known, first = np.unique(left[order], return_index=True)
    for steps, mine in zip(known.tolist(), np.split(order, first[1:]), strict=True):
        later = np.append(discounts * values[steps - 1], np.zeros(len(model.outcomes)))
        following = model.reward + later[model.next_state]
        expected = model.probability * following
        table = np.add.reduceat(expected, model.start[:-1])
        action[mine] = table[pair[mine]]
        if rows is not None:
            actions = table.reshape(-1, model.n_actions)[log.state[mine]]
            state[mine] = (rows[mine] * actions).sum(axis=1)
    final = values[horizon - log.lengths, log.next_state[log.offsets[1:] - 1]]
    return Values(state, action, np.where(log.outcome < 0, final, 0.0))
