"""Estimates where the state is hidden: by the model, and by its counterfactuals.

Importance weights are not among them: a clinician who saw more than the log took actions that the
weights of what was seen do not undo.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from butfor.evaluate.bootstrap import Evaluate, resampled_values, value_and_interval
from butfor.evaluate.estimators.importance import average
from butfor.evaluate.wording import signed
from butfor.log.episodes import Episodes
from butfor.replay.outcomes import Counterfactuals
from butfor.types import Floats, Progress

HIDDEN = ("Observed", "MB", "CF", "True")
ROUNDING = 1e-9  # relative; smaller gaps are those of floating point
APART = 3.0  # standard errors by which the mean counterfactual may miss the model's own value


def hidden_estimates(
    result: Counterfactuals,
    expected: Floats,
    *,
    estimators: Sequence[str] | None,
    truth: Episodes | float | None,
    interval: str,
    resamples: int,
    confidence: float,
    seed: int,
    columns: Sequence[str],
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Return the rows of `estimate_values` where the state is hidden.

    `expected` [n] is what the model alone gives from what was seen first in each episode.
    """
    usual = HIDDEN if truth is not None else HIDDEN[:-1]
    given = (estimators,) if isinstance(estimators, str) else estimators
    names = usual if given is None else tuple(given)
    if len(result.episodes) != len(expected):
        raise ValueError(
            f"the counterfactuals are of {len(result.episodes)} episodes, there are {len(expected)}"
        )
    if "True" in names and truth is None:
        raise ValueError("estimator 'True' needs truth=...; see estimate_values")
    for name in names:
        if name not in HIDDEN:
            raise ValueError(
                f"estimator {name!r} is not for a model with a hidden state; give some of "
                f"{', '.join(HIDDEN)}"
            )
    count = len(result.episodes)
    numbers = {"Observed": result.observed_return, "MB": expected, "CF": result.expected_return}
    evaluate: dict[str, Evaluate] = {
        name: partial(average, values) for name, values in numbers.items() if name in names
    }
    resampled = resampled_values(evaluate, count, resamples, seed, progress=progress)
    z = consistency(result, expected)
    rows: list[tuple[object, ...]] = []
    for name, function in evaluate.items():
        found = value_and_interval(function, resampled[name], count, interval, confidence)
        warning = ""
        if name == "CF" and abs(z) > APART:
            warning = (
                f"The mean counterfactual is {signed(z)} standard errors from what the model alone "
                "expects; model or behaviour do not fit the log."
            )
        rows.append((name, *found, count, float(count), warning))
    if truth is not None and "True" in names:
        rows.append(_true_row(truth, result, resamples, seed, interval, confidence))
    return pd.DataFrame(rows, columns=list(columns))


def refuse_given(**given: object) -> None:
    """Refuse arguments that mean nothing where the state is hidden."""
    for name, value in given.items():
        if value is not None and value is not False:
            raise ValueError(f"{name}: not for a model with a hidden state; leave it out")


def consistency(result: Counterfactuals, expected: Floats) -> float:
    """Standard errors between the mean counterfactual and what the model alone expects.

    If model and behaviour are right, the counterfactuals of many episodes average to what the model
    expects of the target from the same first observations. Necessary, not sufficient: a wrong model
    that was fitted to its own log agrees with itself.
    """
    gap = result.expected_return - expected
    if len(gap) < 2:
        return float("nan")
    if np.abs(gap).max() <= ROUNDING * max(1.0, float(np.abs(expected).max())):
        return 0.0
    return float(gap.mean() / (gap.std(ddof=1) / len(gap) ** 0.5))


def _true_row(
    truth: Episodes | float,
    result: Counterfactuals,
    resamples: int,
    seed: int,
    interval: str,
    confidence: float,
) -> tuple[object, ...]:
    if not isinstance(truth, Episodes):
        nan = float("nan")
        return "True", float(truth), nan, nan, 0, nan, ""
    returns = truth.truncate(result.horizon).returns(result.discount)
    function = partial(average, returns)
    resampled = resampled_values({"True": function}, len(truth), resamples, seed)["True"]
    found = value_and_interval(function, resampled, len(truth), interval, confidence)
    return "True", *found, len(truth), float(len(truth)), ""
