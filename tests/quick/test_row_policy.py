"""Policies on more than the state: weights row by row, counterfactuals by their average."""

import tomllib

import numpy as np
import pandas as pd
import pytest

import butfor as bf
from butfor.audit.settings import AuditSettings
from butfor.audit.shards.run import audit_shards
from butfor.audit.source import audit_log
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.interop import behavior_from_predict, rows_from_predict
from butfor.models.row_policy import lost_by_averaging
from tests.builders import random_log

STUDY = """
[columns]
episode = "id"
time = "t"
outcome = "end"
{more}

[state.level]
levels = ["low", "high"]

[action.drug]
levels = ["none", "full"]

[outcome.well]
reward = 1.0
[outcome.ill]
reward = 0.0
bad = true
"""


def secret_log():
    """Each decision once: what helps is `secret`, which the state does not contain."""
    rows = [
        {
            "id": f"{repeat}{secret}{drug}",
            "t": 0,
            "level": "low",
            "secret": secret,
            "drug": drug,
            "end": "well" if secret == drug else "ill",
            "p_none": float(secret == "none"),
            "p_full": float(secret == "full"),
        }
        for repeat in range(10)
        for secret in ("none", "full")
        for drug in ("none", "full")
    ]
    return pd.DataFrame(rows)


def read_secret(**columns):
    lines = "\n".join(f"{key} = {value}" for key, value in columns.items())
    study = tomllib.loads(STUDY.format(more=lines))
    return bf.read_episodes(secret_log(), study)


ACTION = {"target_action": '"secret"'}
CHANCES = {"target_probability": '{ none = "p_none", full = "p_full" }'}


@pytest.mark.parametrize("columns", [ACTION, CHANCES])
def test_weights_use_each_row_and_models_its_average(columns):
    log = read_secret(**columns)
    target = bf.row_policy(log)
    np.testing.assert_array_equal(target.table, np.full((2, 2), 0.5))
    assert lost_by_averaging(log, log.target_probability, target.table) == 0.5
    found = bf.estimate_values(log, bf.fit_mdp(log), target).set_index("estimator")["value"]
    # giving what helps is worth 1; a model that does not know the secret says 1/2
    for name in ("IS", "WIS", "PDIS", "DR", "WDR"):
        assert found[name] == pytest.approx(1.0), name
    for name in ("MB", "CF"):
        assert found[name] == pytest.approx(0.5), name


def test_a_policy_that_only_uses_the_state_gives_the_same_estimates_row_by_row():
    log = random_log(np.random.default_rng(1), episodes=60, longest=4)
    model = bf.fit_mdp(log)
    table = bf.soften(bf.policy_iteration(model).table, 0.3)
    table[np.bincount(log.state, minlength=log.n_states) == 0] = 1 / log.n_actions
    known = log.with_target_probability(table[log.state])
    by_row = bf.Replay(known, model, bf.row_policy(known))
    expected = bf.estimate_values(log, model, table).drop(columns="warning")
    found = bf.estimate_values(by_row).drop(columns="warning")
    pd.testing.assert_frame_equal(found, expected, rtol=1e-9)


def test_rows_follow_every_selection_of_the_log():
    log = random_log(np.random.default_rng(2), episodes=30, longest=5)
    rows = np.random.default_rng(0).dirichlet(np.ones(log.n_actions), len(log.state))
    known = log.with_target_probability(rows)
    replay = bf.Replay(known, bf.fit_mdp(log), bf.row_policy(known))
    ratio = EpisodeColumns(replay).ratio
    part = replay.part([7, 3])
    np.testing.assert_array_equal(EpisodeColumns(part).ratio, ratio[[7, 3]])
    np.testing.assert_array_equal(part.target_table, replay.target_table)
    cut = bf.Replay(known, replay.model, bf.row_policy(known), horizon=2)
    np.testing.assert_array_equal(EpisodeColumns(cut).ratio, ratio[:, :2])
    plain = replay.ask(target=replay.target_table)  # a table is a policy on states
    assert not np.allclose(EpisodeColumns(plain).ratio, ratio)
    with pytest.raises(ValueError, match="does not say what the policy does in each row"):
        replay.ask(episodes=log)


def test_doubly_robust_values_of_rows_match_the_definition():
    log = random_log(np.random.default_rng(3), episodes=25, longest=3)
    model = bf.fit_mdp(log)
    rows = np.random.default_rng(0).dirichlet(np.ones(log.n_actions), len(log.state))
    known = log.with_target_probability(rows)
    sample = EpisodeColumns(bf.Replay(known, model, bf.row_policy(known)))
    states, table = log.n_states, sample.replay.target_table
    values = np.zeros((log.horizon + 1, states + len(log.outcomes)))
    action = np.zeros((log.horizon + 1, states, log.n_actions))
    for left in range(1, log.horizon + 1):
        for s in range(states):
            for a in range(log.n_actions):
                pair = s * log.n_actions + a
                for e in range(model.start[pair], model.start[pair + 1]):
                    later = values[left - 1, model.next_state[e]]
                    action[left, s, a] += model.probability[e] * (model.reward[e] + later)
        values[left, :states] = (table * action[left]).sum(axis=1)
    found = sample.replay.engine.logged_values().state
    for row, t in enumerate(log.time):
        expected = rows[row] @ action[log.horizon - t, log.state[row]]
        assert found[row] == pytest.approx(expected, abs=1e-12)


def test_an_audit_evaluates_the_logs_own_policy_and_says_what_is_lost(tmp_path):
    secret_log().to_csv(tmp_path / "log.csv", index=False)
    study = tmp_path / "study.toml"
    study.write_text(STUDY.format(more='target_action = "secret"'))
    audit = audit_log(tmp_path / "log.csv", study, target="log", models=0, flags=1)
    assert audit.estimates.set_index("estimator").loc["WIS", "value"] == pytest.approx(1.0)
    assert audit.meta.target == "in columns of the log"
    assert any("something else in 50.0 % of the logged" in text for text in audit.meta.warnings)
    other = audit_log(tmp_path / "log.csv", study, models=0, flags=1)
    assert any("--target log evaluates that one" in text for text in other.meta.warnings)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (ACTION | CHANCES, "given together with target_probability"),
        ({"target_action": '"end"'}, "the column 'end' is already"),
        ({"target_action": '{ pump = "secret" }'}, 'for each action: { drug = "..." }'),
        ({"target_action": '"level2"'}, "level2"),
        ({"target_probability": '{ half = "p_none" }'}, "no action 'half'; there are 'none'"),
        ({"target_probability": '{ none = "p_none" }'}, "sum to 0, not to 1; name the columns"),
        ({"target_probability": '{ none = "t", full = "p_full" }'}, "is already"),
    ],
)
def test_target_columns_that_do_not_fit_are_refused(columns, message):
    with pytest.raises((ValueError, KeyError)) as caught:
        read_secret(**columns)
    assert message in str(caught.value)


def test_targets_of_several_actions_and_of_ready_made_ones_are_read():
    frame = pd.DataFrame(
        {
            "id": ["a", "b"],
            "s": [0, 1],
            "drug": ["none", "full"],
            "pump": ["off", "on"],
            "number": [1, 0],
            "to_drug": ["full", "none"],
            "to_pump": ["off", "on"],
            "to_number": [2, 0],
            "p": [0.25, 1.0],
            "q": [0.75, 0.0],
            "reward": [0.0, 1.0],
            "end": ["over", "over"],
        }
    )
    study = {
        "columns": {"episode": "id", "state": "s", "reward": "reward", "outcome": "end"},
        "outcome": {"over": {}},
        "action": {"drug": {"levels": ["none", "full"]}, "pump": {"levels": ["off", "on"]}},
    }

    def rows(columns, **others):
        named = {**study, **others, "columns": study["columns"] | columns}
        return bf.read_episodes(frame, named).target_probability.tolist()

    # actions: drug * 2 + pump
    both = {"pump": "to_pump", "drug": "to_drug"}
    assert rows({"target_action": both}) == [[0, 0, 1, 0], [0, 1, 0, 0]]
    chances = {"full,on": "p", "none,on": "q"}
    assert rows({"target_probability": chances}) == [[0, 0.75, 0, 0.25], [0, 0, 0, 1]]
    ready = {"action": "number", "actions": 3, "target_action": "to_number"}
    assert rows(ready, action={}) == [[0, 0, 1], [1, 0, 0]]
    with pytest.raises(ValueError, match=r"row 0, .*'to_number' is '2', not a level of number"):
        rows({**ready, "actions": 2}, action={})
    with pytest.raises(ValueError, match="name a column for each action"):
        rows({"target_action": "to_drug"})


def test_classifiers_give_the_probabilities_of_rows():
    linear = pytest.importorskip("sklearn.linear_model")
    log = read_secret()
    frame = secret_log()
    features = (frame[["secret"]] == "full").astype(float)
    helps = linear.LogisticRegression(C=1e9).fit(features, frame["secret"])
    rows = rows_from_predict(helps, features, log)
    np.testing.assert_array_equal(rows, frame[["p_none", "p_full"]])
    chances = rows_from_predict(helps, features, log, deterministic=False)
    np.testing.assert_allclose(chances, helps.predict_proba(features)[:, ::-1])  # full, none
    numbers = linear.LogisticRegression().fit(features, log.action)
    taken = behavior_from_predict(numbers, features, log)
    np.testing.assert_allclose(taken, 0.5, atol=1e-6)  # drugs were given at random
    known = log.with_behavior_probability(taken).with_target_probability(rows)
    found = bf.estimate_values(known, bf.fit_mdp(log), bf.row_policy(known), estimators=["WIS"])
    assert found["value"][0] == pytest.approx(1.0)
    strange = linear.LogisticRegression().fit(features, frame["drug"].replace("none", "perhaps"))
    with pytest.raises(ValueError, match="'perhaps' is not a level of drug"):
        behavior_from_predict(strange, features, log)


def messy_log(episodes=80):
    """Several steps and states; the policy goes by a column that the state lacks."""
    generator = np.random.default_rng(4)
    rows = []
    for episode in range(episodes):
        length = int(generator.integers(1, 4))
        for t in range(length):
            secret = float(generator.random())
            drug = str(generator.choice(["none", "full"]))
            helped = (secret < 0.5) == (drug == "none")
            end = str(generator.choice(["well", "ill"], p=[0.7, 0.3] if helped else [0.4, 0.6]))
            rows.append(
                {
                    "id": f"{episode:03}",
                    "t": t,
                    "level": str(generator.choice(["low", "high"])),
                    "drug": drug,
                    "end": end if t == length - 1 else "",
                    "p_none": round(1 - secret, 6),
                    "p_full": round(secret, 6),
                }
            )
    return pd.DataFrame(rows)


def test_shards_average_the_logs_own_policy_as_a_log_in_memory_does(tmp_path):
    log = messy_log()
    (tmp_path / "shards").mkdir()
    for number, part in enumerate((log[log["id"] < "030"], log[log["id"] >= "030"])):
        part.to_csv(tmp_path / "shards" / f"{number}.csv", index=False)
    log.to_csv(tmp_path / "log.csv", index=False)
    study = tmp_path / "study.toml"
    study.write_text(STUDY.format(more=f"target_probability = {CHANCES['target_probability']}"))
    full = audit_log(tmp_path / "log.csv", study, target="log", models=0, flags=3)
    settings = AuditSettings(target="log", flags=3)
    found = bf.Audit.load(audit_shards(tmp_path / "shards", study, tmp_path / "out", settings))
    one, other = (audit.estimates.set_index("estimator")["value"] for audit in (full, found))
    for name in ("Observed", "IS", "WIS", "PDIS", "PDWIS", "DR", "WDR", "MB", "CF"):
        assert other[name] == pytest.approx(one[name], abs=1e-12), name
    assert abs(one["IS"] - one["MB"]) > 1e-3  # rows and their average are not the same
    np.testing.assert_allclose(found.target, full.target, atol=1e-12)
    lost = [text for text in full.meta.warnings if "something else in" in text]
    assert len(lost) == 1
    assert lost[0] in found.meta.warnings
    assert found.meta.parameters.by_row
    study.write_text(STUDY.format(more=""))
    with pytest.raises(ValueError, match="names neither target_action nor target_probability"):
        audit_shards(tmp_path / "shards", study, tmp_path / "other", settings)


def test_the_policy_of_a_wide_log_is_learned_from_its_rows():
    log = random_log(np.random.default_rng(5), episodes=60, longest=3)
    wanted = np.where(log.state % 2 == 0, 1, 0)  # a function of the state, so nothing is lost
    wide = log.widen().with_target_probability(np.eye(log.n_actions)[wanted])
    target = bf.row_policy(wide)
    assert lost_by_averaging(wide, wide.target_probability, target.table) < 0.1
    model = bf.fit_factored(wide)
    replay = bf.Replay(wide, model, target, behavior=bf.estimate_behavior(wide))
    plain = bf.Replay(
        log, bf.fit_factored(log), np.eye(log.n_actions)[np.arange(log.n_states) % 2 ^ 1]
    )
    sample, exact = EpisodeColumns(replay), EpisodeColumns(plain)
    np.testing.assert_allclose(sample.ratio, exact.ratio)
    again = replay.ask()  # the same question
    np.testing.assert_array_equal(
        again.outcomes().expected_return, replay.outcomes().expected_return
    )
    unsure = wide.with_target_probability(
        np.full((len(log.state), log.n_actions), 1 / log.n_actions)
    )
    with pytest.raises(ValueError, match=r"not certain of its action.*needs target_action"):
        bf.row_policy(unsure)
