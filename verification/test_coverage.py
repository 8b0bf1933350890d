"""Printed intervals of 95% hold the true value in at least 90% of the logs in which they appear.

One test per design; BUTFOR_COVERAGE_LOGS=30 runs fewer logs than 500. `pytest -s` shows the tables,
with the binomial standard error of each share.
"""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

import butfor as bf
from verification.coverage import KINDS, coverage, designs, elsewhere, printed

LOGS = int(os.environ.get("BUTFOR_COVERAGE_LOGS", "500"))
FEWEST = LOGS // 10  # printed intervals for a judgment
LEAST = 0.90
FALSE_ALARM = 1e-3  # that an interval of exactly this coverage is called too narrow
DESIGNS = [
    design
    for kind in KINDS
    for learned in (False, True)
    for design in designs(kind, learned=learned)
] + [elsewhere(kind) for kind in KINDS]
README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: f"{design.kind}: {design.name}")
def test_printed_intervals_hold_the_true_value(design):
    table = coverage(printed(design, LOGS))
    print(f"\n{table.round(3).to_string()}")
    judged = table[table["printed"] >= FEWEST]
    own = design.target is None and not design.elsewhere
    expected = {"Observed", "MB (cross-fitted)"} if own else {"Observed", "MB", "CF"}
    assert expected <= set(judged.index.get_level_values("estimator"))
    chance = binom.cdf(judged["held"], judged["printed"], LEAST)
    narrow = judged[chance < FALSE_ALARM]
    assert narrow.empty, f"coverage below {LEAST}:\n{narrow.round(3).to_string()}"


@pytest.mark.parametrize("seed", range(20))
def test_the_code_of_the_readme_prints_no_plain_interval(seed):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (code,) = (block for block in blocks if "bf.run_audit(replay)" in block)
    assert "episodes=1000, seed=0, version" in code
    names: dict[str, object] = {}
    exec(code.replace("episodes=1000, seed=0", f"episodes=1000, seed={seed}"), names)
    audit = names["audit"]
    assert isinstance(audit, bf.Audit)
    table = audit.estimates.set_index("estimator")
    plain = table.drop(index=["Observed", "MB (cross-fitted)", "CF (cross-fitted)"])
    assert {"WIS", "MB", "CF", "MAGIC", "FQE"} <= set(plain.index)
    assert plain[["low", "high", "low_these", "high_these"]].isna().all(axis=None)
    assert np.isfinite(table.loc["MB (cross-fitted)", ["low", "high"]].astype(float)).all()
