"""Thirty variables: models learned from the same logs, judged by what is true in the ward.

States cannot be enumerated, so single patients are predicted by particles and policies are planned
by fitted Q iteration; only clusters of states have a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from butfor.hidden.policies import StatePolicy
from butfor.log.episodes import Episodes
from butfor.models.classifiers import (
    BOOSTING,
    make_classifier,
    make_logistic,
    make_ridge,
    one_thread,
)
from butfor.models.factored import FactoredModel
from butfor.models.fit import fit_mdp
from butfor.models.fit_factored import fit_factored
from butfor.models.fitted_q import FittedQ, fit_q, fitted_q_policy
from butfor.models.planning import policy_iteration, value_tables
from butfor.models.simulate_factored import simulate_factored
from butfor.replay.particles import state_table
from butfor.replay.replay import Replay
from butfor.studies.article import DISCOUNT, Advance
from butfor.studies.models.clustered import Clustered, cluster_states
from butfor.studies.models.wide.world import (
    DRUGS,
    HORIZON,
    first_states,
    fixed_rule,
    physicians,
    simulate,
    true_model,
)
from butfor.studies.scoring import brier

COUNTS, LOGISTIC, CROSSED, BOOSTED = "Counts", "Logistic", "Logistic × drugs", "Boosting"
LOG_ITSELF, TRUE = "The log itself", "True model"
CLUSTERS = {f"{count} clusters": count for count in (100, 500)}
FACTORED = (COUNTS, LOGISTIC, CROSSED, BOOSTED)
MODELS = (*FACTORED, *CLUSTERS, TRUE)
PLANNERS = (*FACTORED, LOG_ITSELF, *CLUSTERS, TRUE)
HALVED = (COUNTS, CROSSED)  # models whose plan is also judged by the other half's model
Row = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """How much is simulated."""

    episodes: int = 1000  # of each log
    scored: int = 250  # of them, one by one: the first
    draws: int = 50  # particles for each; their variance is subtracted from the score
    planning: int = 10_000  # simulated episodes on which a policy is planned
    best: int = 50_000  # on which the policy of the true model is planned
    judging: int = 10_000  # fresh patients who tell what a policy is worth


@dataclass(frozen=True, eq=False)
class WideExperiment:
    """What each model says on each log, and what is true."""

    sizes: Sizes
    scores: pd.DataFrame  # repeat, model, brier, base, cf, true: of single patients, fixed rule
    plans: pd.DataFrame  # repeat, model, gain, true, claimed: of each model's own plan
    halves: pd.DataFrame  # repeat, model, true, own, other: of plans made on half of the log
    physicians: float  # what the physicians are worth, over the patients of all logs


def run_wide(
    seeds: list[int], sizes: Sizes | None = None, *, advance: Advance = lambda: None
) -> WideExperiment:
    """Compare the models on one log for each seed; the next seed's patients judge its policies."""
    with one_thread():
        return _compare(seeds, sizes or Sizes(), advance)


def _compare(seeds: list[int], size: Sizes, advance: Advance) -> WideExperiment:
    best = fitted_q_policy(
        true_model(first_states(size.judging, 0)),
        make_ridge(),
        horizon=HORIZON,
        episodes=size.best,
    ).policy
    scores: list[Row] = []
    plans: list[Row] = []
    halves: list[Row] = []
    usual = []
    for repeat, seed in enumerate(seeds):
        log = simulate(physicians, size.episodes, seed=seed)
        judge = Judge(size.judging, seed + 1)
        usual.append(judge.value(physicians))
        models = {name: learn(name, log) for name in FACTORED}
        models[TRUE] = true_model(first_states(size.episodes, seed))
        clusters = {name: cluster_states(log, count) for name, count in CLUSTERS.items()}
        cell = {"repeat": repeat}
        scores += [cell | row for row in score_rows(log, models, clusters, seed, size)]
        for row in plan_rows(log, models, clusters, best, judge, size):
            plans.append(cell | row | {"gain": row["true"] - usual[-1]})
        halves += [cell | half_row(name, log, judge, size) for name in HALVED]
        advance()
    return WideExperiment(
        size,
        pd.DataFrame(scores),
        pd.DataFrame(plans),
        pd.DataFrame(halves),
        float(np.mean(usual)),
    )


@dataclass(frozen=True)
class Judge:
    """Fresh patients with their noise, who are the same for every policy."""

    patients: int
    seed: int

    def value(self, policy: StatePolicy) -> float:
        """Return what a policy is truly worth to them."""
        return float(simulate(policy, self.patients, seed=self.seed).returns().mean())

    def claim(self, model: FactoredModel, policy: StatePolicy) -> float:
        """Return the value of a policy in a model, over as many patients of its own."""
        seen = simulate_factored(model, policy, self.patients, horizon=HORIZON, seed=self.seed)
        return float(seen.returns().mean())


def learn(name: str, log: Episodes) -> FactoredModel:
    """Learn a factored model from a log."""
    if name == COUNTS:
        return fit_factored(log)
    if name == BOOSTED:
        return fit_factored(log, make_classifier(BOOSTING))
    return fit_factored(log, make_logistic(crossed=2 * len(DRUGS) if name == CROSSED else 0))


def score_rows(
    log: Episodes,
    models: dict[str, FactoredModel],
    clusters: dict[str, Clustered],
    seed: int,
    size: Sizes,
) -> Iterator[Row]:
    """Yield the scores of the predictions for single patients under the fixed rule.

    `base` is the score of an oracle that knows how often each outcome truly happens among them.
    """
    lived = simulate(fixed_rule, len(log), seed=seed).select(np.arange(size.scored))
    truth = (lived.outcome % (len(lived.outcomes) + 1)).astype(np.int64)
    share = np.bincount(truth, minlength=len(lived.outcomes) + 1) / len(truth)
    known = {"base": float(1 - (share**2).sum()), "true": float(lived.returns().mean())}
    patients = log.select(np.arange(size.scored))
    for name, model in models.items():
        found = Replay(patients, model, fixed_rule).outcomes(draws=size.draws, seed=seed)
        score = brier(found.probability, truth, draws=size.draws)
        cf = float(found.expected_return.mean())
        yield {"model": name, "brier": float(score.mean()), "cf": cf, **known}
    for name, clustered in clusters.items():
        table = fit_mdp(clustered.log(log))
        target = clustered.reduce(state_table(fixed_rule, log))
        found = Replay(clustered.log(patients), table, target).outcomes()
        score, cf = brier(found.probability, truth), float(found.expected_return.mean())
        yield {"model": name, "brier": float(score.mean()), "cf": cf, **known}


def plan_rows(
    log: Episodes,
    models: dict[str, FactoredModel],
    clusters: dict[str, Clustered],
    best: FittedQ,
    judge: Judge,
    size: Sizes,
) -> Iterator[Row]:
    """Yield what each model's own plan is truly worth, and what the model claims."""
    for name, model in models.items():
        plan = best if name == TRUE else plan_on(model, judge, size)
        yield {"model": name, "true": judge.value(plan), "claimed": judge.claim(model, plan)}
    found = fit_q(log, make_ridge(), horizon=HORIZON)
    first = np.stack(list(log.codes(log.first_state).values()), axis=1)
    claimed = float(found.values(first).max(axis=1).mean())
    yield {"model": LOG_ITSELF, "true": judge.value(found), "claimed": claimed}
    for name, clustered in clusters.items():
        shown = clustered.log(log)
        table = fit_mdp(shown)
        policy = policy_iteration(table, discount=DISCOUNT).table
        values = value_tables(table, policy, horizon=HORIZON)[0][HORIZON]
        true = judge.value(partial(clustered.act, policy))
        yield {"model": name, "true": true, "claimed": float(values[shown.first_state].mean())}


def plan_on(model: FactoredModel, judge: Judge, size: Sizes) -> FittedQ:
    """Plan by fitted Q iteration in a factored model."""
    plan = fitted_q_policy(
        model, make_ridge(), horizon=HORIZON, episodes=size.planning, seed=judge.seed
    )
    found: FittedQ = plan.policy
    return found


def half_row(name: str, log: Episodes, judge: Judge, size: Sizes) -> Row:
    """Plan on half of a log; compare what its own and the other half's model say with the truth."""
    half = len(log) // 2
    own = learn(name, log.select(np.arange(half)))
    other = learn(name, log.select(np.arange(half, len(log))))
    plan = plan_on(own, judge, size)
    claims = {"own": judge.claim(own, plan), "other": judge.claim(other, plan)}
    return {"model": name, "true": judge.value(plan), **claims}
