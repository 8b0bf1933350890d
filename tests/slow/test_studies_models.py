"""The study of models, small: its truth, its tables by hand, its files, its command."""

import json
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from typer.testing import CliRunner

import butfor as bf
from butfor import sepsis
from butfor.cli.main import app
from butfor.log.variables import ravel
from butfor.models import classifiers
from butfor.studies.article import HIDDEN
from butfor.studies.models import experiment as models
from butfor.studies.models import learned
from butfor.studies.models.article import STUDY
from butfor.studies.models.charts import charts
from butfor.studies.models.experiment import (
    ON_SIGNS,
    ON_STATES,
    ON_VARIABLES,
    OWN,
    RULE,
    TABULAR_PLAN,
    ModelsSettings,
    fixed_rule,
    make_world,
    questions,
    score,
)
from butfor.studies.models.learned import (
    CLUSTERS,
    COUNTS,
    KNOWN_ENDS,
    TABULAR,
    TRUE,
    Learned,
    learn_models,
)
from butfor.studies.models.summary import below_zero, content
from butfor.studies.models.tables import find, score_table, value_table
from tests.articles import SMALL as SMALL_STUDIES
from tests.articles import check_article, small_study
from tests.slow.test_figures import rows_of

SMALL = SMALL_STUDIES["models"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of the article, and the experiment behind it, without classifiers."""
    return small_study(tmp_path_factory, "models")


@pytest.fixture(scope="module")
def folder(written):
    return written[0]


@pytest.fixture(scope="module")
def experiment(written):
    assert written[1].wide is None
    return written[1].sepsis


@pytest.fixture(scope="module")
def world():
    return make_world(SMALL, "full")


# ------------------------------------------------------------------------------------ the truth


def test_the_true_factored_model_has_the_rows_of_the_simulator():
    factored, tabular = sepsis.factored_model().tabular(), sepsis.model()
    going = np.flatnonzero(sepsis.outcome_of() < 0)
    for state in going[:: len(going) // 40]:
        for action in range(8):
            assert factored.row(state, action) == pytest.approx(tabular.row(state, action))
    # another version of the simulator is another model
    other = sepsis.factored_model("icml2019").tabular()
    differ = [
        factored.row(state, action) != pytest.approx(other.row(state, action))
        for state in going[:: len(going) // 40]
        for action in range(8)
    ]
    assert any(differ)


def test_the_fixed_rule_gives_each_treatment_where_its_sign_says_so():
    rule, variables = fixed_rule("full"), sepsis.STATES

    def action(**levels):
        named = [levels.get(v.name.replace(" ", "_"), v.levels[0]) for v in variables]
        codes = [v.levels.index(level) for v, level in zip(variables, named, strict=True)]
        return int(rule[int(ravel(variables, [np.array([code]) for code in codes])[0])].argmax())

    calm = {"heart_rate": "normal", "blood_pressure": "normal", "oxygen": "normal"}
    # an action is 4 antibiotics + 2 ventilation + vasopressors
    assert action(**calm) == 0
    assert action(**calm | {"heart_rate": "high"}) == 4
    assert action(**calm | {"blood_pressure": "high"}) == 4
    assert action(**calm | {"blood_pressure": "low"}) == 1
    assert action(**calm | {"oxygen": "low"}) == 2
    assert action(heart_rate="high", blood_pressure="low", oxygen="low", diabetes="yes") == 7
    np.testing.assert_array_equal(sepsis.full_policy(fixed_rule("hidden")), rule)


def test_true_outcomes_are_those_of_the_same_patients(world):
    physician = sepsis.behavior_policy()
    log = sepsis.simulate(physician, 200, seed=8)
    np.testing.assert_array_equal(world.true_outcomes(physician, 200, 8), log.outcome % 3)
    true, other = (world.true_outcomes(world.rule, 200, seed) for seed in (8, 9))
    replay = models.ask(log, world.known, ON_VARIABLES, world.rule)
    # other patients' outcomes are predicted far worse
    assert score(replay, true)["brier"] < 0.5 < score(replay, other)["brier"]


def test_scores_by_hand():
    probability = np.array([[1.0, 0.0, 0.0], [0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]])
    answered = SimpleNamespace(probability=probability, expected_return=np.array([-1, -0.25, 1, 0]))
    replay = SimpleNamespace(outcomes=lambda negligible: answered)
    found = score(replay, np.array([0, 0, 0, 2]))
    # squared distances: 0; 1/4 + 1/16 + 1/16; 1 + 1; 1/16 + 1/16 + 1/4
    assert found["brier"] == pytest.approx((0 + 0.375 + 2 + 0.375) / 4)
    assert found["ruled_out"] == 0.25
    assert found["log_loss"] == pytest.approx(-np.log(1 * 0.5 * 0.001 * 0.5) / 4)
    # three of four died, one neither: 1 - (9/16 + 1/16)
    assert found["base"] == pytest.approx(0.375)
    assert found["base_log"] == pytest.approx(-(3 * np.log(0.75) + np.log(0.25)) / 4)
    assert found["cf"] == pytest.approx(-0.0625)


# ------------------------------------------------------------------------------- the experiment


@pytest.mark.exhaustive  # the study takes long, even small
def test_every_model_is_asked_at_the_reference_and_two_at_other_sizes(experiment):
    scores = experiment.scores
    place = ["state", "size", "repeat", "model", "noise", "target"]
    assert not scores.duplicated(place).any()
    small = scores[scores["size"] == 20]
    assert set(small["model"]) == {TABULAR, COUNTS}
    assert set(small["target"]) == {RULE}
    full = scores[(scores["size"] == 40) & (scores["state"] == "full") & (scores["repeat"] == 0)]
    every = (ON_VARIABLES, ON_SIGNS, ON_STATES)
    expected = {(TABULAR, ON_STATES), (TABULAR, ON_SIGNS), (KNOWN_ENDS, ON_VARIABLES)}
    expected |= {(CLUSTERS, ON_STATES)}
    expected |= {(name, noise) for name in (COUNTS, TRUE) for noise in every}
    assert set(zip(full["model"], full["noise"], strict=True)) == expected
    hidden = set(scores.loc[scores["state"] == "hidden", "model"])
    assert hidden == {TABULAR, CLUSTERS, COUNTS}
    assert len(experiment.values) == 2 * 2 * 3 * (5 + 3)  # logs, sizes, targets, models
    assert scores["influence"].notna().sum() == 2 * (9 + 6)


@pytest.mark.exhaustive  # the study takes long, even small
def test_one_cell_agrees_with_the_public_functions(experiment):
    seed = SMALL.base_seed(1)
    log = sepsis.simulate(sepsis.behavior_policy(), 40, seed=seed).hide(*HIDDEN)
    model = bf.fit_factored(log)
    target = bf.policy_iteration(bf.fit_mdp(log), discount=0.99).table
    true = bf.policy_value(sepsis.model(), sepsis.full_policy(target), horizon=20)
    few = log.select(np.arange(15))
    said = bf.Replay(few, model, target).outcomes()
    truth = sepsis.simulate(sepsis.full_policy(target), 15, seed=seed).outcome
    brier = ((said.probability - np.eye(3)[truth]) ** 2).sum(axis=1).mean()
    cell = {"state": "hidden", "size": 40, "repeat": 1, "model": COUNTS, "target": TABULAR_PLAN}
    row = in_cell(experiment.scores, {**cell, "noise": ON_VARIABLES})
    # what is left out continues by the model alone: at most 1e-6 for each state and step
    assert row["brier"] == pytest.approx(brier, abs=1e-3)
    assert row["cf"] == pytest.approx(said.expected_return.mean(), abs=1e-3)
    value = in_cell(experiment.values, cell)
    assert value["true"] == row["true"] == pytest.approx(true)
    expected = bf.policy_value(model.tabular(), target, horizon=20)
    assert value["mb"] == pytest.approx(expected)


@pytest.mark.exhaustive  # the study takes long, even small
def test_the_true_model_is_biased_only_by_the_first_states(experiment):
    mine = experiment.values[experiment.values["model"] == TRUE]
    rule = mine[mine["target"] == RULE]
    assert rule["true"].nunique() == 1
    # means over 20 and 40 first states, whose values lie between -1 and 1: six standard errors
    assert (np.abs(rule["mb"] - rule["true"]) < 6 / np.sqrt(rule["size"])).all()
    assert (mine["true"] == mine["endless"]).all()
    assert experiment.optimum == mine.loc[mine["target"] == OWN, "true"].max()
    assert experiment.physicians < experiment.optimum


def in_cell(table, place):
    rows = table[np.all([table[name] == level for name, level in place.items()], axis=0)]
    assert len(rows) == 1
    return rows.iloc[0]


def test_classifiers_learn_from_few_logs_and_only_short_ones(world):
    log = sepsis.simulate(sepsis.behavior_policy(), 80, seed=1)
    seen = []

    def learn(log, terminal, *, end, classifiers):
        seen.append(classifiers)
        assert end is world.known.model.end
        return {}

    with mock.patch.object(models, "learn_models", learn):
        for size, repeat in ((40, 0), (40, 1), (40, 2), (80, 0)):
            models.models_of(world, log.select(np.arange(size)), repeat)
    assert seen == [True, True, False, False]
    assert ModelsSettings(repeats=20).classifier_repeats == 5


def test_classifiers_are_learners_of_factored_models():
    log = sepsis.simulate(sepsis.behavior_policy(), 20, seed=1).hide(*HIDDEN)
    with mock.patch.object(learned, "make_classifier", return_value=DummyClassifier()) as make:
        made = learn_models(log, "visits", end=None, classifiers=True)
    assert [call.args[0] for call in make.mock_calls] == list(classifiers.CLASSIFIERS)
    assert list(made) == [TABULAR, COUNTS, CLUSTERS, *learned.CLASSIFIERS]
    for name in learned.CLASSIFIERS:
        assert {factor.source for factor in made[name].model.factors} >= {"DummyClassifier"}
    with mock.patch.object(learned, "have_classifiers", return_value=False):
        assert list(learn_models(log, "visits", end=None, classifiers=True)) == [TABULAR, COUNTS]


@pytest.mark.exhaustive  # the study takes long, even small
def test_clusters_have_a_plan_for_every_state(experiment):
    log = sepsis.simulate(sepsis.behavior_policy(), 40, seed=SMALL.base_seed(1))
    clusters = learn_models(log, "visits", end=None, classifiers=False)[CLUSTERS]
    of_state = clusters.clustered.of_state
    assert clusters.plan.shape == (1440, 8)
    np.testing.assert_array_equal(clusters.asked(clusters.plan)[of_state], clusters.plan)
    shown = clusters.shown(log)
    np.testing.assert_array_equal(shown.state, of_state[log.state])
    model = bf.fit_mdp(shown)
    cell = {"state": "full", "size": 40, "repeat": 1, "model": CLUSTERS, "target": OWN}
    row = in_cell(experiment.values, cell)
    assert row["mb"] == pytest.approx(
        bf.policy_value(model, bf.policy_iteration(model, discount=0.99), horizon=20)
    )
    true = bf.policy_value(sepsis.model(), clusters.plan, horizon=20)
    assert row["true"] == pytest.approx(true)


def test_thirty_variables_need_scikit_learn():
    with mock.patch.object(models, "have_classifiers", return_value=False):
        assert ModelsSettings().parts == ("sepsis",)
        with pytest.raises(ValueError, match=r"part 'wide' needs scikit-learn: pip install"):
            ModelsSettings(part="wide")
    assert ModelsSettings().parts == ("sepsis", "wide")
    assert ModelsSettings().steps == 20 * 2 + 5


def test_classifiers_learn_what_two_features_decide_together():
    generator = np.random.default_rng(0)
    drawn = generator.integers(2, size=(1000, 4))
    features = np.hstack([drawn, 1 - drawn]).astype(np.float32)  # one for each level
    level = (drawn[:, 0] != drawn[:, 1]).astype(int)  # no single feature tells anything
    for name in classifiers.CLASSIFIERS:
        fitted = classifiers.make_classifier(name).fit(features, level)
        given = fitted.predict_proba(features)[np.arange(1000), level]
        assert given.min() > 0.8, name


def test_unknown_and_missing_classifiers_are_refused():
    with pytest.raises(ValueError, match="classifier 'forest': give one of logistic regression"):
        classifiers.make_classifier("forest")
    with (
        mock.patch.dict("sys.modules", {"sklearn.ensemble": None}),
        pytest.raises(ValueError, match=r"pip install 'butfor\[cluster\]'"),
    ):
        classifiers.make_classifier(classifiers.BOOSTING)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": (5,)}, "size"),
        ({"size": (1000, 250)}, "the smallest first"),
        ({"size": (250, 500)}, "the reference 1000 is not among the sizes"),
        ({"part": "ward"}, "part"),
    ],
)
def test_bad_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ModelsSettings(**options)


# ----------------------------------------------------------------------------- tables, by hand

VALUES = pd.DataFrame(
    {
        "state": "hidden",
        "size": 40,
        "repeat": [0, 1],
        "model": COUNTS,
        "target": OWN,
        "mb": [0.7, 0.9],
        "true": [0.3, 0.4],
        "endless": [0.6, 0.5],
    }
)


def test_the_bias_is_the_sum_of_its_pieces():
    table = value_table(VALUES)
    cells = {m: find(table, m, state="hidden", model=COUNTS) for m in table["measure"]}
    assert cells["bias"]["mean"] == pytest.approx(0.45)  # .4 and .5
    assert cells["bias"]["se"] == pytest.approx(0.05)
    assert cells["confounding"]["mean"] == pytest.approx(0.2)  # .3 and .1
    assert cells["finite log"]["mean"] == pytest.approx(0.25)  # .1 and .4
    assert {cell["logs"] for cell in cells.values()} == {2}
    assert find(table, "bias", state="full") is None


def test_gaps_to_the_true_model_are_of_the_same_log_and_target():
    row = {"state": "full", "size": 40, "target": RULE, "true": 0.1, "influence": np.nan}
    rest = {"log_loss": 1.0, "ruled_out": 0.0, "base": 0.5, "base_log": 0.9}
    briers = {(COUNTS, ON_VARIABLES): (0.5, 0.7), (TRUE, ON_VARIABLES): (0.4, 0.3)}
    briers[TRUE, ON_STATES] = 0.9, 0.9
    scores = pd.DataFrame(
        {**row, **rest, "repeat": repeat, "model": model, "noise": noise, "brier": b, "cf": 0.3}
        for (model, noise), both in briers.items()
        for repeat, b in enumerate(both)
    )
    own = scores.assign(target=OWN)
    table = score_table(pd.concat([scores, own]))
    asked = {"model": COUNTS, "noise": ON_VARIABLES}
    gap = find(table, "over_true", **asked, target=RULE)
    assert gap == {"mean": pytest.approx(0.25), "se": pytest.approx(0.15), "logs": 2}
    # plans of two models are two targets
    assert find(table, "over_true", **asked, target=OWN) is None
    assert find(table, "over_base", **asked, target=RULE)["mean"] == pytest.approx(0.1)
    assert find(table, "cf_bias", **asked, target=RULE)["mean"] == pytest.approx(0.2)
    assert find(table, "influence", **asked) is None


def test_better_than_frequencies_takes_more_than_chance():
    # the 97.5 % quantile of Student's t with 19 degrees of freedom is 2.09
    assert below_zero({"mean": -0.21, "se": 0.1, "logs": 20})
    assert not below_zero({"mean": -0.20, "se": 0.1, "logs": 20})
    assert not below_zero({"mean": 0.5, "se": 0.1, "logs": 20})


# ------------------------------------------------------------------------------------- the files


@pytest.mark.exhaustive  # the study takes long, even small
def test_the_article_has_its_files(folder):
    check_article(folder, ["claims", "patients", "plans"])
    scores = pd.read_csv(folder / "scores.csv")
    assert set(scores["measure"]) > {"brier", "over_base", "cf_bias", "influence"}
    found = json.loads((folder / "results.json").read_text())
    assert found["settings"]["size"] == [20, 40]
    assert found["physicians"] == pytest.approx(0.4334, abs=1e-4)
    assert [line["model"] for line in found["summary"]["hidden"]] == [
        *(TABULAR, TABULAR, CLUSTERS, COUNTS, COUNTS, COUNTS),
        "Frequencies known to an oracle",
    ]


@pytest.mark.exhaustive  # the study takes long, even small
def test_charts_have_one_mark_for_each_model_and_size(experiment):
    for name, chart in charts(experiment).items():
        rows = rows_of(chart, "series", "size")
        place = [(row["panel"], row["series"], row["size"]) for row in rows]
        assert len(place) == len(set(place)) == 2 * 2 * 2, name


@pytest.mark.exhaustive  # the study takes long, even small
def test_the_page_says_what_is_not_cured(folder):
    page = " ".join((folder / "index.html").read_text().split())
    assert "what remains is confounding" in page
    assert "A larger log does not cure it" in page
    assert "oracle's frequencies" in page
    assert "scikit-learn is not installed" not in page


@pytest.mark.exhaustive  # the study takes long, even small
def test_the_page_says_whether_patients_are_predicted_better_than_by_frequencies(experiment):
    def words(briers):
        scores = experiment.scores.copy()
        mine = (scores["state"] == "hidden") & (scores["model"] == COUNTS)
        for target, gap in briers.items():
            here = mine & (scores["target"] == target)
            scores.loc[here, "brier"] = scores.loc[here, "base"] + gap
        return content(replace(experiment, scores=scores))["no_better"]

    assert words({TABULAR_PLAN: 0.1, RULE: 0.0}) == [TABULAR_PLAN, RULE]
    assert words({TABULAR_PLAN: -0.1, RULE: 0.1}) == [RULE]
    assert words({TABULAR_PLAN: -0.1, RULE: -0.1}) == []


# ----------------------------------------------------------------------------------- the command


def run_command(*arguments):
    given = {}

    def write(study, settings, folder, **options):
        given.update(study=study, settings=settings)
        folder.mkdir()
        (folder / "results.json").write_text('{"in_short": ["Found."]}')
        return folder

    with mock.patch("butfor.cli.study.write_study", write):
        return CliRunner().invoke(app, ["study", *arguments]), given


def test_the_command_takes_sizes(tmp_path):
    out = str(tmp_path / "x")
    result, given = run_command(
        *("models", "--out", out, "--repeats", "3", "--size", "250", "--size", "1000"),
        *("--part", "wide"),
    )
    assert result.exit_code == 0, result.output
    assert "Found." in result.output  # what was found, in short
    assert given["study"] is STUDY
    assert given["settings"] == ModelsSettings(repeats=3, size=(250, 1000), part="wide")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["factors", "--size", "250"], "study 'factors' has no option --size"),
        (["models", "--behavior", "exact"], "study 'models' has no option --behavior"),
        (["models", "--size", "250"], "the reference 1000 is not among the sizes"),
    ],
)
def test_options_of_other_studies_are_refused(arguments, message, tmp_path):
    result, given = run_command(*arguments, "--out", str(tmp_path / "x"))
    assert result.exit_code == 2
    assert not given
    assert message in " ".join(result.stderr.split())


def test_questions_do_not_repeat():
    known = Learned(sepsis.factored_model())
    asked = list(questions(SMALL, 40, {TRUE: known}))
    assert len(asked) == len(set(asked)) == 3 + 2 * 2
