"""estimate_values: every estimator in one call, with intervals and warnings in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from butfor.checks import check_choice, check_confidence, check_whole
from butfor.evaluate import warn
from butfor.evaluate.bootstrap import (
    INTERVALS,
    Evaluate,
    Found,
    resampled_values,
    value_and_interval,
)
from butfor.evaluate.crossfit import CrossFitted, Learn, cross_fitted
from butfor.evaluate.estimators.columns import Columns
from butfor.evaluate.estimators.counterfactual import counterfactual, counterfactual_draws
from butfor.evaluate.estimators.doubly_robust import doubly_robust, magic, weighted_doubly_robust
from butfor.evaluate.estimators.importance import (
    average,
    importance_sampling,
    observed,
    per_decision,
    per_decision_weighted,
    weighted,
)
from butfor.evaluate.estimators.model_based import fitted_q, model_based, model_sampled
from butfor.evaluate.hidden import hidden_estimates, refuse_given
from butfor.evaluate.problem import Estimator, OnColumns, Problem, make_problem
from butfor.evaluate.relearn import relearn_values
from butfor.hidden.chain import first_values
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.policies import Policy, as_array
from butfor.hidden.task import prepare_hidden_task
from butfor.log.episodes import Episodes
from butfor.models.mdp import TabularMDP
from butfor.replay.outcomes import Counterfactuals, Draws, counterfactual_outcomes
from butfor.types import Floats, Progress

ESTIMATORS: dict[str, Estimator] = {
    "Observed": OnColumns(observed),
    "IS": OnColumns(importance_sampling),
    "WIS": OnColumns(weighted),
    "PDIS": OnColumns(per_decision),
    "PDWIS": OnColumns(per_decision_weighted),
    "DR": OnColumns(doubly_robust),
    "WDR": OnColumns(weighted_doubly_robust),
    "MAGIC": OnColumns(magic),
    "FQE": fitted_q,
    "MB": OnColumns(model_based),
    "MB (sampled)": model_sampled,
    "CF": OnColumns(counterfactual, counterfactuals=True),
    "CF (draws)": counterfactual_draws,
}
CROSS_FITTED = ("MB (cross-fitted)", "CF (cross-fitted)")
NEEDS = {"CF (draws)": "draws", **dict.fromkeys(CROSS_FITTED, "learn"), "True": "truth"}
NAMES = (*ESTIMATORS, *CROSS_FITTED, "True")
DEFAULT = tuple(name for name in ESTIMATORS if name not in ("MB (sampled)", "CF (draws)"))
COLUMNS = ["estimator", "value", "low", "high", "episodes", "effective", "warning"]
RESAMPLES = 1000
RESAMPLES_LEARNED = 100  # with model and target learned anew
MOST_RESAMPLES = {"MAGIC": 200}  # it has a bootstrap inside


def estimate_values(
    episodes: Episodes,
    model: TabularMDP | TabularPOMDP,
    target: Policy,
    *,
    estimators: Sequence[str] | None = None,
    behavior: Policy | None = None,
    behavior_probability: ArrayLike | None = None,
    horizon: int | None = None,
    discount: float = 1.0,
    interval: str = "percentile",
    resamples: int | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    learn: Learn | None = None,
    relearn: bool = False,
    truth: Episodes | float | None = None,
    draws: Draws | None = None,
    counterfactuals: Counterfactuals | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Estimate what the target policy would have earned, in every way that was asked for.

    Parameters
    ----------
    estimators : optional
        Of NAMES; by default DEFAULT and what `draws`, `learn` and `truth` make possible. Where the
        state is hidden: Observed, MB and CF (and True), without `learn` and `draws`.
    behavior, behavior_probability, horizon, discount, draws, counterfactuals
        See `make_problem`.
    interval : "percentile" or "bca"
        Bootstrap over episodes, with model and target as given.
    resamples : optional
        1000 by default, 100 with `relearn`; MAGIC takes 200 at most.
    learn : optional
        The function that made model and target of a log, for cross-fitting and `relearn`.
    relearn
        Whether to learn model and target anew on every resample: the interval then covers them
        (the acceleration of `bca` still has them fixed).
    truth : Episodes or number, optional
        Episodes under the target in the world that made the log, or its exact value there.
    progress : optional
        Called with (resamples done, resamples in all).

    Returns
    -------
    DataFrame
        estimator, value, low, high, episodes (with weight), effective (sample size), warning.
    """
    if isinstance(model, TabularPOMDP):
        refuse_given(
            learn=learn, draws=draws, behavior_probability=behavior_probability, relearn=relearn
        )
        hidden = prepare_hidden_task(episodes, model, target, behavior=behavior, horizon=horizon)
        if counterfactuals is None:
            counterfactuals = counterfactual_outcomes(
                episodes, model, target, behavior=behavior, horizon=horizon, discount=discount
            )
        return hidden_estimates(
            counterfactuals,
            first_values(hidden, discount),
            estimators=estimators,
            truth=truth,
            interval=check_choice(interval, "interval", INTERVALS),
            resamples=check_whole(
                RESAMPLES if resamples is None else resamples, "resamples", 1, "a whole number"
            ),
            confidence=check_confidence(confidence),
            seed=seed,
            columns=COLUMNS,
            progress=progress,
        )
    target = as_array(target)
    behavior = None if behavior is None else as_array(behavior)
    names = _check_names(estimators, {"draws": draws, "learn": learn, "truth": truth})
    check_choice(interval, "interval", INTERVALS)
    check_confidence(confidence)
    if relearn and learn is None:
        raise ValueError("relearn=True needs learn=..., the function that made model and target")
    usual = RESAMPLES_LEARNED if relearn else RESAMPLES
    count = check_whole(usual if resamples is None else resamples, "resamples", 1, "a whole number")
    problem = make_problem(
        episodes,
        model,
        target,
        behavior=behavior,
        behavior_probability=behavior_probability,
        horizon=horizon,
        discount=discount,
        seed=seed,
        draws=draws,
        counterfactuals=counterfactuals,
    )
    functions = {name: ESTIMATORS[name] for name in names if name in ESTIMATORS}
    evaluate: dict[str, Evaluate] = {name: partial(f, problem) for name, f in functions.items()}
    crossed, resampled = None, None
    if learn is not None and set(CROSS_FITTED) & set(names):
        crossed = _cross_fit(episodes, problem, learn, behavior, seed)
        evaluate["MB (cross-fitted)"] = partial(average, crossed.model_based)
        evaluate["CF (cross-fitted)"] = partial(average, crossed.counterfactual)
    if relearn and learn is not None:
        resampled = relearn_values(
            functions,
            problem,
            episodes,
            learn,
            resamples=count,
            seed=seed,
            behavior=behavior,
            behavior_probability=behavior_probability,
            crossed=crossed is not None,
            progress=progress,
        )
    return tabulate(
        evaluate,
        warn.facts_of(problem, crossed, evaluate),
        rows=len(problem),
        names=names,
        interval=interval,
        resamples=count,
        confidence=confidence,
        seed=seed,
        truth=None if truth is None else _known_truth(truth, problem),
        resampled=resampled,
        progress=progress,
    )


def estimate_groups(
    columns: Columns,
    facts: warn.Facts,
    *,
    crossed: tuple[Floats, Floats] | None = None,
    interval: str = "percentile",
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Estimate what the target would have earned from sums over groups of episodes.

    The table is that of `estimate_values`, with the estimators that need no more than columns.
    The groups are resampled instead of the episodes, which gives the same intervals, up to chance,
    if episodes fell into groups at random.

    Parameters
    ----------
    columns
        A row a group; groups without an episode are left out.
    facts
        Of all episodes, with the mass by pairs never seen of each MB and CF estimator.
    crossed : optional
        Sums by group of what `cross_fitted` gives, model-based and counterfactual, [n] each.
    interval, resamples, confidence, seed, progress
        See `estimate_values`.
    """
    check_choice(interval, "interval", INTERVALS)
    check_confidence(confidence)
    check_whole(resamples, "resamples", 1, "a whole number")
    full = columns.episodes > 0
    used = Columns.from_matrix(columns.matrix()[full], columns.powers, columns.seed)
    evaluate: dict[str, Evaluate] = {
        name: partial(estimator.function, used)
        for name, estimator in ESTIMATORS.items()
        if isinstance(estimator, OnColumns)
    }
    if crossed is not None:
        for name, sums in zip(CROSS_FITTED, crossed, strict=True):
            evaluate[name] = partial(average, sums[full], episodes=used.episodes)
    return tabulate(
        evaluate,
        facts,
        rows=len(used),
        names=tuple(evaluate),
        interval=interval,
        resamples=resamples,
        confidence=confidence,
        seed=seed,
        progress=progress,
    )


def tabulate(
    evaluate: Mapping[str, Evaluate],
    facts: warn.Facts,
    *,
    rows: int,
    names: Sequence[str],
    interval: str,
    resamples: int,
    confidence: float,
    seed: int,
    truth: Floats | float | None = None,
    resampled: Mapping[str, Floats] | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Return the named estimates with intervals, sizes and warnings.

    Parameters
    ----------
    rows
        What weights count: episodes, or groups of them.
    truth : optional
        Returns under the target in the world that made the log, [m], or its exact value there.
    resampled : optional
        Values on resamples where they were made already.
    """
    if resampled is None:
        resampled = resampled_values(
            evaluate, rows, resamples, seed, most=MOST_RESAMPLES, progress=progress
        )
    found = {
        name: value_and_interval(f, resampled[name], rows, interval, confidence)
        for name, f in evaluate.items()
    }
    if truth is not None and "True" in names:
        found["True"] = _true_interval(truth, resamples, seed, interval, confidence)
    warnings = warn.explain(facts, found, resampled, rows)
    table = [
        (name, *found[name], *warn.sizes(name, facts, truth), warnings[name]) for name in names
    ]
    return pd.DataFrame(table, columns=COLUMNS)


def _check_names(
    estimators: Sequence[str] | None, given: Mapping[str, object | None]
) -> tuple[str, ...]:
    if estimators is None:
        possible = (name for name, need in NEEDS.items() if given[need] is not None)
        return (*DEFAULT, *possible)
    names = (estimators,) if isinstance(estimators, str) else tuple(estimators)
    if not names:
        raise ValueError(f"no estimator named; give some of {', '.join(map(repr, NAMES))}")
    for name in names:
        check_choice(name, "estimator", NAMES)
        if name in NEEDS and given[NEEDS[name]] is None:
            raise ValueError(f"estimator {name!r} needs {NEEDS[name]}=...; see estimate_values")
    return tuple(dict.fromkeys(names))


def _cross_fit(
    episodes: Episodes, problem: Problem, learn: Learn, behavior: ArrayLike | None, seed: int
) -> CrossFitted:
    if (episodes.id == episodes.id[0]).all():
        return CrossFitted(*np.full((4, len(episodes)), np.nan))
    return cross_fitted(
        episodes,
        learn,
        seed=seed,
        behavior=behavior,
        mechanism=problem.mechanism,
        action_noise=problem.action_noise,
        horizon=problem.horizon,
        discount=problem.discount,
    )


def _known_truth(truth: Episodes | float, problem: Problem) -> Floats | float:
    """Return the returns of episodes, [m], or the exact value."""
    if isinstance(truth, Episodes):
        return truth.truncate(problem.horizon).returns(problem.discount)
    return float(truth)


def _true_interval(
    truth: Floats | float, count: int, seed: int, interval: str, confidence: float
) -> Found:
    if not isinstance(truth, np.ndarray):
        return truth, float("nan"), float("nan")  # exact: nothing is left to chance
    evaluate = {"True": partial(average, truth)}
    resampled = resampled_values(evaluate, len(truth), count, seed)["True"]
    return value_and_interval(evaluate["True"], resampled, len(truth), interval, confidence)
