"""The conclusion: which sentence follows from which checks."""

from pathlib import Path

import pandas as pd
import pytest

import butfor as bf
from butfor.audit.audit import Audit
from butfor.evaluate.conclusion import GRAVITY, NOTHING_FOUND, ORDER, conclude
from butfor.evaluate.finding import Scale, told_digits
from butfor.present.text import LIGHTS as WORDS
from tests.quick.test_diagnostics import CHECKS
from tests.quick.test_diagnostics_factored import CHECKS as FACTORED

NAN = float("nan")


def table(**lights):
    """A table of checks that are all green but for those given."""
    names = {name: name.replace("_", " ") for name in lights}
    found = dict.fromkeys(CHECKS[:-1], "green") | {"hidden causes": "unknown"}
    found |= {names[name]: light for name, light in lights.items()}
    rows = [(check, 0.0, light, "") for check, light in found.items()]
    return pd.DataFrame(rows, columns=["check", "value", "light", "sentence"])


def estimates(observed=0.1, model=0.4, fresh=None, low=NAN):
    rows = [("Observed", observed, NAN, NAN), ("MB", model, NAN, NAN), ("CF", model, NAN, NAN)]
    if fresh is not None:
        high = 2 * fresh - low
        rows += [("MB (cross-fitted)", fresh, low, high)]
        rows += [("CF (cross-fitted)", fresh + 0.02, low + 0.02, high + 0.02)]
    return pd.DataFrame(rows, columns=["estimator", "value", "low", "high"])


def test_without_alarms_it_says_what_no_check_can_show():
    found = conclude(estimates(), table())
    assert (found.light, found.reason, found.checks) == ("unknown", NOTHING_FOUND, ())
    assert "not recorded" in found.reason
    assert found.sentence == (
        "The policy looks better (average return +0.40 against +0.10). None of 11 checks fails. "
        "This supports trying the policy."
    )


def test_a_problem_means_not_to_act():
    found = conclude(estimates(), table(overlap="red", influence="amber"))
    assert found.light == "red"
    assert found.sentence.endswith("1 of 11 checks fails, 1 calls for caution. Do not act on this.")
    assert found.reason == "Too little of what the policy would do is in the records."
    assert found.checks == ("overlap",)


def test_a_caution_is_not_a_problem():
    found = conclude(estimates(), table(calibration="amber"))
    assert found.light == "amber"
    assert found.sentence.endswith("Promising, but not yet a reason to act.")
    assert found.reason == "It is not certain that the model predicts well."


@pytest.mark.parametrize(
    ("model", "advice"), [(-0.2, "This argues against the policy."), (0.1, "neither a gain nor")]
)
def test_a_caution_does_not_make_a_loss_promising(model, advice):
    found = conclude(estimates(model=model), table(calibration="amber"))
    assert advice in found.sentence


def test_what_concerns_single_episodes_only_does_not_decide():
    found = conclude(estimates(), table(influence="red"))
    assert found.light == "amber"
    assert found.sentence.endswith("1 of 11 checks fails. This supports trying the policy.")


def test_the_gravest_come_first_and_the_rest_is_left_out():
    checks = table(
        influence="red",
        calibration="red",
        overlap="red",
        estimators_disagree="red",
        mean_importance_weight="amber",
        the_past_still_matters="red",
    )
    found = conclude(estimates(), checks)
    assert found.checks == (
        "the past still matters",
        "estimators disagree",
        "overlap",
        "calibration",
    )
    assert found.reason.count(";") == 2
    assert "decisions may have depended" not in found.reason  # a caution beside problems
    assert "predicts poorly" not in found.reason  # a fourth reason


@pytest.mark.parametrize(
    ("fresh", "low", "light"),
    [(0.3, 0.2, "unknown"), (0.3, 0.05, "amber"), (0.05, -0.1, "red"), (0.3, NAN, "unknown")],
)
def test_fresh_data_decide_whether_there_is_a_gain(fresh, low, light):
    found = conclude(estimates(fresh=fresh, low=low), table())
    assert found.light == light
    if light == "red":
        assert "does no better than what was done" in found.reason
        assert found.checks == ("cross-fitted estimates",)


def test_a_plan_that_was_not_judged_on_other_data_is_supported_by_nothing():
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), episodes=60, seed=0)
    log = log.hide("glucose", "diabetes")
    model = bf.fit_mdp(log)
    asked = {"estimators": ["Observed", "MB", "CF"], "resamples": 20}
    replay = bf.Replay(log, model, bf.policy_iteration(model))
    found = conclude(bf.estimate_values(replay, **asked), table())
    assert found.sentence.startswith("On the log that taught it, the policy looks better (")
    assert "it was not judged on other data. None of" in found.sentence
    assert "supports" not in found.sentence
    fixed = bf.Replay(log, model, bf.policy_iteration(model).table)
    assert conclude(bf.estimate_values(fixed, **asked), table()).sentence.startswith("The policy ")


def test_its_numbers_have_the_decimals_of_the_table_of_estimates():
    shown = estimates(observed=-0.1638, model=-0.1, fresh=-0.1883)
    shown.loc[len(shown)] = ("WIS", -0.28, NAN, NAN)
    assert "(−0.19 against −0.16)" in conclude(shown, table()).sentence


def test_an_alarm_of_another_version_is_not_lost():
    found = conclude(estimates(), table(moon_phase="red"))
    assert found.reason == "The check “moon phase” found a problem."


def test_every_check_has_a_place_in_the_order():
    others = {"consistency", "hidden state", "rows in common", "rehearsal", "extrapolation"}
    assert {*CHECKS, *FACTORED, *others} - {"hidden causes"} <= set(ORDER)
    assert len(ORDER) == len(set(ORDER))


def test_no_sentence_names_a_color():
    words = " ".join(f"{reason.red} {reason.amber}" for reason in GRAVITY)
    assert not set(words.split()) & {"red", "amber", "green"}
    assert WORDS["unknown"] == "cannot be checked"


def test_an_audit_of_an_earlier_version_has_one_too():
    audit = Audit.load(Path(__file__).parents[1] / "data" / "audit-0.1.0")
    assert audit.conclusion.light == "red"
    assert audit.conclusion.sentence.endswith("Do not act on this.")


def test_it_is_what_an_audit_saves(tmp_path):
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), 60, seed=0).hide("glucose", "diabetes")
    model = bf.fit_mdp(log)
    audit = bf.run_audit(
        log, model, bf.policy_iteration(model).table, flags=2, draws=1, resamples=5
    )
    again = Audit.load(audit.save(tmp_path / "audit"))
    assert again.conclusion == audit.conclusion
    assert audit.conclusion.reason == conclude(audit.estimates, audit.diagnostics).reason


# ----------------------------------------------------------------------------- numbers in sentences


def told(observed, model, chances, **others):
    """A sentence about one outcome with these chances in the log and in the model."""
    shown = estimates(observed=observed, model=model)
    for name, row in others.items():
        shown.loc[shown["estimator"] == name, ["low", "high"]] = row
    scale = Scale(told_digits(shown), ("died",), {"Observed": chances[:1], "CF": chances[1:]})
    return conclude(shown, table(), scale).sentence


def test_an_exploding_estimate_takes_no_digits_from_the_others():
    shown = estimates(observed=-0.17, model=-0.09)
    for name in ("IS", "PDIS", "DR", "WDR", "MAGIC"):
        shown.loc[len(shown)] = (name, 3.2e12, NAN, NAN)
    assert "(average return −0.09 against −0.17)" in conclude(shown, table()).sentence


def test_harm_is_told_although_the_interval_leaves_it_open():
    wide = {"MB": (-0.9, 0.9), "CF": (-0.9, 0.9)}
    sentence = told(0.76, -0.46, [0.12, 0.73], **wide)
    assert sentence.startswith("The policy looks worse, but may be better (died 73 instead of 12")
    assert "This shows neither a gain nor a loss." in sentence
    assert "may be better or worse" in told(0.1, 0.4, [0.45, 0.3], **wide)
    assert "may be better or worse" in told(0.1, 0.0999, [0.45, 0.45], MB=(-1, 1), CF=(-1, 1))


def test_counts_are_whole_and_what_is_not_is_a_rate():
    assert "(died 73 instead of 12 of 100 episodes;" in told(0.76, -0.46, [0.12, 0.73])
    assert "(died 22.25% instead of 22.31%;" in told(0.5538, 0.555, [0.2231, 0.2225])


def test_shares_keep_the_unit_of_those_they_follow():
    chances = {"Observed": [0.32], "CF": [0.325], "MB (cross-fitted)": [0.23]}
    shown = estimates(observed=0.68, model=0.67, fresh=0.47)
    scale = Scale(told_digits(shown), ("died",), chances)
    sentence = conclude(shown, table(), scale).sentence
    assert "(died 32.5% instead of 32.0%;" in sentence
    assert "(died 23%;" in sentence


@pytest.mark.parametrize("predicted", ["the action", "what follows"])
def test_the_verdict_quotes_what_its_check_found(predicted):
    checks = table(the_past_still_matters="red")
    mine = checks["check"] == "the past still matters"
    checks.loc[mine, "sentence"] = f"Given the state, “x” still predicts {predicted}: it explains"
    assert f"The step before still predicts {predicted}, a sign" in (
        conclude(estimates(), checks).reason
    )
