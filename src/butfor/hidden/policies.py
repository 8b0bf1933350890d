"""Policies where the state is hidden: on the last observation, with memory, on beliefs, on all.

A policy on the last observation is a plain array [Z, A]; the others are the types below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from butfor.checks import check_distributions, check_integers, check_policy
from butfor.types import Floats, Integers


@dataclass(frozen=True, eq=False)
class FiniteController:
    """A policy with M nodes of memory: acts by its node, which moves on with what is seen."""

    action: Floats  # [M, A] distribution of the action in each node
    following: Integers  # [M, A, Z] node after an action and what it showed
    first: Integers  # [Z] node after the first observation

    @classmethod
    def from_arrays(
        cls, action: ArrayLike, following: ArrayLike, first: ArrayLike = 0
    ) -> FiniteController:
        """Check arrays and make a controller of them.

        Parameters
        ----------
        action : [M, A]
        following : [M, Z] or [M, A, Z]
            The node that comes after seeing an observation (and having taken an action).
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
        begins = check_integers(
            np.broadcast_to(np.asarray(first), (observations,))
            if np.ndim(first) == 0
            else np.asarray(first),
            "first",
        )
        if begins.shape != (observations,):
            raise ValueError(f"first has shape {begins.shape}, expected ({observations},)")
        for name, values in (("following", flat), ("first", begins)):
            wrong = (values < 0) | (values >= nodes)
            if wrong.any():
                raise ValueError(
                    f"{name} names node {values[wrong][0]}, but there are {nodes}; count from 0"
                )
        return cls(acts, flat.reshape(goes.shape).astype(np.int32), begins.astype(np.int32))

    @property
    def n_nodes(self) -> int:
        """Number of nodes M."""
        return len(self.action)


@dataclass(frozen=True, eq=False)
class LatentPolicy:
    """A policy that sees the hidden state: for simulation, and for a behaviour that saw more."""

    table: Floats  # [H, A]


@dataclass(frozen=True, eq=False)
class BeliefPolicy:
    """A policy that acts on what can be known: the distribution of the hidden state given all seen.

    Seen are observations and its own actions, not rewards.
    `act` takes beliefs [m, H] and returns a distribution of the action for each, [m, A].
    """

    act: Callable[[Floats], ArrayLike]

    def rows(self, beliefs: Floats, actions: int) -> Floats:
        """Ask for the actions of many beliefs, and check the answer, [m, A]."""
        found = np.asarray(self.act(beliefs), dtype=np.float64)
        if found.shape != (len(beliefs), actions):
            raise ValueError(
                f"the policy on beliefs returned shape {found.shape} for {len(beliefs)} beliefs, "
                f"expected ({len(beliefs)}, {actions})"
            )
        return check_distributions(found, "policy on beliefs", ("belief",))


Policy = ArrayLike | FiniteController | LatentPolicy | BeliefPolicy


def check_hidden_policy(
    policy: Policy, states: int, observations: int, actions: int, name: str
) -> Floats | FiniteController | LatentPolicy | BeliefPolicy:
    """Return a policy that fits a model of this size; arrays are on the last observation."""
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
                f"{name}: the controller knows {policy.following.shape[2]} observations, the model "
                f"has {observations}; give `following` [{nodes}, {actions}, {observations}]"
            )
        return policy
    try:
        array = np.asarray(policy, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name}: a {type(policy).__name__}; give an array ({observations}, {actions}), a "
            "FiniteController, LatentPolicy or BeliefPolicy"
        ) from None
    if array.shape == (states, actions) and states != observations:
        raise ValueError(
            f"{name} has shape {array.shape}, a row a hidden state; if it sees the hidden state "
            f"give LatentPolicy(table), otherwise an array ({observations}, {actions})"
        )
    return check_policy(array, observations, actions, name)


def as_array(policy: Policy) -> ArrayLike:
    """Return a policy for a model whose state is seen: refuse those that need a hidden one."""
    if isinstance(policy, FiniteController | LatentPolicy | BeliefPolicy):
        raise ValueError(
            f"a {type(policy).__name__} needs a TabularPOMDP; the state of this model is seen, so "
            "give a policy [states, actions]"
        )
    return policy
