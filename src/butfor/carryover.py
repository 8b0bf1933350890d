"""Influence: how much of a counterfactual is still about the patient, step by step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from butfor import kernels
from butfor.episodes import Episodes
from butfor.mdp import TabularMDP
from butfor.planning import value_tables
from butfor.scm.mechanism import Mechanism
from butfor.streams import Progress
from butfor.task import prepare_task
from butfor.variables import Floats

NEGLIGIBLE = 0.05  # influence below this is plain simulation: no probability moves by more


@dataclass(frozen=True, eq=False)
class Influence:
    """What the observed episode still tells about its counterfactual, by step.

    The influence of a step is the mean, over the counterfactual mass that has no outcome yet, of
    the total variation between the row used, K_t(.|s, a), and the model's own, P(.|s, a): by how
    much at most the observed step changes the probability of any event there. It is 0 past the
    observed end, 0 where no mass is left, and 0 where the model leaves nothing to chance: a row
    that is certain can learn nothing from what was seen.
    """

    by_step: Floats  # [n, H]
    mass: Floats  # [n, H] probability that the counterfactual has no outcome before this step
    earned: Floats  # [n, H] expected absolute reward of this step
    other: Floats  # [n, H] part of the mass in another row (state and action) than the observed one
    apart: Floats  # [n, H] part of that in rows without a label of the observed one: K = P there

    @property
    def dies_at(self) -> NDArray[np.int64]:
        """First step from which the influence stays below .05, [n]; H where it never dies."""
        alive = self.by_step >= NEGLIGIBLE
        last = alive.shape[1] - alive[:, ::-1].argmax(axis=1)
        return np.where(alive.any(axis=1), last, 0)

    @property
    def share_after(self) -> Floats:
        """Share of the expected absolute reward earned after it has died, [n].

        Where rewards come with outcomes only, it is the share of the outcomes that are simulation.
        Where nothing is ever earned it is the share of the expected steps.
        """
        after = np.arange(self.by_step.shape[1]) >= self.dies_at[:, None]
        weight = np.where(self.earned.sum(axis=1, keepdims=True) > 0, self.earned, self.mass)
        return np.asarray((weight * after).sum(axis=1) / weight.sum(axis=1))

    @property
    def share_about(self) -> Floats:
        """Share of the expected steps at which the influence is at least .05, [n]."""
        alive = self.by_step >= NEGLIGIBLE
        return np.asarray((self.mass * alive).sum(axis=1) / self.mass.sum(axis=1))

    def frame(self, ids: ArrayLike) -> pd.DataFrame:
        """Return a row an episode and step: `id, step, influence, mass, dies_at, share_after`.

        `ids` [n] are those of the episodes.
        """
        names = np.asarray(ids)
        count, steps = self.by_step.shape
        if names.shape != (count,):
            raise ValueError(f"ids has shape {names.shape}, expected ({count},), one an episode")
        return pd.DataFrame(
            {
                "id": np.repeat(names, steps),
                "step": np.tile(np.arange(steps), count),
                "influence": self.by_step.ravel(),
                "mass": self.mass.ravel(),
                "dies_at": np.repeat(self.dies_at, steps),
                "share_after": np.repeat(self.share_after, steps),
            }
        )

    @property
    def share_apart(self) -> float:
        """Share of the pairs of rows met that have no label in common; nan where none is met.

        A pair is the observed row of a step and another one in which the counterfactual then is;
        it counts by the probability of being there. Nothing of the patient crosses such a pair.
        """
        met = float(self.other.sum())
        return float(self.apart.sum()) / met if met > 0 else float("nan")


def influence(
    episodes: Episodes,
    model: TabularMDP,
    target: ArrayLike,
    *,
    behavior: ArrayLike | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Influence:
    """Say at each step how much the observed episode changes its counterfactual's next move.

    With m_t(s, a) the probability that the counterfactual is at step t, without an outcome, in s
    and takes a, the influence at t is sum m_t TV(K_t(.|s, a), P(.|s, a)) / sum m_t.

    Parameters
    ----------
    target, behavior, mechanism, action_noise, horizon, threads, progress
        See `counterfactual_outcomes`.

    Notes
    -----
    It is about transitions: shared noise of actions decides where the mass goes, and is not itself
    counted. Where the counterfactual takes the observed action in the observed state, the influence
    is 1 - P(observed). Zero says that the counterfactual is the model's simulation, whoever the
    patient was; it does not say whether that simulation is right.
    """
    task = prepare_task(
        episodes,
        model,
        target,
        behavior=behavior,
        mechanism=mechanism,
        action_noise=action_noise,
        horizon=horizon,
    )
    # past the observed end the model tells, from each state, what follows h steps later
    sizes = replace(model, reward=np.abs(model.reward))
    values, outcomes = value_tables(sizes, task.policy, horizon=task.horizon)
    going_after = np.ascontiguousarray(outcomes[:-1, :, -1])
    earned_after = np.maximum(np.diff(values, axis=0), 0.0)
    found = [np.zeros((len(task.episodes), task.horizon)) for _ in range(5)]

    task.run(
        lambda first, last: kernels.episode_influence(
            first, last, task.problem, going_after, earned_after, *found
        ),
        threads=threads,
        progress=progress,
    )
    return Influence(*found)
