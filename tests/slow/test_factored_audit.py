"""Audits with factored models: the same question, tables and files as with any other model."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import butfor as bf
from butfor.audit.audit import Audit
from butfor.audit.source import audit_into
from butfor.cli.main import app
from butfor.models import learners
from butfor.models.cases import logged_cases
from butfor.models.transitions import count_distinct
from tests.audits import unseal
from tests.shard_logs import FEW, check_same, simulate_patients, write_shards


@pytest.fixture(scope="module", autouse=True)
def few_splits():
    """Cross-fit over 2 splits, not 3 or 10: each learns and plans twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("butfor.evaluate.crossfit.SPLITS", 2)
        patch.setattr("butfor.evaluate.crossfit.SPLITS_SLOW", 2)
        yield


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    """A log in one file and in three, and its study file."""
    folder = tmp_path_factory.mktemp("patients")
    log = simulate_patients(80)
    bf.write_episodes(log, folder / "log.csv", folder / "study.toml")
    write_shards(log, folder / "shards", np.array_split(np.arange(len(log)), 3))
    write_shards(log, folder / "one", [np.arange(len(log))])
    return folder, log


def audit_of(patients, source, out, **settings):
    folder, _ = patients
    chosen = replace(FEW, flags=6, draws=2, **{"models": 0} | settings)
    return audit_into(folder / source, folder / "study.toml", out, chosen, overwrite=True)


@pytest.fixture(scope="module")
def full(patients, tmp_path_factory):
    out = tmp_path_factory.mktemp("full") / "audit"
    return audit_of(patients, "log.csv", out), out


def test_two_state_variables_are_enough_for_a_factored_model(full):
    audit, _ = full
    assert audit.meta.parameters.noise == "variables"
    told = {factor.variable: factor for factor in audit.meta.parameters.factors}
    assert told["antibiotics"].source == "copies action.antibiotics"
    assert told["heart rate"].source == "counts"
    assert told[""].parents  # the end


def test_a_factored_model_comes_back_from_its_folder(full):
    audit, out = full
    again = Audit.load(out)
    assert isinstance(again.model, bf.FactoredModel)
    for mine, theirs in zip(audit.model.factors, again.model.factors, strict=True):
        assert (mine.variable, mine.parents, mine.source) == (
            theirs.variable,
            theirs.parents,
            theirs.source,
        )
        np.testing.assert_array_equal(mine.table, theirs.table)
        np.testing.assert_array_equal(mine.counts, theirs.counts)
    replay = bf.Replay(again.log(), again.model, again.target, behavior=again.behavior)
    found = replay.outcomes().expected_return
    np.testing.assert_allclose(found, again.episodes["expected_return"], atol=1e-12)


def test_evidence_of_steps_counts_transitions_that_share_parents(full):
    audit, _ = full
    log = audit.log()
    decided = audit.steps[audit.steps["action"] >= 0]
    assert decided["evidence"].tolist() == logged_cases(audit.model, log).astype(int).tolist()


def test_a_damaged_factor_is_refused(full, tmp_path):
    audit, _ = full
    folder = unseal(audit.save(tmp_path / "damaged"))
    with np.load(folder / "model.npz") as file:
        arrays = dict(file)
    arrays["factor_0_table"] = arrays["factor_0_table"] * 2
    np.savez(folder / "model.npz", **arrays)
    with pytest.raises(ValueError, match=r"model\.npz: the table of"):
        Audit.load(folder)


def test_shards_give_the_bytes_of_one_file_and_nearly_the_numbers_of_memory(
    patients, full, tmp_path
):
    audit, _ = full
    for source in ("one", "shards"):
        audit_of(patients, source, tmp_path / source, detail="summary", models=None)
    check_same(tmp_path / "one", tmp_path / "shards")
    summary = Audit.load(tmp_path / "shards")
    ours, theirs = (table.set_index("id") for table in (summary.episodes, audit.episodes))
    columns = ["expected_return", "evidence_min", "thin_share", "influence"]
    pd.testing.assert_frame_equal(ours[columns], theirs[columns], rtol=0, atol=1e-9)
    values = [a.estimates.set_index("estimator")["value"] for a in (summary, audit)]
    for name in ("Observed", "IS", "WIS", "DR", "MB", "CF"):
        assert values[0][name] == pytest.approx(values[1][name], abs=1e-9), name


def test_options_of_tabular_models_choose_one_or_are_refused(patients, tmp_path):
    audit = audit_of(patients, "log.csv", tmp_path / "prior", prior=0.5)
    assert isinstance(audit.model, bf.TabularMDP)
    with pytest.raises(ValueError, match="prior belongs to tabular models"):
        audit_of(patients, "log.csv", tmp_path / "both", prior=0.5, model="factored")


def test_the_study_file_chooses_kind_parents_and_order(patients, tmp_path):
    folder, _ = patients
    text = (folder / "study.toml").read_text()
    given = (
        '\n[model]\nkind = "factored"\norder = ["oxygen", "heart rate"]\n'
        '[model.parents]\n"blood pressure" = ["blood pressure", "action.vasopressors"]\n'
    )
    (tmp_path / "study.toml").write_text(text + given)
    chosen = replace(FEW, draws=1, models=0)
    audit = audit_into(folder / "log.csv", tmp_path / "study.toml", tmp_path / "audit", chosen)
    pressure = audit.model.factor("blood pressure")
    assert pressure.parents == ("blood pressure", "action.vasopressors")
    (tmp_path / "study.toml").write_text(text + '\n[model]\nkind = "tabular"\norder = ["oxygen"]\n')
    with pytest.raises(ValueError, match=r'\[model\] order: needs kind = "factored"'):
        audit_into(folder / "log.csv", tmp_path / "study.toml", tmp_path / "other", chosen)


def test_the_command_takes_the_kind_of_model(patients, tmp_path):
    folder, _ = patients
    base = ["audit", folder / "log.csv", "--study", folder / "study.toml", "--models", "0"]
    base += ["--intervals", "5", "--flags", "2", "--review-size", "4", "--no-rehearsal"]
    for kind, expected in (("tabular", bf.TabularMDP), ("factored", bf.FactoredModel)):
        out = tmp_path / kind
        result = CliRunner().invoke(app, [*map(str, base), "--model", kind, "--out", str(out)])
        assert result.exit_code == 0, result.output
        assert isinstance(Audit.load(out).model, expected)
    wrong = CliRunner().invoke(
        app, [*map(str, base), "--model", "deep", "--out", str(tmp_path / "deep")]
    )
    assert wrong.exit_code != 0
    assert "deep" in wrong.output


def test_shards_learn_by_a_classifier_from_distinct_transitions(patients, tmp_path, monkeypatch):
    everyone = np.arange(40)
    log = patients[1].select(everyone).hide("heart rate", "blood pressure")
    logs = {
        "one": write_shards(log, tmp_path / "one file", [everyone]),
        "shards": write_shards(log, tmp_path / "files", np.array_split(everyone, 3)),
    }
    with (tmp_path / "study.toml").open("a") as study:
        study.write('\n[model]\nlearner = "logistic"\n')
    chosen = replace(FEW, draws=1, detail="summary")
    distinct = len(count_distinct(log).state)
    assert distinct < len(log.state)
    monkeypatch.setattr(learners, "MOST_CASES", len(log.state) - 1)  # more cases than fit at once
    sizes = []
    for source, folder in logs.items():
        out = tmp_path / source
        audit = audit_into(folder, tmp_path / "study.toml", out, chosen)
        sizes.append(audit.model.factor("oxygen").counts.sum())
    check_same(tmp_path / "one", tmp_path / "shards")
    assert audit.model.factor("oxygen").source == "Pipeline"
    assert sizes == [len(log.state)] * 2
    monkeypatch.setattr(learners, "MOST_CASES", 10)
    with pytest.raises(ValueError, match="Pipeline learns from at most 10"):
        audit_into(logs["one"], tmp_path / "study.toml", tmp_path / "none", chosen)
