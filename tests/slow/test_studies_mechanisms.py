"""The mechanisms study: the truth it scores against, its scores by hand, its files, its command."""

import json
from dataclasses import dataclass, replace
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from butfor import charts, sepsis
from butfor.cli.main import app
from butfor.cli.study import STUDIES
from butfor.mechanisms.independent import Independent
from butfor.models.planning import policy_value, value_tables
from butfor.replay.replay import Replay
from butfor.sepsis.simulate import noise_given
from butfor.studies.article import signed
from butfor.studies.mechanisms.article import STUDY, bounds_finding, finding
from butfor.studies.mechanisms.experiment import (
    AGAIN,
    ALONE,
    CASES,
    CLASSES,
    ENDS,
    GROUPS,
    GUMBEL,
    MECHANISMS,
    OWN,
    RATE,
    SIGNS,
    MechanismsSettings,
    Scored,
    answers,
    bounds_table,
    case_table,
    changed_decisions,
    group_of,
    keep_ends,
    make_tables,
    questions,
    score_log,
    score_logs,
    score_table,
    true_counterfactuals,
    vital_signs,
)
from butfor.studies.scoring import (
    brier,
    calibration_chance,
    calibration_error,
    clear,
    leave_one_out,
    log_loss,
    mean_over_logs,
    reliability,
    skill,
)
from tests.articles import check_article, small_study
from tests.support import FALSE_ALARM, frequencies_agree

SMALL = MechanismsSettings(repeats=2, episodes=100)
PHYSICIAN = sepsis.behavior_policy()
USUAL = np.eye(8)[PHYSICIAN.argmax(axis=1)]
WITHHELD = np.eye(8)[PHYSICIAN.argmax(axis=1) & 6]
TRUE = sepsis.model()
WORTH = np.array([-1.0, 1.0, 0.0])


@pytest.fixture(scope="module")
def cases():
    return score_logs(SMALL)


@dataclass(frozen=True)
class Few(MechanismsSettings):
    """The study's settings, small enough for a test."""

    episodes: int = 60


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Folder and standard output of the command, on few episodes."""
    folder, experiment = small_study(tmp_path_factory, "mechanisms")
    made = replace(STUDY, settings=Few, run=lambda *_, **__: experiment)
    goal = tmp_path_factory.mktemp("study") / "article"
    with mock.patch.dict(STUDIES, {"mechanisms": made}):
        arguments = ["study", "mechanisms", "--out", str(goal), "--repeats", "2", "--seed", "5"]
        result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    for path in folder.glob("*.*"):
        assert (goal / path.name).read_bytes() == path.read_bytes(), path
    return goal, result.stdout


@pytest.fixture
def folder(written):
    return written[0]


# ------------------------------------------------------------------------------------- the truth


def test_replaying_the_noise_under_the_actions_taken_gives_back_the_log():
    log = sepsis.simulate(PHYSICIAN, 60, seed=3)
    for episode in range(60):
        rows = slice(log.offsets[episode], log.offsets[episode + 1])
        noise, state = sepsis.simulation_noise(3, episode), log.first_state[episode]
        for t, row in enumerate(range(rows.start, rows.stop)):
            assert state == log.state[row]
            state = int(sepsis.step(state, log.action[row], noise[t]))
        assert state == log.next_state[rows][-1]


def test_the_true_counterfactual_is_the_replay_of_the_same_noise_past_the_observed_end_too():
    log = sepsis.simulate(PHYSICIAN, 80, seed=3)
    truth = true_counterfactuals(WITHHELD, MechanismsSettings(episodes=80), 3)
    longer = 0
    for episode in range(80):
        state, noise = log.first_state[episode], sepsis.simulation_noise(3, episode)
        t = 0
        while t < 20 and sepsis.outcome_of()[state] < 0:
            state = int(sepsis.step(state, WITHHELD[state].argmax(), noise[t]))
            t += 1
        assert truth.outcome[episode] == sepsis.outcome_of()[state]
        assert truth.lengths[episode] == t
        longer += t > log.lengths[episode]
    assert longer > 5


def test_true_counterfactuals_have_the_outcomes_of_the_target_in_the_true_model():
    truth = true_counterfactuals(WITHHELD, MechanismsSettings(episodes=20_000), 8)
    counts = np.bincount(truth.outcome % 3, minlength=3)

    def expected(policy):
        return TRUE.initial @ value_tables(TRUE, policy, horizon=20)[1][20]

    assert frequencies_agree(counts, expected(WITHHELD), 20_000)
    assert not frequencies_agree(counts, expected(USUAL), 20_000)  # it can tell a wrong policy
    np.testing.assert_allclose(
        expected(WITHHELD) @ WORTH, policy_value(TRUE, WITHHELD, horizon=20), atol=1e-12
    )


def test_a_target_that_does_what_was_done_changes_nothing_whatever_the_mechanism():
    log = sepsis.simulate(USUAL, 100, seed=1)
    asked = replace(questions(log, SMALL)["true-withheld"], target=USUAL, full_target=USUAL)
    for name, probability in answers(asked).items():
        if name != ALONE:
            np.testing.assert_allclose(probability, np.eye(3)[log.outcome], atol=1e-9)
    (own,) = sepsis.own_counterfactuals(log, [USUAL], draws=3)
    np.testing.assert_array_equal(own, np.eye(3)[log.outcome])
    assert (changed_decisions(log, USUAL) == 0).all()


def test_on_the_true_model_every_mechanism_has_the_mean_return_of_the_target():
    episodes = 3000
    log = sepsis.simulate(PHYSICIAN, episodes, seed=2)
    found = answers(questions(log, SMALL)["true-withheld"])
    found[OWN] = sepsis.own_counterfactuals(log, [WITHHELD], draws=2)[0]
    value = policy_value(TRUE, WITHHELD, horizon=20)
    # Hoeffding for means of independent numbers in -1..1, and Bonferroni over the mechanisms
    tolerance = (2 * np.log(2 * len(found) / FALSE_ALARM) / episodes) ** 0.5
    for name, probability in found.items():
        np.testing.assert_allclose(probability.sum(axis=1), 1.0, atol=1e-9)
        assert abs((probability @ WORTH).mean() - value) < tolerance, name
    assert abs(log.returns().mean() - value) > tolerance  # it can tell what was observed


def test_noise_given_a_step_leads_where_it_led_and_is_the_noise_of_the_simulator():
    generator = np.random.default_rng(0)
    draws = 40_000
    # diabetes, low pressure and high heart rate, antibiotics and vasopressors on
    state = int(np.ravel_multi_index((1, 2, 0, 1, 2, 0, 0, 0), (2, 3, 3, 2, 5, 2, 2, 2)))
    reached = sepsis.step(np.full(draws, state), 5, generator.random((draws, 13)))
    noise = noise_given(np.full(draws, state), np.full(draws, 5), reached, generator)
    np.testing.assert_array_equal(sepsis.step(np.full(draws, state), 5, noise), reached)
    # averaged over what is reached the noise is uniform again: other actions have their own rows
    raw = sepsis.model(absorbing=False)
    for action in (0, 1, 6):
        row = raw.row(state, action)
        other = np.bincount(sepsis.step(np.full(draws, state), action, noise), minlength=1440)
        counts = other[list(row)]
        assert counts.sum() == draws
        assert frequencies_agree(counts, np.array(list(row.values())), draws)


def test_the_truth_is_one_more_draw_of_the_simulators_own_counterfactuals():
    episodes = 6000
    log = sepsis.simulate(PHYSICIAN, episodes, seed=4)
    truth = true_counterfactuals(WITHHELD, MechanismsSettings(episodes=episodes), 4).outcome % 3
    (shares,) = sepsis.own_counterfactuals(log, [WITHHELD], draws=2, seed=4)
    # given what was seen, truth and both draws are alike: a draw agrees with the truth as often as
    # with the other draw. Differences lie in -1..1: Hoeffding, a false alarm in a million
    tolerance = (2 * np.log(2 / FALSE_ALARM) / episodes) ** 0.5
    among_draws = shares.max(axis=1) == 1
    patients = np.arange(episodes)
    assert abs((shares[patients, truth] - among_draws).mean()) < tolerance
    another = np.roll(truth, 1)  # it can tell another patient's truth
    assert abs((shares[patients, another] - among_draws).mean()) > tolerance


def test_own_counterfactuals_refuse_what_they_cannot_replay():
    log = sepsis.simulate(PHYSICIAN, 10, seed=1)
    with pytest.raises(ValueError, match="144 states"):
        sepsis.own_counterfactuals(log.hide("glucose", "diabetes"), [WITHHELD])
    with pytest.raises(ValueError, match="random"):
        sepsis.own_counterfactuals(log, [PHYSICIAN])
    with pytest.raises(ValueError, match="draws 0"):
        sepsis.own_counterfactuals(log, [WITHHELD], draws=0)


def test_a_model_that_keeps_ends_as_states_is_the_same_model():
    kept = keep_ends("corrected")
    going = sepsis.outcome_of() < 0
    late, now = (
        value_tables(model, WITHHELD, horizon=steps)[1][steps][going]
        for model, steps in ((kept, 21), (TRUE, 20))
    )
    np.testing.assert_allclose(late, now, atol=1e-12)
    log = sepsis.simulate(PHYSICIAN, 50, seed=1)
    one, other = (
        Replay(log, model, WITHHELD, mechanism=Independent(), horizon=steps).outcomes()
        for model, steps in ((kept, 21), (TRUE, 20))
    )
    np.testing.assert_allclose(one.probability, other.probability, atol=1e-12)
    kept.with_labels(vital_signs(log))  # vital signs tell the next states of a row apart


# ------------------------------------------------------------------------------- scores, by hand


def test_brier_score_by_hand():
    probability = np.array([[[0.5, 0.3, 0.2], [0.0, 1.0, 0.0]]])
    truth = np.array([[0, 2]])
    # .5^2 + .3^2 + .2^2 = .38; 0 + 1 + 1 = 2
    np.testing.assert_allclose(brier(probability, truth), [[0.38, 2.0]])
    np.testing.assert_allclose(log_loss(probability, truth), [[np.log(2), np.inf]])
    # shares of 11 draws: less (.25 + .21 + .16) / 10
    np.testing.assert_allclose(brier(probability, truth, draws=11), [[0.38 - 0.062, 2.0]])


def test_the_correction_for_draws_makes_the_score_of_shares_unbiased():
    p, truth, draws = np.array([0.6, 0.3, 0.1]), 1, 5
    generator = np.random.default_rng(0)
    shares = generator.multinomial(draws, p, size=200_000) / draws
    scores = brier(shares, np.full(200_000, truth), draws=draws)
    exact = 0.36 + 0.49 + 0.01
    # scores lie within -.25..2: Hoeffding, a false alarm in a million
    tolerance = 2.25 * (np.log(2 / FALSE_ALARM) / 400_000) ** 0.5
    assert abs(scores.mean() - exact) < tolerance
    assert abs(brier(shares, np.full(200_000, truth)).mean() - exact) > tolerance


def test_calibration_error_by_hand():
    # two outcomes; the first gets .25, .22 (bin 2) and .95 (bin 9), and happens once, in bin 2
    p = np.array([0.25, 0.22, 0.95])
    probability = np.stack([p, 1 - p], axis=-1)[None]
    sums = reliability(probability, np.array([[0, 1, 1]]))
    np.testing.assert_allclose(sums[0, 0, 2], [2, 0.47, 1, 0.1875 + 0.1716])
    np.testing.assert_allclose(sums[0, 0, 9], [1, 0.95, 0, 0.0475])
    # first: (|.47 - 1| + |.95 - 0|) / 3; second, bins 7 (.75, .78) and 0 (.05): the same
    assert calibration_error(sums[0]) == pytest.approx(1.48 / 3)
    chance = (2 / np.pi) ** 0.5 * (0.3591**0.5 + 0.0475**0.5) / 3
    assert calibration_chance(sums[0]) == pytest.approx(chance)
    masked = reliability(probability, np.array([[0, 1, 1]]), np.array([[False, True, False]]))
    assert masked[0, 0, :, 0].sum() == 1


def test_a_certain_prediction_falls_into_the_last_bin():
    sums = reliability(np.array([[[1.0, 0.0]]]), np.array([[0]]))
    np.testing.assert_array_equal(sums[0, 0, 9], [1, 1, 1, 0])
    assert calibration_error(sums[0]) == 0
    assert np.isnan(calibration_error(np.zeros((2, 10, 4))))


def test_leaving_out_logs_of_one_size_gives_the_standard_error_of_their_mean():
    values = np.random.default_rng(1).normal(size=(6, 40))
    mean, error = mean_over_logs(values)
    means = values.mean(axis=1)
    assert mean == pytest.approx(means.mean())
    assert error == pytest.approx(means.std(ddof=1) / 6**0.5)
    assert leave_one_out(np.ones((3, 2)), lambda totals: totals[0] / totals[1]) == (1.0, 0.0)
    some = values > 0
    assert mean_over_logs(values, some)[0] == pytest.approx(values[some].mean())
    assert mean_over_logs(np.array([[np.inf], [1.0]]))[0] == np.inf
    assert np.isnan(mean_over_logs(values, values > 100)[0])


def test_skill_is_the_share_of_the_reference_that_is_saved():
    saved, error = skill(np.array([[0.1, 0.3], [0.2, 0.2]]), np.full((2, 2), 0.8))
    assert saved == pytest.approx(0.75)
    assert error == pytest.approx(0.0)


def test_groups_by_changed_decisions():
    shares = np.array([0.0, 0.01, 0.25, 0.26, 0.5, 0.51, 1.0])
    assert group_of(shares).tolist() == [0, 1, 1, 2, 2, 3, 3]


def test_containment_is_counted_by_hand():
    """Two logs of two episodes; bounds of the first outcome .2 to .4 and 0 to 0."""
    bounds = np.zeros((2, 2, 3, 2))
    bounds[:, 0, 0], bounds[:, 0, 1], bounds[:, 0, 2] = (0.2, 0.4), (0.6, 0.8), (0.0, 0.0)
    bounds[:, 1, 0], bounds[:, 1, 1], bounds[:, 1, 2] = (0.0, 0.0), (1.0, 1.0), (0.0, 0.0)
    case = Scored(
        truth=np.array([[1, 1], [0, 2]]),
        observed=np.ones((2, 2), dtype=np.int64),
        changed=np.array([[0.3, 0.3], [0.3, 0.3]]),
        prediction={},
        bounds={"any": bounds},
        value=np.zeros(2),
    )
    table = bounds_table({"true-withheld": case}).query("group == 'all'").set_index("outcome")
    # died: mean bounds .1 to .2, frequency 1/4 and by log 0 and 1/2: outside in both
    assert table.loc["died", ["low", "high", "true"]].tolist() == pytest.approx([0.1, 0.2, 0.25])
    assert not table.loc["died", "inside"]
    assert table.loc["died", "logs_inside"] == 0
    # discharged: .8 to .9, frequency 1/2 and by log 1 and 0
    assert not table.loc["discharged", "inside"]
    # neither: 0 to 0, by log 0 (inside) and 1/2
    assert table.loc["still in ICU", "logs_inside"] == 0.5
    # the last episode's outcome, neither, has the highest probability 0
    assert (table["allowed"] == 0.75).all()
    groups = set(bounds_table({"true-withheld": case})["group"])
    assert groups == {"all", "25 to 50%"}


# ---------------------------------------------------------------------------- a small experiment


def test_every_case_scores_every_mechanism(cases):
    assert list(cases) == list(CASES)
    for key, case in cases.items():
        names = [name for name in MECHANISMS if key.startswith("true") or not name.endswith(ENDS)]
        assert set(case.prediction) == {*names, ALONE, OWN, AGAIN, RATE}
        for probability in case.prediction.values():
            assert probability.shape == (2, 100, 3)
            np.testing.assert_allclose(probability.sum(axis=-1), 1.0, atol=1e-9)


def test_where_no_decision_is_changed_the_outcome_is_the_observed_one(cases):
    for case in cases.values():
        same = case.changed == 0
        np.testing.assert_array_equal(case.truth[same], case.observed[same])
        for name in case.prediction:
            if name not in (ALONE, RATE):
                np.testing.assert_allclose(case.brier(name)[same], 0.0, atol=1e-9)


def test_bounds_on_the_true_model_allow_every_truth_and_hold_every_mechanism(cases):
    for key in ("true-withheld", "true-learned"):
        case = cases[key]
        bounds = bounds_table({key: case})
        assert (bounds.loc[bounds["class"] == "any", "allowed"] == 1).all()
        inside = {
            "any": [name for name in MECHANISMS if not name.endswith(ENDS)],
            "stable": [GUMBEL, "Maximal coupling"],
            "stable" + SIGNS: [GUMBEL + SIGNS + ENDS],
        }
        for kind, names in inside.items():
            low, high = np.moveaxis(case.bounds[kind], -1, 0)
            for name in names:
                said = case.prediction[name][:, : low.shape[1]]
                assert (said >= low - 1e-9).all(), (kind, name)
                assert (said <= high + 1e-9).all(), (kind, name)


def test_tables_agree_with_the_arrays(cases):
    scores = score_table(cases).set_index(["case", "mechanism", "group"])
    case = cases["learned-hidden"]
    row = scores.loc[("learned-hidden", GUMBEL, "all")]
    assert row["brier"] == pytest.approx(brier(case.prediction[GUMBEL], case.truth).mean())
    assert row["difference"] == 0
    base = scores.loc[("learned-hidden", RATE, "all")]
    assert row["skill"] == pytest.approx(1 - row["brier"] / base["brier"])
    counts = [
        scores.loc[("learned-hidden", GUMBEL, group), "episodes"]
        for group in GROUPS
        if ("learned-hidden", GUMBEL, group) in scores.index
    ]
    assert sum(counts) == 200
    assert np.isnan(scores.loc[("learned-hidden", OWN, "all"), "calibration_error"])
    about = case_table(cases).set_index("case").loc["learned-hidden"]
    assert about["true_return"] == pytest.approx(WORTH[case.truth].mean())
    assert about["changed_outcomes"] == pytest.approx((case.truth != case.observed).mean())
    # the true and the learned model are asked about the same patients and the same policy
    np.testing.assert_array_equal(case.truth, cases["true-learned"].truth)


def test_findings_follow_from_the_numbers(cases):
    study = make_tables(SMALL, cases)
    found = finding(study, "true-withheld")
    scores = {name: study.score("true-withheld", name) for name in MECHANISMS}
    assert found["best"] == min(scores, key=lambda name: scores[name]["brier"])
    told = {*found["closer"], *found["further"]}
    for name in set(MECHANISMS) - {GUMBEL}:
        gap, error = abs(scores[name]["difference"]), scores[name]["difference_se"]
        # two logs: the quantile of t with one degree of freedom is 12.7
        assert (name in told) == (gap >= 0.001 and gap > 12.7062 * error)
    assert {*told, *found["not_told_apart"]} == set(MECHANISMS) - {GUMBEL}
    held = bounds_finding(study, "true-withheld", CLASSES[0])
    assert (held["ruled_out"], held["episodes"]) == (0, 200)


@pytest.mark.parametrize(
    ("gap", "error", "kind"),
    [
        (-0.00035, 0.00001, "not_told_apart"),  # far beyond chance, and too small to matter
        (-0.0015, 0.00001, "closer"),
        (0.0015, 0.00001, "further"),
        (0.0015, 0.0005, "not_told_apart"),  # 3 standard errors of 2 logs
    ],
)
def test_small_or_unsure_differences_are_not_told_apart(cases, gap, error, kind):
    study = make_tables(SMALL, cases)
    one = study.scores["mechanism"] == "Maximal coupling"
    changed = study.scores.mask(one, study.scores.assign(difference=gap, difference_se=error))
    assert "Maximal coupling" in finding(replace(study, scores=changed), "true-learned")[kind]


def test_the_quantile_of_t_decides():
    # tables of Student's t, 97.5 %
    expected = {2: 12.706, 3: 4.303, 10: 2.262, 20: 2.093}
    assert {logs: round(clear(logs), 3) for logs in expected} == expected
    assert clear(1) == np.inf


@pytest.mark.parametrize(
    ("value", "text"),
    [(-0.00035, "0.000"), (0.0004, "0.000"), (0.0006, "+0.001"), (-0.25, "\N{MINUS SIGN}0.250")],
)
def test_what_rounds_to_0_has_no_sign(value, text):
    assert signed(value, 3) == text


def test_every_mechanism_is_drawn(cases):
    chart = STUDY.charts(make_tables(SMALL, cases))["scores"]
    assert {row["series"] for row in rows_with(chart, "score")} == {*MECHANISMS, ALONE, OWN}


def test_a_log_depends_on_seed_and_repeat_only():
    few = MechanismsSettings(repeats=2, episodes=20)
    once, again, other = score_log(few, 1), score_log(few, 1), score_log(replace(few, seed=1), 1)
    for key, case in once.items():
        for name, probability in case.prediction.items():
            np.testing.assert_array_equal(probability, again[key].prediction[name])
        assert (case.changed != other[key].changed).any()


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"repeats": 1}, "repeats 1"),
        ({"episodes": 9}, "episodes 9"),
        ({"seed": -1}, "seed -1"),
        ({"simulator": "new"}, "simulator 'new'"),
        ({"terminal": "never"}, "terminal 'never'"),
    ],
)
def test_bad_settings_are_refused(choice, message):
    with pytest.raises(ValueError, match=message):
        MechanismsSettings(**choice)


# ----------------------------------------------------------------------------- what is written


@pytest.mark.exhaustive  # the article takes long, even small
def test_the_folder_has_every_file_and_the_page_asks_for_nothing(folder):
    check_article(
        folder, {"scores", "bounds", "reliability_true-withheld", "reliability_learned-hidden"}
    )


@pytest.mark.exhaustive  # the article takes long, even small
def test_results_and_csv_files_hold_the_same_numbers(folder):
    results = json.loads((folder / "results.json").read_text())
    assert results["settings"]["seed"] == 5
    assert set(results["scores"]) == set(CASES)
    scores = pd.read_csv(folder / "scores.csv").query("group == 'all'")
    scores = scores.set_index(["case", "mechanism"])
    told = results["scores"]["true-learned"]["Inverse CDF"]
    assert told["brier"] == pytest.approx(scores.loc[("true-learned", "Inverse CDF"), "brier"])
    assert len(results["bounds"]["learned-full"]) == 9
    assert results["findings"]["learned-full"]["best"] in MECHANISMS


@pytest.mark.exhaustive  # the article takes long, even small
def test_the_command_prints_its_results_and_does_not_overwrite(written):
    folder, printed = written
    assert json.loads(printed) == json.loads((folder / "results.json").read_text())
    chosen = json.loads(printed)["settings"]
    assert (chosen["simulator"], chosen["terminal"]) == ("corrected", "visits")
    again = CliRunner().invoke(app, ["study", "mechanisms", "--out", str(folder)])
    assert again.exit_code == 2
    assert "already exists" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mechanisms", "--behavior", "exact"], "study 'mechanisms' has no option --behavior"),
        (["mechanisms", "--simulator", "new"], "simulator 'new'"),
        (["mechanism"], "'oberst2019', 'factors', 'mechanisms'"),
    ],
)
def test_what_the_study_does_not_know_ends_with_code_2(tmp_path, arguments, message):
    out = ["--out", str(tmp_path / "new")]
    result = CliRunner().invoke(app, ["study", *arguments, *out])
    assert result.exit_code == 2
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------- pictures


def rows_with(chart, field):
    spec = chart.to_dict()
    return [row for rows in spec["datasets"].values() for row in rows if field in row]


def test_reliability_places_a_perfect_prediction_on_the_diagonal():
    table = pd.DataFrame(
        {
            "panel": ["one", "two"],
            "series": "died",
            "predicted": [0.25, 0.5],
            "true": [0.25, 1.0],
            "episodes": [10, 40],
        }
    )
    chart = charts.reliability_chart(table)
    points = {row["panel"]: row for row in rows_with(chart, "size")}
    assert (points["one"]["predicted"], points["one"]["true"]) == (0.25, 0.25)
    assert points["two"]["size"] > points["one"]["size"]
    ends = {(row["predicted"], row["true"]) for row in rows_with(chart, "end")}
    assert ends == {(0.0, 0.0), (1.0, 1.0)}


def test_pictures_show_the_numbers_given_and_refuse_what_they_cannot_draw():
    scores = pd.DataFrame(
        {
            "panel": "one",
            "series": ["a", "a", "b"],
            "group": ["few", "many", "few"],
            "value": [0.1, 0.3, 0.2],
            "se": [0.01, np.nan, 0.02],
        }
    )
    drawn = rows_with(charts.scores_chart(scores, groups=["few", "many"]), "score")
    assert {(row["series"], row["score"]) for row in drawn} == {("a", 0.1), ("a", 0.3), ("b", 0.2)}
    bars = {row["score"]: (row["low"], row["high"]) for row in drawn}
    assert bars[0.1] == pytest.approx((0.08, 0.12))  # two standard errors
    assert bars[0.3] == (0.3, 0.3)
    bounds = pd.DataFrame(
        {
            "panel": "one",
            "kind": ["any", "stable"],
            "outcome": "died",
            "low": [0.1, 0.2],
            "high": [0.9, 0.5],
            "true": 0.3,
        }
    )
    chart = charts.containment_chart(bounds, kinds=["any", "stable"])
    assert {(row["low"], row["high"]) for row in rows_with(chart, "low")} == {
        (0.1, 0.9),
        (0.2, 0.5),
    }
    assert {row["true"] for row in rows_with(chart, "true")} == {0.3}
    many = scores.loc[[0] * 11].assign(series=list("abcdefghijk"))
    for call, message in (
        (lambda: charts.scores_chart(many, groups=["few"]), "11 series"),
        (lambda: charts.containment_chart(bounds, kinds=list("abcd")), "4 series, 3 at most"),
        (lambda: charts.reliability_chart(scores), "no column 'predicted'"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_transitions_that_the_simulator_cannot_make_are_refused():
    log = sepsis.simulate(sepsis.behavior_policy("icml2019"), 200, seed=1, version="icml2019")
    target = np.eye(8)[np.zeros(1440, dtype=int)]
    with pytest.raises(ValueError, match="give the version that the log was simulated with"):
        sepsis.own_counterfactuals(log, [target], draws=2)
