"""Diagnostics: hand values on tiny logs, lights, calibration, sentences, bad input."""

import re

import numpy as np
import pytest

import butfor as bf
from butfor.evaluate.diagnostics import calibration_table, overlap_by_state, worst_light
from butfor.evaluate.diagnostics.calibration import group_sums, table_of_sums
from butfor.evaluate.diagnostics.lights import ALARMS, at_least, at_most
from butfor.evaluate.diagnostics.overlap import overlap_row
from butfor.models.policies import action_counts
from tests.builders import DEATH, HOME, patient_log, ward_log
from tests.support import frequencies_agree


def diagnose(log, model, target, *, learn=None, seed=0, **question):
    return bf.diagnose(bf.Replay(log, model, target, **question), learn=learn, seed=seed)


CHECKS = [
    "overlap",
    "effective sample size",
    "episodes left",
    "mean importance weight",
    "rare rows",
    "unsupported mass",
    "calibration",
    "estimators disagree",
    "the past still matters",
    "influence",
    "null check",
    "hidden causes",
]
NEVER_TRIED = np.array([[1.0, 0.0]] * 3)  # of ward_log: action 0 was never taken in state 1
FOLLOWED = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])


def values(table):
    """Value of each check, by name."""
    return dict(zip(table["check"], table["value"], strict=True))


def lights(table):
    """Light of each check, by name."""
    return dict(zip(table["check"], table["light"], strict=True))


def sentence(table, check):
    return table.set_index("check")["sentence"][check]


def one_step_log(state, died, *, states=None, horizon=1):
    """Episodes of a single decision, the only action there is; died, or went home."""
    n = len(state)
    return bf.Episodes.from_arrays(
        state,
        np.zeros(n, int),
        state,
        offsets=np.arange(n + 1),
        outcome=np.where(died, 0, 1),
        outcomes=[DEATH, HOME],
        states=int(np.max(state)) + 1 if states is None else states,
        actions=1,
        horizon=horizon,
    )


@pytest.fixture(scope="module")
def sepsis():
    """A reduced sepsis log, its model and the target planned on it."""
    physician = bf.sepsis.behavior_policy("icml2019")
    log = bf.sepsis.simulate(physician, 1000, seed=0, version="icml2019")
    log = log.hide("glucose", "diabetes")
    model = bf.fit_mdp(log)
    return log, model, bf.policy_iteration(model).table


# ------------------------------------------------------------------------------------ hand values


def test_overlap_is_weighted_by_visits():
    # State 0 has five visits, four with action 0; state 1 three, none with it: 5 / 8 of the choices
    # were made at least once, none ten times.
    table = overlap_by_state(ward_log(), NEVER_TRIED)
    assert table["state"].tolist() == [0, 1]  # state 2 was never decided in
    assert table["visits"].tolist() == [5, 3]
    assert table["taken"].tolist() == [0.8, 0.0]
    assert table["precedent"].tolist() == [1.0, 0.0]
    found = diagnose(ward_log(), bf.fit_mdp(ward_log()), NEVER_TRIED)
    assert values(found)["overlap"] == 0
    assert "62% at least once" in sentence(found, "overlap")
    assert "in 1 of 2 visited states" in sentence(found, "overlap")


def test_overlap_of_a_random_target_is_the_probability_of_a_precedent():
    # In state 1 the target takes the action that nobody took with probability .25; action 1 was
    # taken at each of its three visits: taken = .75. Ten times the log, state 0 has forty and ten
    # cases: all but .25 of the choices in state 1 have ten, (5 + 3 * .75) / 8.
    target = np.array([[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]])
    table = overlap_by_state(ward_log(), target)
    np.testing.assert_allclose(table["taken"], [0.5 * 0.8 + 0.5 * 0.2, 0.75], atol=1e-15)
    np.testing.assert_allclose(table["precedent"], [1.0, 0.75], atol=1e-15)
    _, often, light, said = overlap_row(10 * action_counts(ward_log()), target)
    np.testing.assert_allclose(often, 7.25 / 8, atol=1e-15)
    assert light == "amber"  # enough of them often, but too many never
    assert "91% of what" in said


def test_choices_made_rarely_are_told_from_choices_never_made():
    # Each of two states was visited 100 times; the target does what was done there 91 and 9 times.
    # Half of its choices were made at least ten times, all of them at least once.
    counts = np.array([[91, 9], [91, 9]])
    _, often, light, said = overlap_row(counts, np.array([[1.0, 0.0], [0.0, 1.0]]))
    assert (often, light) == (0.5, "amber")
    assert said == (
        "50% of what the policy would do in the logged states was done there at least 10 times, "
        "and all of it at least once."
    )
    assert overlap_row(counts, np.array([[0.4, 0.6], [0.0, 1.0]]))[2] == "red"
    everything = overlap_row(counts, np.array([[1.0, 0.0], [1.0, 0.0]]))
    assert everything[1:3] == (1.0, "green")
    assert everything[3].startswith("All of what the policy would do")


def test_overlap_follows_from_counts_alone(sepsis):
    log, model, target = sepsis
    row = diagnose(log, model, target).iloc[0]
    assert overlap_row(action_counts(log), target) == tuple(row)


def test_the_overlap_table_has_labels_of_states_and_actions():
    log = patient_log()
    table = overlap_by_state(log, np.tile([0.0, 1.0], (12, 1)))
    assert table["state.sex"].tolist() == ["female", "female", "male", "male", "male"]
    assert table["policy"].tolist() == ["action 1"] * 5


def test_effective_sample_size_and_episodes_left_are_those_of_the_weights():
    # Stays 0, 1 and 3 follow. With pi_b(0, a0) = .8 and pi_b(1, a1) = 1 their weights are 1.25,
    # 1.25^2 and 1: (sum w)^2 / sum w^2 = 3.8125^2 / (1.25^2 + 1.25^4 + 1) = 2.9047.
    found = diagnose(ward_log(), bf.fit_mdp(ward_log()), FOLLOWED)
    effective = 3.8125**2 / (1.25**2 + 1.25**4 + 1)
    np.testing.assert_allclose(values(found)["effective sample size"], effective / 4, rtol=1e-14)
    assert "as much about it as 2.9 episodes" in sentence(found, "effective sample size")
    assert values(found)["episodes left"] == 0.75
    assert sentence(found, "episodes left").startswith("3 of 4 episodes follow the policy")
    assert lights(found)["episodes left"] == "red"  # three episodes are few, whatever their share


def test_rare_rows_are_weighted_by_the_use_that_the_target_makes_of_them():
    # One state, every episode one step: action 0 twelve times, action 1 three times. A target that
    # takes action 1 a quarter of the time faces a row with fewer than 10 transitions as often.
    log = bf.Episodes.from_arrays(
        np.zeros(15, int),
        np.repeat([0, 1], [12, 3]),
        np.zeros(15, int),
        offsets=np.arange(16),
        outcome=np.zeros(15, int),
        outcomes=[DEATH],
        states=1,
        actions=2,
    )
    found = diagnose(log, bf.fit_mdp(log), [[0.75, 0.25]])
    np.testing.assert_allclose(values(found)["rare rows"], 0.25, atol=1e-15)
    assert sentence(found, "rare rows").startswith("25% of the decisions")


def test_unsupported_mass_is_the_mean_over_episodes():
    # Under action 0 everywhere stays 0, 1 and 3 certainly come to state 1, where it was never
    # taken. Stay 2 leaves state 0 by another row than observed, which was certain, so by P(.|0, a0)
    # = .75 to state 1, .25 home: (1 + 1 + .75 + 1) / 4.
    found = diagnose(ward_log(), bf.fit_mdp(ward_log()), NEVER_TRIED)
    np.testing.assert_allclose(values(found)["unsupported mass"], 0.9375, atol=1e-14)
    assert sentence(found, "unsupported mass").startswith("94% of the probability")


def test_influence_of_the_behavior_itself_is_about_the_patient():
    # The path is the observed one. 1 - P(observed) is above .05 at every step but stay 2's first,
    # whose row was seen once and is certain; its third step lies past its end. Shares of steps
    # about the patient: 1, 1, 1/3, 1; the median is 1.
    log = ward_log()
    found = diagnose(log, bf.fit_mdp(log), bf.estimate_behavior(log))
    assert values(found)["influence"] == 1.0
    assert lights(found)["influence"] == "green"


# ----------------------------------------------------------------------------------------- lights


def test_a_target_equal_to_the_behavior_has_one_alarm_on_a_large_log(sepsis):
    # Glucose and diabetes were hidden, and physicians went by glucose: that alone raises an alarm.
    log, model, _ = sepsis
    found = diagnose(log, model, bf.estimate_behavior(log))
    assert found["check"].tolist() == CHECKS
    np.testing.assert_allclose(values(found)["effective sample size"], 1.0, rtol=1e-12)
    assert values(found)["episodes left"] == 1.0
    assert values(found)["mean importance weight"] == pytest.approx(1.0, abs=1e-12)
    alarms = found[found["light"].isin(ALARMS)]
    assert alarms["check"].tolist() == ["the past still matters"]
    rest = found.drop(alarms.index)
    assert set(rest["light"]) == {"green", "unknown"}
    assert worst_light(rest) == "unknown"


def test_a_target_that_was_never_tried_has_red_lights():
    # Influence: stays 0 and 1 keep their first of two steps (1 - .75), the others none: .5, .5, 0,
    # 0, so that the median is .25.
    found = diagnose(ward_log(), bf.fit_mdp(ward_log()), NEVER_TRIED)
    assert lights(found)["mean importance weight"] == "unknown"
    assert [lights(found)[check] for check in CHECKS[:6]].count("red") == 5
    assert values(found)["influence"] == 0.25
    assert values(found)["effective sample size"] == values(found)["episodes left"] == 0.0
    assert worst_light(found) == "red"


def test_a_policy_planned_on_a_small_log_is_caught(sepsis):
    # The paper's failure: calibration looks well, because the model fits the care that was given;
    # what the plan does was seldom done, and sizes, rows, the past and influence tell.
    found = lights(diagnose(*sepsis))
    assert found["calibration"] == "green"
    assert found["overlap"] == "amber"
    red = ("effective sample size", "episodes left", "rare rows")
    assert {found[c] for c in (*red, "the past still matters", "influence")} == {"red"}
    assert found["mean importance weight"] == "unknown"  # of a few episodes


@pytest.mark.parametrize(
    ("value", "light"),
    [(1.0, "green"), (0.5, "green"), (0.49, "amber"), (0.2, "amber"), (0, "red")],
)
def test_a_limit_belongs_to_the_better_light(value, light):
    assert at_least(value, (0.5, 0.2)) == light
    assert at_most(-value, (-0.5, -0.2)) == light


def test_the_worst_light_wins():
    assert worst_light(["green", "red", "amber"]) == "red"
    assert worst_light(["green", "amber", "unknown"]) == "amber"
    assert worst_light(["green", "unknown"]) == "unknown"  # never good


@pytest.mark.parametrize("given", [[], ["blue"]])
def test_other_lights_are_refused(given):
    with pytest.raises(ValueError, match="'green', 'unknown', 'amber', 'red'"):
        worst_light(given)


# ------------------------------------------------------------------------------------ calibration


def test_each_half_is_judged_by_the_other():
    # 40 patients in one state, 10 die: if d die in one half, 10 - d do in the other, and each half
    # is predicted the share of the other: predicted and observed are the same two numbers, swapped.
    log = one_step_log(np.zeros(40, int), np.arange(40) < 10)
    model = bf.fit_mdp(log)
    table = calibration_table(log, model, seed=2)
    assert table["decisions"].tolist() == [20, 20]
    assert table["predicted"][0] < table["predicted"][1]
    np.testing.assert_allclose(table["predicted"], table["observed"][::-1], atol=1e-14)
    np.testing.assert_allclose(table["predicted"].sum(), 0.5, atol=1e-14)
    found = diagnose(log, model, np.ones((1, 1)), seed=2)
    gap = table["predicted"][1] - table["predicted"][0]
    np.testing.assert_allclose(values(found)["calibration"], gap, atol=1e-14)


def test_the_range_of_a_group_is_that_of_a_binomial_share():
    # A model that is given, not learned, predicts .2 for each of 100 patients: an error of
    # sqrt(.2 * .8 / 100) = .04, a range of .2 ± 1.96 * .04 and a gap by chance of .04 sqrt(2 / pi).
    log = one_step_log(np.zeros(100, int), np.arange(100) < 30)
    model = bf.TabularMDP.from_arrays([[[0.0, 0.2, 0.8]]], outcomes=[DEATH, HOME])
    table = calibration_table(log, model)
    assert len(table) == 1
    assert table["observed"][0] == 0.3
    row = table[["predicted", "low", "high", "chance"]].to_numpy()[0]
    expected = [0.2, 0.2 - 1.96 * 0.04, 0.2 + 1.96 * 0.04, 0.04 * np.sqrt(2 / np.pi)]
    np.testing.assert_allclose(row, expected, atol=1e-14)
    assert 'The model predicts "death" in the log' in sentence(
        diagnose(log, model, np.ones((1, 1))), "calibration"
    )


def test_decisions_of_one_episode_count_as_one_draw():
    # Two steps in one state from which death comes with .5 at the second: both predict .5. Fifty
    # episodes: the error is that of 50 draws, not of 100.
    n = 50
    log = bf.Episodes.from_arrays(
        np.tile([0, 1], n),
        np.zeros(2 * n, int),
        np.tile([1, 1], n),
        offsets=2 * np.arange(n + 1),
        outcome=np.arange(n) % 2,
        outcomes=[DEATH, HOME],
        states=2,
        actions=1,
    )
    rows = np.array([[[0.0, 1.0, 0.0, 0.0]], [[0.0, 0.0, 0.5, 0.5]]])
    model = bf.TabularMDP.from_arrays(rows, outcomes=[DEATH, HOME])
    table = calibration_table(log, model)
    assert table["decisions"].tolist() == [100]
    assert table["episodes"].tolist() == [50]
    np.testing.assert_allclose(table["high"] - 0.5, 1.96 * np.sqrt(0.25 / 50), atol=1e-14)


def test_sums_of_parts_of_a_log_add_up_to_the_table_of_the_whole():
    rng = np.random.default_rng(1)
    episode = np.sort(rng.integers(40, size=200))
    predicted, happened = rng.random(200), (rng.random(40) < 0.4)[episode]
    cuts = np.array([0.2, 0.5, 0.9, 2.0])  # the last group is empty
    whole = group_sums(predicted, happened, episode, cuts)
    parts = [
        group_sums(predicted[mine], happened[mine], episode[mine], cuts)
        for mine in (episode < 13, (episode >= 13) & (episode < 30), episode >= 30)
    ]
    np.testing.assert_allclose(sum(parts), whole, rtol=1e-12)
    # by hand, the third group
    mine = (predicted >= 0.5) & (predicted < 0.9)
    count = np.bincount(episode[mine], minlength=40)
    own = np.bincount(episode[mine], predicted[mine], minlength=40) / np.maximum(count, 1)
    variance = (count**2 * own * (1 - own)).sum()
    row = mine.sum(), (count > 0).sum(), predicted[mine].sum(), happened[mine].sum(), variance
    np.testing.assert_allclose(whole[2], row, rtol=1e-12)
    table = table_of_sums(whole)
    assert table["group"].tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(table["observed"], whole[:4, 3] / whole[:4, 0])


def test_right_predictions_are_met_and_wrong_ones_are_not():
    generator = np.random.default_rng(6)
    state = generator.integers(0, 10, 4000)
    chance = 0.05 + 0.09 * np.arange(10)
    log = one_step_log(state, generator.random(4000) < chance[state])

    def model(p):
        rows = np.zeros((10, 1, 12))
        rows[:, 0, 10], rows[:, 0, 11] = p, 1 - p
        return bf.TabularMDP.from_arrays(rows, outcomes=[DEATH, HOME])

    policy = np.ones((10, 1))
    agree = []
    for p in (chance, 1 - chance):
        table = calibration_table(log, model(p))
        deaths = np.round(table["observed"] * table["decisions"]).to_numpy().astype(int)
        agree.append(
            frequencies_agree(deaths, table["predicted"].to_numpy(), table["decisions"].to_numpy())
        )
    assert agree == [True, False]
    assert lights(diagnose(log, model(chance), policy))["calibration"] == "green"
    assert lights(diagnose(log, model(1 - chance), policy))["calibration"] == "red"


def test_a_model_that_is_learned_otherwise_is_judged_as_such():
    # The halves of this log are predicted perfectly by counting, and wholly wrong by a model that
    # swaps the ends.
    log = one_step_log(np.arange(80) % 2, np.arange(80) % 2 == 0)
    wrong = bf.TabularMDP.from_arrays([[[0, 0, 0, 1.0]], [[0, 0, 1.0, 0]]], outcomes=[DEATH, HOME])
    model, policy = bf.fit_mdp(log), np.ones((2, 1))
    counted = diagnose(log, model, policy)
    learned = diagnose(log, model, policy, learn=lambda half: (wrong, policy))
    assert values(counted)["calibration"] == 0.0
    assert lights(counted)["calibration"] == "green"
    assert values(learned)["calibration"] == 1.0
    assert lights(learned)["calibration"] == "red"


def test_states_and_ends_that_are_missing_are_left_out_and_told():
    # State 2 has one patient only, so that no other half knows it; with horizon 2 the patient
    # without outcome after one step is censored. 40 of 42 decisions are left.
    log = bf.Episodes.from_arrays(
        [*([0, 1] * 20), 2, 0],
        [0] * 42,
        [*([0, 1] * 20), 2, 0],
        offsets=np.arange(43),
        outcome=[*([0, 1] * 20), 0, -1],
        outcomes=[DEATH, HOME],
        states=3,
        actions=1,
        horizon=2,
    )
    assert calibration_table(log, bf.fit_mdp(log))["decisions"].sum() == 40
    found = diagnose(log, bf.fit_mdp(log), np.ones((3, 1)))
    assert "5% of the decisions are left out" in sentence(found, "calibration")


def test_an_outcome_that_nobody_had_tells_nothing():
    log = one_step_log(np.zeros(400, int), np.zeros(400, bool))
    found = diagnose(log, bf.fit_mdp(log), np.ones((1, 1)))
    assert values(found)["calibration"] == 0.0
    assert lights(found)["calibration"] == "amber"
    assert "too few data to tell" in sentence(found, "calibration")


def test_the_outcome_of_lowest_reward_is_bad_where_none_is_marked():
    log = bf.Episodes.from_arrays(
        [0] * 40,
        [0] * 40,
        [0] * 40,
        offsets=np.arange(41),
        outcome=np.arange(40) % 2,
        outcomes=[bf.Outcome("well", 1.0), bf.Outcome("worse", 0.0)],
        states=1,
        actions=1,
    )
    found = diagnose(log, bf.fit_mdp(log), np.ones((1, 1)))
    assert '"worse"' in sentence(found, "calibration")


def test_a_log_that_cannot_be_split_or_has_no_outcomes_is_unknown():
    alone = ward_log().select([0])
    nameless = bf.Episodes.from_arrays(
        [0, 0, 0], [0, 0, 0], [0, 0, 0], offsets=[0, 1, 3], states=1, actions=1
    )
    for log, why in ((alone, "one episode cannot be split"), (nameless, "names no outcomes")):
        policy = np.full((log.n_states, log.n_actions), 1 / log.n_actions)
        model = bf.fit_mdp(log, unseen="self-loop")
        found = diagnose(log, model, policy)
        assert np.isnan(values(found)["calibration"])
        assert lights(found)["calibration"] == "unknown"
        assert why in sentence(found, "calibration")
        assert calibration_table(log, model).empty


# --------------------------------------------------------------------------- tables and sentences


def test_sentences_name_no_probability_of_0_or_100_percent(sepsis):
    log, model, target = sepsis
    ward = ward_log()
    tables = [
        diagnose(log, model, target),
        diagnose(log, model, bf.estimate_behavior(log)),
        diagnose(ward, bf.fit_mdp(ward), NEVER_TRIED),
    ]
    for text in (text for table in tables for text in table["sentence"]):
        assert not re.search(r"\b(0|100)%", text), text
        assert text[0].isupper() or text[0].isdigit(), text
        assert text.endswith("."), text


def test_the_table_depends_on_the_seed_through_the_halves_only(sepsis):
    log, model, target = sepsis
    one, again, other = (diagnose(log, model, target, seed=seed) for seed in (3, 3, 4))
    assert one.equals(again)
    differs = (one["sentence"] != other["sentence"]).tolist()
    assert [c for c, d in zip(CHECKS, differs, strict=True) if d] == ["calibration"]


def test_icml2019_ends_and_a_shorter_horizon_are_followed(sepsis):
    log, _, target = sepsis
    model = bf.fit_mdp(log, terminal="icml2019")
    found = diagnose(log, model, target, horizon=8)
    assert found["value"].dropna().between(0, 1).all()
    table = calibration_table(log, model, horizon=8)
    assert table["decisions"].sum() <= log.truncate(8).offsets[-1]


# --------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": np.ones((3, 1))}, r"target has shape \(3, 1\), expected \(3, 2\)"),
        ({"target": np.full((3, 2), 0.4)}, "target: state 0 sums to 0.8"),
        ({"behavior": FOLLOWED}, "takes action 1 in state 0, which the behavior policy"),
        ({"horizon": 0}, "horizon 0"),
        ({"discount": 2.0}, r"discount 2\.0"),
        ({"seed": -1}, "seed -1"),
    ],
)
def test_bad_requests_are_refused(arguments, message):
    log = ward_log()
    with pytest.raises(ValueError, match=message):
        diagnose(log, bf.fit_mdp(log), **({"target": FOLLOWED} | arguments))


def test_a_model_of_another_kind_is_refused(sepsis):
    _, model, target = sepsis
    with pytest.raises(ValueError, match="3 states and 2 actions, the model 144 and 8"):
        diagnose(ward_log(), model, target)


def test_tables_refuse_a_bad_target_horizon_or_seed():
    log = ward_log()
    model = bf.fit_mdp(log)
    with pytest.raises(ValueError, match="target has shape"):
        overlap_by_state(log, np.ones((2, 2)))
    with pytest.raises(ValueError, match="horizon 0"):
        calibration_table(log, model, horizon=0)
    with pytest.raises(ValueError, match="seed -2"):
        calibration_table(log, model, seed=-2)
