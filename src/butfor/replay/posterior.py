"""Uncertainty of the learned model: the same counterfactuals in models drawn from its posterior."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from butfor import kernels
from butfor.checks import check_confidence, check_discount, check_whole
from butfor.log.episodes import Episodes
from butfor.mechanisms.protocol import Compiled, Mechanism
from butfor.models.fit import count_transitions
from butfor.models.mdp import TabularMDP, total_by
from butfor.random import check_seed
from butfor.replay.task import Task, expected_outcomes, prepare_task
from butfor.threads import in_blocks
from butfor.types import Floats, Progress

NEGLIGIBLE = 1e-6  # probability of a difference, in one row at one step, that is left out
PRIOR = 0.01  # so small that a row seen a few times is what was seen, and no row is certain
LEAST = 1e-300  # smallest share of a row that a draw gives to a transition that may happen
BLOCK = 32  # episodes at a time, however many threads there are: sums come out the same
MOST_NUMBERS = 300_000_000  # in the tables of all models


@dataclass(frozen=True, eq=False)
class Credible:
    """Counterfactuals of n episodes in B models drawn from the posterior, as central intervals.

    Statistical uncertainty: how sure the counts of the log leave us of the model. It says nothing
    about the mechanism (see `counterfactual_bounds`), nor about what the states leave out.
    """

    confidence: float
    models: int  # B
    prior: float
    expected_return: Floats  # [n, 2] lower and upper end of the credible interval
    probability: Floats  # [n, O + 1, 2] of each outcome; the last is that of none
    mean_return: Floats  # [n] posterior mean
    estimates: pd.DataFrame  # estimator, value (posterior mean), low, high: MB and CF
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


@dataclass(frozen=True, eq=False)
class DrawnModels:
    """B models of one support."""

    mean: TabularMDP  # the posterior mean, whose entries all of them have
    probability: Floats  # [E, B]

    def model(self, b: int) -> TabularMDP:
        """Return model b."""
        return replace(self.mean, probability=np.ascontiguousarray(self.probability[:, b]))


def draw_models(
    episodes: Episodes,
    *,
    models: int = 200,
    prior: float = PRIOR,
    seed: int = 0,
    terminal: str = "visits",
    unseen: str | None = None,
) -> DrawnModels:
    """Draw models from the posterior of what a log tells.

    Each row of a seen pair is Dirichlet with its counts plus `prior` on every next state seen from
    that state under any action and on every outcome; rows of unseen pairs keep their rule. Model b
    depends on the seed and b only.
    """
    check_whole(models, "models", 1, "a whole number")
    check_seed(seed)
    if not np.isfinite(prior) or prior <= 0:
        raise ValueError(
            f"prior {prior}: give a number above 0; without one a row seen once would be certain"
        )
    counted = count_transitions(episodes, terminal=terminal, unseen=unseen, prior=prior)
    mean = counted.model()
    if len(mean.probability) * models > MOST_NUMBERS:
        raise ValueError(
            f"models {models}: with {len(mean.probability)} transitions there is memory for at "
            f"most {MOST_NUMBERS // len(mean.probability)}"
        )
    drawn = ~mean.unseen.ravel()[mean.entry_row]
    probability = np.empty((len(drawn), models))
    for b in range(models):
        weight = counted.weight.copy()
        gamma = np.random.default_rng([seed, b]).standard_gamma(counted.weight[drawn])
        weight[drawn] = np.maximum(gamma, LEAST)
        total = total_by(mean.entry_row, weight, len(mean.start) - 1)
        probability[:, b] = weight / total[mean.entry_row]
    return DrawnModels(mean, probability)


def credible_intervals(
    episodes: Episodes,
    target: ArrayLike,
    *,
    models: int = 200,
    prior: float = PRIOR,
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
    models : int
        How many to draw.
    prior : number above 0
        See `draw_models`. Small: the data decide; 1: every transition that may happen counts as
        seen once more.
    confidence : number
        Posterior probability of the central intervals.
    seed, terminal, unseen
        See `draw_models` and `fit_mdp`.
    behavior, mechanism, action_noise, horizon, discount, threads, progress
        See `counterfactual_outcomes`.

    Notes
    -----
    The target is kept: it is the policy to judge. Bayesian intervals under the prior stated, about
    the model's probabilities only. At each step, differences between a row and its counterfactual
    that matter with probability below 1e-6 are left out, far less than 200 draws can tell. Rows of
    pairs that were never seen are the rule's in every model, so that a target which uses them looks
    surer than it is. Noise belongs to states: a prior leaves no room for shared labels.
    """
    check_confidence(confidence)
    check_discount(discount)
    drawn = draw_models(
        episodes, models=models, prior=prior, seed=seed, terminal=terminal, unseen=unseen
    )
    task = prepare_task(
        episodes,
        drawn.mean,
        target,
        behavior=behavior,
        mechanism=mechanism,
        action_noise=action_noise,
        horizon=horizon,
    )
    count, outcomes = len(task.episodes), len(episodes.outcomes) + 1
    ends = [(1 - confidence) / 2, (1 + confidence) / 2]
    expected = np.empty((count, 2))
    probability = np.empty((count, outcomes, 2))
    mean = np.empty(count)
    blocks = -(-count // BLOCK)
    sums = np.empty((blocks, models))
    push: _Push | _SlowPush
    if isinstance(task.mechanism, Compiled):
        push = _Push(task, drawn, discount)
    else:
        push = _SlowPush(task, drawn, discount)

    def work(first_block: int, last_block: int) -> None:
        for block in range(first_block, last_block):
            first, last = block * BLOCK, min((block + 1) * BLOCK, count)
            masses, returns = push(first, last)
            expected[first:last] = np.quantile(returns, ends, axis=1).T
            probability[first:last] = np.moveaxis(np.quantile(masses, ends, axis=2), 0, -1)
            mean[first:last] = returns.mean(axis=1)
            sums[block] = returns.sum(axis=0)

    def report(done: int, _: int) -> None:
        if progress is not None:
            progress(min(done * BLOCK, count), count)

    in_blocks(work, blocks, threads=threads, progress=report)
    initial = np.bincount(task.episodes.first_state, minlength=episodes.n_states) / count
    estimates = {"MB": initial @ push.values[task.horizon], "CF": sums.sum(axis=0) / count}
    return Credible(
        confidence=confidence,
        models=models,
        prior=prior,
        expected_return=expected,
        probability=probability,
        mean_return=mean,
        estimates=pd.DataFrame(
            [(name, found.mean(), *np.quantile(found, ends)) for name, found in estimates.items()],
            columns=["estimator", "value", "low", "high"],
        ),
        outcome_names=[*(outcome.name for outcome in episodes.outcomes), episodes.none_name],
    )


class _Push:
    """The exact pass in all models, for some episodes at a time."""

    def __init__(self, task: Task, drawn: DrawnModels, discount: float) -> None:
        model = drawn.mean
        self.task, self.drawn, self.discount = task, drawn, float(discount)
        size = (task.horizon + 1, model.n_states, len(model.outcomes) + 1)
        models = drawn.probability.shape[1]
        by_model = np.ascontiguousarray(drawn.probability.T)
        self.models = kernels.Models(drawn.probability, by_model)
        self.values = np.zeros((*size[:2], models))
        self.ends = np.zeros((*size, models))
        kernels.value_tables_of_models(
            task.problem.target,
            task.problem.dynamics,
            drawn.probability,
            self.discount,
            task.horizon,
            size[2],
            self.values,
            self.ends,
        )

    def __call__(self, first: int, last: int) -> tuple[Floats, Floats]:
        """Return outcome probabilities [m, O + 1, B] and expected returns [m, B]."""
        models = self.drawn.probability.shape[1]
        masses = np.zeros((last - first, self.ends.shape[2], models))
        returns = np.zeros((last - first, models))
        impossible = kernels.exact_outcomes_of_models(
            first,
            last,
            self.task.problem,
            kernels.make_work(self.task.problem),
            self.models,
            self.discount,
            NEGLIGIBLE,
            self.values,
            self.ends,
            masses,
            returns,
        )
        self.task.refuse(impossible)
        return masses, returns


class _SlowPush:
    """The same for a mechanism that kernels do not know: one model after the other."""

    def __init__(self, task: Task, drawn: DrawnModels, discount: float) -> None:
        found = [
            expected_outcomes(task.with_model(drawn.model(b)), discount)
            for b in range(drawn.probability.shape[1])
        ]
        self.masses, self.returns, _, self.values = (
            np.stack(part, axis=-1) for part in zip(*found, strict=True)
        )

    def __call__(self, first: int, last: int) -> tuple[Floats, Floats]:
        """Return outcome probabilities [m, O + 1, B] and expected returns [m, B]."""
        return self.masses[first:last], self.returns[first:last]
