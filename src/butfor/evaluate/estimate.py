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
    Found,
    resampled_values,
    value_and_interval,
)
from butfor.evaluate.crossfit import SPLITS, SPLITS_SAMPLED, CrossFitted, Learn, cross_fitted
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimators.importance import average
from butfor.evaluate.estimators.table import CROSS_FITTED, ESTIMATORS, OnColumns, check_names
from butfor.evaluate.relearn import relearn_values
from butfor.evaluate.sample import Sample
from butfor.hidden.policies import Policy
from butfor.log.episodes import Episodes
from butfor.mechanisms.protocol import Mechanism
from butfor.replay.draws import Draws
from butfor.replay.engine import Model
from butfor.replay.outcomes import Counterfactuals
from butfor.replay.replay import Replay, as_replay, refuse_hidden
from butfor.types import Floats, Progress

COLUMNS = ["estimator", "value", "low", "high", "episodes", "effective", "warning"]
RESAMPLES = 1000
RESAMPLES_LEARNED = 100  # if model and target are learned again on each
MOST_RESAMPLES = {"MAGIC": 200}  # which has its own bootstrap inside


def estimate_values(
    episodes: Episodes | Replay,
    model: Model | None = None,
    target: Policy | None = None,
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
        Some of NAMES; by default DEFAULT and those that `draws`, `learn` and `truth` make possible.
        With a hidden state: Observed, MB, CF and True; `learn` and `draws` are not available.
        Where states cannot be enumerated: all but FQE and MB (sampled).
    behavior, behavior_probability, mechanism, action_noise, horizon, discount
        See `Replay`.
    interval : "percentile" or "bca"
        Kind of bootstrap interval, over episodes, with model and target held fixed.
    resamples : optional
        1000 by default, 100 with `relearn`; MAGIC uses at most 200.
    learn : optional
        The function that made model and target from a log, for cross-fitting and `relearn`.
    relearn
        Whether to learn model and target again on every resample, so that the interval covers
        learning too (the acceleration of `bca` still holds them fixed).
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
        estimator, value, low, high, episodes (with weight), effective (sample size), warning.
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
    return estimate_episodes(
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
) -> pd.DataFrame:
    """Return the table of `estimate_values` for the episodes of a log in memory."""
    replay, seed = sample.replay, sample.seed
    refuse_hidden(replay, learn=learn, draws=sample.draws, relearn=relearn)
    given = {"draws": sample.draws, "learn": learn, "truth": truth}
    names = check_names(estimators, given, hidden=replay.hidden, sampled=replay.sampled)
    if relearn and learn is None:
        raise ValueError(
            "relearn=True needs learn=..., the function that made the model and the target"
        )
    usual = RESAMPLES_LEARNED if relearn else RESAMPLES
    count = usual if resamples is None else resamples
    functions = {name: ESTIMATORS[name] for name in names if name in ESTIMATORS}
    crossed, resampled = None, None
    if learn is not None and set(CROSS_FITTED) & set(names):
        splits = SPLITS_SAMPLED if replay.sampled else SPLITS
        crossed = cross_fitted(replay, learn, splits=splits, seed=seed)
    if relearn and learn is not None:
        resampled = relearn_values(
            functions,
            sample,
            learn,
            resamples=count,
            seed=seed,
            crossed=crossed is not None,
            progress=progress,
        )
    return estimate_sample(
        sample,
        {name: partial(f, sample) for name, f in functions.items()},
        crossed,
        names=names,
        interval=interval,
        resamples=count,
        confidence=confidence,
        seed=seed,
        truth=None if truth is None else _known_truth(truth, replay),
        resampled=resampled,
        progress=progress,
    )


def estimate_sums(
    sample: Sample,
    crossed: CrossFitted | None = None,
    *,
    interval: str = "percentile",
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Return the table of `estimate_values` with the estimators that need only columns.

    The rows of the sample may be sums over groups of episodes. Groups are resampled instead of
    episodes, which gives the same intervals, up to chance, if episodes were assigned to groups at
    random.
    """
    functions = {name: f for name, f in ESTIMATORS.items() if isinstance(f, OnColumns)}
    return estimate_sample(
        sample,
        {name: partial(f, sample) for name, f in functions.items()},
        crossed,
        names=(*functions, *(() if crossed is None else CROSS_FITTED)),
        interval=interval,
        resamples=resamples,
        confidence=confidence,
        seed=seed,
        progress=progress,
    )


def estimate_sample(
    sample: Sample,
    plain: Mapping[str, Evaluate],
    crossed: CrossFitted | None,
    *,
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
    plain
        The estimators that are not cross-fitted.
    crossed : optional
        Cross-fitted values by row of the sample: of episodes, or summed over groups.
    truth : optional
        Returns under the target in the world that produced the log, [m], or its exact value there.
    resampled : optional
        Values on resamples, if they were already computed.
    """
    check_choice(interval, "interval", INTERVALS)
    check_confidence(confidence)
    check_whole(resamples, "resamples", 1, "a whole number")
    evaluate, rows = dict(plain), len(sample)
    if crossed is not None:
        values = (crossed.model_based, crossed.counterfactual)
        for name, value in zip(CROSS_FITTED, values, strict=True):
            evaluate[name] = partial(average, value, episodes=sample.logged.episodes)
    explain, sizes = warn.about(sample, crossed, evaluate, truth)
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
    warnings = explain(found, resampled)
    table = [(name, *found[name], *sizes(name), warnings[name]) for name in names]
    return pd.DataFrame(table, columns=COLUMNS)


def _known_truth(truth: Episodes | float, replay: Replay) -> Floats | float:
    """Return the returns of episodes, [m], or the exact value."""
    if isinstance(truth, Episodes):
        return truth.truncate(replay.horizon).returns(replay.discount)
    return float(truth)


def _true_interval(
    truth: Floats | float, count: int, seed: int, interval: str, confidence: float
) -> Found:
    if not isinstance(truth, np.ndarray):
        return truth, float("nan"), float("nan")  # exact: no sampling error
    evaluate = {"True": partial(average, truth)}
    resampled = resampled_values(evaluate, len(truth), count, seed)["True"]
    return value_and_interval(evaluate["True"], resampled, len(truth), interval, confidence)
