"""A counterfactual step by step: where it is, how far it is about the patient, what it rests on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from butfor.types import Floats

NEGLIGIBLE = 0.05  # influence below this is plain simulation: no probability moves by more
THIN = 10  # similar past cases: fewer are thin evidence
SPARSE = 0.05  # of the mass without an outcome: steps with less do not count for the least evidence


@dataclass(frozen=True, eq=False)
class Steps:
    """What the counterfactuals of n episodes are made of, by step, up to the horizon H.

    All but `probability` is about the mass that has no outcome before a step. *Similar past cases*
    of a pair of state and action are the logged transitions of that pair, without those of the
    episode itself.
    """

    influence: Floats  # [n, H] mean total variation between the row used and the model's own
    mass: Floats  # [n, H] probability of no outcome yet
    earned: Floats  # [n, H] expected absolute reward
    evidence: Floats  # [n, H] median similar past cases; nan where no mass is left
    thin: Floats  # [n, H] mass at pairs with fewer than 10 of them
    other: Floats  # [n, H] mass in another row (state and action) than the observed one
    apart: Floats  # [n, H] part of that in rows without a label of the observed one
    probability: Floats  # [n, H + 1, S + O] of each state and outcome; [0, …] unless asked for
    latent: Floats | None = None  # [n, H + 1, H] of each hidden state without outcome, likewise

    @property
    def dies_at(self) -> NDArray[np.int64]:
        """First step from which the influence stays below .05, [n]; H where it never dies."""
        alive = self.influence >= NEGLIGIBLE
        last = alive.shape[1] - alive[:, ::-1].argmax(axis=1)
        return np.where(alive.any(axis=1), last, 0)

    @property
    def share_after(self) -> Floats:
        """Share of the expected absolute reward earned after it has died, [n].

        Where rewards come with outcomes only, it is the share of the outcomes that are simulation.
        Where nothing is ever earned it is the share of the expected steps.
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
        """Share of the pairs of rows met that have no label in common; nan where none is met.

        A pair is the observed row of a step and another one in which the counterfactual then is;
        it counts by the probability of being there. Nothing of the patient crosses such a pair.
        """
        met = float(self.other.sum())
        return float(self.apart.sum()) / met if met > 0 else float("nan")

    @property
    def evidence_min(self) -> Floats:
        """Least of the median similar past cases, over steps with at least 5 % of the mass, [n]."""
        counted = np.where(self.mass >= SPARSE, self.evidence, np.inf)
        return np.asarray(counted.min(axis=1))

    @property
    def thin_share(self) -> Floats:
        """Share of the expected steps that rest on fewer than 10 similar past cases, [n]."""
        return np.asarray(self.thin.sum(axis=1) / self.mass.sum(axis=1))

    def influence_frame(self, ids: ArrayLike) -> pd.DataFrame:
        """Return a row an episode and step: `id, step, influence, mass, dies_at, share_after`.

        `ids` [n] are those of the episodes.
        """
        names = np.asarray(ids)
        count, steps = self.influence.shape
        if names.shape != (count,):
            raise ValueError(f"ids has shape {names.shape}, expected ({count},), one an episode")
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
