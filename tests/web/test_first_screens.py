"""The first screen of a report: its verdict, on ten kinds of audit, against their tables."""

import re

import pytest

from butfor.present.report.content import header
from butfor.present.stays import Stays
from butfor.present.text import LIGHTS
from tests.first_screens import KINDS, screen

ROUNDED = 0.005 + 1e-9  # to two decimals
# kind: how the verdict begins, its advice, and the result
EXPECTED = {
    "clearly better": ("The policy looks better", "This supports trying the policy.", "unknown"),
    "clearly worse": ("The policy looks worse", "This argues against the policy.", "unknown"),
    "contradicting estimates": (
        "On the log that taught it, the policy looks better",
        "Do not act on this.",
        "red",
    ),
    "thin data": ("The policy may be better or worse", "Do not act on this.", "red"),
    "one-step log": (
        "The policy looks better (click 7 instead of 4 of 100 visits)",
        "This supports trying the policy.",
        "amber",
    ),
    "hidden state": ("The policy looks worse", "Do not act on this.", "red"),
    "shards": (
        "On the log that taught it, the policy looks better",
        "Do not act on this.",
        "red",
    ),
    "no outcome": ("The policy looks better", "Promising, but not yet a reason to act.", "amber"),
    "reviewed": ("The policy looks better", "Do not act on this.", "red"),
    "nothing differs": ("The policy does what was done", "There is nothing to decide.", "unknown"),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def verdict(kind):
    audit, experts = screen(kind)
    return audit, header(Stays(audit), experts)


def number(text):
    return float(text.replace("\N{MINUS SIGN}", "-").rstrip("%"))


def test_the_verdict_is_what_its_kind_deserves(kind):
    _, found = verdict(kind)
    start, advice, light = EXPECTED[kind]
    conclusion = found["conclusion"]
    assert conclusion["sentence"].startswith(start)
    assert conclusion["sentence"].endswith(advice)
    assert light in ("", conclusion["light"])


def test_its_returns_are_those_of_the_table(kind):
    audit, found = verdict(kind)
    value = audit.estimates.set_index("estimator")["value"]
    told = re.findall(r"([+−][\d.]+) against ([+−][\d.]+)", found["conclusion"]["sentence"])
    if kind in ("one-step log", "nothing differs"):  # told in clicks alone; no numbers at all
        assert not told
        return
    policy, observed = map(number, told[0])
    assert policy == pytest.approx(value["CF"], abs=ROUNDED)
    assert observed == pytest.approx(value["Observed"], abs=ROUNDED)
    if "MB (cross-fitted)" in value:
        fresh = re.search(r"on other data.*average return ([+−][\d.]+)\)", str(found["conclusion"]))
        assert number(fresh[1]) == pytest.approx(value["MB (cross-fitted)"], abs=ROUNDED)


def test_its_outcomes_per_hundred_are_those_of_the_table(kind):
    audit, found = verdict(kind)
    table = 100 * audit.outcome_table(expected=True) / audit.meta.counts.episodes
    told = re.findall(
        r"[(,] ?([^(),\d]+?) (under |over )?(\d+) instead of (\d+)", found["conclusion"]["sentence"]
    )
    if kind in ("no outcome", "nothing differs"):
        assert not told
        return
    assert told
    for name, bound, policy, observed in told:
        assert float(observed) == pytest.approx(table.sum(axis=1)[name], abs=0.5)
        if not bound:
            assert float(policy) == pytest.approx(table.sum(axis=0)[name], abs=0.5)


def test_it_counts_the_checks(kind):
    audit, found = verdict(kind)
    lights = audit.diagnostics["light"]
    failed, made = (lights == "red").sum(), (lights != "unknown").sum()
    words = f"{failed or 'None'} of {made} checks fail"
    assert (words in found["conclusion"]["sentence"]) == (kind != "nothing differs")
    assert [pill["check"] for pill in found["pills"]].count("hidden causes") == 1
    assert len(found["pills"]) == len(lights)
    worst_first = [pill["result"] for pill in found["pills"]]
    assert worst_first == sorted(worst_first, key=[*LIGHTS.values()][::-1].index)


def test_outcomes_that_are_told_add_up_to_the_return():
    audit, _ = screen("contradicting estimates")
    died, discharged, none = audit.meta.fresh_chances
    value = audit.estimates.set_index("estimator")["value"]["MB (cross-fitted)"]
    assert discharged - died == pytest.approx(value, abs=1e-9)
    assert died + discharged + none == pytest.approx(1, abs=1e-9)


def test_what_reviewers_expect_decides():
    audit, found = verdict("reviewed")
    assert "Reviewers expect it to do worse (died" in found["conclusion"]["sentence"]
    assert found["conclusion"]["reason"].startswith("The reviewers expect the policy to do worse")
    assert audit.conclusion.light == "unknown"  # without them


def test_the_date_the_policy_and_the_size_of_the_log_are_there(kind):
    audit, found = verdict(kind)
    facts = dict(found["facts"])
    assert facts["Date"] == audit.meta.date
    assert facts["Policy"] == audit.meta.target
    assert f"{audit.meta.counts.episodes:,} " in facts["Log"]
