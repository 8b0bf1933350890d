"""Tabular and factored models of the sepsis simulator, over ten fresh logs of 1000 patients.

Decided by means over logs. With nothing hidden the factored plan is truly better than the
physicians (.43) and its value is known within a few hundredths. With glucose and diabetes hidden it
is no longer absurd, but confounding remains and shows as a value that is .3 too high. Single
patients are scored against what would truly have happened to them: noise belongs to patient and
step, so the same seed treats the same patients differently.
"""

import numpy as np
import pandas as pd
import pytest

import butfor as bf
from butfor import sepsis
from butfor.evaluate.diagnostics.second_learner import second_model
from butfor.log.variables import unravel

LOGS = 10
HORIZON = 20
PATIENTS = 250  # of each log who are scored one by one
TRUTH = sepsis.model()
PLAIN, CAUTIOUS = "no caution", "2 bad cases"


def simulate_log(seed, state="full"):
    log = sepsis.simulate(sepsis.behavior_policy(), 1000, seed=100 + seed)
    return log if state == "full" else log.hide("glucose", "diabetes")


def true_value(policy):
    return bf.policy_value(TRUTH, sepsis.full_policy(policy), horizon=HORIZON)


def fixed_rule():
    """Return a rule that physicians seldom follow: each treatment where its sign says so."""
    codes = unravel(sepsis.STATES, np.arange(TRUTH.n_states))
    level = {v.name: np.array(v.levels, object)[codes[v.name]] for v in sepsis.STATES}
    pressure = level["blood pressure"]
    antibiotics = (level["heart rate"] == "high") | (pressure == "high")
    action = 4 * antibiotics + 2 * (level["oxygen"] == "low") + (pressure == "low")
    return np.eye(TRUTH.n_actions)[action]


@pytest.fixture(scope="module", params=["full", "hidden"])
def plans(request):
    """What each model says of its plan and what the plan is truly worth: means over logs."""
    rows = []
    for seed in range(LOGS):
        log = simulate_log(seed, request.param)
        models = {"tabular": bf.fit_mdp(log), "factored": bf.fit_factored(log)}
        for name, model in models.items():
            for caution, chosen in ((PLAIN, None), (CAUTIOUS, bf.Caution())):
                plan = bf.policy_iteration(model, discount=0.99, caution=chosen)
                said = bf.policy_value(model, plan, horizon=HORIZON)
                rows.append((name, caution, said, true_value(plan)))
    table = pd.DataFrame(rows, columns=["model", "caution", "said", "true"])
    grouped = table.assign(excess=table["said"] - table["true"]).groupby(["model", "caution"])
    found = (
        grouped.mean()
        .join(grouped.sem().add_suffix("_se"))
        .join(grouped["true"].min().rename("worst"))
    )
    print(f"{request.param}\n{found.round(3).to_string()}")
    return request.param, found


def test_a_factored_plan_is_good_where_a_tabular_one_is_not(plans):
    state, found = plans
    assert found.loc[("factored", PLAIN), "true"] >= {"full": 0.52, "hidden": 0.36}[state]
    assert found.loc[("tabular", PLAIN), "true"] < {"full": 0.25, "hidden": 0.0}[state]


def test_the_value_of_a_factored_plan_is_known_unless_something_is_hidden(plans):
    state, found = plans
    excess = found.loc[("factored", PLAIN), "excess"]
    if state == "full":
        assert abs(excess) <= 0.04
    else:
        assert excess > 0.2


def test_caution_makes_a_tabular_plan_good_and_a_factored_one_no_worse(plans):
    _, found = plans
    for model, least in (("tabular", 0.3), ("factored", -0.03)):
        gained = found.loc[(model, CAUTIOUS), "true"] - found.loc[(model, PLAIN), "true"]
        assert gained > least
    # caution promises less, in either model
    promised = found["said"].unstack("caution")
    assert (promised[CAUTIOUS] < promised[PLAIN]).all()


def test_single_patients_are_predicted_nearly_as_well_as_by_the_true_model():
    rule, true = fixed_rule(), sepsis.factored_model()
    rows = []
    for seed in range(LOGS):
        log = simulate_log(seed)
        known = bf.fit_factored(log, ends=true.end)
        models = {"true": true, "ends given": known, "factored": bf.fit_factored(log)}
        outcome = sepsis.simulate(rule, PATIENTS, seed=100 + seed).outcome
        happened = np.eye(3)[outcome]  # none, -1, is the last
        patients = log.select(np.arange(PATIENTS))
        row = {"frequencies": ((happened.mean(axis=0) - happened) ** 2).sum(axis=1).mean()}
        asked = {name: (patients, model, "variables") for name, model in models.items()}
        asked["on states"] = patients, models["factored"], "state"
        for name, (some, model, noise) in asked.items():
            said = bf.Replay(some, model, rule, noise=noise).outcomes()
            row[name] = ((said.probability - happened) ** 2).sum(axis=1).mean()
        rows.append(row)
    brier = pd.DataFrame(rows).mean()
    print(brier.round(3).to_string())
    assert brier["factored"] - brier["true"] <= 0.04
    # most of what remains under a rule that physicians seldom follow is the model of ends
    assert brier["ends given"] - brier["true"] <= 0.02
    assert brier["factored"] < brier["on states"] < brier["frequencies"]


def test_another_learner_differs_where_the_model_is_wrong_for_want_of_cases():
    # a rule that physicians seldom follow; errors and gaps of its value in the model, by log
    rule = fixed_rule()
    true = true_value(rule)
    errors, gaps = [], []
    for seed in range(LOGS):
        log = simulate_log(seed)
        model = bf.fit_factored(log)
        other, _ = second_model(model, log)
        said = bf.policy_value(model.tabular(), rule, horizon=HORIZON)
        errors.append(said - true)
        gaps.append(bf.policy_value(other.tabular(), rule, horizon=HORIZON) - said)
    size = np.abs([errors, gaps]).mean(axis=1)
    together = float(np.corrcoef(errors, gaps)[0, 1])
    print(f"mean error {size[0]:.3f}, mean gap {size[1]:.3f}, correlation {together:.2f}")
    assert size[1] > 0.5 * size[0]
    assert together < -0.5  # the other learner moves the value towards the truth


def test_a_function_of_the_next_state_may_give_the_rule_of_ends():
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy("corrected"), 250, seed=1)
    outcome = bf.sepsis.outcome_of()

    def rule(codes):
        state = np.zeros(len(codes["next.glucose"]), dtype=np.int64)
        for variable in bf.sepsis.STATES:
            state = state * len(variable.levels) + codes["next." + variable.name]
        return np.eye(3)[np.where(outcome[state] < 0, 2, outcome[state])]

    model = bf.fit_factored(log, ends=rule)
    assert model.end.source == "given"
    truth = bf.sepsis.model("corrected")
    values = []
    for one in (model, bf.fit_factored(log)):
        plan = bf.policy_iteration(one.tabular(), discount=0.99)
        values.append(bf.policy_value(truth, plan, horizon=HORIZON))
    # 250 patients do not teach the rule of ends; where it is known, the plan is better
    assert values[0] > values[1]
