"""Noise on states or on what nature decides: labels, both answers side by side, the commands."""

import json
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import butfor as bf
from butfor.audit.source import audit_log
from butfor.cli.main import app
from butfor.log.variables import Variable
from butfor.replay.labels import compare_labels, share_of_disjoint_rows
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
    assert bf.nature_labels(drug_log()).tolist() == [0, 0, 1, 1]  # the pulse
    assert bf.nature_labels(drug_log(), "pulse").tolist() == [0, 0, 1, 1]
    assert bf.nature_labels(drug_log(), "drug").tolist() == [0, 1, 0, 1]
    assert bf.nature_labels(drug_log(), "pulse", "drug").tolist() == [0, 1, 2, 3]


def test_without_treatment_flags_every_state_is_its_own_label():
    log = drug_log(states=[PULSE])
    assert bf.nature_labels(log).tolist() == [0, 1]


def test_of_sepsis_the_vital_signs_are_left(sepsis):
    log, _, _ = sepsis
    vital = log.state_labels("heart rate", "blood pressure", "oxygen")
    np.testing.assert_array_equal(bf.nature_labels(log), vital)


def test_unknown_names_and_states_that_are_all_treatment_are_refused():
    with pytest.raises(ValueError, match="no variable 'puls'; there are 'pulse', 'drug'"):
        bf.nature_labels(drug_log(), "puls")
    with pytest.raises(
        ValueError, match=r"has the name of an action variable \('drug'\).*name the"
    ):
        bf.nature_labels(drug_log(states=[DRUG]))


# ------------------------------------------------------------------------------------- comparing


def test_by_hand_nothing_carries_over_on_states_and_everything_on_the_pulse():
    # Seen: no drug, pulse low. With the drug, noise on states: the rows share no state, so the
    # pulse is low with chance .8 whatever was seen. Noise on the pulse: low was the label that
    # won, and the drug makes it likelier, so that by stability it stays: chance 1.
    log, model, target = drug_log(), drug_model(), [[0.0, 1.0]] * 4
    replay = bf.Replay(log, model, target, behavior=np.full((4, 2), 0.5))
    compared = compare_labels(replay, bf.nature_labels(log))
    np.testing.assert_allclose(compared.states.counterfactuals.expected_return, [0.8], atol=1e-14)
    np.testing.assert_allclose(compared.labels.counterfactuals.expected_return, [1.0], atol=1e-14)
    assert (compared.states.apart_of_met, compared.labels.apart_of_met) == (1.0, 0.0)
    # eight rows, four without and four with the drug: 16 of the 28 pairs share no state
    assert compared.states.apart_of_all == pytest.approx(16 / 28)
    assert compared.labels.apart_of_all == 0.0
    np.testing.assert_allclose(compared.states.steps.influence, [[0.0]], atol=1e-14)
    np.testing.assert_allclose(compared.labels.steps.influence, [[0.2]], atol=1e-14)
    (row,) = compared.frame().to_dict("records")
    assert row["difference"] == pytest.approx(0.2)
    assert (row["share_about_states"], row["share_about_labels"]) == (0.0, 1.0)


@pytest.mark.parametrize("seed", range(4))
def test_identical_labels_give_no_difference(seed):
    generator = np.random.default_rng(seed)
    model = random_model(generator)
    behavior, target = random_policy(generator, model), random_policy(generator, model)
    log = simulate_log(generator, model, behavior, 20, 5)
    # other numbers for the same labels, and the model's own labels do not matter
    shuffled = model.with_labels(np.array([5, 2, 9, 0]))
    compared = compare_labels(bf.Replay(log, shuffled, target, behavior=behavior), [3, 1, 4, 2])
    frame = compared.frame()
    np.testing.assert_allclose(frame["difference"], 0.0, atol=1e-12)
    assert not frame["changed"].any()
    first, second = compared.summary().drop(columns="noise").to_numpy(dtype=float)
    np.testing.assert_allclose(first, second, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_the_share_of_disjoint_rows_equals_brute_force(seed, monkeypatch):
    monkeypatch.setattr("butfor.replay.labels.BLOCK", 3)
    generator = np.random.default_rng(seed)
    log = simulate_log(
        generator,
        model := random_model(generator, states=5, actions=2),
        random_policy(generator, model),
        6,
        3,
    )
    fitted = bf.fit_mdp(log)
    rows = [
        {int(fitted.labels[x]) for x in fitted.row(s, a)}
        for s, a in zip(*np.nonzero(~fitted.unseen), strict=True)
    ]
    pairs = list(permutations(rows, 2))
    expected = sum(not one & other for one, other in pairs) / len(pairs)
    assert share_of_disjoint_rows(fitted) == pytest.approx(expected, abs=1e-12)


def test_a_single_seen_row_makes_no_pair():
    assert np.isnan(share_of_disjoint_rows(bf.fit_mdp(drug_log())))


def test_both_sides_are_what_each_model_gives_alone(sepsis):
    log, model, target = sepsis
    labels = bf.nature_labels(log)
    compared = compare_labels(bf.Replay(log, model, target), labels, flags=7)
    frame = compared.frame()
    for kind, labelled in (("states", model), ("labels", model.with_labels(labels))):
        exact = bf.counterfactual_outcomes(log, labelled, target)
        np.testing.assert_array_equal(frame[f"expected_return_{kind}"], exact.expected_return)
        carried = bf.walk_through(log, labelled, target)
        np.testing.assert_array_equal(frame[f"share_about_{kind}"], carried.share_about)
    assert 7 <= frame["flagged"].sum() <= 14
    assert frame["changed"].tolist() == (
        (frame["most_likely_states"] != frame["most_likely_labels"]).tolist()
    )
    summary = compared.summary().set_index("noise")
    assert summary.loc["labels", "apart_of_met"] < summary.loc["states", "apart_of_met"]
    assert summary.loc["labels", "apart_of_all"] < summary.loc["states", "apart_of_all"]
    assert summary.loc["labels", "share_about"] > summary.loc["states", "share_about"]


def test_labels_that_clash_within_a_row_are_refused(sepsis):
    log, model, target = sepsis
    with pytest.raises(ValueError, match="have the same label"):
        compare_labels(bf.Replay(log, model, target), log.state_labels("oxygen"))
    with pytest.raises(ValueError, match=r"labels has shape \(3,\), expected \(144,\)"):
        compare_labels(bf.Replay(log, model, target), [0, 1, 2])
    with pytest.raises(ValueError, match="flags -1"):
        compare_labels(bf.Replay(log, model, target), bf.nature_labels(log), flags=-1)


# --------------------------------------------------------------------- the audit and the commands


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
    exact = bf.counterfactual_outcomes(log, model.with_labels(bf.nature_labels(log)), target)
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


def test_the_command_prints_both_noises_side_by_side(written):
    result = run("labels", written / "log.csv", "--study", written / "study.toml")
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    assert "The labels are the levels of heart rate, blood pressure, oxygen." in words
    for text in ("Noise on states", "Noise on labels", "of all seen", "not facts"):
        assert text in words


def test_the_command_as_json_agrees_with_the_library(written, sepsis):
    log, model, target = sepsis
    options = ["--study", written / "study.toml", "--noise-on", ",".join(VITAL), "--json"]
    printed = json.loads(run("labels", written / "log.csv", *options).stdout)
    compared = compare_labels(bf.Replay(log, model, target), bf.nature_labels(log))
    assert printed["noise_on"] == VITAL
    assert printed["summary"][1] == pytest.approx(compared.summary().to_dict("records")[1])
    assert len(printed["episodes"]) == len(log)
    table = compared.labels.counterfactuals.table()
    assert printed["outcomes"]["labels"]["died"]["discharged"] == table.loc["died", "discharged"]
    changed = (compared.flagged & compared.changed).sum()
    assert (printed["flagged"], printed["flagged_changed"]) == (compared.flagged.sum(), changed)


@pytest.mark.parametrize(
    ("options", "noise", "message"),
    [
        (["--noise-on", "puls"], "", "no variable 'puls'; there are 'heart rate'"),
        (["--noise-on", "oxygen"], "", "have the same label"),
        (["--prior", "1"], "", "A prior and unseen='uniform' combine next states of all actions"),
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
    result = run("labels", written / "log.csv", "--study", tmp_path / "study.toml", *options)
    assert result.exit_code == 2, result.output
    assert message in result.stderr


def test_a_log_whose_state_tells_no_treatment_has_nothing_to_compare(tmp_path):
    log = drug_log(states=[PULSE], outcome=[0])
    bf.write_episodes(log, tmp_path / "log.csv", tmp_path / "study.toml")
    result = run("labels", tmp_path / "log.csv", "--study", tmp_path / "study.toml")
    assert result.exit_code == 2
    assert "no state variable has the name of an action variable" in result.stderr
