"""Simulate logs from a factored model under a policy, whatever the number of states."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from butfor import kernels
from butfor.checks import check_horizon, check_whole
from butfor.hidden.policies import StatePolicy, policy_rows
from butfor.log.episodes import Episodes
from butfor.mechanisms.independent import Independent
from butfor.models.factored import FactoredModel
from butfor.models.simulate import running_shares
from butfor.models.step_factored import FactoredSteps, Stream
from butfor.random import numbered_keys, uniforms


def simulate_factored(
    model: FactoredModel,
    policy: StatePolicy,
    episodes: int = 1000,
    *,
    horizon: int,
    seed: int = 0,
) -> Episodes:
    """Simulate a log from a factored model; it is wide if the model is.

    The policy is a function of level codes, [m, J] → [m, A]. An episode depends only on the seed
    and its number. First states are those of the log that the model was learned from.
    """
    check_whole(episodes, "episodes", 1, "a whole number")
    check_horizon(horizon)
    moves = FactoredSteps(model, Independent().coupling)
    keys = numbered_keys(seed, episodes, "factored")
    first = np.searchsorted(running_shares(model.initial), uniforms(keys, 0), side="right")
    start = model.codes(first, np.zeros(episodes, np.int64))
    codes = {variable.name: start[variable.name] for variable in model.state_variables}
    going, rows = np.arange(episodes), []
    outcome = np.full(episodes, -1)
    for t in range(horizon):
        stream = Stream(keys[going], np.full(len(going), 1 + t * moves.numbers))
        before = np.stack(list(codes.values()), axis=1)
        action = _act(policy_rows(policy, before, model.n_actions, "policy"), stream)
        after, end, reward = moves.draw(codes, action, stream)
        reached = np.stack(list(after.values()), axis=1)
        rows.append((going, before, action, reached, reward))
        alive = end == len(model.outcomes)
        outcome[going[~alive]] = end[~alive]
        going, codes = going[alive], {name: code[alive] for name, code in after.items()}
    episode, state, chosen, following, earned = (
        np.concatenate(column) for column in zip(*rows, strict=True)
    )
    order = np.argsort(episode, kind="stable")
    return Episodes.from_codes(
        state[order],
        chosen[order],
        following[order],
        reward=earned[order],
        offsets=np.append(0, np.cumsum(np.bincount(episode))),
        outcome=outcome,
        outcomes=model.outcomes,
        states=model.state_variables,
        actions=model.action_variables,
        horizon=horizon,
        wide=model.combinations is not None,
    )


def _act(rows: NDArray[np.float64], stream: Stream) -> NDArray[np.intp]:
    """Draw an action from each row, [m]."""
    action, none = np.empty(len(rows), np.intp), np.full(len(rows), -1)
    coupling = Independent().coupling(rows.shape[1])
    kernels.draw_levels(coupling, rows, np.arange(len(rows)), none, none, *stream, 0, action)
    return action
