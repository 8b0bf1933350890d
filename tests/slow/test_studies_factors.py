"""The factorial experiment, small: its cells, its pieces, its files, its command."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import butfor as bf
from butfor import sepsis
from butfor.cli.main import app
from butfor.evaluate.crossfit import cross_fitted
from butfor.studies.article import write_study
from butfor.studies.factors import experiment as factors
from butfor.studies.factors.article import (
    FACTORS,
    PIECES,
    STUDY,
    _cancels,
    _trends,
    all_pieces,
    changes,
    decompose,
    in_cell,
    level_name,
    main_effects,
    mean_pieces,
    one_at_a_time,
    reference_cell,
    summarize,
)
from butfor.studies.factors.experiment import (
    CELL,
    HALF,
    JUDGED,
    NAMES,
    OTHER,
    SAME,
    STATES,
    FactorsSettings,
    endless_model,
    make_world,
    run_experiment,
    seeds,
    simulate_log,
)
from tests.articles import SMALL as SMALL_STUDIES
from tests.articles import check_article, small_study

SMALL = SMALL_STUDIES["factors"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of the article, and the experiment behind it."""
    return small_study(tmp_path_factory, "factors")


@pytest.fixture(scope="module")
def folder(written):
    return written[0]


@pytest.fixture(scope="module")
def experiment(written):
    return written[1]


# ------------------------------------------------------------------------------- the experiment


def test_the_design_is_a_full_factorial_with_held_out_sizes_nested(experiment):
    table = experiment.estimates
    assert not table.duplicated([*CELL, "repeat", "estimator"]).any()
    crossed = table[table["episodes"].isin(SMALL.episodes) & (table["estimator"] == "MB")]
    per_cell = 3 + np.array([0, 1])  # the reference size has one more held-out size
    assert len(crossed) == len(STATES) * len(SMALL.prevalences) * per_cell.sum() * SMALL.repeats
    assert set(table.loc[table["episodes"] == 400, "estimator"]) == {"MB"}
    assert set(table["estimator"]) == set(NAMES)
    for cells in one_at_a_time(SMALL).values():
        for cell in cells:
            assert len(in_cell(table, cell)) == SMALL.repeats * len(NAMES)


def test_one_cell_agrees_with_the_public_functions(experiment):
    seed = seeds(SMALL, 1)
    physician = sepsis.behavior_policy("corrected")

    def log_of(part, size):
        log = sepsis.simulate(physician, 120, seed=seed[part], prevalence=0.5)
        return log.hide("glucose", "diabetes").select(np.arange(size))

    log, other = log_of("log", 120), log_of("held-out", 40)
    model = bf.fit_mdp(log)
    target = bf.policy_iteration(model, discount=0.99).table
    true = bf.policy_value(
        sepsis.model("corrected", prevalence=0.5), sepsis.full_policy(target), horizon=20
    )
    cell = reference_cell(SMALL)
    for place, where, learned in (
        (cell, log, model),
        ({**cell, "judged": OTHER, "held_out": 40}, other, bf.fit_mdp(other)),
    ):
        expected = bf.estimate_values(where, learned, target, estimators=NAMES, resamples=1)
        rows = in_cell(experiment.estimates, {**place, "repeat": 1}).set_index("estimator")
        np.testing.assert_allclose(
            rows.loc[list(NAMES), "value"], expected["value"], rtol=1e-12, equal_nan=True
        )
        np.testing.assert_allclose(rows["true"], true)
        np.testing.assert_allclose(rows["error"], rows["value"] - true)


def test_the_other_half_is_cross_fitting_against_the_policies_it_judges(experiment, monkeypatch):
    world = make_world(SMALL, 0.5, "hidden")
    seed = seeds(SMALL, 0)
    log = simulate_log(world, 120, seed["log"])
    policies = []

    def learn(half):
        learned = factors.learn(half, "visits")
        policies.append(learned[1])
        return learned

    # one split, cut as the study cuts it
    monkeypatch.setattr(
        "butfor.evaluate.crossfit.numbered_keys", lambda *_: np.array([seed["halves"]], np.uint64)
    )
    found = cross_fitted(bf.Replay(log, *factors.learn(log, "visits")), learn, splits=1)
    cell = {**reference_cell(SMALL), "judged": HALF, "repeat": 0}
    rows = in_cell(experiment.estimates, cell).set_index("estimator")
    np.testing.assert_allclose(rows.loc["MB", "value"], found.model_based.mean())
    np.testing.assert_allclose(rows.loc["CF", "value"], found.counterfactual.mean())
    true = np.mean([world.true_value(policy) for policy in policies])
    np.testing.assert_allclose(rows["true"], true)


def test_logs_are_beginnings_of_each_other_and_shared_by_both_states():
    hidden, full = (make_world(SMALL, 0.5, state) for state in STATES)
    long, short = simulate_log(full, 120, 7), simulate_log(full, 40, 7)
    np.testing.assert_array_equal(long.select(np.arange(40)).state, short.state)
    np.testing.assert_array_equal(long.action, simulate_log(hidden, 120, 7).action)


def test_a_smaller_design_with_the_same_seed_has_the_same_numbers(experiment):
    fewer = replace(SMALL, episodes=(120,), long=(), prevalences=(0.5,))
    again = run_experiment(fewer).estimates
    both = again.merge(experiment.estimates, on=[*CELL, "repeat", "estimator"])
    assert len(both) == len(again)
    for name in ("value", "true", "endless"):
        np.testing.assert_array_equal(both[f"{name}_x"], both[f"{name}_y"])
    other = run_experiment(replace(fewer, seed=4)).estimates
    assert (other["true"] != again["true"]).all()


def test_no_two_parts_of_a_study_share_a_seed():
    used = [
        seed
        for study in (SMALL, replace(SMALL, seed=4))
        for repeat in range(50)
        for seed in seeds(study, repeat).values()
    ]
    assert len(set(used)) == len(used)


def test_undefined_estimates_are_left_out_and_counted():
    row = {"state": "hidden", "episodes": 40, "prevalence": 0.0, "judged": SAME, "held_out": 0}
    rows = [
        {**row, "repeat": i, "estimator": "WIS", "value": v, "true": 0.5, "error": v - 0.5}
        for i, v in enumerate((1.0, np.nan, 2.0))
    ]
    (table,) = summarize(pd.DataFrame(rows)).to_dict("records")
    assert (table["error"], table["logs"], table["undefined"]) == (1.0, 2, 1)
    # 0.5 and 1.5: standard deviation 1 / sqrt(2), over sqrt(2) logs
    assert table["se"] == pytest.approx(0.5)


# ------------------------------------------------------------- the model of an infinitely long log


def test_an_infinitely_long_log_teaches_the_truth_if_nothing_is_hidden(experiment):
    full = experiment.endless[experiment.endless["state"] == "full"]
    assert (full["error"] == 0).all()
    assert (experiment.endless.loc[experiment.endless["state"] == "hidden", "error"] > 0).all()


def test_a_long_log_approaches_the_limit():
    # a row seen n times: each probability has a standard error of at most 1 / (2 sqrt(n)); with
    # fewer than 10,000 of them, 6 standard errors have a false alarm below 1e-4
    truth = sepsis.model("corrected", prevalence=0.5)
    endless = endless_model(truth, "corrected")
    log = sepsis.simulate(sepsis.behavior_policy(), 60_000, seed=1, prevalence=0.5)
    fitted = bf.fit_mdp(log.hide("glucose", "diabetes"))
    state, action = np.nonzero(fitted.counts > 500)
    assert len(state) > 50
    for s, a in zip(state.tolist(), action.tolist(), strict=True):
        seen, limit = fitted.row(s, a), endless.row(s, a)
        for reached in seen.keys() | limit.keys():
            gap = seen.get(reached, 0.0) - limit.get(reached, 0.0)
            assert abs(gap) < 6 / (2 * fitted.counts[s, a] ** 0.5), (s, a, reached)
    np.testing.assert_allclose(fitted.initial, endless.initial, atol=6 / (2 * 60_000**0.5))


# -------------------------------------------------------------------------------- pieces, effects


def test_pieces_add_up_exactly_and_nothing_is_confounded_where_nothing_is_hidden(experiment):
    pieces = decompose(experiment.estimates)
    assert len(pieces) == 2 * 2 * 2 * 2 + 2 * 2  # state, size, prevalence, repeat; the long ones
    np.testing.assert_allclose(pieces[list(PIECES)].sum(axis=1), pieces["error"], atol=1e-12)
    assert (pieces.loc[pieces["state"] == "full", "confounding"].abs() < 1e-12).all()
    means = mean_pieces(pieces)
    cell = {"state": "hidden", "episodes": 120, "prevalence": 0.5}
    by_hand = in_cell(pieces, cell)["selection"]
    row = in_cell(means, {**cell, "piece": "selection"}).iloc[0]
    assert row["mean"] == pytest.approx(by_hand.mean())
    assert row["se"] == pytest.approx(by_hand.std() / 2**0.5)
    assert row["logs"] == 2


def test_the_limit_comes_last_and_has_confounding_only(experiment):
    table = all_pieces(experiment)
    endless = table[np.isinf(table["episodes"])]
    assert (endless.loc[endless["piece"] != "confounding", "value"] == 0).all()
    first = table[(table["state"] == "hidden") & (table["prevalence"] == 0.5)]
    assert first["episodes"].is_monotonic_increasing
    assert list(first["piece"][:3]) == list(PIECES)


def test_changes_are_differences_log_by_log(experiment):
    table = changes(experiment, ("MB",))
    assert set(table["factor"]) == set(FACTORS)
    row = in_cell(table, {"factor": "State in the log", "level": "full"}).iloc[0]
    cell = {**reference_cell(SMALL), "estimator": "MB"}
    errors = [
        in_cell(experiment.estimates, {**cell, "state": state})["error"].to_numpy()
        for state in STATES
    ]
    gap = errors[1] - errors[0]
    assert row["change"] == pytest.approx(gap.mean())
    assert row["se"] == pytest.approx(gap.std(ddof=1) / 2**0.5)
    levels = table.groupby("factor", sort=False)["level"].apply(list).to_dict()
    assert levels["Patients in the log"] == [40]  # the reference is no change
    assert levels["Patients in the other log"] == [40]
    assert levels["Judged on"] == [HALF, OTHER]


def test_main_effects_are_means_over_the_other_factors(experiment):
    table = main_effects(experiment, ("MB",))
    row = in_cell(table, {"level": "hidden", "judged": OTHER}).iloc[0]
    rows = in_cell(experiment.estimates, {"state": "hidden", "judged": OTHER, "estimator": "MB"})
    rows = rows[(rows["held_out"] == rows["episodes"]) & (rows["episodes"] < 400)]
    assert row["mean"] == pytest.approx(rows["error"].mean())


def test_words_follow_the_numbers():
    def pieces(last, logs=10):
        return pd.DataFrame(
            {
                "episodes": [1, 2],
                "piece": "selection",
                "value": [1.0, last],
                "se": [0.1, 0.1],
                "logs": [10, logs],
            }
        )

    for last, word in ((0.2, "shrinks"), (-0.2, "shrinks"), (2.0, "grows"), (1.1, "not clearly")):
        assert word in _trends(pieces(last))["selection"]["word"]
    # 0.8 is 5.7 standard errors of 0.14, and the t quantile of two logs is 12.7
    assert "not clearly" in _trends(pieces(0.2, logs=2))["selection"]["word"]
    ten = {"se": 0.1, "logs": 10}
    right, wrong = {"error": 0.1, **ten}, {"error": 0.5, **ten}
    up, down = {"mean": 0.4, **ten}, {"mean": -0.3, **ten}
    assert _cancels(right, {"confounding": up, "thin support": down})
    assert not _cancels(wrong, {"confounding": up, "thin support": down})
    assert not _cancels(right, {"confounding": down, "thin support": up})
    assert not _cancels(right, {"confounding": {**up, "logs": 2}, "thin support": down})


@pytest.mark.parametrize(
    ("level", "words"), [("full", "full"), (16_000, "16,000"), (0.0, "0%"), (1.0, "100%")]
)
def test_levels_are_written_for_readers(level, words):
    assert level_name(level) == words


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"repeats": 1}, "repeats 1"),
        ({"seed": -1}, "seed -1"),
        ({"simulator": "new"}, "simulator 'new'"),
        ({"terminal": "never"}, "terminal 'never'"),
        ({"episodes": (5, 120)}, "episodes 5"),
        ({"episodes": (120, 40)}, "lowest first"),
        ({"long": (100,)}, "lowest first"),
        ({"prevalences": (0.5, 1.5)}, r"prevalence 1\.5"),
        ({"prevalences": (0.5, 0.5)}, "each level once"),
        ({"reference_episodes": 50}, "reference 50 is not among"),
        ({"reference_prevalence": 0.3}, r"reference 0\.3 is not among"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **change)


# ------------------------------------------------------------------------------ prevalence


@pytest.mark.parametrize(("prevalence", "levels"), [(0.0, {"no"}), (1.0, {"yes"})])
def test_nobody_or_everybody_has_diabetes(prevalence, levels):
    log = sepsis.simulate(sepsis.behavior_policy(), 100, prevalence=prevalence)
    diabetes = log.hide("diabetes").side["diabetes"]
    assert set(diabetes.astype(str)) == levels
    chance = sepsis.model(prevalence=prevalence).initial[720:].sum()
    assert chance == prevalence


def test_a_fifth_is_the_default_and_those_at_an_end_are_drawn_again():
    np.testing.assert_array_equal(sepsis.initial_distribution(0.2), sepsis.initial_distribution())
    diabetes = sepsis.model().initial[720:].sum()
    # dead at the start: three or four of four abnormal; discharged: none
    ends = {}
    for name, glucose in (("no", 0.4), ("yes", 0.85)):
        abnormal = np.array([0.5, 0.5, 0.2, glucose])
        count = np.array([1.0])
        for p in abnormal:
            count = np.convolve(count, [1 - p, p])
        ends[name] = count[0] + count[3] + count[4]
    kept = 0.8 * (1 - ends["no"]), 0.2 * (1 - ends["yes"])
    assert diabetes == pytest.approx(kept[1] / sum(kept))


@pytest.mark.parametrize("prevalence", [-0.1, 1.1, float("nan")])
def test_a_prevalence_outside_0_to_1_is_refused_everywhere(prevalence):
    for call in (
        lambda: sepsis.initial_distribution(prevalence),
        lambda: sepsis.model(prevalence=prevalence),
        lambda: sepsis.simulate(sepsis.behavior_policy(), 10, prevalence=prevalence),
    ):
        with pytest.raises(ValueError, match="prevalence"):
            call()


# ----------------------------------------------------------------------------- what is written


def test_every_file_is_there(folder, experiment):
    check_article(folder, {"factors", "pieces_size", "pieces_prevalence"})
    logs = pd.read_csv(folder / "logs.csv")
    np.testing.assert_allclose(logs["error"], experiment.estimates["error"])


def test_results_agree_with_the_experiment_and_the_page_with_them(folder, experiment):
    results = json.loads((folder / "results.json").read_text())
    assert results["settings"]["prevalences"] == [0.0, 0.5]
    assert set(results["reference"]) == set(JUDGED)
    rows = in_cell(experiment.estimates, {**reference_cell(SMALL), "estimator": "MB"})
    found = results["reference"][SAME]["MB"]
    assert found["error"] == pytest.approx(rows["error"].mean())
    page = (folder / "index.html").read_text()
    assert f"{found['error']:+.3f}".replace("-", "\N{MINUS SIGN}") in page
    assert f"Written by butfor {bf.__version__} with repeats 2; seed 3; simulator corrected" in page
    for pieces in results["decomposition"].values():
        total = sum(pieces[piece]["mean"] for piece in PIECES)
        assert total == pytest.approx(pieces["error"]["mean"], abs=1e-12)
    assert results["decomposition"]["hidden"]["error"]["mean"] == pytest.approx(found["error"])
    assert len(results["cells"]) == len(summarize(experiment.estimates))


def test_an_article_is_not_overwritten_unless_asked(folder):
    with pytest.raises(FileExistsError, match="already exists"):
        write_study(STUDY, SMALL, folder)


# --------------------------------------------------------------------------------- the command


def test_the_command_hands_its_options_on_and_prints_the_results(tmp_path, monkeypatch):
    given = {}

    def write(study, settings, out, *, overwrite, progress):
        given.update(study=study, settings=settings, overwrite=overwrite)
        progress(1, 2)
        out.mkdir()
        (out / "results.json").write_text('{"fine": true}')
        return out

    monkeypatch.setattr("butfor.cli.study.write_study", write)
    arguments = ["--repeats", "7", "--seed", "9", "--simulator", "icml2019", "--terminal", "visits"]
    result = CliRunner().invoke(
        app, ["study", "factors", "--out", str(tmp_path / "x"), *arguments, "--json"]
    )
    assert result.exit_code == 0, result.output
    assert given["study"] is STUDY
    assert given["settings"] == FactorsSettings(repeats=7, seed=9, simulator="icml2019")
    assert not given["overwrite"]
    assert json.loads(result.stdout) == {"fine": True}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--behavior", "exact"], "study 'factors' has no option --behavior; it has --repeats"),
        (["--simulator", "new"], "simulator 'new'"),
        (["--terminal", "never"], "terminal 'never'"),
    ],
)
def test_bad_options_end_with_code_2_and_leave_nothing(tmp_path, arguments, message):
    result = CliRunner().invoke(
        app, ["study", "factors", "--out", str(tmp_path / "article"), *arguments]
    )
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []
