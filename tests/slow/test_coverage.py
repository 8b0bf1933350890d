"""Printed intervals hold the true value; those that held the model fixed did not.

verification/test_coverage.py takes more logs, and more designs.
"""

from functools import partial

import pytest
from scipy.stats import binom

from butfor.evaluate.bootstrap import bootstrap_interval, resample_weights
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimators.table import CROSS_FITTED, ESTIMATORS
from tests.grids import few
from tests.support import FALSE_ALARM
from verification.coverage import coverage, designs, estimated, printed, true_value

FIXED = ("WIS", "MAGIC", "MB", "CF")
FEW = 25  # logs
COVERAGE = 0.93  # intervals of 95% from 100 episodes
CHECKS = len(FIXED) + 1 + len(CROSS_FITTED)  # CF has a second interval, about these patients


def too_narrow(held):
    """Whether so few intervals hold the true value less often than once in a million checks."""
    return binom.cdf(held, FEW, COVERAGE) < FALSE_ALARM / CHECKS


@pytest.mark.parametrize(
    ("learned", "estimators"),
    few([(False, ("WIS", "MB", "CF")), (False, FIXED), (True, CROSS_FITTED)], 1),
)
def test_intervals_hold_the_true_value(learned, estimators):
    design = designs("tabular", learned=learned)[0]
    table = coverage(printed(design, FEW, estimators=estimators))
    assert len(table) == len(estimators) + (not learned)
    assert (table["printed"] == FEW).all()
    assert not too_narrow(table["held"]).any(), table


@pytest.mark.exhaustive
def test_intervals_of_mb_with_the_model_held_fixed_do_not():
    design = designs("tabular")[0]
    held = 0
    for seed in range(FEW):
        replay, table = estimated(design, seed, ["MB"])
        sample = EpisodeColumns(replay)
        evaluate = partial(ESTIMATORS["MB"], sample)
        resampled = evaluate(resample_weights(len(sample), 200, seed))
        value = table.loc[0, "value"]
        low, high = bootstrap_interval(evaluate, value, resampled, len(sample), "percentile", 0.95)
        held += low <= true_value(design, replay) <= high
    assert too_narrow(held), held
