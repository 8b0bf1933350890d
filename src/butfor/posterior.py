"""Uncertainty of the learned model: the same counterfactuals in models drawn from its posterior."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from butfor.checks import check_discount, check_policy, check_whole
from butfor.episodes import Episodes
from butfor.fit import count_transitions
from butfor.mdp import TabularMDP, total_by
from butfor.ope.bootstrap import check_confidence
from butfor.scm.mechanism import Mechanism
from butfor.streams import Progress, check_seed
from butfor.task import expected_outcomes, prepare_task
from butfor.variables import Floats

LEAST = 1e-300  # smallest share of a row that a draw gives to a transition that may happen


@dataclass(frozen=True, eq=False)
class Credible:
    """Counterfactuals of n episodes in B models drawn from the posterior, as central intervals.

    Statistical uncertainty: how sure the counts of the log leave us of the model. It says nothing
    about the mechanism (see `counterfactual_bounds`), nor about what the states leave out.
    """

    confidence: float
    expected_return: Floats  # [n, 2] lower and upper end of the credible interval
    probability: Floats  # [n, O + 1, 2] of each outcome; the last is that of none
    mean_return: Floats  # [n] posterior mean
    estimates: pd.DataFrame  # estimator, value (posterior mean), low, high: MB and CF
    draws: Floats  # [B, n] expected return of each episode in each model
    outcome_names: list[str]  # none last

    def frame(self) -> pd.DataFrame:
        """Return a row an episode: `low_credible`, …, `p_<outcome>_low_credible`, …."""
        columns = {"low_credible": self.expected_return[:, 0]}
        columns["high_credible"] = self.expected_return[:, 1]
        names = [*(f"p_{name}" for name in self.outcome_names[:-1]), "p_none"]
        for o, name in enumerate(names):
            columns[f"{name}_low_credible"] = self.probability[:, o, 0]
            columns[f"{name}_high_credible"] = self.probability[:, o, 1]
        return pd.DataFrame(columns)


def draw_models(
    episodes: Episodes,
    *,
    draws: int,
    prior: float,
    seed: int = 0,
    terminal: str = "visits",
    unseen: str | None = None,
) -> Iterator[TabularMDP]:
    """Draw models from the posterior of what a log tells, one after the other.

    Each row of a seen pair is Dirichlet with its counts plus `prior` on every next state seen from
    that state under any action and on every outcome; rows of unseen pairs keep their rule. Model d
    depends on the seed and d only.
    """
    check_whole(draws, "draws", 1, "a whole number")
    check_seed(seed)
    if not np.isfinite(prior) or prior <= 0:
        raise ValueError(
            f"prior {prior}: give a number above 0; without one a row seen once would be certain"
        )
    counted = count_transitions(episodes, terminal=terminal, unseen=unseen, prior=prior)
    mean = counted.model()
    row, fixed = mean.entry_row, mean.unseen.ravel()[mean.entry_row]
    for d in range(draws):
        generator = np.random.default_rng([seed, d])
        weight = np.maximum(generator.standard_gamma(counted.weight), LEAST)
        weight = np.where(fixed, counted.weight, weight)
        total = total_by(row, weight, len(mean.start) - 1)
        yield replace(mean, probability=weight / total[row])


def credible_intervals(
    episodes: Episodes,
    target: ArrayLike,
    *,
    draws: int = 200,
    prior: float = 0.01,
    confidence: float = 0.95,
    seed: int = 0,
    terminal: str = "visits",
    unseen: str | None = None,
    behavior: ArrayLike | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    discount: float = 1.0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Credible:
    """Say for each episode, and for MB and CF, how far the log leaves the model open.

    Parameters
    ----------
    draws : int
        Models to draw.
    prior : number above 0
        See `draw_models`. Small: the data decide; 1: every transition that may happen counts as
        seen once more.
    confidence : number
        Posterior probability of the central intervals.
    behavior, mechanism, action_noise, horizon, discount, threads
        See `counterfactual_outcomes`.
    progress : optional
        Called with (models done, models in all).

    Notes
    -----
    The target is kept: it is the policy to judge. Bayesian intervals under the prior stated, about
    the model's probabilities only.
    """
    check_confidence(confidence)
    policy = check_policy(target, episodes.n_states, episodes.n_actions, "target")
    check_discount(discount)
    returns, probabilities, values = [], [], []
    task = None
    for d, model in enumerate(
        draw_models(episodes, draws=draws, prior=prior, seed=seed, terminal=terminal, unseen=unseen)
    ):
        if task is None:
            task = prepare_task(
                episodes,
                model,
                policy,
                behavior=behavior,
                mechanism=mechanism,
                action_noise=action_noise,
                horizon=horizon,
            )
        task = task.with_model(model)
        probability, expected, after = expected_outcomes(task, discount, threads=threads)
        returns.append(expected)
        probabilities.append(probability)
        values.append(float(model.initial @ after[task.horizon]))
        if progress is not None:
            progress(d + 1, draws)
    ends = [(1 - confidence) / 2, (1 + confidence) / 2]
    drawn = np.stack(returns)
    estimates = {"MB": np.array(values), "CF": drawn.mean(axis=1)}
    return Credible(
        confidence=confidence,
        expected_return=np.quantile(drawn, ends, axis=0).T,
        probability=np.moveaxis(np.quantile(np.stack(probabilities), ends, axis=0), 0, -1),
        mean_return=drawn.mean(axis=0),
        estimates=pd.DataFrame(
            [(name, found.mean(), *np.quantile(found, ends)) for name, found in estimates.items()],
            columns=["estimator", "value", "low", "high"],
        ),
        draws=drawn,
        outcome_names=[*(outcome.name for outcome in episodes.outcomes), episodes.none_name],
    )
