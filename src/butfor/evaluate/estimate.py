"""estimate_values: every estimator in one call, with intervals and warnings."""

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
    bootstrap_interval,
    resampled_values,
)
from butfor.evaluate.crossfit import CrossFitted, Learn, cross_fitted, recipe_of
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimators.importance import average
from butfor.evaluate.estimators.table import (
    CONTINUED,
    CROSS_FITTED,
    ESTIMATORS,
    LOST,
    OnColumns,
    check_names,
)
from butfor.evaluate.intervals import BY_MODEL, NONE, Intervals
from butfor.evaluate.refit import Groups, group_episodes
from butfor.evaluate.relearn import relearn_values
from butfor.evaluate.sample import Sample, continued
from butfor.hidden.policies import Policy
from butfor.log.episodes import Episodes
from butfor.mechanisms.protocol import Mechanism
from butfor.models.row_policy import RowPolicy
from butfor.printed import Table
from butfor.replay.draws import Draws
from butfor.replay.engine import Model
from butfor.replay.outcomes import Counterfactuals
from butfor.replay.replay import Replay, as_replay, refuse_hidden
from butfor.types import Floats, Progress

COLUMNS = [
    "estimator", "value", "low", "high", "low_these", "high_these", "episodes", "effective",
    "warning",
]  # fmt: skip
RESAMPLES = 1000
RESAMPLES_LEARNED = 100  # if model and target are learned again on each
MOST_RESAMPLES = {"MAGIC": 200}  # which has its own bootstrap inside


def estimate_values(
    episodes: Episodes | Replay,
    model: Model | None = None,
    target: Policy | RowPolicy | None = None,
    *,
    estimators: Sequence[str] | None = None,
    behavior: Policy | None = None,
    behavior_probability: ArrayLike | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
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
    """Estimate the value of the target policy with each of the estimators asked for.

    Parameters
    ----------
    episodes, model, target
        The question: a `Replay` alone, or a log, its model and the target.
    estimators : optional
        Some of NAMES; by default all that `draws`, `learn`, `truth` and the log make possible, but
        MB (sampled). "Observed" is what was recorded; where censored episodes are continued by the
        model, "Observed, continued" stands beside it, which the others are compared with. With a
        hidden state: these two, MB, CF and True; `learn` and `draws` are not available.
        Where states cannot be enumerated: all but FQE and MB (sampled).
    behavior, behavior_probability, mechanism, action_noise, horizon, discount
        See `Replay`.
    interval : "percentile" or "bca"
        Kind of bootstrap interval, over episodes, of estimates that do not learn the model again.
    resamples : optional
        1000 by default, 100 with `relearn`; MAGIC uses at most 200.
    learn : optional
        The function that made model and target from a log. If it learns other targets from halves
        of the log, plain estimates have no interval, because the target was selected on the same
        episodes; the cross-fitted ones do. By default the recipe of a target that is a `Plan`
        taught by episodes of this log; it is repeated twenty times, and six times where that takes
        long.
    relearn
        Whether to learn the model again on every resample, for percentile intervals of whatever
        kind `learn` is. Only if it gives the same target for every log: a target learned from the
        log has cross-fitted intervals only.
    truth : Episodes or number, optional
        Episodes under the target in the world that produced the log, or its exact value there.
    draws, counterfactuals : optional
        Draws of this question, for the estimator that averages them; outcomes of this question that
        were already computed.
    progress : optional
        Called with (resamples done, total).

    Returns
    -------
    DataFrame
        estimator, value, low, high, low_these and high_these (CF of these episodes only), episodes
        (with weight), effective (sample size), warning. An interval is missing where it would not
        hold the true value often enough; the warning says why.

    Notes
    -----
    Intervals cover chance: other episodes, and with them another model. They do not cover what the
    states leave out.
    """
    if counterfactuals is not None and not isinstance(episodes, Replay):
        mechanism, action_noise = counterfactuals.mechanism, counterfactuals.action_noise
    replay = as_replay(
        episodes,
        model,
        target,
        behavior=behavior,
        behavior_probability=behavior_probability,
        mechanism=mechanism,
        action_noise=action_noise,
        horizon=horizon,
        discount=discount,
    )
    if counterfactuals is not None:
        replay.keep(counterfactuals)
    table, _ = estimate_episodes(
        EpisodeColumns(replay, seed, draws),
        estimators=estimators,
        interval=interval,
        resamples=resamples,
        confidence=confidence,
        learn=learn,
        relearn=relearn,
        truth=truth,
        progress=progress,
    )
    return table


def estimate_episodes(
    sample: EpisodeColumns,
    *,
    estimators: Sequence[str] | None = None,
    interval: str = "percentile",
    resamples: int | None = None,
    confidence: float = 0.95,
    learn: Learn | None = None,
    relearn: bool = False,
    truth: Episodes | float | None = None,
    progress: Progress | None = None,
) -> tuple[pd.DataFrame, CrossFitted | None]:
    """Return the table of `estimate_values` for a log in memory, and what was cross-fitted."""
    replay, seed = sample.replay, sample.seed
    refuse_hidden(replay, learn=learn, draws=sample.draws, relearn=relearn)
    learn = recipe_of(replay) if learn is None else learn
    given = {"draws=...": sample.draws, "learn=...": learn, "truth=...": truth}
    given[LOST] = continued(sample) or None
    names = check_names(estimators, given, hidden=replay.hidden, sampled=replay.sampled)
    if relearn and learn is None:
        raise ValueError(
            "relearn=True needs learn=..., the function that made the model and the target"
        )
    usual = RESAMPLES_LEARNED if relearn else RESAMPLES
    count = usual if resamples is None else resamples
    functions = {name: ESTIMATORS[name] for name in names if name in ESTIMATORS}
    crossed, resampled, groups = None, None, None
    # what a learning function does to the target shows in the halves only
    asked = relearn or not replay.learned_here or set(CROSS_FITTED) & set(names)
    if learn is not None and asked:
        crossed = cross_fitted(replay, learn, seed=seed)
    fixed = not (replay.learned_here if crossed is None else crossed.learned)
    if relearn and learn is not None and fixed:
        resampled = relearn_values(
            functions, sample, learn, resamples=count, seed=seed, progress=progress
        )
    elif set(BY_MODEL if fixed else (CONTINUED,)) & set(names):
        groups = group_episodes(sample, blend=fixed and "MAGIC" in names)
    table = estimate_sample(
        sample,
        crossed,
        groups,
        plain={name: partial(f, sample) for name, f in functions.items()},
        names=names,
        interval=interval,
        resamples=count,
        confidence=confidence,
        seed=seed,
        truth=None if truth is None else _known_truth(truth, replay),
        relearned=resampled,
        progress=progress,
    )
    return table, crossed


def estimate_sample(
    sample: Sample,
    crossed: CrossFitted | None = None,
    groups: Groups | None = None,
    *,
    plain: Mapping[str, Evaluate] | None = None,
    names: Sequence[str] | None = None,
    interval: str = "percentile",
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
    seed: int = 0,
    truth: Floats | float | None = None,
    relearned: Mapping[str, Floats] | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Return the named estimates, by default all, with intervals, sizes and warnings.

    The rows of the sample may be sums over groups of episodes. Groups are resampled instead of
    episodes, which gives the same intervals, up to chance, if episodes were assigned to groups at
    random.

    Parameters
    ----------
    crossed : optional
        Cross-fitted values by split and half.
    groups : optional
        What learns the model again, for the intervals of MB, CF and MAGIC.
    plain : optional
        The estimators that are not cross-fitted; by default those that need only columns.
    truth : optional
        Returns under the target in the world that produced the log, [m], or its exact value there.
    relearned : optional
        Values on resamples in which the model was learned again.
    """
    check_choice(interval, "interval", INTERVALS)
    check_confidence(confidence)
    check_whole(resamples, "resamples", 1, "a whole number")
    rows = len(sample)
    influences = {} if groups is None else groups.influences()
    intervals = Intervals(sample, crossed, influences, interval, confidence, relearned is not None)
    if plain is None:
        plain = {
            name: partial(f, sample)
            for name, f in ESTIMATORS.items()
            if isinstance(f, OnColumns) and (name != CONTINUED or continued(sample))
        }
    resampled = relearned
    if resampled is None:
        needed = {name: f for name, f in plain.items() if intervals.bootstraps(name)}
        resampled = resampled_values(
            needed, rows, resamples, seed, most=MOST_RESAMPLES, progress=progress
        )
    found: dict[str, warn.Found] = {}
    for name, evaluate in plain.items():
        value = float(evaluate(np.ones((1, rows)))[0])
        found[name] = (value, *intervals.plain(name, value, evaluate, resampled.get(name)))
    for name, (values, mass) in ({} if crossed is None else crossed.by_estimator).items():
        found[name] = (float(values.mean()), *intervals.cross_fitted(name, values, mass))
    if truth is not None:
        found["True"] = _true_interval(truth, resamples, seed, interval, confidence)
    warnings = warn.explain(sample, crossed, intervals.reasons, found, resampled)
    table = []
    for name in found if names is None else names:
        numbers = *found[name], *intervals.these(name, found[name][0])
        table.append((name, *numbers, *warn.sizes(name, sample, truth), warnings[name]))
    return Table(table, columns=COLUMNS)


def _known_truth(truth: Episodes | float, replay: Replay) -> Floats | float:
    """Return the returns of episodes, [m], or the exact value."""
    if isinstance(truth, Episodes):
        return truth.truncate(replay.horizon).returns(replay.discount)
    return float(truth)


def _true_interval(
    truth: Floats | float, count: int, seed: int, interval: str, confidence: float
) -> warn.Found:
    if not isinstance(truth, np.ndarray) or len(truth) == 1:
        return float(np.mean(truth)), *NONE  # exact, or nothing to resample
    evaluate = {"True": partial(average, truth)}
    resampled = resampled_values(evaluate, len(truth), count, seed)["True"]
    value = float(truth.mean())
    found = bootstrap_interval(evaluate["True"], value, resampled, len(truth), interval, confidence)
    return value, *found
