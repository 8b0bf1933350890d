"""The study of caution, small: its forms, its files, its command."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import butfor as bf
from butfor import sepsis
from butfor.audit.settings import CAUTION
from butfor.cli.main import app
from butfor.studies.caution.article import summarize
from butfor.studies.caution.experiment import (
    CAUTIONS,
    FACTORED,
    PLAIN,
    PRIORS,
    TABULAR,
    likely_prior,
)
from tests.articles import SMALL as SMALL_STUDIES
from tests.articles import check_article, small_study
from tests.builders import DEATH, HOME

SMALL = SMALL_STUDIES["caution"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of the article, and the experiment behind it."""
    return small_study(tmp_path_factory, "caution")


@pytest.fixture(scope="module")
def experiment(written):
    return written[1]


def test_every_form_is_planned_on_every_log(experiment):
    values = experiment.values
    assert set(CAUTIONS) <= set(values["caution"])
    assert (values.groupby(["model", "caution"])["repeat"].nunique() == 2).all()
    assert CAUTION in CAUTIONS.values()


def test_values_are_those_of_the_plans(experiment):
    physician = sepsis.behavior_policy(SMALL.simulator)
    log = SMALL.simulate(physician, SMALL.base_seed(1)).hide("glucose", "diabetes")
    for kind, model in ((TABULAR, bf.fit_mdp(log)), (FACTORED, bf.fit_factored(log))):
        for name in (PLAIN, "2 bad cases"):
            plan = bf.policy_iteration(model, caution=CAUTIONS[name])
            expected = (
                bf.policy_value(model, plan, horizon=20),
                bf.policy_value(
                    sepsis.model(SMALL.simulator), sepsis.full_policy(plan), horizon=20
                ),
            )
            values = experiment.values.set_index(["repeat", "model", "caution"])
            found = values.loc[(1, kind, name)]
            assert found.tolist() == list(expected)


def test_the_likely_prior_by_leaving_out_each_transition():
    # from one state under two actions, home 8 and 2 times, death 2 and 3 times
    action, outcome = np.repeat([0, 0, 1, 1], [8, 2, 2, 3]), np.repeat([1, 0, 1, 0], [8, 2, 2, 3])
    log = bf.Episodes.from_arrays(
        np.zeros(15, int), action, np.zeros(15, int), offsets=np.arange(16),
        states=[bf.Variable("x", ("only",))], actions=[bf.Variable("a", ("0", "1"))],
        outcome=outcome, outcomes=[DEATH, HOME],
    )  # fmt: skip

    def score(prior):
        return sum(
            np.log(
                (((action == a) & (outcome == o)).sum() - 1 + prior)
                / ((action == a).sum() - 1 + 2 * prior)
            )
            for a, o in zip(action, outcome, strict=True)
        )

    assert likely_prior(log, "visits", PRIORS) == max(PRIORS, key=score)
    assert PRIORS[0] < max(PRIORS, key=score) < PRIORS[-1]  # neither end, which a bug might give


def test_the_article_and_its_command(written, tmp_path):
    folder, experiment = written
    check_article(folder, ())
    arguments = ["study", "caution", "--out", str(tmp_path / "there"), "--repeats", "2", "--json"]
    assert CliRunner().invoke(app, [*arguments, "--terminal", "nonsense"]).exit_code == 2
    written = json.loads((folder / "results.json").read_text())
    assert written["plans"] == summarize(experiment.values).to_dict("records")
