"""Audits of logs of tens of variables: every result is sampled, and nothing is left to crash."""

import json
from functools import cache
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeRegressor
from typer.testing import CliRunner

import butfor as bf
from butfor.audit.learning import factored_learner
from butfor.audit.settings import AuditSettings
from butfor.audit.source import audit_into, audit_log
from butfor.cli.main import app
from butfor.interop import target_from_table
from butfor.log.study import read_study
from butfor.present import Stays
from tests.audits import unseal
from tests.review_site import Site
from tests.wide import VARIABLES, always, cautious, simulate

NOTE = "This log has too many states to enumerate"
HORIZON = 3
# given to most models: to choose them among thirty variables takes longer than all the rest
PARENTS = {
    variable.name: [variable.name, before.name, "action.drug"]
    for before, variable in pairwise((VARIABLES[-1], *VARIABLES))
}


@cache
def ward(episodes=60):
    return simulate(0, episodes, horizon=HORIZON)


@cache
def model(episodes=60):
    return bf.fit_factored(ward(episodes).log, parents=PARENTS)


@cache
def audit():
    return bf.run_audit(ward().log, model(), always, flags=5, review_size=10, draws=3)


def write_log(folder, episodes=60, parents=PARENTS):
    """Write the log as a CSV file with thirty columns of the state, and its study file."""
    log, codes, reached = ward(episodes)
    names = [variable.name for variable in VARIABLES]
    ends = log.offsets[1:] - 1
    decisions = pd.DataFrame(codes, columns=names)
    decisions["stay"] = np.repeat(log.id, log.lengths)
    decisions["drug"] = np.array(["off", "on"])[log.action]
    finals = pd.DataFrame(reached[ends], columns=names)
    finals["stay"], finals["end"] = log.id, np.array(["died", "home", ""])[log.outcome]
    frame = pd.concat([decisions, finals]).sort_values("stay", kind="stable")
    frame["hour"] = frame.groupby("stay").cumcount()
    frame.to_csv(folder / "log.csv", index=False)
    sections = ['[columns]\nepisode = "stay"\ntime = "hour"\noutcome = "end"']
    for variable in VARIABLES:
        sections.append(f"[state.{variable.name}]\nlevels = {json.dumps(variable.levels)}")
    sections.append('[action.drug]\nlevels = ["off", "on"]')
    sections.append("[outcome.died]\nreward = -1\nbad = true\n\n[outcome.home]\nreward = 1")
    sections.append(f'[problems]\nno_outcome = "keep"\n\n[evaluation]\nhorizon = {HORIZON}')
    sections.append("[model.parents]")
    sections += [f"{name} = {json.dumps(given)}" for name, given in parents.items()]
    (folder / "study.toml").write_text("\n\n".join(sections))
    return folder / "log.csv", folder / "study.toml"


def test_an_audit_has_estimates_checks_and_evidence_and_says_what_it_lacks():
    found = audit()
    names = found.estimates["estimator"].tolist()
    assert "FQE" not in names
    assert {"Observed", "WIS", "DR", "MB", "CF"} <= set(names)
    assert np.isfinite(found.estimates["value"][found.estimates["estimator"] != "WIS"]).all()
    (note,) = [text for text in found.meta.warnings if text.startswith(NOTE)]
    assert "Not computed: bounds" in note
    assert found.meta.parameters.sampled == 200
    checks = found.diagnostics.set_index("check")
    assert {"overlap", "rare rows", "calibration", "log score", "influence"} <= set(checks.index)
    table = found.episodes
    assert (table["return_error"] >= 0).all()
    assert table["low_any"].isna().all()
    assert table["evidence_min"].between(0, len(ward().log.state)).all()
    assert len(found.flagged)
    assert found.flagged["reason"].str.contains("matters most").all()


def test_treatments_of_the_policy_stand_beside_those_given():
    found = audit()  # of a policy that always gives the drug
    for name in found.flagged["id"]:
        for row in Stays(found).treatments(name):
            assert row["policy"] == "drug"
            assert (row["given"], row["differs"]) in (("drug", "no"), ("nothing", "yes"))


def test_a_saved_audit_is_read_as_it_was(tmp_path):
    found = audit()
    found.save(tmp_path / "audit")
    again = bf.Audit.load(tmp_path / "audit")
    options = {"check_dtype": False, "check_categorical": False}
    for name in ("estimates", "diagnostics", "steps", "draws", "courses", "course_steps"):
        pd.testing.assert_frame_equal(getattr(again, name), getattr(found, name), **options)
    assert again.episodes["survives"].isna().all()
    one, other = (table.episodes.drop(columns="survives") for table in (again, found))
    pd.testing.assert_frame_equal(one, other, **options)
    np.testing.assert_array_equal(again.combinations, found.combinations)
    np.testing.assert_array_equal(again.target, found.target)
    log = again.log()
    before = ward().log
    np.testing.assert_array_equal(log.state, before.state)
    np.testing.assert_array_equal(log.combinations, before.combinations)
    replay = bf.Replay(log, again.model, always, behavior=again.behavior, horizon=HORIZON)
    np.testing.assert_array_equal(
        replay.outcomes().expected_return, found.episodes["expected_return"]
    )
    one, drawn = again.trajectory(found.flagged["id"].iloc[0])
    assert drawn.state.max() < drawn.episodes.n_states + 2
    assert one.state[0] == drawn.state[0, 0, 0]
    assert len(bf.Audit.load(tmp_path / "audit", shown=True).episodes) < len(found.episodes)


def test_damaged_states_are_refused(tmp_path):
    path = unseal(audit().save(tmp_path / "audit")) / "model.npz"
    arrays = dict(np.load(path))
    for wrong, message in (
        (arrays["combinations"][:5], "fewer than"),
        (np.full_like(arrays["combinations"], 9), "outside 0"),
    ):
        np.savez(path, **arrays | {"combinations": wrong})
        with pytest.raises(ValueError, match=message):
            bf.Audit.load(tmp_path / "audit")


def test_results_follow_the_seed_and_nothing_else():
    few = {"flags": 2, "review_size": 4, "draws": 1, "resamples": 20}
    one, same, other = (
        bf.run_audit(ward(20).log, model(20), always, **few, seed=seed, threads=threads)
        for seed, threads in ((1, 1), (1, 2), (2, 2))
    )
    pd.testing.assert_frame_equal(one.episodes, same.episodes)
    pd.testing.assert_frame_equal(one.estimates, same.estimates)
    assert (one.episodes["expected_return"] != other.episodes["expected_return"]).any()
    assert one.meta.digest == other.meta.digest


def test_the_report_and_the_review_open(tmp_path):
    found = audit()
    found.save(tmp_path / "audit")
    bf.write_report(found, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert NOTE in page
    assert "30 variables, 2 treatments" in page
    assert "shares of 200 draws" in page
    person = Site(tmp_path / "audit", bf.Audit.load(tmp_path / "audit")).reviewer("anna")
    for item in person.json("/queue")["items"]:
        page = person.open(f"/episodes/{item['slug']}?place={item['place']}")
        assert "x29" in page
        rows = person.json(f"/episodes/{item['slug']}/trajectory?place={item['place']}")
        assert rows["datasets"]["happened"]


def test_the_command_audits_a_file_of_thirty_variables(tmp_path, monkeypatch):
    monkeypatch.setattr("butfor.evaluate.crossfit.SPLITS_SLOW", 1)  # not 3: each plans twice
    monkeypatch.setattr("butfor.models.fitted_q._default", DecisionTreeRegressor)
    log, study = write_log(tmp_path, episodes=30, parents={})
    runner = CliRunner()
    out = tmp_path / "audit"
    asked = ["audit", str(log), "--study", str(study), "--out", str(out), "--flags", "4", "--json"]
    asked += ["--review-size", "8"]
    answer = runner.invoke(app, asked)
    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.stdout)
    assert [text for text in told["warnings"] if NOTE in text]
    value = {row["estimator"]: row["value"] for row in told["estimates"]}
    # the learned policy is also judged by the model of the other half
    assert np.isfinite([value["MB (cross-fitted)"], value["CF (cross-fitted)"]]).all()
    assert value["MB (cross-fitted)"] != value["MB"]
    answer = runner.invoke(app, ["report", str(out), "--out", str(tmp_path / "report.html")])
    assert answer.exit_code == 0, answer.output


def test_the_target_of_a_wide_log_can_be_a_table_of_a_few_variables(tmp_path):
    log, study = write_log(tmp_path, episodes=20)
    rule = pd.DataFrame({"x00": ["0", "1"], "drug": ["off", "on"]})
    rule.to_csv(tmp_path / "rule.csv", index=False)
    found = audit_log(log, study, target=tmp_path / "rule.csv", flags=2, draws=1)
    state = found.log().codes(np.arange(len(found.target)))
    np.testing.assert_array_equal(found.target.argmax(axis=1), state["x00"])
    assert found.meta.target == "rule.csv"
    policy = target_from_table(rule, ward().log)
    codes = np.stack(list(ward().log.codes(ward().log.state).values()), axis=1)
    np.testing.assert_array_equal(policy(codes)[:, 1], codes[:, 0])
    with pytest.raises(ValueError, match="needs a table of those few on which"):
        target_from_table(rule.rename(columns={"x00": "state"}), ward().log)


def test_a_log_whose_transitions_are_too_many_is_made_wide(tmp_path):
    checked = read_study(write_log(tmp_path)[1])
    few, many = (
        ward().log.hide(*(f"x{j:02}" for j in range(kept, len(VARIABLES)))) for kept in (5, 16)
    )
    settings = AuditSettings()
    assert settings.widen(checked, few) is few
    assert settings.widen(checked, many).combinations is not None
    assert AuditSettings(model="tabular").widen(checked, many) is many
    assert AuditSettings(prior=1.0).widen(checked, many) is many


@pytest.mark.parametrize("caution", [bf.Caution(least_cases=5), bf.Caution(risk=0.1)])
def test_caution_by_state_is_refused(caution):
    learn = factored_learner(ward().log, discount=0.99, parents=PARENTS, caution=caution)
    with pytest.raises(ValueError, match="needs states that can be enumerated; leave it out"):
        learn(ward().log)


def test_what_a_wide_log_does_not_allow_is_refused_with_a_remedy(tmp_path):
    log, study = write_log(tmp_path, episodes=20)
    with pytest.raises(ValueError, match="too many for a tabular model; choose the factored one"):
        audit_log(log, study, model="tabular")
    with pytest.raises(ValueError, match="use --detail full"):
        audit_into(log, study, tmp_path / "out", AuditSettings(detail="summary"))
    with pytest.raises(ValueError, match="not available where states cannot be enumerated"):
        audit_log(log, study, target="learn", models=5)
    with pytest.raises(ValueError, match="a rehearsal needs states that can be enumerated"):
        bf.rehearse(ward().log, factored_learner(ward().log, discount=0.99, parents=PARENTS))
    with pytest.raises(ValueError, match="'FQE' is not available where states cannot be"):
        bf.estimate_values(ward().log, model(), cautious, estimators=["FQE"])
