"""The study of Oberst & Sontag (2019), small: its parts, its files, its command."""

import html
import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import butfor as bf
from butfor.cli.main import app
from butfor.log.variables import project
from butfor.paper import published
from butfor.paper.article import STUDY
from butfor.paper.discharge import (
    discharge_when_treatment_stops,
    full_states,
    stopping_decisions,
    who_stops_when,
)
from butfor.paper.experiment import (
    ESTIMATORS,
    ask_about,
    choose_patient,
    repeat_logs,
    run_one_log,
    seeds,
    simulate_log,
    summarize,
    true_value,
    wis,
)
from butfor.paper.experiment import Oberst2019Settings as Settings
from butfor.replay.draws import draws_needed
from tests.articles import SMALL as SMALL_STUDIES
from tests.articles import check_article, small_study

SMALL = SMALL_STUDIES["oberst2019"]


@pytest.fixture(scope="module")
def one():
    return run_one_log(Settings(episodes=1000, repeats=2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_study(tmp_path_factory, "oberst2019")[0]


def test_repeats_are_fresh_logs_and_depend_on_the_seed_only():
    first = repeat_logs(SMALL, hidden=True)
    assert list(first.columns[:5]) == list(ESTIMATORS)
    assert first["Observed"].nunique() > 1
    pd.testing.assert_frame_equal(first, repeat_logs(SMALL, hidden=True))
    used = [seed for repeat in range(3) for seed in seeds(SMALL, repeat).values()]
    assert len(set(used)) == len(used)


def test_sampled_values_agree_with_exact_ones():
    repeats = repeat_logs(Settings(repeats=20, episodes=500), hidden=True)
    for name in ("MB", "True"):
        gap = repeats[name] - repeats[f"{name} (exact)"]
        # rewards lie in -1..1: each mean of 500 has a standard error of at most 1 / sqrt(500)
        assert abs(gap.mean()) < 5 / (500 * 20) ** 0.5


def test_wis_on_the_training_log_is_weighted_importance_sampling():
    learned = ask_about(simulate_log(SMALL, 3, hidden=True), "visits")
    log, target = learned.log, learned.target
    ratio = target[log.state, log.action] / learned.behavior[log.state, log.action]
    weight = np.multiply.reduceat(ratio, log.offsets[:-1])
    expected = (weight * log.returns()).sum() / weight.sum() if weight.sum() else np.nan
    np.testing.assert_allclose(wis(learned), [expected])


def test_a_range_of_few_logs_is_the_least_and_the_largest():
    few, many = (summarize(pd.DataFrame({"x": np.arange(n)})).loc["x"] for n in (10, 41))
    assert (few["low"], few["high"]) == (0.0, 9.0)
    assert (many["low"], many["high"]) == (1.0, 39.0)


def test_summaries_leave_undefined_logs_out():
    table = summarize(pd.DataFrame({"WIS": [1.0, np.nan, 3.0]}))
    assert table.loc["WIS", "mean"] == 2.0
    assert table.loc["WIS", "logs"] == 2
    np.testing.assert_allclose(table.loc["WIS", "se"], 2**0.5 / 2**0.5)


def test_figure_3_is_as_its_caption_says(one):
    figure = one.figure3.set_index("estimator")
    log = one.replay.log
    assert list(figure.index) == ["Obs", "WIS", "MB", "CF", "True"]
    assert figure.loc["Obs", "value"] == pytest.approx(log.returns().mean())
    assert figure.loc["CF", "value"] == pytest.approx(one.draws.returns().mean())
    assert one.draws.state.shape[1] == 5
    assert (figure["low"] <= figure["value"]).all()
    assert (figure["value"] <= figure["high"]).all()
    exact = figure["exact"]
    assert exact["CF"] == pytest.approx(one.exact.expected_return.mean())
    # five draws of each of 1000 patients, returns in -1..1: five standard errors
    assert abs(figure.loc["CF", "value"] - exact["CF"]) < 5 / 5000**0.5


def test_figure_4_takes_the_most_common_of_the_draws(one):
    size = 3
    votes = [(one.draws.outcome % size == o).sum(axis=1) for o in range(size)]
    died = one.replay.log.outcome == 0
    common = np.argmax(votes, axis=0)
    table = one.sampled.table()
    assert table.loc["died", "discharged"] == (died & (common == 1)).sum()
    assert table.to_numpy().sum() == 1000


def test_the_patient_of_figure_5_is_chosen_by_rule(one):
    position = choose_patient(one.exact)
    log = one.replay.log
    assert log.outcome[position] == 0
    assert one.exact.most_likely[position] == 1
    assert log.lengths[position] > 10
    assert log.side["glucose"].iloc[len(log.state) + position] != "normal"


def test_truth_by_glucose_comes_from_the_true_model(one):
    table = discharge_when_treatment_stops(one.replay, "icml2019").set_index("case")
    # without diabetes and with low glucose nothing leads to discharge at once: glucose would have
    # to rise to normal, which the published simulator forbids
    assert table.loc["true, glucose low, without diabetes", "at the next step"] == 0
    normal = table.loc["true, glucose normal, without diabetes", "at the next step"]
    assert table["at the next step"].drop("learned, whatever the glucose").max() == normal
    learned = table.loc["learned, whatever the glucose"]
    assert learned["within 20 steps"] > normal


def test_stops_are_counted_in_the_log(one):
    log, stops = one.replay.log, who_stops_when(one.replay)
    for rows in stopping_decisions(one.replay).values():
        full = full_states(log, rows[:50])
        reduced = project(bf.sepsis.STATES, *(v.name for v in log.state_variables))
        np.testing.assert_array_equal(reduced[full], log.state[rows[:50]])
        glucose = np.unravel_index(full, (2, 3, 3, 2, 5, 2, 2, 2))[4]
        assert (glucose == log.side["glucose"].cat.codes.to_numpy()[rows[:50]]).all()
    assert 0 < stops["physician"] <= stops["decisions"]
    assert stops["physician_abnormal"] < stops["policy_abnormal"]


def test_true_value_is_that_of_the_simulator():
    settings = Settings(simulator="corrected")
    target = np.tile(np.eye(8)[0], (144, 1))
    truth = bf.sepsis.model("corrected")
    full = np.tile(np.eye(8)[0], (1440, 1))
    assert true_value(settings, target) == bf.policy_value(truth, full, horizon=20)


@pytest.mark.parametrize(("precision", "draws"), [(0.1, 185), (0.05, 738), (0.01, 18445)])
def test_draws_needed_follow_from_hoeffding(precision, draws):
    # ln(2 / .05) / (2 precision^2) = 1.8444 / precision^2
    assert draws_needed(precision) == draws


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: draws_needed(0), "precision 0"),
        (lambda: draws_needed(0.1, 1.0), r"confidence 1\.0"),
        (lambda: Settings(repeats=1), "repeats 1"),
        (lambda: Settings(simulator="new"), "simulator 'new'"),
        (lambda: Settings(terminal="never"), "terminal 'never'"),
        (lambda: Settings(behavior="mine"), "behavior 'mine'"),
        (lambda: Settings(seed=-1), "seed -1"),
    ],
)
def test_bad_settings_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ----------------------------------------------------------------------------- what is written


def test_results_have_the_promised_form(folder):
    results = json.loads((folder / "results.json").read_text())
    assert set(results["figure3"]) == {"Obs", "WIS", "MB", "CF", "True"}
    assert all(set(row) == {"mean", "low", "high"} for row in results["figure3"].values())
    assert np.array(results["figure4"]).shape == (3, 3)
    np.testing.assert_allclose(np.sum(results["figure4"]), 1.0)
    assert results["would_have_lived"] == round(200 * results["figure4"][0][2])
    for which in ("hidden", "full"):
        assert list(results["table"][which]) == list(ESTIMATORS)
        row = results["table"][which]["MB"]
        assert set(row) == {"mean", "low", "high", "se"}
    assert results["settings"]["seed"] == 5


def test_the_article_is_complete_and_shows_published_numbers_beside_ours(folder):
    figures = {f"figure{i}" for i in range(1, 6)}
    check_article(folder, figures | {"nonidentifiability", "repeats_hidden", "repeats_full"})
    page = (folder / "index.html").read_text()
    for mean, *_ in published.FIGURE_3.values():
        assert f"{mean:+.3f}".replace("-", "\N{MINUS SIGN}") in page


def test_figure_3_shows_the_published_values_below_ours(folder):
    drawn = (folder / "figures" / "figure3.svg").read_text()
    assert "This run" in drawn
    for numbers in published.FIGURE_3.values():
        mean, low, high = (f"{x:+.2f}".replace("-", "\N{MINUS SIGN}") for x in numbers)
        assert f"{mean} ({low} to {high})" in drawn


def test_the_bootstrap_of_figure_3_does_not_claim_to_learn_the_model_again(folder):
    drawn = (folder / "figures" / "figure3.svg").read_text()
    said = " ".join(re.sub(r"<[^>]*>", " ", drawn).split())
    assert "what the model learned" not in said
    assert "The same model and policy in each sample." in said


def test_the_first_screen_says_what_the_published_simulator_gets_wrong(folder):
    first, *_ = (folder / "index.html").read_text().split('<h2 id="model"')
    assert 'can never rise above "low" by chance' in html.unescape(first)


def test_csv_files_hold_the_numbers(folder):
    logs = pd.read_csv(folder / "logs_hidden.csv")
    assert len(logs) == 3
    results = json.loads((folder / "results.json").read_text())
    np.testing.assert_allclose(logs["MB"].mean(), results["table"]["hidden"]["MB"]["mean"])


def test_a_study_is_not_overwritten_unless_asked(folder):
    result = CliRunner().invoke(app, ["study", "oberst2019", "--out", str(folder)])
    assert result.exit_code == 2
    assert "already exists" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--simulator", "new"], "simulator 'new'"),
        (["--terminal", "never"], "terminal 'never'"),
        (["--behavior", "mine"], "behavior 'mine'"),
    ],
)
def test_bad_options_end_with_code_2_and_leave_nothing(tmp_path, arguments, message):
    goal = tmp_path / "article"
    result = CliRunner().invoke(app, ["study", "oberst2019", "--out", str(goal), *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_the_command_hands_its_options_on(tmp_path, monkeypatch):
    given = {}

    def write(study, settings, out, *, overwrite, progress):
        given.update(study=study, settings=settings, overwrite=overwrite)
        out.mkdir()
        (out / "results.json").write_text('{"fine": true}')
        return out

    monkeypatch.setattr("butfor.cli.study.write_study", write)
    arguments = ["--repeats", "7", "--seed", "9", "--simulator", "corrected", "--behavior", "exact"]
    result = CliRunner().invoke(
        app, ["study", "oberst2019", "--out", str(tmp_path / "x"), *arguments, "--json"]
    )
    assert result.exit_code == 0, result.output
    assert given["study"] is STUDY
    expected = Settings(repeats=7, seed=9, simulator="corrected", behavior="exact")
    assert (given["settings"], given["overwrite"]) == (expected, False)
    assert json.loads(result.stdout) == {"fine": True}


def test_an_unknown_study_is_refused(tmp_path):
    result = CliRunner().invoke(app, ["study", "oberst2020", "--out", str(tmp_path / "x")])
    assert result.exit_code == 2
    assert "oberst2020" in result.stderr


def test_published_standard_errors_follow_from_the_range():
    # a range of 2 * 1.96 standard deviations over 100 logs: a tenth of a standard deviation
    assert published.standard_error(-1.959964, 1.959964) == pytest.approx(0.1)
