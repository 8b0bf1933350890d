"""Printed intervals of 95% hold the true value in at least 90% of the logs in which they appear.

One test per design; BUTFOR_COVERAGE_LOGS=30 runs fewer logs than 500. `pytest -s` shows the tables,
with the binomial standard error of each share.
"""

import os

import pytest
from scipy.stats import binom

from verification.coverage import KINDS, coverage, designs, printed

LOGS = int(os.environ.get("BUTFOR_COVERAGE_LOGS", "500"))
FEWEST = LOGS // 10  # printed intervals for a judgment
LEAST = 0.90
FALSE_ALARM = 1e-3  # that an interval of exactly this coverage is called too narrow
DESIGNS = [
    design
    for kind in KINDS
    for learned in (False, True)
    for design in designs(kind, learned=learned)
]


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: f"{design.kind}: {design.name}")
def test_printed_intervals_hold_the_true_value(design):
    table = coverage(printed(design, LOGS))
    print(f"\n{table.round(3).to_string()}")
    judged = table[table["printed"] >= FEWEST]
    expected = {"Observed", "MB (cross-fitted)"} if design.target is None else {"Observed", "MB"}
    assert expected <= set(judged.index.get_level_values("estimator"))
    chance = binom.cdf(judged["held"], judged["printed"], LEAST)
    narrow = judged[chance < FALSE_ALARM]
    assert narrow.empty, f"coverage below {LEAST}:\n{narrow.round(3).to_string()}"
