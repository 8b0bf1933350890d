"""Steps: counterfactuals step by step, with the influence of the record and the evidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from butfor.log.episodes import Episodes
from butfor.log.variables import unravel
from butfor.printed import Printed
from butfor.types import Floats

NEGLIGIBLE = 0.05  # below this influence a step is simulation: no probability changes by more
THIN = 10  # fewer similar past cases are thin evidence
SPARSE = 0.05  # steps with less mass without an outcome are ignored in `evidence_min`


@dataclass(frozen=True, eq=False, repr=False)
class Steps(Printed):
    """Influence, evidence and probabilities of n counterfactuals at each step up to the horizon H.

    All fields but `probability` are about the mass that has no outcome before a step. *Similar past
    cases* of a pair of state and action are the logged transitions of that pair, excluding those of
    the episode itself.
    """

    influence: Floats  # [n, H] mean total variation between the row used and the model's own
    mass: Floats  # [n, H] probability of no outcome yet
    earned: Floats  # [n, H] expected absolute reward
    evidence: Floats  # [n, H] median similar past cases; nan where no mass is left
    thin: Floats  # [n, H] mass at pairs with fewer than 10 of them
    other: Floats  # [n, H] mass in rows (state and action) other than the observed one
    apart: Floats  # [n, H] the part of it in rows that share no label with the observed one; nan
    # where states cannot be enumerated
    probability: Floats  # [n, H + 1, S + O] of each state and outcome; [0, …] unless requested
    latent: Floats | None = None  # [n, H + 1, L] of each of L hidden states, without an outcome

    @property
    def dies_at(self) -> NDArray[np.int64]:
        """First step from which the influence stays below .05, [n]; H where it never does."""
        alive = self.influence >= NEGLIGIBLE
        last = alive.shape[1] - alive[:, ::-1].argmax(axis=1)
        return np.where(alive.any(axis=1), last, 0)

    @property
    def share_after(self) -> Floats:
        """Share of the expected absolute reward earned from `dies_at` on, [n].

        If rewards come only with outcomes, it is the share of the outcomes that are simulation. If
        nothing is ever earned, it is the share of the expected steps.
        """
        after = np.arange(self.mass.shape[1]) >= self.dies_at[:, None]
        weight = np.where(self.earned.sum(axis=1, keepdims=True) > 0, self.earned, self.mass)
        return np.asarray((weight * after).sum(axis=1) / weight.sum(axis=1))

    @property
    def share_about(self) -> Floats:
        """Share of the expected steps at which the influence is at least .05, [n]."""
        alive = self.influence >= NEGLIGIBLE
        return np.asarray((self.mass * alive).sum(axis=1) / self.mass.sum(axis=1))

    @property
    def share_apart(self) -> float:
        """Share of the pairs of rows met that have no label in common; nan if none is met.

        A pair is the observed row of a step and a different row in which the counterfactual is at
        that step, weighted by the probability of being there. Without a common label nothing about
        the patient carries over.
        """
        met = float(self.other.sum())
        return float(self.apart.sum()) / met if met > 0 else float("nan")

    @property
    def evidence_min(self) -> Floats:
        """Least median of similar past cases, over steps with at least 5% of the mass, [n]."""
        counted = np.where(self.mass >= SPARSE, self.evidence, np.inf)
        return np.asarray(counted.min(axis=1))

    @property
    def thin_share(self) -> Floats:
        """Share of the expected steps that rest on fewer than 10 similar past cases, [n]."""
        return np.asarray(self.thin.sum(axis=1) / self.mass.sum(axis=1))

    def influence_frame(self, ids: ArrayLike) -> pd.DataFrame:
        """Return one row per episode and step, with `ids` [n] those of the episodes.

        Columns: `id, step, influence, mass, dies_at, share_after`.
        """
        names = np.asarray(ids)
        count, steps = self.influence.shape
        if names.shape != (count,):
            raise ValueError(f"ids has shape {names.shape}, expected ({count},): one per episode")
        return pd.DataFrame(
            {
                "id": np.repeat(names, steps),
                "step": np.tile(np.arange(steps), count),
                "influence": self.influence.ravel(),
                "mass": self.mass.ravel(),
                "dies_at": np.repeat(self.dies_at, steps),
                "share_after": np.repeat(self.share_after, steps),
            }
        )


def level_courses(steps: Steps, log: Episodes) -> Floats:
    """Joint probability of each level and no outcome yet at each step, and of each outcome so far.

    [n, H + 1, levels + O], the levels of each state variable of the log in turn.
    """
    if len(log.state_variables) == 1:  # whose levels are the states
        return steps.probability
    codes = unravel(log.state_variables, np.arange(log.n_states))
    states, ended = np.split(steps.probability, [log.n_states], axis=2)
    parts = []
    for variable in log.state_variables:
        # sparse: a variable may have almost as many levels as there are states
        where = (np.arange(log.n_states), codes[variable.name])
        members = csr_array(
            (np.ones(log.n_states), where), shape=(log.n_states, len(variable.levels))
        )
        found = states.reshape(-1, log.n_states) @ members
        parts.append(found.reshape(*states.shape[:2], -1))
    return np.concatenate([*parts, ended], axis=2)
