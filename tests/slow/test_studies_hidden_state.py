"""The example with its hidden state, small: its numbers, its rule, its files, its command."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import butfor as bf
from butfor import sepsis
from butfor.cli.main import app
from butfor.studies.article import study_page, write_study
from butfor.studies.hidden_state.article import STUDY
from butfor.studies.hidden_state.experiment import (
    CF,
    COUNTERFACTUAL,
    HIDDEN,
    IGNORED,
    LEARNED,
    MB,
    METHODS,
    OBSERVED,
    RIGHT,
    TRUE,
    HiddenStateSettings,
    choose_patient,
    entropy_by_step,
    patients,
    story,
    summarize,
)
from tests.articles import SMALL as SMALL_STUDIES
from tests.articles import check_article, small_study

SMALL = SMALL_STUDIES["hidden-state"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of the article, and the experiment behind it."""
    return small_study(tmp_path_factory, "hidden-state")


@pytest.fixture(scope="module")
def folder(written):
    return written[0]


@pytest.fixture(scope="module")
def experiment(written):
    return written[1]


@pytest.fixture(scope="module")
def log():
    """The second log, made again."""
    policy = sepsis.behavior_policy("icml2019")
    seed = SMALL.base_seed(1)
    return sepsis.simulate(policy, 120, seed=seed, version="icml2019").hide(*HIDDEN)


# ------------------------------------------------------------------------------- the experiment


def test_every_log_is_judged_in_every_way(experiment):
    assert len(experiment.estimates) == 2 * len(METHODS)
    for _, rows in experiment.estimates.groupby("repeat"):
        assert set(rows["method"]) == set(METHODS)


def test_estimates_are_those_of_the_library(experiment, log):
    model = bf.fit_mdp(log)
    target = bf.policy_iteration(model, discount=0.99).table
    hidden = sepsis.pomdp("icml2019")
    physician = bf.hidden.LatentPolicy(sepsis.behavior_policy("icml2019"))
    true = bf.policy_value(sepsis.model("icml2019"), sepsis.full_policy(target), horizon=20)

    def mean(model, behavior=None):
        result = bf.counterfactual_outcomes(log, model, target, behavior=behavior)
        return result.expected_return.mean()

    expected = {
        OBSERVED: log.returns().mean(),
        MB: bf.policy_value(model, target, horizon=20),
        CF: mean(model),
        IGNORED: mean(hidden),
        LEARNED: mean(hidden, bf.hidden.fit_latent_behavior(log, hidden).policy),
        RIGHT: mean(hidden, physician),
        TRUE: true,
    }
    rows = experiment.estimates[experiment.estimates["repeat"] == 1].set_index("method")
    np.testing.assert_allclose(rows.loc[list(expected), "value"], list(expected.values()))
    np.testing.assert_allclose(rows["error"], rows["value"] - true)
    # in the simulator itself the policy is worth what it truly is
    np.testing.assert_allclose(rows.loc[[IGNORED, LEARNED, RIGHT], "own"], true)
    np.testing.assert_allclose(rows.loc[CF, "own"], expected[MB])
    z = (rows["value"] - rows["own"]) / rows["se"]
    np.testing.assert_allclose(rows["z"], z)


def test_brier_scores_are_against_the_simulators_own_counterfactuals(experiment):
    one = experiment.first
    policy = sepsis.full_policy(one.target)
    replayed = sepsis.simulate(policy, 120, seed=SMALL.base_seed(0), version="icml2019")
    np.testing.assert_array_equal(one.truth, replayed.outcome)
    happened = np.eye(3)[one.truth]  # none, -1, is the last
    rows = experiment.estimates[experiment.estimates["repeat"] == 0].set_index("method")
    for method in COUNTERFACTUAL:
        score = ((one.said[method].probability - happened) ** 2).sum(axis=1).mean()
        assert rows.loc[method, "brier"] == pytest.approx(score)
    naming = ((happened.mean(axis=0) - happened) ** 2).sum(axis=1).mean()
    np.testing.assert_allclose(rows["base"], naming)
    unlike = (one.log.outcome != one.truth).mean()
    assert rows.loc[OBSERVED, "brier"] == pytest.approx(2 * unlike)


def test_the_hidden_state_is_known_better_with_the_physicians_actions(experiment):
    table = entropy_by_step(experiment.first).pivot(index="step", columns="series", values="mean")
    assert (table["known"] < table["ignored"]).all()
    count = entropy_by_step(experiment.first).set_index(["series", "step"])["patients"]
    assert count["known", 0] == 120
    assert count["known", 5] == (experiment.first.log.lengths > 5).sum()


def test_the_story_is_a_posterior_with_one_true_level_a_step(experiment):
    one = experiment.first
    patient = int(one.log.lengths.argmax())
    table = story(one, patient)
    by_step = table.groupby(["evidence", "variable", "step"])
    np.testing.assert_allclose(by_step["probability"].sum(), 1.0)
    assert (by_step["truth"].sum() == 1).all()
    assert table["step"].max() == one.log.lengths[patient]  # the end too
    assert (table.loc[table["truth"], "probability"] > 0).all()
    level = table[(table["variable"] == "glucose") & table["truth"] & (table["step"] == 2)]
    row = one.log.offsets[patient] + 2
    assert set(level["level"]) == {one.log.side["glucose"].iloc[row]}


def test_the_patient_fits_the_rule_and_is_the_first(experiment):
    one = experiment.first
    chosen = choose_patient(one)
    assert chosen >= 0
    table = patients(one)
    log = one.log
    fits = [
        row.Index
        for row in table.itertuples()
        if row.observed == "died"
        and table[f"likeliest {CF}"][row.Index] == "discharged"
        and table[f"likeliest {RIGHT}"][row.Index] == "died"
        and (np.diff(_seen(log, row.Index)) != 0).sum() >= 3
    ]
    assert fits[0] == chosen


def _seen(log, episode):
    rows = slice(log.offsets[episode], log.offsets[episode + 1])
    return np.append(log.state[rows], log.next_state[rows][-1])


def test_without_such_a_patient_the_page_says_so(experiment):
    one = experiment.first
    nobody = replace(one, said={**one.said, RIGHT: one.said[CF]})
    assert choose_patient(nobody) == -1
    without = replace(experiment, first=nobody)
    assert "patient" not in STUDY.charts(without)
    page = study_page(STUDY, SMALL, without, {})
    assert "No patient of this log fits the rule" in page


def test_no_two_logs_share_a_seed():
    used = [replace(SMALL, seed=seed).base_seed(r) for seed in range(3) for r in range(50)]
    assert len(set(used)) == len(used)


def test_means_over_logs_have_their_standard_errors(experiment):
    table = summarize(experiment.estimates).set_index("method")
    assert list(table.index) == list(METHODS)
    errors = experiment.estimates.set_index("method").loc[CF, "error"]
    assert table.loc[CF, "error"] == pytest.approx(errors.mean())
    assert table.loc[CF, "se"] == pytest.approx(errors.std() / 2**0.5)
    assert table.loc[TRUE, "error"] == 0
    z = experiment.estimates.set_index("method").loc[IGNORED, "z"]
    assert table.loc[IGNORED, "largest_z"] == pytest.approx(z.abs().max())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"repeats": 1}, "repeats 1"),
        ({"seed": -1}, "seed -1"),
        ({"episodes": 5}, "episodes 5"),
        ({"simulator": "new"}, "simulator 'new'"),
        ({"terminal": "never"}, "terminal 'never'"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **change)


# ----------------------------------------------------------------------------- what is written


def test_every_file_is_there(folder, experiment):
    check_article(
        folder,
        {"estimates", "outcomes_reduced", "outcomes_hidden", "patient", "evidence", "entropy"},
    )
    logs = pd.read_csv(folder / "logs.csv")
    np.testing.assert_allclose(logs["error"], experiment.estimates["error"])
    assert len(pd.read_csv(folder / "patients.csv")) == 120


def test_results_agree_with_the_experiment_and_the_page_with_them(folder, experiment):
    results = json.loads((folder / "results.json").read_text())
    table = summarize(experiment.estimates).set_index("method")
    page = (folder / "index.html").read_text()
    for method in METHODS:
        value = results["methods"][method]["value"]
        assert value == pytest.approx(table.loc[method, "value"])
        assert f"{value:+.3f}".replace("-", "\N{MINUS SIGN}") in page
    one = experiment.first
    deaths = results["first_log"]["expected_deaths"][RIGHT]
    assert deaths == pytest.approx(one.said[RIGHT].probability[:, 0].sum())
    cell = one.said[CF].table().loc["died", "discharged"]
    assert results["first_log"]["would_have_lived"][CF] == cell
    gap = one.said[RIGHT].probability[:, 0] - one.said[IGNORED].probability[:, 0]
    assert results["knowledge"]["largest"] == pytest.approx(np.abs(gap).max())
    patient = results["patient"]
    assert len(patient["steps"]) == patient["length"]
    assert patient["died"][RIGHT] == one.said[RIGHT].probability[choose_patient(one), 0]
    assert f"Written by butfor {bf.__version__} with repeats 2; seed 3" in page


def test_an_article_is_not_overwritten_unless_asked(folder):
    with pytest.raises(FileExistsError, match="already exists"):
        write_study(STUDY, SMALL, folder)


def test_the_command_hands_its_options_on(tmp_path, monkeypatch):
    given = {}

    def write(study, settings, out, *, overwrite, progress):
        given.update(study=study, settings=settings, overwrite=overwrite)
        out.mkdir()
        (out / "results.json").write_text('{"fine": true}')
        return out

    monkeypatch.setattr("butfor.cli.study.write_study", write)
    arguments = ["--repeats", "7", "--seed", "9", "--simulator", "corrected"]
    result = CliRunner().invoke(
        app, ["study", "hidden-state", "--out", str(tmp_path / "x"), *arguments, "--json"]
    )
    assert result.exit_code == 0, result.output
    assert given["study"] is STUDY
    assert given["settings"] == HiddenStateSettings(repeats=7, seed=9, simulator="corrected")
    assert json.loads(result.stdout) == {"fine": True}
