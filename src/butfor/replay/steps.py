"""A counterfactual step by step: where it is, how far it is about the patient, what it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from butfor import kernels
from butfor.checks import check_discount
from butfor.hidden.chain import walk_hidden
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.policies import Policy, as_array
from butfor.hidden.task import HiddenTask
from butfor.log.episodes import Episodes
from butfor.mechanisms.protocol import Mechanism
from butfor.models.mdp import TabularMDP
from butfor.models.planning import value_tables
from butfor.models.policies import action_counts
from butfor.replay.outcomes import Counterfactuals, counterfactual_outcomes
from butfor.replay.task import Task, prepare, prepare_task
from butfor.types import Floats, Progress

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


def walk_through(
    episodes: Episodes,
    model: TabularMDP | TabularPOMDP,
    target: Policy,
    *,
    behavior: Policy | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    counts: ArrayLike | None = None,
    probability: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Steps:
    """Walk through each counterfactual: where it is at each step, and what that rests on.

    With m_t(s, a) the probability that the counterfactual is at step t, without an outcome, in s
    and takes a, the influence at t is sum m_t TV(K_t(.|s, a), P(.|s, a)) / sum m_t: by how much at
    most the observed step changes the probability of any event there. It is 0 past the observed
    end, and 0 where the model leaves nothing to chance.

    Parameters
    ----------
    behavior, mechanism, action_noise, horizon, threads, progress
        See `counterfactual_outcomes`.
    counts : [S, A], optional
        Logged transitions of each pair, those of these episodes among them; by default counted
        from these episodes. Give those of the whole log when walking through a part of it.
    probability : bool
        Whether to keep the probability of every state at every step: memory for n H S numbers.

    Notes
    -----
    Influence is about transitions: shared noise of actions decides where the mass goes, and is not
    itself counted. Where the counterfactual takes the observed action in the observed state, the
    influence is 1 - P(observed). Zero says that the counterfactual is the model's simulation,
    whoever the patient was; it does not say whether that simulation is right.

    Where the state is hidden, similar past cases are those of a hidden state and action that the
    posterior expects in these episodes, and `counts` cannot be given.
    """
    task = prepare(
        episodes,
        model,
        target,
        behavior=behavior,
        mechanism=mechanism,
        action_noise=action_noise,
        horizon=horizon,
    )
    if isinstance(task, HiddenTask):
        if counts is not None:
            raise ValueError("counts: where the state is hidden they follow from the episodes")
        found = walk_hidden(
            task, float(THIN), probability=probability, threads=threads, progress=progress
        )
        given = found._asdict()
        seen, latent, ended = (given.pop(name) for name in ("seen", "latent", "ended"))
        place = np.concatenate([seen, ended], axis=2)
        return Steps(**given, probability=place, latent=latent)
    return _walk(
        task,
        episodes,
        counts,
        discount=1.0,
        probability=probability,
        threads=threads,
        progress=progress,
    )[2]


def walk_and_judge(
    episodes: Episodes,
    model: TabularMDP | TabularPOMDP,
    target: Policy,
    *,
    behavior: Policy | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    discount: float = 1.0,
    counts: ArrayLike | None = None,
    probability: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[Counterfactuals, Steps]:
    """Return what `counterfactual_outcomes` and `walk_through` do, by one pass where it can.

    See these for the parameters. Where the state is hidden there are two passes, and `progress` is
    told of the first.
    """
    if isinstance(model, TabularPOMDP):
        options: dict[str, Any] = {
            "behavior": behavior,
            "mechanism": mechanism,
            "action_noise": action_noise,
            "horizon": horizon,
            "threads": threads,
        }
        result = counterfactual_outcomes(
            episodes, model, target, discount=discount, progress=progress, **options
        )
        return result, walk_through(
            episodes, model, target, counts=counts, probability=probability, **options
        )
    task = prepare_task(
        episodes,
        model,
        as_array(target),
        behavior=None if behavior is None else as_array(behavior),
        mechanism=mechanism,
        action_noise=action_noise,
        horizon=horizon,
    )
    outcomes, expected_return, steps = _walk(
        task,
        episodes,
        counts,
        discount=check_discount(discount),
        probability=probability,
        threads=threads,
        progress=progress,
    )
    result = Counterfactuals(
        episodes=task.episodes,
        probability=outcomes,
        expected_return=expected_return,
        observed_return=task.episodes.returns(discount),
        horizon=task.horizon,
        discount=float(discount),
        action_noise=action_noise,
        mechanism=mechanism,
    )
    return result, steps


def _walk(
    task: Task,
    episodes: Episodes,
    counts: ArrayLike | None,
    *,
    discount: float,
    probability: bool,
    threads: int | None,
    progress: Progress | None,
) -> tuple[Floats, Floats, Steps]:
    """Return outcome probabilities [n, O + 1], expected returns [n] and steps, by one pass.

    `episodes` are those of the task before they were cut at the horizon.
    """
    logged = action_counts(episodes) if counts is None else _check_counts(counts, episodes)
    # the episode itself is taken off whole, what was cut at the horizon included
    own_row = episodes.state.astype(np.int64) * task.model.n_actions + episodes.action
    values, outcomes = value_tables(
        task.model, task.policy, horizon=task.horizon, discount=discount
    )
    size = (len(task.episodes), task.horizon)
    judged = kernels.Judged(
        discount, values, outcomes, np.zeros((size[0], outcomes.shape[2])), np.zeros(size[0])
    )
    walked = kernels.Steps(
        influence=np.zeros(size),
        mass=np.zeros(size),
        earned=np.zeros(size),
        evidence=np.full(size, np.nan),
        thin=np.zeros(size),
        other=np.zeros(size),
        apart=np.zeros(size),
        probability=np.zeros(
            (
                size[0] if probability else 0,
                task.horizon + 1,
                task.model.n_states + len(task.model.outcomes),
            )
        ),
    )
    task.run(
        lambda first, last, work: kernels.walk_episodes(
            first,
            last,
            task.problem,
            work,
            judged,
            logged,
            own_row,
            episodes.offsets,
            float(THIN),
            walked,
        ),
        threads=threads,
        progress=progress,
    )
    return judged.outcome_mass, judged.expected_return, Steps(**walked._asdict())


def _check_counts(counts: ArrayLike, episodes: Episodes) -> NDArray[np.int64]:
    given = np.asarray(counts)
    own = action_counts(episodes)
    if given.shape != own.shape or given.dtype.kind not in "iu":
        raise ValueError(
            f"counts: expected whole numbers of shape {own.shape}, got {given.dtype} of shape "
            f"{given.shape}"
        )
    if (given < own).any():
        state, action = np.argwhere(given < own)[0]
        raise ValueError(
            f"counts: {given[state, action]} at state {state}, action {action}, but these episodes "
            f"alone have {own[state, action]}; give those of the whole log"
        )
    return given.astype(np.int64)
