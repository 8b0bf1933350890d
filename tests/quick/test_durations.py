"""Time between decisions that varies: discounts by the time that passed, in every answer."""

from dataclasses import replace

import numpy as np
import pytest

import butfor as bf
from butfor.audit.compare import replay_of
from butfor.audit.settings import AuditSettings
from butfor.audit.shards.run import audit_shards
from butfor.audit.source import audit_log
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimators.table import ESTIMATORS
from butfor.evaluate.rehearsal import can_rehearse
from butfor.log.read import read_log
from butfor.log.write import write_toml
from butfor.models.planning import state_values
from butfor.models.simulate import simulate_model
from butfor.models.simulate_factored import simulate_factored
from butfor.replay.usual import null_changes
from tests.reference.counterfactual import Episode, every_episode
from tests.reference.durations import expected_return
from tests.support import as_log, random_model, random_policy, reference_episodes, reference_model

HORIZON, DISCOUNT = 3, 0.8
PASSED = (0.5, 2.0, 1.0, 3.5)
UNBIASED = ("IS", "PDIS", "DR", "WIS", "PDWIS", "WDR", "MAGIC", "FQE", "MB", "CF")


def timed(log, durations):
    """The log with durations of its states."""
    levels = tuple(map(str, range(log.n_states)))
    variable = bf.Variable("state", levels, durations=tuple(durations))
    return replace(log, state_variables=(variable,))


def make_world(seed, durations=PASSED):
    generator = np.random.default_rng(seed)
    model = replace(random_model(generator, states=4, actions=2), durations=np.array(durations))
    return model, random_policy(generator, model), random_policy(generator, model)


@pytest.fixture(scope="module", params=range(2))
def world(request):
    """Every episode of a world up to the horizon, the probability of each, and the question."""
    model, behavior, target = make_world(request.param)
    drawn, probability = [], []
    for start in range(model.n_states):
        for episode, p in every_episode(reference_model(model), behavior, start, HORIZON):
            drawn.append(episode)
            probability.append(p * model.initial[start])
    log = timed(as_log(drawn, model, HORIZON), PASSED)
    return bf.Replay(log, model, target, behavior=behavior, discount=DISCOUNT), np.array(
        probability
    )


def exact_values(model, policy):
    """The value of a policy from each state, path by path."""
    return np.array(
        [
            expected_return(
                reference_model(model),
                model.durations,
                Episode([state], [], []),
                policy,
                policy,
                horizon=HORIZON,
                discount=DISCOUNT,
            )
            for state in range(model.n_states)
        ]
    )


def test_values_in_a_model_are_means_over_all_paths(world):
    replay, _ = world
    for policy in (replay.target, replay.behavior):
        found = state_values(replay.mdp, policy, horizon=HORIZON, discount=DISCOUNT)
        np.testing.assert_allclose(found, exact_values(replay.mdp, policy), atol=1e-12)


@pytest.mark.parametrize("name", UNBIASED)
def test_every_episode_by_its_probability_gives_the_exact_value(world, name):
    replay, probability = world
    exact = replay.mdp.initial @ exact_values(replay.mdp, replay.target)
    found = ESTIMATORS[name](EpisodeColumns(replay), probability[None])[0]
    assert found == pytest.approx(exact, abs=1e-10)


def test_counterfactual_returns_are_means_over_all_paths(world):
    replay, _ = world
    model, found = reference_model(replay.mdp), replay.outcomes().expected_return
    episodes = reference_episodes(replay.log)
    for i in range(0, len(episodes), 7):
        exact = expected_return(
            model,
            PASSED,
            episodes[i],
            replay.behavior,
            replay.target,
            horizon=HORIZON,
            discount=DISCOUNT,
        )
        assert found[i] == pytest.approx(exact, abs=1e-12)


def test_steps_bounds_changes_and_contributions_agree_with_the_outcomes(world):
    replay, _ = world
    value, observed = replay.outcomes().expected_return, replay.observed_return
    walked = replay.ask()
    walked.compute()
    np.testing.assert_allclose(walked.outcomes().expected_return, value, atol=1e-14)
    low, high = np.moveaxis(replay.bounds().expected_return[0], -1, 0)
    assert (low <= value + 1e-12).all()
    assert (value <= high + 1e-12).all()
    assert (replay.fewest_changes(1).value[:, 0] <= replay.fewest_changes(1).value[:, 1]).all()
    ended = replay.log.outcome >= 0
    total = np.add.reduceat(replay.contributions(), replay.log.offsets[:-1])
    np.testing.assert_allclose(total[ended], (value - observed)[ended], atol=1e-12)


def test_a_logged_return_by_hand():
    # states 0, 1, 3: the second reward after 2 units, the third after 2 + 3.5
    log = bf.Episodes.from_arrays(
        [0, 1, 3], [0, 0, 0], [1, 3, -1], offsets=[0, 3], states=4, actions=1,
        reward=[1.0, 10.0, 100.0], outcome=[0], outcomes=["end"],
    )  # fmt: skip
    found = timed(log, PASSED).returns(0.5)[0]
    assert found == pytest.approx(1 + 10 * 0.5**2 + 100 * 0.5**5.5, abs=1e-12)
    assert log.returns(0.5)[0] == pytest.approx(1 + 5 + 25)


def answers(replay):
    """Everything that is discounted, side by side."""
    parts = [
        replay.outcomes().expected_return,
        replay.bounds().expected_return,
        replay.contributions(),
        replay.fewest_changes(2).value,
        replay.draws(3, seed=1).returns(replay.discount),
        replay.observed_return,
        EpisodeColumns(replay).columns.matrix(),
        ESTIMATORS["FQE"](EpisodeColumns(replay), np.ones((1, len(replay)))),
        ESTIMATORS["MB (sampled)"](EpisodeColumns(replay), np.ones((1, len(replay)))),
        bf.policy_iteration(replay.mdp, discount=replay.discount),
        bf.confounding_bounds(replay.ask(action_noise="fresh"), [1.5]).value,
    ]
    return np.concatenate([np.ravel(part) for part in parts])


@pytest.mark.parametrize("length", [1.0, 2.5])
def test_equal_durations_are_one_discount_per_step(length):
    model, behavior, target = make_world(5)
    plain = replace(model, durations=None)
    log = simulate_model(plain, behavior, 40, horizon=5, seed=3)
    log = log.cut(np.where(np.arange(40) % 3, 5, 2))  # a third is censored
    given = {"behavior": behavior, "horizon": 5}
    usual = bf.Replay(log, plain, target, **given, discount=DISCOUNT**length)
    same = replace(model, durations=np.full(4, length))
    varying = bf.Replay(timed(log, same.durations), same, target, **given, discount=DISCOUNT)
    np.testing.assert_allclose(answers(varying), answers(usual), rtol=1e-12, atol=1e-12)


def test_without_a_discount_durations_change_no_return():
    model, behavior, target = make_world(6)
    log = simulate_model(model, behavior, 30, horizon=4, seed=2)
    plain = replace(log, state_variables=(bf.Variable("state", tuple("0123")),))
    found = bf.Replay(log, model, target).outcomes()
    usual = bf.Replay(plain, replace(model, durations=None), target).outcomes()
    np.testing.assert_allclose(found.expected_return, usual.expected_return, atol=1e-14)


def test_a_policy_equal_to_the_behavior_changes_nothing():
    model, behavior, _ = make_world(7)
    log = simulate_model(model, behavior, 60, horizon=5, seed=4)
    log = log.cut(np.where(np.arange(60) % 5 < 2, 1, 5))  # 40 % are censored at once
    replay = bf.Replay(log, model, behavior, behavior=behavior, discount=0.7)
    np.testing.assert_allclose(replay.outcomes().difference, 0.0, atol=1e-12)
    changed = null_changes(replay)
    assert (len(changed), changed.sum()) == (60, 0)


def test_draws_have_the_exact_mean_return():
    model, behavior, target = make_world(8)
    log = simulate_model(model, behavior, 20, horizon=4, seed=5)
    replay = bf.Replay(log, model, target, behavior=behavior, discount=0.7)
    drawn = replay.draws(4000, seed=2).returns(0.7)
    error = drawn.std(axis=1) / 4000**0.5
    assert (np.abs(drawn.mean(axis=1) - replay.outcomes().expected_return) <= 5 * error).all()


def test_planning_finds_the_best_of_all_policies():
    model, _, _ = make_world(9)
    kept = 0.8 ** np.array(PASSED)
    rows = np.zeros((4, 2, 6))
    rewards = np.zeros((4, 2))
    for s in range(4):
        for a in range(2):
            entries = slice(*model.start[s * 2 + a :][:2])
            rows[s, a, model.next_state[entries]] = model.probability[entries]
            rewards[s, a] = model.probability[entries] @ model.reward[entries]
    best = np.full(4, -np.inf)
    for chosen in np.ndindex(2, 2, 2, 2):
        moves, earned = rows[np.arange(4), chosen, :4], rewards[np.arange(4), chosen]
        best = np.maximum(best, np.linalg.solve(np.eye(4) - moves * kept, earned))
    plan = bf.policy_iteration(model, discount=0.8)
    np.testing.assert_allclose(state_values(model, plan, discount=0.8), best, atol=1e-9)


# ------------------------------------------------------------------------- variables and models

VISITS = (
    bf.Variable("sugar", ("low", "high")),
    bf.Variable("elapsed", ("1", "4"), durations=(1.0, 4.0)),
)


def visits_log(episodes=300, seed=0, wide=False):
    """High sugar brings patients back sooner, and treatment lowers it."""
    generator = np.random.default_rng(seed)
    rows = {"state": [], "action": [], "next_state": []}
    offsets, outcome = [0], []
    for _ in range(episodes):
        here, end = [int(generator.integers(2)), 0], -1
        while end < 0 and len(rows["state"]) - offsets[-1] < 4:
            action = int(generator.random() < 0.4 + 0.2 * here[0])
            sugar = int(generator.random() < (0.3 if action else 0.6))
            after = [sugar, int(generator.random() < (0.3 if sugar else 0.7))]
            for name, value in (("state", here), ("action", action), ("next_state", after)):
                rows[name].append(value)
            if generator.random() < 0.1 + 0.2 * sugar:
                end = 0
            here = after
        offsets.append(len(rows["state"]))
        outcome.append(end)
    reward = 1.0 - np.array(rows["state"])[:, 0]
    return bf.Episodes.from_codes(
        **rows, offsets=offsets, states=VISITS, actions=2, outcome=outcome,
        outcomes=[bf.Outcome("relapse", 0.0, bad=True)], reward=reward, horizon=5, wide=wide,
    )  # fmt: skip


def test_factored_and_tabular_models_know_the_durations():
    log = visits_log()
    np.testing.assert_array_equal(log.durations, [1, 4, 1, 4])
    model = bf.fit_factored(log)
    np.testing.assert_array_equal(model.tabular().durations, log.durations)
    target = bf.policy_iteration(model, discount=0.9)
    rows = bf.policy_iteration(model.tabular(), discount=0.9)
    np.testing.assert_array_equal(target, rows)
    for one in (model, bf.fit_mdp(log, prior=1)):
        values = state_values(one, target, horizon=5, discount=0.9)
        if one is model:
            act = lambda codes: target[codes[:, 0] * 2 + codes[:, 1]]  # noqa: E731
            simulated = simulate_factored(one, act, 4000, horizon=5, seed=1)
        else:
            simulated = simulate_model(one, target, 4000, horizon=5, seed=1)
        returns = simulated.returns(0.9)
        exact = one.initial @ values
        assert returns.mean() == pytest.approx(exact, abs=5 * returns.std() / 4000**0.5)


def test_particles_agree_with_exact_answers():
    log, wide = visits_log(60), visits_log(60, wide=True)
    model = bf.fit_factored(log)
    target = np.array([[0.8, 0.2], [0.5, 0.5], [0.1, 0.9], [0.3, 0.7]])
    exact = bf.Replay(log, model, target, discount=0.8)
    sampled = bf.Replay(
        wide, bf.fit_factored(wide), lambda codes: target[codes[:, 0] * 2 + codes[:, 1]],
        discount=0.8, behavior=lambda codes: exact.behavior[codes[:, 0] * 2 + codes[:, 1]],
    )  # fmt: skip
    found, error = sampled.outcomes().expected_return, sampled.outcomes().return_error
    gap = np.abs(found - exact.outcomes().expected_return)
    assert (gap <= 5 * error + 1e-9).all()
    assert (error > 0).any()
    first = sampled.engine.first_values() - exact.engine.first_values()
    assert np.abs(first).mean() < 0.1


def test_credible_intervals_of_single_models_hold_the_estimate():
    log = visits_log()
    replay = bf.Replay(log, bf.fit_mdp(log), np.tile([0.3, 0.7], (4, 1)), discount=0.8)
    found = bf.credible_intervals(replay, models=60, seed=1).estimates.set_index("estimator")
    value = replay.engine.first_values().mean()
    assert found.loc["MB", "low"] < value < found.loc["MB", "high"]


def test_what_does_not_fit_is_refused():
    log = visits_log()
    with pytest.raises(ValueError, match=r"the time between decisions.*cannot be hidden"):
        log.hide("elapsed")
    assert not can_rehearse(log)
    plain = replace(log, state_variables=(VISITS[0], replace(VISITS[1], durations=())))
    with pytest.raises(ValueError, match="how long before each state the previous decision"):
        bf.Replay(log, bf.fit_mdp(plain), np.full((4, 2), 0.5))
    with pytest.raises(ValueError, match="number above 0 for each of its 2 levels"):
        bf.Episodes.from_arrays(
            [0], [0], [0], offsets=[0, 1], actions=1,
            states=[bf.Variable("x", ("a", "b"), durations=(1.0,))],
        )  # fmt: skip


# ------------------------------------------------------------------------------ the study file

STUDY = {
    "columns": {"episode": "patient", "time": "day", "outcome": "end"},
    "state": {"sugar": {"levels": ["low", "high"]}},
    "action": {"drug": {"levels": ["no", "yes"]}},
    "outcome": {"relapse": {"reward": -1}, "well": {"reward": 1}},
    "durations": {"levels": [1, 4]},
}
ROWS = [
    ("a", 0, "low", "no", ""),
    ("a", 1, "high", "yes", ""),
    ("a", 4, "low", "no", "well"),
    ("b", 10, "high", "no", ""),
    ("b", 40, "high", "yes", "relapse"),
]


def write_log(path, rows=ROWS):
    lines = ["patient,day,sugar,drug,end", *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_study_reads_the_time_between_decisions(tmp_path):
    reading = read_log(write_log(tmp_path / "log.csv"), STUDY)
    log = reading.episodes
    assert log.state_variables[1] == VISITS[1]
    np.testing.assert_array_equal(log.codes(log.state)["elapsed"], [0, 0, 1, 0, 1])
    # after 1 day, after 3 (nearest 4), and after 30, which is beyond 4
    assert reading.done == {
        "durations: set to the nearest level": 1,
        "durations: longer than the longest level, which they count as": 1,
    }
    np.testing.assert_allclose(log.returns(0.5), [0.5**5, -(0.5**4)])


def test_dates_are_counted_in_the_unit_of_the_study(tmp_path):
    rows = [(p, f"2024-05-{1 + day // 2:02} {day % 2 * 12:02}:00", *rest) for p, day, *rest in ROWS]
    path = write_log(tmp_path / "log.csv", rows)
    study = STUDY | {"durations": {"levels": [1, 4], "unit": "12h", "name": "half days"}}
    log = read_log(path, study).episodes
    np.testing.assert_array_equal(log.codes(log.state)["half days"], [0, 0, 1, 0, 1])
    with pytest.raises(
        ValueError, match=r'\[durations\] unit.*dates: give it a unit, such as "4h"'
    ):
        read_log(path, STUDY)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"durations": {"levels": [0, 1]}}, "levels: 0: give numbers above 0"),
        ({"durations": {"levels": [2, 1]}}, "different numbers from low to high"),
        ({"durations": {"levels": [1], "name": "sugar"}}, "two variables are called 'sugar'"),
        ({"time": {"every": 1}}, r"\[durations\]: given together with equal time steps"),
        ({"columns": {"episode": "patient", "outcome": "end"}}, "needs a time column"),
    ],
)
def test_studies_that_contradict_themselves_are_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        read_log(write_log(tmp_path / "log.csv"), STUDY | changes)


def irregular_log(episodes=120):
    """Visits after 1 to 9 days; some patients are lost."""
    generator = np.random.default_rng(0)
    rows = []
    for patient in range(episodes):
        day, sugar, end = 0, str(generator.choice(["low", "high"])), ""
        for _ in range(5):
            if generator.random() < 0.1:  # a last row without a decision: lost
                rows.append((f"{patient:03}", day, sugar, "", ""))
                break
            drug = str(generator.choice(["no", "yes"]))
            if generator.random() < 0.25:
                end = str(generator.choice(["well", "relapse"]))
            rows.append((f"{patient:03}", day, sugar, drug, end))
            if end:
                break
            sugar = str(generator.choice(["low", "high"], p=[0.7, 0.3] if drug == "yes" else None))
            day += int(generator.choice([1, 2, 4, 9]))
    return rows


def test_audits_discount_by_time_in_full_and_in_summary_detail(tmp_path):
    rows = irregular_log()
    write_log(tmp_path / "log.csv", rows)
    (tmp_path / "shards").mkdir()
    for name, part in (("a", [r for r in rows if r[0] < "050"]), ("b", rows)):
        chosen = [row for row in part if name == "a" or row[0] >= "050"]
        write_log(tmp_path / "shards" / f"{name}.csv", chosen)
    content = STUDY | {
        "evaluation": {"discount": 0.9},
        "problems": {"no_outcome": "keep", "no_transition": "drop", "drop_at_most": 1},
    }
    study = tmp_path / "study.toml"
    study.write_text(write_toml(content))
    full = audit_log(tmp_path / "log.csv", study, models=10, flags=3)
    settings = AuditSettings(flags=3)
    short = bf.Audit.load(audit_shards(tmp_path / "shards", study, tmp_path / "out", settings))
    one, other = (audit.estimates.set_index("estimator")["value"] for audit in (full, short))
    for name in ("Observed", "IS", "WIS", "PDIS", "PDWIS", "DR", "WDR", "MB", "CF"):
        assert other[name] == pytest.approx(one[name], abs=1e-12), name
    log = bf.read_episodes(tmp_path / "log.csv", study)
    assert log.durations.max() == 4
    assert (full.diagnostics.set_index("check").loc["null check", "light"]) == "green"
    full.save(tmp_path / "full")
    again = replay_of(bf.Audit.load(tmp_path / "full"))
    found = again.outcomes().expected_return
    np.testing.assert_allclose(found, full.episodes["expected_return"], atol=1e-12)
    np.testing.assert_array_equal(again.log.durations, log.durations)
