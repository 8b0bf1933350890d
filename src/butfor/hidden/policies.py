"""Policies for models with a hidden state.

A policy on the last observation is a plain array [Z, A]. The types below act on a finite memory, on
beliefs (to simulate, or as a behavior), or on the hidden state itself. An `Actor` is a policy that
acts in many episodes at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sparse
from numpy.typing import ArrayLike, NDArray

from butfor.checks import (
    check_distributions,
    check_horizon,
    check_integers,
    check_policy,
    check_whole,
)
from butfor.hidden.model import TabularPOMDP
from butfor.log.episodes import Episodes
from butfor.log.variables import unravel
from butfor.models.simulate import SparseSampler, choose, running_shares
from butfor.printed import Printed
from butfor.random import numbered_keys
from butfor.types import Floats, Integers

StatePolicy = Callable[[NDArray[np.int64]], ArrayLike]  # level codes [m, J] → [m, A]
NUMBERS = 3  # random numbers per step: the action, the next state, its observation


@dataclass(frozen=True, eq=False, repr=False)
class FiniteController(Printed):
    """A policy with M memory nodes: the node decides the action, and each observation moves it."""

    action: Floats  # [M, A] distribution of the action in each node
    following: Integers  # [M, A, Z] next node, by node, action and the observation after it
    first: Integers  # [Z] node after the first observation

    @classmethod
    def from_arrays(
        cls, action: ArrayLike, following: ArrayLike, first: ArrayLike = 0
    ) -> FiniteController:
        """Check arrays and make a controller from them.

        Parameters
        ----------
        action : [M, A]
            Distribution of the action in each node.
        following : [M, Z] or [M, A, Z]
            The next node, by observation (and by the action taken before it).
        first : [Z] or one number
            The node after the first observation.
        """
        acts = np.asarray(action, dtype=np.float64)
        if acts.ndim != 2 or 0 in acts.shape:
            raise ValueError(f"action has shape {acts.shape}, expected [nodes, actions]")
        acts = check_distributions(acts, "action", ("node",))
        nodes, actions = acts.shape
        goes = np.asarray(following)
        if goes.ndim == 2:
            goes = np.repeat(goes[:, None, :], actions, axis=1)
        if goes.ndim != 3 or goes.shape[:2] != (nodes, actions) or goes.shape[2] == 0:
            raise ValueError(
                f"following has shape {np.shape(following)}, expected [{nodes}, observations] or "
                f"[{nodes}, {actions}, observations]"
            )
        observations = goes.shape[2]
        flat = check_integers(goes.reshape(-1), "following")
        given = np.asarray(first)
        if given.ndim == 0:
            given = np.full(observations, given)
        begins = check_integers(given, "first")
        if begins.shape != (observations,):
            raise ValueError(f"first has shape {begins.shape}, expected ({observations},)")
        for name, values in (("following", flat), ("first", begins)):
            wrong = (values < 0) | (values >= nodes)
            if wrong.any():
                raise ValueError(
                    f"{name} names node {values[wrong][0]}, but there are {nodes} nodes; number "
                    "them from 0"
                )
        return cls(acts, flat.reshape(goes.shape).astype(np.int32), begins.astype(np.int32))

    @property
    def n_nodes(self) -> int:
        """Number of nodes M."""
        return len(self.action)


@dataclass(frozen=True, eq=False, repr=False)
class LatentPolicy(Printed):
    """A policy that sees the hidden state: for simulation, or a behavior that saw more."""

    table: Floats  # [H, A]


@dataclass(frozen=True, eq=False, repr=False)
class BeliefPolicy(Printed):
    """A policy on beliefs: the distribution of the hidden state given the history.

    The history is the observations and the policy's own actions, without rewards. `act` takes
    beliefs [m, H] and returns a distribution of the action for each, [m, A].
    """

    act: Callable[[Floats], ArrayLike]

    def rows(self, beliefs: Floats, actions: int) -> Floats:
        """Return the checked action distributions of many beliefs, [m, A]."""
        found = np.asarray(self.act(beliefs), dtype=np.float64)
        if found.shape != (len(beliefs), actions):
            raise ValueError(
                f"the policy on beliefs returned shape {found.shape} for {len(beliefs)} beliefs, "
                f"expected ({len(beliefs)}, {actions})"
            )
        return check_distributions(found, "policy on beliefs", ("belief",))


Policy = ArrayLike | FiniteController | LatentPolicy | BeliefPolicy | StatePolicy
FinitePolicy = Floats | FiniteController | LatentPolicy  # checked
CheckedPolicy = FinitePolicy | BeliefPolicy


def check_hidden_policy(
    policy: Policy, states: int, observations: int, actions: int, name: str
) -> CheckedPolicy:
    """Return a policy that fits a model of this size; an array acts on the last observation."""
    if isinstance(policy, BeliefPolicy):
        return policy
    if isinstance(policy, LatentPolicy):
        return LatentPolicy(check_policy(policy.table, states, actions, f"{name} on hidden states"))
    if isinstance(policy, FiniteController):
        nodes = policy.n_nodes
        if policy.action.shape[1] != actions:
            raise ValueError(
                f"{name}: the controller has {policy.action.shape[1]} actions, the model {actions}"
            )
        if policy.following.shape[2] != observations:
            raise ValueError(
                f"{name}: the controller has {policy.following.shape[2]} observations, the model "
                f"{observations}; give `following` as [{nodes}, {actions}, {observations}]"
            )
        return policy
    try:
        array = np.asarray(policy, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} is a {type(policy).__name__}; give an array ({observations}, {actions}), a "
            "FiniteController, a LatentPolicy or a BeliefPolicy"
        ) from None
    if array.shape == (states, actions) and states != observations:
        raise ValueError(
            f"{name} has shape {array.shape}, one row per hidden state; if it sees the hidden "
            f"state give LatentPolicy(table), otherwise an array ({observations}, {actions})"
        )
    return check_policy(array, observations, actions, name)


def check_finite_policy(
    policy: Policy, states: int, observations: int, actions: int, name: str
) -> FinitePolicy:
    """Return a policy that fits a model of this size and whose memory is finite."""
    checked = check_hidden_policy(policy, states, observations, actions, name)
    if isinstance(checked, BeliefPolicy):
        raise ValueError(
            f"{name}: a policy on beliefs has infinitely many memory states; give a "
            "FiniteController, or simulate it with simulate_pomdp"
        )
    return checked


def as_array(policy: Policy) -> ArrayLike:
    """Return a policy for a fully observed model; refuse the types that need a hidden state."""
    if isinstance(policy, FiniteController | LatentPolicy | BeliefPolicy):
        raise ValueError(
            f"a {type(policy).__name__} needs a TabularPOMDP; this model is fully observed, so "
            "give a policy [states, actions]"
        )
    if callable(policy):
        raise ValueError("a function of level codes needs a FactoredModel; give [states, actions]")
    return policy


def policy_rows(policy: StatePolicy, codes: NDArray[np.int64], actions: int, name: str) -> Floats:
    """Return the checked action distributions of a function of level codes [m, J], [m, A]."""
    found = np.asarray(policy(codes), dtype=np.float64)
    if found.shape != (len(codes), actions):
        raise ValueError(
            f"{name}: the function returned shape {found.shape} for {len(codes)} states, expected "
            f"({len(codes)}, {actions}): one row per state, one column per action"
        )
    return check_distributions(found, name, ("state",))


class Actor:
    """A checked policy acting in `count` episodes, with what it remembers of each."""

    def __init__(self, model: TabularPOMDP, policy: CheckedPolicy, count: int) -> None:
        self.model, self.policy = model, policy
        self.node = np.zeros(count, np.int64)
        believing = isinstance(policy, BeliefPolicy)
        self.beliefs = np.zeros((count if believing else 0, model.n_states))

    def observe(
        self, who: NDArray[np.int64], t: int, action: NDArray[Any], seen: NDArray[Any]
    ) -> None:
        """Remember the action before step t and the observation at it, in episodes `who` [m]."""
        policy = self.policy
        if isinstance(policy, FiniteController):
            following = policy.following[self.node[who], action, seen]
            self.node[who] = policy.first[seen] if t == 0 else following
        elif isinstance(policy, BeliefPolicy) and t == 0:
            self.beliefs[who] = first_beliefs(self.model, seen)
        elif isinstance(policy, BeliefPolicy):
            self.beliefs[who] = next_beliefs(self.model, self.beliefs[who], action, seen)

    def rows(self, who: NDArray[np.int64], latent: NDArray[Any], seen: NDArray[Any]) -> Floats:
        """Return the distribution of the next action in episodes `who` [m], [m, A]."""
        policy = self.policy
        if isinstance(policy, LatentPolicy):
            return policy.table[latent]
        if isinstance(policy, FiniteController):
            return policy.action[self.node[who]]
        if isinstance(policy, BeliefPolicy):
            return policy.rows(self.beliefs[who], self.model.n_actions)
        return policy[seen]


def history_rows(
    episodes: Episodes, model: TabularPOMDP, policy: FiniteController | BeliefPolicy
) -> Floats:
    """Return the policy's action distribution at each logged step given its history, [N, A]."""
    rows = np.empty((len(episodes.state), model.n_actions))
    actor = Actor(model, policy, len(episodes))
    for t in range(int(episodes.lengths.max())):
        going = np.flatnonzero(episodes.lengths > t)
        row = episodes.offsets[going] + t
        seen = episodes.state[row]
        actor.observe(going, t, episodes.action[row - 1], seen)
        if isinstance(policy, BeliefPolicy):
            impossible = np.isnan(actor.beliefs[going, 0])
            if impossible.any():
                raise ValueError(
                    f"{episodes.place(int(row[impossible.argmax()]))}: the model gives this "
                    "observation probability 0 given the steps before it; check that the model "
                    "and the log belong together"
                )
        rows[row] = actor.rows(going, seen, seen)
    return rows


@lru_cache(maxsize=8)
def _transition_matrices(model: TabularPOMDP) -> list[sparse.csr_array]:
    """Return the transitions between hidden states, one [H, H] matrix per action."""
    dynamics = model.dynamics
    entries = dynamics.probability, dynamics.next_state, dynamics.start
    rows = sparse.csr_array(entries, shape=(len(dynamics.start) - 1, model.n_states))
    return [rows[a :: model.n_actions] for a in range(model.n_actions)]


def first_beliefs(model: TabularPOMDP, seen: NDArray[Any]) -> Floats:
    """Return the beliefs after the first observations [m], [m, H]."""
    return _update(model, model.initial, seen)


def next_beliefs(
    model: TabularPOMDP, beliefs: Floats, action: NDArray[Any], seen: NDArray[Any]
) -> Floats:
    """Return the beliefs after actions [m] and the next observations [m], [m, H].

    No episode may have ended: hidden states with an outcome are excluded.
    """
    moved = np.empty_like(beliefs)
    for a, matrix in enumerate(_transition_matrices(model)):
        mine = action == a
        if mine.any():
            moved[mine] = (matrix.T @ beliefs[mine].T).T
    moved[:, model.outcome >= 0] = 0.0
    return _update(model, moved, seen)


def _update(model: TabularPOMDP, prior: Floats, seen: NDArray[Any]) -> Floats:
    """Return the beliefs given observations, [m, H]; nan where these have probability 0."""
    weights = prior * np.asarray(model.emission.tocsc()[:, seen].T.toarray())
    total = weights.sum(axis=1, keepdims=True)
    return np.divide(weights, total, out=np.full_like(weights, np.nan), where=total > 0)


def simulate_pomdp(
    model: TabularPOMDP,
    policy: Policy,
    episodes: int = 1000,
    *,
    horizon: int,
    seed: int = 0,
) -> Episodes:
    """Simulate a log from a model with a hidden state; its states are the observations.

    Episode i depends only on the seed and i. Hidden variables become side columns, which no model
    sees.
    """
    count = check_whole(episodes, "episodes", 1, "a whole number")
    check_horizon(horizon)
    actor = Actor(model, check_hidden_policy(policy, *model.sizes, "policy"), count)
    keys = numbered_keys(seed, count, "hidden state")
    dynamics, emission = model.dynamics, model.arrays.emission
    moves = SparseSampler(dynamics.start, dynamics.probability)
    shows = SparseSampler(emission.start, emission.probability)
    latent = np.full((count, horizon + 1), -1, np.int64)
    seen = np.full_like(latent, -1)
    action = np.full((count, horizon), -1, np.int64)
    reward = np.zeros((count, horizon))

    def show(who: NDArray[Any], states: NDArray[Any], counter: int) -> NDArray[Any]:
        entry = shows.draw(states, keys[who], counter)
        return np.where(entry < 0, -1, emission.label[entry])

    everyone = np.arange(count)
    first = running_shares(model.initial)
    latent[:, 0] = choose(np.broadcast_to(first, (count, len(first))), keys, 0)
    seen[:, 0] = show(everyone, latent[:, 0], 1)
    going = everyone
    for t in range(horizon):
        number = 2 + NUMBERS * t
        actor.observe(going, t, action[going, t - 1], seen[going, t])
        rows = actor.rows(going, latent[going, t], seen[going, t])
        done = choose(running_shares(rows), keys[going], number)
        entry = moves.draw(latent[going, t] * model.n_actions + done, keys[going], number + 1)
        reached = dynamics.next_state[entry]
        action[going, t], reward[going, t] = done, dynamics.reward[entry]
        latent[going, t + 1] = reached
        seen[going, t + 1] = show(going, reached, number + 2)
        going = going[model.outcome[reached] < 0]
        if len(going) == 0:
            break
    taken = action >= 0
    length = taken.sum(axis=1)
    final = latent[everyone, length]
    codes = unravel(model.state_variables, np.concatenate([latent[:, :-1][taken], final]))
    side = {
        v.name: pd.Categorical.from_codes(codes[v.name], list(v.levels), ordered=True)
        for v in model.hidden_variables
    }
    log = Episodes.from_arrays(
        seen[:, :-1][taken],
        action[taken],
        seen[:, 1:][taken],
        reward=reward[taken],
        offsets=np.append(0, np.cumsum(length)),
        outcome=model.outcome[final],
        outcomes=model.outcomes,
        states=model.observation_variables,
        actions=model.action_variables,
        horizon=horizon,
        side=pd.DataFrame(side) if side else None,
    )
    return replace(log, side_variables=model.hidden_variables)
