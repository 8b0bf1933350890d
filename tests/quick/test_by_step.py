"""Policies and rules that differ from step to step: the step is a variable of the state."""

import tomllib
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import butfor as bf
from butfor.audit.audit import Audit
from butfor.audit.shards.run import audit_shards
from butfor.audit.source import audit_log
from butfor.interop import target_from_table
from butfor.log.read import read_log
from butfor.log.variables import step_variable
from butfor.models.planning import state_values
from butfor.models.simulate import simulate_model
from butfor.present.report.content import outcome_order
from butfor.present.stays import Stays
from butfor.replay.usual import null_changes
from tests.reference.counterfactual import action_law, next_law
from tests.support import random_model, random_policy, reference_episodes, reference_model

HORIZON, STATES, ACTIONS, DISCOUNT = 4, 3, 2, 0.9


def counting(model, horizon=HORIZON):
    """The same model with the step in its state, which follows the horizon once more."""
    states, ends = model.n_states, len(model.outcomes)
    size = (horizon + 1) * states
    rows = np.zeros((size, model.n_actions, size + ends))
    reward = np.zeros_like(rows)
    for t in range(horizon + 1):
        for entry, row in enumerate(model.entry_row.tolist()):
            s, a = divmod(row, model.n_actions)
            x = int(model.next_state[entry])
            place = size + x - states if x >= states else min(t + 1, horizon) * states + x
            rows[t * states + s, a, place] = model.probability[entry]
            reward[t * states + s, a, place] = model.reward[entry]
    initial = np.append(model.initial, np.zeros(horizon * states))
    durations = np.append(np.ones(horizon * states), np.full(states, np.inf))
    return bf.TabularMDP.from_arrays(
        rows, reward=reward, outcomes=model.outcomes, initial=initial, durations=durations
    )


@pytest.fixture(scope="module")
def world():
    generator = np.random.default_rng(3)
    model = random_model(generator, states=STATES, actions=ACTIONS)
    behavior = random_policy(generator, model)
    log = simulate_model(model, behavior, 60, horizon=HORIZON, seed=1)
    return model, behavior, log


def expected_return(model, episode, behavior, target):
    """Mean over every counterfactual path, with another target at each step."""

    def walk(t, state):
        if t == HORIZON or state >= model.states:
            return 0.0
        total = 0.0
        for action, chosen in action_law(episode, t, state, behavior, target[t], True).items():
            for reached, moved in next_law(model, episode, t, state, action).items():
                reward = model.rows[state, action][reached][1]
                total += chosen * moved * (reward + DISCOUNT * walk(t + 1, reached))
        return total

    return walk(0, episode.states[0])


def test_counterfactuals_of_a_policy_by_step_are_means_over_all_paths(world):
    model, behavior, log = world
    target = np.random.default_rng(5).dirichlet(np.ones(ACTIONS), (HORIZON, STATES))
    replay = bf.Replay(
        log.with_step(),
        counting(model),
        target,
        behavior=np.tile(behavior, (HORIZON, 1, 1)),
        discount=DISCOUNT,
    )
    found = replay.outcomes().expected_return
    plain = reference_model(model)
    for i, episode in enumerate(reference_episodes(log)):
        exact = expected_return(plain, episode, behavior, target)
        assert found[i] == pytest.approx(exact, abs=1e-12)


def test_the_same_policy_at_every_step_is_a_policy_on_states(world):
    model, behavior, log = world
    target = random_policy(np.random.default_rng(7), model)
    usual = bf.Replay(log, model, target, behavior=behavior, discount=DISCOUNT)
    repeated = np.tile(target, (HORIZON, 1, 1))
    known = np.tile(behavior, (HORIZON, 1, 1))
    found = bf.Replay(log.with_step(), counting(model), repeated, behavior=known, discount=DISCOUNT)
    for one, other in (
        (found.outcomes().expected_return, usual.outcomes().expected_return),
        (found.bounds().expected_return, usual.bounds().expected_return),
        (found.contributions(), usual.contributions()),
        (found.observed_return, usual.observed_return),
        (found.draws(3, seed=1).reward, usual.draws(3, seed=1).reward),
    ):
        np.testing.assert_allclose(one, other, atol=1e-12)
    names = ["Observed", "IS", "WIS", "PDIS", "DR", "WDR", "MB", "CF"]
    one, other = (
        bf.estimate_values(replay, estimators=names)["value"] for replay in (found, usual)
    )
    np.testing.assert_allclose(one, other, atol=1e-12)


def test_a_plan_by_step_is_that_of_backward_induction(world):
    model, _, _ = world
    plan = bf.policy_iteration(counting(model), discount=DISCOUNT)
    table = plan.reshape(HORIZON + 1, STATES, ACTIONS)
    values = np.zeros(STATES + len(model.outcomes))
    for t in reversed(range(HORIZON)):
        worth = np.zeros((STATES, ACTIONS))
        for entry, row in enumerate(model.entry_row.tolist()):
            earned = model.reward[entry] + DISCOUNT * values[model.next_state[entry]]
            worth[divmod(row, ACTIONS)] += model.probability[entry] * earned
        values[:STATES] = worth.max(axis=1)
        np.testing.assert_array_equal(table[t].argmax(axis=1), worth.argmax(axis=1))
    found = state_values(counting(model), plan, horizon=HORIZON, discount=DISCOUNT)
    np.testing.assert_allclose(found[:STATES], values[:STATES], atol=1e-12)
    assert len({tuple(row) for row in table[:-1].argmax(axis=2).tolist()}) > 1  # it does change


def test_factored_models_count_steps_for_certain(world):
    *_, log = world
    earned = np.append([end.reward for end in log.outcomes], 0.0)[log.outcome]
    last = np.isin(np.arange(len(log.state)), log.offsets[1:] - 1)
    log = replace(log, reward=np.where(last, np.repeat(earned, log.lengths), 0.0))
    model = bf.fit_factored(log.with_step())
    factor = next(factor for factor in model.factors if factor.variable == "step")
    assert (factor.source, factor.learned) == ("clock", False)
    np.testing.assert_array_equal(factor.table.argmax(axis=1), [1, 2, 3, 4, 4])
    plan = bf.policy_iteration(model, discount=DISCOUNT)
    replay = bf.Replay(log.with_step(), model, plan)
    assert np.isfinite(replay.outcomes().expected_return).all()
    changed = null_changes(replay)
    assert len(changed) > 0
    assert not changed.any()


def test_rules_can_hold_at_some_steps_only(world):
    *_, log = world
    counted = log.with_step()
    rules = bf.Rules(never=[{"step": ["0", "1"], "action": "1"}])
    allowed = rules.allowed(counted.state_variables, counted.action_variables)
    np.testing.assert_array_equal(
        allowed[:, 1].reshape(HORIZON + 1, STATES).all(axis=1), [False, False, True, True, True]
    )
    plan = bf.policy_iteration(bf.fit_factored(counted), allowed=allowed)
    assert (plan[: 2 * STATES, 1] == 0).all()


def test_a_table_with_a_column_for_the_step_is_a_target(world):
    *_, log = world
    rows = [("0", "*", "1", 1.0), ("*", "*", "0", 1.0)]
    table = pd.DataFrame(rows, columns=["step", "state", "action", "probability"])
    counted = replace(log, state_variables=(bf.Variable("sugar", ("a", "b", "c")),)).with_step()
    table = table.rename(columns={"state": "sugar"})
    target = target_from_table(table, counted)
    np.testing.assert_array_equal(target.argmax(axis=1), [1] * STATES + [0] * STATES * HORIZON)


def test_what_does_not_fit_is_refused(world):
    model, behavior, log = world
    target = np.tile(behavior, (HORIZON, 1, 1))
    with pytest.raises(ValueError, match=r"needs a log that counts steps.*with_step"):
        bf.Replay(log, model, target)
    with pytest.raises(ValueError, match=r"shape \(3, 3, 2\), expected \(4, 3, 2\)"):
        bf.Replay(log.with_step(), counting(model), target[1:])
    with pytest.raises(ValueError, match=r"horizon 9: 'step' counts steps up to 4"):
        bf.Replay(log.with_step(), counting(model), target, horizon=9)
    with pytest.raises(ValueError, match="'step' appears twice"):
        log.with_step().with_step()


STUDY = """
[columns]
episode = "id"
time = "t"
outcome = "end"

[state.sugar]
levels = ["low", "high"]

[action.drug]
levels = ["no", "yes"]

[outcome.well]
reward = 1.0
[outcome.ill]
reward = 0.0
bad = true

[evaluation]
horizon = 3
by_step = true

[rules]
never = [{ step = "0", drug = "yes" }]

[problems]
no_outcome = "keep"
no_transition = "drop"
drop_at_most = 1
"""


def test_a_study_puts_the_step_into_the_state(tmp_path):
    generator = np.random.default_rng(0)
    lines = ["id,t,sugar,drug,end"]
    for episode in range(60):
        for t in range(3):
            sugar, drug = generator.choice(["low", "high"]), generator.choice(["no", "yes"])
            last = t == 2 or generator.random() < 0.2
            end = generator.choice(["well", "ill"], p=[0.8, 0.2] if drug == "yes" else [0.3, 0.7])
            lines.append(f"{episode},{t},{sugar},{drug},{end if last else ''}")
            if last:
                break
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    study = tmp_path / "study.toml"
    study.write_text(STUDY)
    log = read_log(tmp_path / "log.csv", study).episodes
    assert log.state_variables[0] == step_variable(3)
    np.testing.assert_array_equal(log.codes(log.state)["step"], log.time)
    audit = audit_log(tmp_path / "log.csv", study, models=0, flags=2, rehearsal=False)
    taken = audit.target.reshape(4, 2, 2).argmax(axis=2)
    assert (taken[0] == 0).all()  # the rule
    assert (taken[1:3] == 1).all()  # what helps
    study.write_text(STUDY.replace("horizon = 3\n", ""))
    with pytest.raises(ValueError, match=r"\[evaluation\] by_step: needs the number of steps"):
        read_log(tmp_path / "log.csv", study)


def unit(folder, *, ends, final=False, stays=200, hours=6):
    """Stays in a ward; each hour, and the last, has the chances of `ends`. Return log and study."""
    rng = np.random.default_rng(0)
    rows = []
    for stay in range(stays):
        level = int(rng.integers(3))
        for hour in range(hours + final):
            drug, last = str(rng.choice(["off", "on"])), hour == hours - 1 + final
            names, chances = ends[last]
            end = str(rng.choice(names, p=chances)) if hour >= final else ""
            # with `final`, outcomes stand on a row of their own that gives the final state
            action = "" if final and end else drug
            rows.append((stay, hour, ("low", "mid", "high")[level], action, end))
            if end:
                break
            level = int(np.clip(level + rng.integers(-1, 2), 0, 2))
    log = pd.DataFrame(rows, columns=["stay", "hour", "lactate", "drug", "status"])
    path = folder / "log.csv"
    log.to_csv(path, index=False)
    lines = ["[columns]", 'episode = "stay"', 'time = "hour"', 'outcome = "status"']
    lines += ["[state.lactate]", 'levels = ["low", "mid", "high"]']
    lines += ["[action.drug]", 'levels = ["off", "on"]', "[model]", 'kind = "tabular"']
    names = [name for name in dict.fromkeys([*ends[0][0], *ends[1][0]]) if name]
    for name in names:
        lines += [f'[outcome."{name}"]', f"reward = {1.0 - names.index(name)}"]
    return log, path, "\n".join(lines) + "\n"


FOLLOWED = (
    (["home", "in ICU", "died", ""], [0.1, 0, 0.1, 0.8]),
    (["home", "died", "in ICU"], [0.1, 0.1, 0.8]),
)
FIXED = (([""], [1]), (["well", "ill"], [0.5, 0.5]))
BY_STEP = "[evaluation]\nhorizon = 6\nby_step = true\n"


def both_audits(folder, path, study):
    """The audits of a log in memory and in shards."""
    (folder / "study.toml").write_text(study)
    whole = audit_log(path, folder / "study.toml", models=0, flags=2, rehearsal=False)
    audit_shards(path, folder / "study.toml", folder / "audit", overwrite=True)
    return whole, Audit.load(folder / "audit")


def test_an_outcome_that_only_tells_the_end_of_follow_up_is_refused_without_the_step(tmp_path):
    log, path, study = unit(tmp_path, ends=FOLLOWED)
    (tmp_path / "study.toml").write_text(study)
    for read in (
        lambda: read_log(path, tmp_path / "study.toml"),
        lambda: audit_shards(path, tmp_path / "study.toml", tmp_path / "audit"),
    ):
        with pytest.raises(ValueError, match="the outcome 'in ICU' occurs only after 6") as caught:
            read()
        assert "Write horizon = 6 and by_step = true in [evaluation]" in str(caught.value)
        assert 'instead of [outcome."in ICU"], none = "in ICU" in [words]' in str(caught.value)
    for audit in both_audits(tmp_path, path, study + BY_STEP):
        assert audit.outcome_table().loc[:, "no outcome"].sum() == 0
        assert audit.outcome_table(expected=True)["no outcome"].sum() < 0.001 * len(audit.episodes)
        assert "no outcome" not in outcome_order(Stays(audit))
        found = audit.outcome_table().sum(axis=1)
        assert (
            found[found > 0].to_dict()
            == log.loc[log["status"] != "", "status"].value_counts().to_dict()
        )


def test_an_end_of_follow_up_with_a_final_state_is_no_outcome_under_its_name(tmp_path):
    log, path, study = unit(tmp_path, ends=FOLLOWED, final=True)
    with pytest.raises(ValueError, match="the outcome 'in ICU' occurs only after 6"):
        read_log(path, tomllib.loads(study))
    section = '[outcome."in ICU"]\nreward = 0.0\n'
    assert section in study
    named = study.replace(section, "") + '[words]\nnone = "in ICU"\n[evaluation]\nhorizon = 6\n'
    for audit in both_audits(tmp_path, path, named):
        assert audit.meta.outcome_names == ["home", "died", "in ICU"]
        assert audit.meta.counts.censored == 0
        assert audit.meta.counts.steps == len(log) - 200
        assert not any("stop before" in warning for warning in audit.meta.warnings)


def test_outcomes_that_occur_late_by_chance_or_with_others_are_not_refused(tmp_path):
    rare = (FOLLOWED[0], (["home", "died", "in ICU"], [0.5, 0.2, 0.3]))
    _, path, study = unit(tmp_path, ends=rare)  # most of the longest stays end otherwise
    read_log(path, tomllib.loads(study))
    _, path, study = unit(tmp_path, ends=FOLLOWED, stays=9)  # too few to know
    read_log(path, tomllib.loads(study))
    _, path, study = unit(tmp_path, ends=FIXED)  # nothing ends before
    read_log(path, tomllib.loads(study))


def test_a_trial_of_fixed_length_is_warned_that_the_model_does_not_know_its_end(tmp_path):
    _, path, study = unit(tmp_path, ends=FIXED)
    for audit in both_audits(tmp_path, path, study):
        share = audit.outcome_table(expected=True)["no outcome"].sum() / 200
        assert share > 0.03
        (told,) = [note for note in audit.meta.warnings if "after 6 decisions" in note]
        assert f"'no outcome': {100 * share:.0f}%" in told
        assert "horizon = 6 and by_step = true" in told
        assert "no outcome" in outcome_order(Stays(audit))  # a chance that is not 0 is shown
    for audit in both_audits(tmp_path, path, study + BY_STEP):
        assert audit.all_end
        assert not any("after 6 decisions" in note for note in audit.meta.warnings)
        assert "no outcome" not in outcome_order(Stays(audit))
