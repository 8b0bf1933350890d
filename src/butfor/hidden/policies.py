"""Policies for models with a hidden state.

A policy on the last observation is a plain array [Z, A]. The types below act on a finite memory, on
beliefs (to simulate, or as a behavior), or on the hidden state itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor.checks import check_distributions, check_integers, check_policy
from butfor.printed import Printed
from butfor.types import Floats, Integers


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


StatePolicy = Callable[[NDArray[np.int64]], ArrayLike]  # level codes [m, J] → [m, A]
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
