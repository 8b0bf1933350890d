"""Checks of factored models: hand values, tables of all transitions, wrong models that fail."""

import re
from dataclasses import replace

import numpy as np
import pytest

import butfor as bf
from butfor.audit.shards.run import SUMMARIZED
from butfor.evaluate.diagnostics import rivals
from butfor.evaluate.diagnostics.correlation import (
    check_correlation,
    residual_correlations,
)
from butfor.evaluate.diagnostics.extrapolation import check_extrapolation, never_logged
from butfor.evaluate.diagnostics.log_score import (
    check_log_score,
    outcome_probabilities,
    transition_probabilities,
)
from butfor.evaluate.diagnostics.one_step import predict_steps
from butfor.evaluate.diagnostics.rivals import cluster_probabilities, tabular_probabilities
from butfor.evaluate.diagnostics.second_learner import (
    SMOOTHER,
    check_learners,
    second_model,
)
from butfor.evaluate.diagnostics.variables import calibration_by_variable, variable_gap
from butfor.models.backoff import backoff_table
from butfor.models.factored import END
from butfor.replay.engine import fit_again
from tests.builders import HOME
from tests.correlated import VITALS, held_out, one_step, predictions, ward_log
from tests.factored import clinic_model, simulate_factored

CHECKS = [
    "overlap",
    "effective sample size",
    "episodes left",
    "mean importance weight",
    "rare rows",
    "unsupported mass",
    "calibration",
    "calibration by variable",
    "calibration of ends",
    "residual correlation",
    "log score",
    "learners agree",
    "estimators disagree",
    "the past still matters",
    "influence",
    "null check",
    "hidden causes",
]
LAST = CHECKS[-5:]


@pytest.fixture(scope="module")
def ward():
    """A log with independent noise, and the model learned from it."""
    log = ward_log()
    return log, bf.fit_factored(log)


# calibration by variable


def test_the_gap_of_a_variable_is_a_total_variation_distance():
    # (.5, .3, .2) is predicted ten times, and the levels follow 3, 4 and 3 times: half of
    # .2 + .1 + .1. By chance each count is off by sqrt(2 / pi) times its binomial error.
    found = variable_gap(one_step([[0.5, 0.3, 0.2]] * 10, [0] * 3 + [1] * 4 + [2] * 3), given=True)
    assert found.gap == pytest.approx(0.2, abs=1e-14)
    errors = np.sqrt(np.array([0.25, 0.21, 0.16]) / 10)
    assert found.chance == pytest.approx(np.sqrt(2 / np.pi) * errors.sum() / 2, rel=1e-12)
    assert found.rarer == pytest.approx(0.6, abs=1e-15)


def test_a_learned_model_is_allowed_its_own_error():
    one = one_step([[0.5, 0.5]] * 10, [0, 1] * 5)
    assert variable_gap(one, False).chance == np.sqrt(2) * variable_gap(one, True).chance


def test_a_right_model_is_calibrated_and_the_row_names_the_worst_variable(ward):
    rows = calibration_by_variable(predictions(*ward), False)
    assert [row[0] for row in rows] == ["calibration by variable", "calibration of ends"]
    assert [row[2] for row in rows] == ["green", "green"]
    assert re.search(r'"(pulse|pressure|sugar)" \(the worst of 3 variables\)', rows[0][3])
    assert "predicts the end to within" in rows[1][3]


@pytest.mark.parametrize("variable", ["sugar", END])
def test_a_wrong_table_is_found_and_named(ward, variable):
    log, model = ward
    turned = tuple(
        replace(one, table=one.table[..., ::-1].copy()) if one.variable == variable else one
        for one in model.factors
    )
    wrong = replace(model, factors=turned)
    by_variable, ends = calibration_by_variable(
        predictions(log, wrong, lambda half: (wrong, None)), False
    )
    bad, good = (by_variable, ends) if variable else (ends, by_variable)
    assert (bad[2], good[2]) == ("red", "green")
    assert "another learner" in bad[3]
    assert ('"sugar"' if variable else "the end") in bad[3]


def test_few_steps_cannot_tell():
    one = one_step([[0.5, 0.5]] * 10, [0, 1] * 5)
    (row,) = calibration_by_variable([one], True)
    assert row[1] == 0
    assert row[2] == "amber"
    assert "too few data" in row[3]


# learners agree


def test_counts_are_compared_with_stronger_back_off(ward):
    log, model = ward
    other, name = second_model(model, log)
    for one, smooth in zip(model.factors, other.factors, strict=True):
        strength = max(one.strength, SMOOTHER)
        expected = backoff_table(one.counts, strength, every=one.every)
        np.testing.assert_array_equal(smooth.table, expected)
    target = np.tile([0.0, 1.0], (27, 1))
    row = check_learners(bf.Replay(log, model, target))
    gap = bf.policy_value(other, target, horizon=8) - bf.policy_value(model, target, horizon=8)
    assert row[1] == pytest.approx(abs(gap), abs=1e-12)  # first states are those of the model
    assert row[2] == "green"
    assert name in row[3]


def test_a_target_without_enough_cases_depends_on_the_learner():
    # With the drug 2 of 4 patients went home, of 940 others 10. With a back-off of 1 case that is
    # about .4 per step, with one of 10 cases about .15: nearly all of them in 8 steps, or 3 of 4.
    counts = np.array([[30.0, 10.0, 900.0], [0.0, 2.0, 2.0]])
    log = ward_log()
    model = bf.fit_factored(log)
    end = replace(
        model.end, parents=("action.drug",), counts=counts, table=backoff_table(counts, 1.0)
    )
    thin = replace(model, factors=(*model.factors[:-1], end))
    row = check_learners(bf.Replay(log, thin, np.tile([0.0, 1.0], (27, 1))))
    assert row[2] == "red"
    assert "depends on how the model was learned" in row[3]


# log score


def test_probabilities_of_transitions_are_those_of_the_table_of_all_transitions():
    generator = np.random.default_rng(2)
    model = clinic_model(generator)
    log = simulate_factored(generator, model, np.full((24, 2), 0.5), 40, 5)
    dense = np.zeros((model.n_states * model.n_actions, model.n_states + 2))
    rows = model.tabular()
    dense[rows.entry_row, rows.next_state] = rows.probability
    label = log.next_state.astype(int).copy()
    ended = log.outcome >= 0
    label[log.offsets[1:][ended] - 1] = model.n_states + log.outcome[ended]
    row = log.state * model.n_actions + log.action
    np.testing.assert_allclose(transition_probabilities(model, log), dense[row, label], atol=1e-13)
    pairs = np.array([3, 17, 40])
    ends = outcome_probabilities(model, pairs)
    np.testing.assert_allclose(ends[:, :2], dense[pairs, model.n_states :], atol=1e-13)
    np.testing.assert_allclose(ends.sum(axis=1), 1)


def test_the_tabular_model_is_smoothed_by_one_case_of_the_frequencies():
    # Of two steps seen, one led to state 1, one into the outcome: with one case spread over the 3
    # possible results the frequencies are (1/9, 4/9, 4/9). Pair (0, 0) was seen once, to state 1.
    seen = bf.Episodes.from_arrays(
        [0, 1], [0, 0], [1, 1], offsets=[0, 2], states=2, actions=1, outcome=[0], outcomes=[HOME]
    )
    asked = bf.Episodes.from_arrays(
        [0, 0], [0, 0], [0, 1], offsets=[0, 2], states=2, actions=1, outcome=[-1], outcomes=[HOME]
    )
    expected = [(0 + 1 / 9) / 2, (1 + 4 / 9) / 2]
    np.testing.assert_allclose(tabular_probabilities(seen, asked), expected, rtol=1e-14)


def test_a_factored_world_is_predicted_better_by_a_factored_model(ward):
    _, value, light, sentence = check_log_score(held_out(*ward))
    assert light == "green"
    assert value > 0
    assert "better than a tabular model" in sentence


def test_clusters_predict_each_variable_from_similar_states(monkeypatch):
    # Two clusters: states with x = 0 and with x = 9, whatever y is. From x = 0 one step of three
    # ended, the others led to x = 0 and 9, each with y = 1. Overall frequencies, with one case
    # spread evenly: of ends (1.5, 4.5) / 6, of x = 0 and 9 (1.1, 3.1) / 5, of y = 1 it is 2.5 / 5.
    monkeypatch.setattr(rivals, "CLUSTERS", 2)
    variables = [bf.Variable("x", tuple("0123456789")), bf.Variable("y", ("a", "b"))]
    x, y = np.array([0, 0, 0, 9, 9]), np.array([0, 1, 0, 0, 1])
    after = [1, 19, -1, 18, 18]  # 2 x + y; unknown where the step ended
    seen = bf.Episodes.from_arrays(
        2 * x + y, [0] * 5, after, offsets=range(6), states=variables, actions=1,
        outcome=[-1, -1, 0, -1, -1], outcomes=[HOME],
    )  # fmt: skip
    asked = bf.Episodes.from_arrays(
        [1, 1], [0, 0], [1, -1], offsets=[0, 1, 2], states=variables, actions=1, outcome=[-1, 0],
        outcomes=[HOME],
    )  # fmt: skip
    stays = (1 + 1.1 / 5) / 3 * (2 + 2.5 / 5) / 3
    expected = [(2 + 4.5 / 6) / 4 * stays, (1 + 1.5 / 6) / 4]
    found = cluster_probabilities(seen, asked, seed=0)
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_clusters_of_many_states_are_compared_and_do_worse_in_a_factored_world():
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), 300, seed=1)
    _, value, light, sentence = check_log_score(held_out(log, bf.fit_factored(log)))
    assert light == "green"
    told = re.search(r"100 clusters of similar states reach .*difference of \+([\d.]+)", sentence)
    against_table = re.search(r"against .*? difference of \+([\d.]+)", sentence)
    gains = [float(found[1]) for found in (told, against_table)]
    assert value == pytest.approx(min(gains), abs=5e-4)
    assert "the factored model is better" in sentence


def test_clusters_that_predict_better_than_the_model_decide_the_light():
    # a model whose oxygen moves as nowhere in the log
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), 300, seed=1)
    model = bf.fit_factored(log)
    wild = replace(model.factor("oxygen"), parents=(), table=np.array([0.999, 0.001]))
    factors = tuple(wild if one.variable == "oxygen" else one for one in model.factors)
    wrong = replace(model, factors=factors)
    row = check_log_score(held_out(log, wrong, lambda half: (wrong, None)))
    assert row[2] == "red"
    assert row[1] < 0
    assert "they are better; give the model other parents" in row[3]


def test_variables_that_move_together_are_predicted_better_by_a_table():
    # the second variable is the first, which independent factors cannot express
    log = ward_log()
    both = np.array([0, 4, 8])
    pulse = bf.Episodes.from_arrays(
        both[log.state // 9], log.action, both[log.next_state // 9], offsets=log.offsets,
        states=VITALS[:2], actions=log.action_variables, outcome=log.outcome,
        outcomes=log.outcomes,
    )  # fmt: skip
    halves = held_out(pulse, bf.fit_factored(pulse))
    assert check_log_score(halves)[2] == "red"
    assert check_correlation(pulse, predict_steps(halves, halves.model))[2] == "red"


def test_a_transition_that_is_impossible_in_the_model_is_reported(ward):
    log, model = ward
    sugar = model.factor("sugar")
    stuck = replace(sugar, parents=("sugar",), table=np.eye(3), counts=np.zeros((3, 3)))
    factors = tuple(stuck if one.variable == "sugar" else one for one in model.factors)
    wrong = replace(model, factors=factors)
    row = check_log_score(held_out(log, wrong, lambda half: (wrong, None)))
    assert np.isnan(row[1])
    assert row[2] == "red"
    assert re.match(r"\d+ logged transitions are impossible", row[3])


# extrapolation


def test_extrapolation_is_the_share_of_steps_with_parents_never_logged_together(ward):
    log, model = ward
    sugar = model.factor("sugar")
    counts = np.ones((3, 2, 3))
    counts[0, 1] = 0  # low sugar with the drug was never logged
    table = np.full((3, 2, 3), 1 / 3)
    learned = replace(
        sugar, parents=("sugar", "action.drug"), table=table, counts=counts, source="Boosting",
        strength=np.nan,
    )  # fmt: skip
    factors = tuple(learned if one.variable == "sugar" else one for one in model.factors)
    with_classifier = replace(model, factors=factors)
    state = np.arange(27)
    expected = np.stack([np.zeros(27), state % 3 == 0], axis=1)
    np.testing.assert_allclose(never_logged(with_classifier), expected, atol=1e-14)
    always = bf.Replay(log, with_classifier, np.tile([0.0, 1.0], (27, 1)))
    row = check_extrapolation(always)
    # sugar starts at each level equally often and then moves to each with a third
    assert row[1] == pytest.approx(1 / 3, abs=0.02)
    assert row[2] == "red"
    assert "(of sugar)" in row[3]
    never = bf.Replay(log, with_classifier, np.tile([1.0, 0.0], (27, 1)))
    assert check_extrapolation(never)[1:3] == (0.0, "green")
    assert second_model(with_classifier, log)[1] == "counts with back-off"


# all of them


def test_a_factored_model_has_its_own_rows(ward):
    log, model = ward
    replay = bf.Replay(log, model, bf.estimate_behavior(log))
    found = bf.diagnose(replay)
    assert found["check"].tolist() == CHECKS
    assert set(found["light"]) == {"green", "unknown"}
    for text in found["sentence"]:
        assert not re.search(r"\b(0|100)%", text), text
        assert text.endswith("."), text
    assert bf.diagnose(replay).equals(found)
    other = bf.diagnose(replay, seed=1)
    differs = (found["sentence"] != other["sentence"]).tolist()
    assert [c for c, d in zip(CHECKS, differs, strict=True) if d] == CHECKS[6:11]
    plain = bf.diagnose(bf.Replay(log, bf.fit_mdp(log), bf.estimate_behavior(log)))
    assert plain["check"].tolist() == [*CHECKS[:7], *LAST]


def test_unknown_final_states_leave_the_end_out_of_pairs():
    log = ward_log(final=False)
    model = bf.fit_factored(log)
    predicted = {one.variable: one for one in predictions(log, model)}
    assert predicted[END].known.all()
    ended = log.offsets[1:][log.outcome >= 0] - 1
    assert not predicted["pulse"].known[ended].any()
    assert predicted["pulse"].known.sum() == len(log.state) - len(ended)
    pairs = residual_correlations(log, list(predicted.values()))
    assert len(pairs) == 3
    found = bf.diagnose(bf.Replay(log, model, bf.estimate_behavior(log)))
    assert found["check"].tolist() == CHECKS


def test_one_episode_has_no_held_out_rows():
    log = ward_log().select([0, 1, 2, 3, 4])
    model = bf.fit_factored(log)
    found = bf.diagnose(bf.Replay(log.select([0]), model, bf.estimate_behavior(log)))
    assert found["check"].tolist() == [*CHECKS[:7], "learners agree", *LAST[1:]]


def test_a_log_without_outcomes_has_no_row_about_ends():
    log = ward_log(episodes=50)
    nameless = bf.Episodes.from_arrays(
        log.state, log.action, log.next_state, offsets=log.offsets, states=VITALS,
        actions=log.action_variables,
    )  # fmt: skip
    model = bf.fit_factored(nameless)
    found = bf.diagnose(bf.Replay(nameless, model, bf.estimate_behavior(nameless)))
    missing = ("calibration of ends", "estimators disagree")  # every return is 0
    assert found["check"].tolist() == [check for check in CHECKS if check not in missing]


def test_a_given_model_predicts_the_log_itself():
    generator = np.random.default_rng(1)
    model = clinic_model(generator)
    log = simulate_factored(generator, model, np.full((24, 2), 0.5), 60, 5)
    halves = held_out(log, model)
    assert all(half.model is model for half in halves.parts)
    found = bf.diagnose(bf.Replay(log, model, np.full((24, 2), 0.5)))
    assert "learners agree" not in found["check"].tolist()
    assert "One step ahead, the model predicts" in found["sentence"][7]


def test_what_was_given_stays_when_a_model_is_learned_again(ward):
    log, model = ward
    given = replace(model.factor("sugar"), source="given")
    known = bf.fit_factored(log, known={"sugar": given}, ends=replace(model.end, source="given"))
    again = fit_again(known, log.select(np.arange(500)))
    assert again.factor("sugar") is given
    assert again.end is known.end
    assert again.factor("pulse").counts.sum() < known.factor("pulse").counts.sum()


def test_an_audit_has_these_rows_and_a_summary_names_what_it_lacks(ward):
    log, model = ward[0].select(np.arange(60)), ward[1]
    replay = bf.Replay(log, model, bf.estimate_behavior(log))
    audit = bf.run_audit(replay, flags=1, draws=1, estimators=["MB", "CF"], resamples=2)
    assert audit.diagnostics.equals(bf.diagnose(replay))
    for check in [*CHECKS[6:11], "extrapolation"]:
        assert check in SUMMARIZED
