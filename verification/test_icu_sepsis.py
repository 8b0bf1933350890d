"""The walk-through of docs/icu-sepsis.md with all its 10,000 stays: the numbers that it tells."""

import re
from pathlib import Path

import numpy as np
import pytest

import butfor as bf
from benchmarks.icu_audit import MOST_BYTES, audit_stays
from butfor.audit.audit import Audit
from butfor.interop.icu_sepsis import load_icu_sepsis

PAGE = Path(__file__).parent.parent / "docs" / "icu-sepsis.md"


@pytest.fixture(scope="module")
def found() -> dict:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert "stays = 150 " in code
    names: dict = {}
    exec(compile(code.replace("stays = 150 ", "stays = 10_000 "), PAGE.name, "exec"), names)
    return names


def test_the_page_tells_what_comes_out(found):
    # k-means may settle elsewhere on another machine: the story must hold, its last digits need not
    audit, data = found["audit"], found["data"]
    value = audit.estimates.set_index("estimator")["value"]
    true = bf.policy_value(data.model, audit.target[found["cluster"]])
    assert round(found["expert"], 3) == 0.782
    assert round(value["Observed"], 3) == 0.788  # the stays are the same everywhere
    for estimate, told in (
        (value["MB"], 0.998),
        (value["CF"], 0.998),
        (true, 0.782),
        (value["MB (cross-fitted)"], 0.17),
    ):
        assert abs(estimate - told) < 0.03, (estimate, told)
    assert audit.diagnostics.set_index("check").loc["rare rows", "value"] > 0.9


def test_caution_makes_the_policy_truly_better(found):
    audit, data = found["cautious"], found["data"]
    value = audit.estimates.set_index("estimator")["value"]
    true = bf.policy_value(data.model, audit.target[found["cluster"]])
    assert true > found["expert"]
    for estimate, told in (
        (value["MB"], 0.865),
        (value["MB (cross-fitted)"], 0.826),
        (true, 0.795),
    ):
        assert abs(estimate - told) < 0.03, (estimate, told)


def test_the_lights_say_not_to_believe_it(found):
    light = found["audit"].diagnostics.set_index("check")["light"]
    assert light["rare rows"] == "red"
    assert light["effective sample size"] == "red"


def test_an_audit_with_defaults_finishes_and_an_interval_holds_the_truth(tmp_path):
    """10,000 stays in a CSV file with ready-made states, the draft of `butfor init` as it is.

    Its rewards are -1 and +1, so that a value is twice the probability of survival, less one.
    """
    data = load_icu_sepsis()
    seconds, memory = audit_stays(data, 10_000, tmp_path)
    print(f"\n{seconds:.0f} s, peak memory {memory / 1e6:.0f} MB")
    assert memory < MOST_BYTES
    audit = Audit.load(tmp_path / "audit")
    policy = np.zeros_like(data.expert_policy)
    policy[:, 0] = 1.0
    policy[: len(audit.target)] = audit.target  # states after the last one logged are not visited
    true = 2 * bf.policy_value(data.model, policy) - 1
    table = audit.estimates.set_index("estimator")
    holds = (table["low"] <= true) & (true <= table["high"])
    print(f"true value {true:.3f}")
    print(table[["value", "low", "high"]])
    assert holds["MB (cross-fitted)"]
    assert holds["CF (cross-fitted)"]
    # the policy's value in its own model flatters it, which is why it has no interval
    assert table.loc["MB", "value"] > true
    assert np.isnan(table.loc["MB", "low"])
    told = " ".join(audit.meta.warnings)
    assert "50 models instead of 200" in told
    assert "500 of all 10,000" in told
    assert audit.meta.parameters.credible.models == 50
    episodes = audit.episodes
    known = episodes["low_credible"].notna()
    assert 500 <= known.sum() <= 580
    assert (known == episodes["low_any"].notna()).all()
