"""What a policy does beside what was done: hand counts, and every kind of model."""

from dataclasses import replace

import numpy as np
import pytest

import butfor as bf
from butfor.audit.policy import share_changed
from butfor.log.clusters import fit_clusters
from butfor.models.fit_factored import fit_factored
from butfor.present import Stays
from butfor.present.report.policy import policy_section
from tests.builders import ward_log

QUICK = {"flags": 2, "draws": 0, "estimators": ["Observed"]}


def ward_audit(target, log=None, **options):
    log = log or ward_log()
    return bf.run_audit(log, bf.fit_mdp(log), target, **QUICK | options)


def test_by_state_as_counted_on_paper():
    """State 0: a0 four times and a1 once; state 1: a1 three times; state 2 never decided in.

    A target that takes a1 in state 0 changes four of five decisions there, and none in state 1.
    """
    table = ward_audit(np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])).policy_table()
    assert table["state"].tolist() == [0, 1]
    assert table["situation"].tolist() == ["state 0", "state 1"]
    assert table["decisions"].tolist() == [5, 3]
    np.testing.assert_allclose(table["share"], [5 / 8, 3 / 8])
    assert table["policy"].tolist() == ["action 1", "action 1"]
    assert table["usual"].tolist() == ["action 0", "action 1"]
    np.testing.assert_allclose(table["usual_share"], [0.8, 1.0])
    np.testing.assert_allclose(table["differs"], [0.8, 0.0])


def test_by_action_and_altogether():
    """Half of the eight decisions are a0; the target takes it in half of those in state 0."""
    audit = ward_audit(np.array([[0.5, 0.5], [0.0, 1.0], [1.0, 0.0]]))
    table = audit.policy_table("action").set_index("action")
    np.testing.assert_allclose(table.loc["action 0"], [4 / 8, 2.5 / 8])
    np.testing.assert_allclose(table.loc["action 1"], [4 / 8, 5.5 / 8])
    # in state 0, 0.8 to 0.5: three tenths of five decisions
    assert audit.policy.changed == pytest.approx(1.5 / 8)


def test_a_policy_that_does_what_was_done_changes_nothing():
    log = ward_log()
    audit = ward_audit(bf.estimate_behavior(log))
    assert audit.policy.changed == pytest.approx(0.0, abs=1e-12)
    assert audit.policy_table()["differs"].max() == pytest.approx(0.0, abs=1e-12)


def test_the_share_changed_of_a_deterministic_policy_is_that_of_other_actions():
    usual = np.array([[0.2, 0.5, 0.3]])
    assert share_changed(np.array([[0.0, 1.0, 0.0]]), usual)[0] == pytest.approx(0.5)
    assert share_changed(usual, usual)[0] == pytest.approx(0.0)


def test_by_variable_sums_over_the_others():
    """Of a factored model, levels of one variable at a time; decisions add up to all."""
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), 40).hide("glucose", "diabetes")
    model = fit_factored(log)
    audit = bf.run_audit(log, model, bf.policy_iteration(model).table, **QUICK)
    table = audit.policy_table("variable")
    total = audit.meta.counts.steps
    assert table.groupby("variable")["decisions"].sum().eq(total).all()
    for _, rows in table.groupby("variable"):
        changed = (rows["decisions"] * rows["differs"]).sum() / total
        assert changed == pytest.approx(audit.policy.changed)
    states = audit.policy_table()
    pulse = states[states["state.heart rate"] == "high"]
    row = table[(table["variable"] == "heart rate") & (table["level"] == "high")].iloc[0]
    assert row["decisions"] == pulse["decisions"].sum()
    assert row["differs"] == pytest.approx(
        (pulse["decisions"] * pulse["differs"]).sum() / pulse["decisions"].sum()
    )


def test_a_policy_known_by_row_differs_by_decisions_not_on_average():
    """In state 0 it takes a1 where a0 was taken once, and a0 where a1 was: two of five differ."""
    log = ward_log()
    rows = np.eye(2)[[1, 1, 0, 1, 0, 0, 0, 1]]
    log = replace(log, target_probability=rows)
    audit = ward_audit(bf.row_policy(log), log)
    assert audit.meta.parameters.by_row
    table = audit.policy_table().set_index("state")
    np.testing.assert_allclose(table["differs"], [2 / 5, 0.0])
    assert audit.policy.changed == pytest.approx(2 / 8)


def test_a_part_of_an_audit_tells_of_all_decisions(tmp_path):
    audit = ward_audit(np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]), flags=1)
    audit.save(tmp_path / "audit")
    part = bf.Audit.load(tmp_path / "audit", shown=True)
    assert part.policy_table().equals(audit.policy_table())


def test_clusters_are_named_where_they_differ_most():
    """Three groups of values: the middle one lies near the mean in both columns."""
    middles = np.array([[60.0, 1.0], [90.0, 4.0], [120.0, 7.0]])
    values = np.repeat(middles, [30, 30, 30], axis=0)
    clusters = fit_clusters(values, ("pulse", "lactate"), 3)
    names = {name.partition(": ")[2] for name in clusters.names()}
    assert names == {
        "pulse low (60), lactate low (1)",
        "near the average",
        "pulse high (120), lactate high (7)",
    }
    assert [name[:2] for name in clusters.names()] == ["0:", "1:", "2:"]


def test_shifts_tell_on_which_variable_the_policy_depends():
    """It goes by the first of two variables alone, half of the decisions at each of its levels."""
    pair = [bf.Variable("first", ("a", "b")), bf.Variable("second", ("c", "d"))]
    log = ward_log(
        state=[0, 2, 1, 3, 0, 2, 1, 3],
        next_state=[2, 0, 3, 0, 1, 1, 0, 2],
        states=pair,
    )
    target = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    audit = ward_audit(target, log)
    table = audit.policy_table("variable")
    np.testing.assert_allclose(table["shifts"], [0.5, 0.5, 0.0, 0.0], atol=1e-12)
    section = policy_section(Stays(audit))
    last = section["tables"][-1]["rows"]
    assert [row[0] for row in last[1:]] == ["first a", "first b", "second c", "second d"]
    assert last[1][2] == "action 0"  # always, so without a share


def test_the_section_on_the_policy_has_a_bounded_number_of_rows():
    """60 states that occur once each: 25 of them, and the number of those left out."""
    log = bf.Episodes.from_arrays(
        state=np.arange(60),
        action=np.arange(60) % 2,
        next_state=np.zeros(60, dtype=int),
        offsets=np.arange(61),
        states=60,
        actions=2,
        outcome=np.zeros(60, dtype=int),
        outcomes=[bf.Outcome("home", 1.0), bf.Outcome("died", -1.0, bad=True)],
    )
    section = policy_section(Stays(ward_audit(np.tile([1.0, 0.0], (60, 1)), log)))
    action, common, changed = section["tables"]
    assert len(action["rows"]) == 3
    assert len(common["rows"]) == len(changed["rows"]) == 26
    assert "35 more situations left out" in common["caption"]
    assert "5 more situations left out" in changed["caption"]  # half of the 60 change
    assert "50% of the 60 recorded decisions" in section["sentences"][0]


def test_an_unknown_table_is_refused():
    with pytest.raises(ValueError, match="by 'patient': give one of state, variable, action"):
        ward_audit(np.full((3, 2), 0.5)).policy_table("patient")
