"""Noise on states or on what nature decides: labels, both answers, audits."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import butfor as bf
from butfor.audit.source import audit_log
from butfor.cli.main import app
from butfor.log.variables import Variable
from tests.support import random_model, random_policy, simulate_log

DRUG = Variable("drug", ("off", "on"))
PULSE = Variable("pulse", ("low", "high"))
ENDS = [bf.Outcome("death", -1.0, bad=True), bf.Outcome("home", 1.0)]


def drug_log(states=(PULSE, DRUG), **changes):
    """One step: pulse low, no drug is given, and the pulse stays low. State: pulse * 2 + drug."""
    given = {
        "offsets": [0, 1],
        "states": states,
        "actions": [DRUG],
        "outcome": [-1],
        "outcomes": ENDS,
        "horizon": 1,
    }
    return bf.Episodes.from_arrays([0], [0], [0], **(given | changes))


def drug_model():
    """The drug shows in the next state, so that rows under other actions share no state.

    From every state: without the drug the pulse stays low with chance .5, with it with chance .8;
    reward 1 where it does.
    """
    rows, reward = np.zeros((4, 2, 6)), np.zeros((4, 2, 6))
    for drug, low in enumerate((0.5, 0.8)):
        rows[:, drug, drug], rows[:, drug, 2 + drug] = low, 1 - low
        reward[:, drug, drug] = 1.0
    return bf.TabularMDP.from_arrays(rows, reward=reward, outcomes=ENDS)


@pytest.fixture(scope="module")
def sepsis():
    """A reduced sepsis log, its model and the target planned on it."""
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), 80, seed=21).hide("glucose", "diabetes")
    model = bf.fit_mdp(log)
    return log, model, bf.policy_iteration(model, caution=bf.Caution()).table  # as audits learn it


# ------------------------------------------------------------------------------------- the labels


def test_labels_are_the_levels_of_what_is_not_called_like_an_action():
    assert drug_log().state_labels().tolist() == [0, 0, 1, 1]  # the pulse
    assert drug_log().state_labels("pulse").tolist() == [0, 0, 1, 1]
    assert drug_log().state_labels("drug").tolist() == [0, 1, 0, 1]
    assert drug_log().state_labels("pulse", "drug").tolist() == [0, 1, 2, 3]


def test_without_treatment_flags_every_state_is_its_own_label():
    log = drug_log(states=[PULSE])
    assert log.state_labels().tolist() == [0, 1]


def test_of_sepsis_the_vital_signs_are_left(sepsis):
    log, _, _ = sepsis
    vital = log.state_labels("heart rate", "blood pressure", "oxygen")
    np.testing.assert_array_equal(log.state_labels(), vital)


def test_unknown_names_and_states_that_are_all_treatment_are_refused():
    with pytest.raises(ValueError, match="no variable 'puls'; there are 'pulse', 'drug'"):
        drug_log().state_labels("puls")
    with pytest.raises(
        ValueError, match=r"has the name of an action variable \('drug'\).*name the"
    ):
        drug_log(states=[DRUG]).state_labels()


# ---------------------------------------------------------------------------------- both answers


def test_by_hand_nothing_carries_over_on_states_and_everything_on_the_pulse():
    # Seen: no drug, pulse low. With the drug, noise on states: the rows share no state, so the
    # pulse is low with chance .8 whatever was seen. Noise on the pulse: low was the label that
    # won, and the drug makes it likelier, so that by stability it stays: chance 1.
    log, model, target = drug_log(), drug_model(), [[0.0, 1.0]] * 4
    states = bf.Replay(log, model, target, behavior=np.full((4, 2), 0.5))
    labels = states.ask(model=model.with_labels(log.state_labels()))
    np.testing.assert_allclose(states.outcomes().expected_return, [0.8], atol=1e-14)
    np.testing.assert_allclose(labels.outcomes().expected_return, [1.0], atol=1e-14)
    assert (states.steps().share_apart, labels.steps().share_apart) == (1.0, 0.0)
    np.testing.assert_allclose(states.steps().influence, [[0.0]], atol=1e-14)
    np.testing.assert_allclose(labels.steps().influence, [[0.2]], atol=1e-14)
    assert (states.steps().share_about, labels.steps().share_about) == (0.0, 1.0)


@pytest.mark.parametrize("seed", range(4))
def test_other_numbers_for_the_same_labels_give_no_difference(seed):
    generator = np.random.default_rng(seed)
    model = random_model(generator)
    behavior, target = random_policy(generator, model), random_policy(generator, model)
    log = simulate_log(generator, model, behavior, 20, 5)
    states = bf.Replay(log, model, target, behavior=behavior)
    labels = states.ask(model=model.with_labels(np.array([5, 2, 9, 0])))
    one, other = states.outcomes(), labels.outcomes()
    np.testing.assert_allclose(one.expected_return, other.expected_return, atol=1e-12)
    np.testing.assert_array_equal(one.most_likely, other.most_likely)
    found, again = states.steps(), labels.steps()
    np.testing.assert_allclose(found.share_about, again.share_about, atol=1e-12)
    np.testing.assert_allclose(found.share_apart, again.share_apart, atol=1e-12)


def test_on_vital_signs_more_carries_over(sepsis):
    log, model, target = sepsis
    states = bf.Replay(log, model, target).steps()
    labels = bf.Replay(log, model.with_labels(log.state_labels()), target).steps()
    assert labels.share_apart < states.share_apart
    assert labels.share_about.mean() > states.share_about.mean()


def test_labels_that_clash_within_a_row_are_refused(sepsis):
    log, model, _ = sepsis
    with pytest.raises(ValueError, match="have the same label"):
        model.with_labels(log.state_labels("oxygen"))
    with pytest.raises(ValueError, match=r"labels has shape \(3,\), expected \(144,\)"):
        model.with_labels([0, 1, 2])


# --------------------------------------------------------------------- the audit -----------------


@pytest.fixture(scope="module")
def written(tmp_path_factory, sepsis):
    """The log and its study file on disk."""
    folder = tmp_path_factory.mktemp("labels")
    bf.write_episodes(sepsis[0], folder / "log.csv", folder / "study.toml")
    return folder


VITAL = ["heart rate", "blood pressure", "oxygen"]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_an_audit_puts_the_noise_where_it_is_told_to_and_records_it(
    written, sepsis, tmp_path, monkeypatch
):
    monkeypatch.setattr("butfor.audit.intervals.MODELS", (5,))  # not 200: that takes long
    log, model, target = sepsis
    exact = bf.Replay(log, model.with_labels(log.state_labels()), target).outcomes()
    options = ["--study", written / "study.toml", "--flags", 2, "--no-rehearsal"]
    options += ["--review-size", 4]
    few = {"flags": 2, "review_size": 4, "rehearsal": False}
    names = ", ".join(VITAL)
    result = run(
        "audit", written / "log.csv", *options, "--out", tmp_path / "audit", "--noise-on", names
    )
    assert result.exit_code == 0, result.output
    audit = bf.Audit.load(tmp_path / "audit")
    assert audit.meta.made_by["noise_on"] == VITAL
    assert sum("credible intervals" in warning for warning in audit.meta.warnings) == 1
    np.testing.assert_allclose(audit.episodes["expected_return"], exact.expected_return, atol=1e-12)

    study = (written / "study.toml").read_text()
    (tmp_path / "study.toml").write_text(f"{study}\n[noise]\nlabels = {json.dumps(VITAL)}\n")
    again = audit_log(written / "log.csv", tmp_path / "study.toml", **few)
    assert again.meta.made_by["noise_on"] == VITAL
    pd.testing.assert_frame_equal(again.episodes, audit.episodes)
    np.testing.assert_array_equal(again.target, audit.target)

    plain = audit_log(written / "log.csv", written / "study.toml", **few, model="tabular")
    assert plain.meta.made_by["noise_on"] is None
    assert not any("credible intervals" in warning for warning in plain.meta.warnings)
    np.testing.assert_array_equal(plain.target, audit.target)
    assert np.abs(plain.episodes["expected_return"] - audit.episodes["expected_return"]).max() > 0


@pytest.mark.parametrize(
    ("options", "noise", "message"),
    [
        (["--noise-on", "puls"], "", "no variable 'puls'; there are 'heart rate'"),
        (["--noise-on", "oxygen"], "", "have the same label"),
        (
            ["--prior", "1", "--noise-on", ",".join(VITAL)],
            "",
            "A prior and unseen='uniform' combine next states of all actions",
        ),
        ([], '[noise]\nlabels = ["oxigen"]', "[noise] labels: there is no [state.oxigen]; did you"),
        ([], "[noise]\nlabels = []", "[noise] labels: is empty; name at least one"),
        ([], '[noise]\nlabels = ["oxygen", "oxygen"]', "are called 'oxygen'"),
        ([], '[noise]\nlabels = "oxygen"', "'oxygen': expected a list in square brackets"),
        ([], '[noise]\nlabel = ["oxygen"]', "[noise] label: no such key; did you mean labels?"),
    ],
)
def test_mistakes_end_with_code_2_and_a_remedy(written, tmp_path, options, noise, message):
    text = (written / "study.toml").read_text() + f"\n{noise}\n"
    (tmp_path / "study.toml").write_text(text)
    options = ["--study", tmp_path / "study.toml", "--out", tmp_path / "audit", *options]
    result = run("audit", written / "log.csv", *options)
    assert result.exit_code == 2, result.output
    assert message in result.stderr


def test_the_command_that_is_gone_says_what_to_do_instead():
    result = run("labels", "log.csv", "--study", "study.toml")
    assert result.exit_code == 2
    assert "butfor labels is gone" in result.stderr
    assert "docs/labels.md" in result.stderr
