"""Rules for learned policies: what they forbid is never done, and the rest is planned best."""

import itertools

import numpy as np
import pandas as pd
import pytest

import butfor as bf
from butfor.audit.settings import AuditSettings
from butfor.audit.source import audit_into, audit_log
from butfor.models.planning import state_values
from butfor.models.simulate import simulate_model
from tests.builders import small_world

DOSES = ("none", "half", "full")
STATE = (bf.Variable("pressure", ("low", "normal")), bf.Variable("present", DOSES))
ACTION = (bf.Variable("dose", DOSES), bf.Variable("pump", ("off", "on")))


def test_rules_mark_what_may_be_done():
    rules = bf.Rules(
        [{"pressure": "low", "dose": ["half", "full"]}, {"dose": "full", "pump": "on"}]
    )
    found = rules.allowed(STATE, ACTION)
    # actions: none off, none on, half off, half on, full off, full on; the first 3 states are low
    assert found[:3].tolist() == [[True, True, False, False, False, False]] * 3
    assert found[3:].tolist() == [[True, True, True, True, True, False]] * 3
    gradual = bf.Rules(gradual={"dose": "present"}).allowed(STATE, ACTION[:1])
    assert gradual[:3].tolist() == [[True, True, False], [True, True, True], [False, True, True]]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (bf.Rules([{"pulse": "low"}]), "never, rule 1: no variable 'pulse'; there are 'pressure'"),
        (bf.Rules([{"dose": "double"}]), "never, rule 1: 'double' is not a level of dose"),
        (
            bf.Rules([{"pressure": "low"}]),
            "allow no action in 3 of 6 states, first with pressure=low",
        ),
        (bf.Rules(gradual={"pump": "present"}), "'pump' and 'present' have different levels"),
        (bf.Rules(gradual={"dose": "past"}), "gradual: no variable 'state.past'"),
    ],
)
def test_rules_that_do_not_fit_are_refused(rules, message):
    with pytest.raises(ValueError, match=message):
        rules.allowed(STATE, ACTION)


def test_a_name_of_both_needs_its_group():
    variables = (bf.Variable("dose", DOSES),)
    with pytest.raises(ValueError, match=r"write state\.dose or action\.dose"):
        bf.Rules([{"dose": "full"}]).allowed(variables, variables)
    found = bf.Rules([{"state.dose": "none", "action.dose": "full"}]).allowed(variables, variables)
    assert (~found).sum() == 1
    assert not found[0, 2]


@pytest.mark.parametrize("seed", range(5))
def test_a_plan_is_the_best_of_those_that_keep_the_rules(seed):
    generator = np.random.default_rng(seed)
    rows = generator.dirichlet(np.ones(6), (4, 3))
    model = bf.TabularMDP.from_arrays(rows, outcomes=small_world().outcomes)
    allowed = generator.random((4, 3)) < 0.5
    allowed[~allowed.any(axis=1), 1] = True
    best = np.full(4, -np.inf)
    for actions in itertools.product(*(np.flatnonzero(row) for row in allowed)):
        values = state_values(model, np.eye(3)[list(actions)], discount=0.9)
        best = np.maximum(best, values)
    policy = bf.policy_iteration(model, discount=0.9, allowed=allowed)
    assert policy[~allowed].sum() == 0
    np.testing.assert_allclose(state_values(model, policy, discount=0.9), best, atol=1e-9)


@pytest.mark.parametrize(
    "caution", [bf.Caution(), bf.Caution(least_cases=90), bf.Caution(risk=0.2)]
)
def test_caution_never_breaks_a_rule(caution):
    log = simulate_model(small_world(), np.full((3, 2), [0.9, 0.1]), 100, horizon=4)
    allowed = np.array([[False, True], [True, True], [False, True]])
    policy = bf.policy_iteration(bf.fit_mdp(log), caution=caution, allowed=allowed)
    assert policy[~allowed].sum() == 0
    for wrong in (allowed.astype(int), allowed[:2], np.zeros((3, 2), bool)):
        with pytest.raises(ValueError, match="allowed"):
            bf.policy_iteration(bf.fit_mdp(log), allowed=wrong)


STUDY = """
[columns]
episode = "episode"
time = "time"
outcome = "end"
[state.pressure]
levels = ["low", "normal"]
[state.present]
levels = ["none", "half", "full"]
[action.dose]
levels = ["none", "half", "full"]
[outcome.well]
reward = 1.0
[outcome.ill]
reward = 0.0
bad = true
[rules]
never = [{ pressure = "low", dose = "half" }]
gradual = { dose = "present" }
"""


def dose_log(generator):
    """Full doses are best, and may be given at once."""
    rows = []
    for episode in range(300):
        present = "none"
        for time in range(3):
            pressure, dose = generator.choice(["low", "normal"]), generator.choice(DOSES)
            well = generator.random() < {"none": 0.1, "half": 0.5, "full": 0.95}[dose]
            rows.append((episode, time, pressure, present, dose, ""))
            present = dose
        # the final state, without which nothing can be hidden for a rehearsal
        rows.append((episode, 3, pressure, present, "", "well" if well else "ill"))
    return pd.DataFrame(rows, columns=["episode", "time", "pressure", "present", "dose", "end"])


@pytest.mark.parametrize("kind", ["factored", "tabular"])
def test_an_audit_learns_a_policy_that_keeps_the_rules_of_the_study(tmp_path, kind):
    dose_log(np.random.default_rng(0)).to_csv(tmp_path / "log.csv", index=False)
    study = tmp_path / "study.toml"
    study.write_text(STUDY)
    few = {"model": kind, "models": 0, "flags": 1, "review_size": 2, "intervals": 0}
    audit = audit_log(tmp_path / "log.csv", study, **few)
    log = bf.read_episodes(tmp_path / "log.csv", study)
    rules = bf.Rules([{"pressure": "low", "dose": "half"}], {"dose": "present"})
    allowed = rules.allowed(log.state_variables, log.action_variables)
    assert audit.target[~allowed].sum() == 0
    assert audit.meta.made_by["rules"]["gradual"] == {"dose": "present"}
    assert audit.rehearsal is not None  # which hides the variables that rules are about
    settings = AuditSettings(**few, detail="summary", rehearsal=False)
    summary = audit_into(tmp_path / "log.csv", study, tmp_path / "a", settings)
    np.testing.assert_array_equal(summary.target, audit.target)
    study.write_text(STUDY.split("[rules]")[0])
    free = audit_log(tmp_path / "log.csv", study, **few, rehearsal=False)
    assert free.target[~allowed].sum() > 0  # the rules made a difference
