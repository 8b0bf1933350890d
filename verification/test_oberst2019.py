"""The study of Oberst & Sontag (2019), with its published settings, against the published table.

A mean over our 100 logs and a published one differ for three reasons: our logs (the standard error
of our mean), theirs (that of the published mean, from its 95 % range), and the physician. Each of
the two runs planned its physician on a tensor estimated from 10,000 draws a pair; physicians differ
and so do the means over their logs. We measure that spread over eight physicians, 50 logs each, by
the usual decomposition of variance (between physicians, less what logs within one explain), and it
enters twice, once for each run. A difference of four combined standard errors is accepted.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from butfor.paper import published
from butfor.paper.experiment import (
    ESTIMATORS,
    Oberst2019Settings,
    repeat_logs,
    summarize,
)

SETTINGS = Oberst2019Settings()
PHYSICIANS, LOGS = 8, 50
FIGURE_3 = {
    "Obs": "Observed",
    "WIS": "WIS (train)",
    "MB": "MB",
    "CF": "CF (exact)",
    "True": "True",
}


@pytest.fixture(scope="module")
def logs() -> dict[str, pd.DataFrame]:
    return {which: repeat_logs(SETTINGS, hidden=which == "hidden") for which in ("hidden", "full")}


@pytest.fixture(scope="module")
def spread() -> dict[str, pd.Series]:
    """Standard deviation between physicians of the mean over infinitely many logs."""
    found = {}
    for which in ("hidden", "full"):
        runs = [
            repeat_logs(replace(SETTINGS, seed=100 + k, repeats=LOGS), hidden=which == "hidden")
            for k in range(PHYSICIANS)
        ]
        means = pd.DataFrame([run[list(ESTIMATORS)].mean() for run in runs])
        within = pd.DataFrame([run[list(ESTIMATORS)].var() / run.count() for run in runs]).mean()
        between = (means.var() - within[list(ESTIMATORS)]).clip(lower=0.0)
        found[which] = between**0.5
    return found


@pytest.mark.parametrize("which", ["hidden", "full"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_mean_of_the_table_agrees_with_the_published_one(logs, spread, which, estimator):
    ours = summarize(logs[which]).loc[estimator]
    mean, low, high = published.TABLE[which][estimator]
    between = spread[which][estimator]
    combined = np.sqrt(ours["se"] ** 2 + published.standard_error(low, high) ** 2 + 2 * between**2)
    apart = (ours["mean"] - mean) / combined
    print(
        f"{which} {estimator}: {ours['mean']:+.4f}, published {mean:+.4f}, between physicians "
        f"{between:.4f}, {apart:+.2f} combined standard errors"
    )
    assert abs(apart) < 4


@pytest.mark.parametrize("name", FIGURE_3)
def test_the_published_figure_3_lies_inside_our_range_over_logs(logs, name):
    range_ = summarize(logs["hidden"]).loc[FIGURE_3[name]]
    assert range_["low"] <= published.FIGURE_3[name][0] <= range_["high"]


def test_the_published_ten_percent_lies_inside_our_range_over_logs(logs):
    cell = summarize(logs["hidden"]).loc["would have lived"]
    assert cell["low"] <= published.WOULD_HAVE_LIVED / 1000 <= cell["high"]


def test_model_and_counterfactual_lie_above_observed_in_every_log(logs):
    hidden = logs["hidden"]
    assert (hidden["MB"] > hidden["Observed"]).all()
    assert (hidden["CF (exact)"] > hidden["Observed"]).all()
