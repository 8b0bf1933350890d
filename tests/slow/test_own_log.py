"""From a file to an audit, as a new user would: init, edit, audit; and what goes wrong."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import butfor as bf
from butfor.audit.audit import Audit
from butfor.audit.settings import AuditSettings
from butfor.audit.source import audit_into, audit_log
from butfor.cli.main import app
from butfor.evaluate.diagnostics.lights import LIGHTS
from butfor.log.study import read_study
from tests.slow.test_io_broken import LOG, LOGS, STUDIES, STUDY


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def hospital(tmp_path_factory):
    """A folder with the log of a small ward, as a hospital would have it."""
    folder = tmp_path_factory.mktemp("ward")
    generator = np.random.default_rng(0)
    rows = []
    for stay in range(150):
        lactate = generator.gamma(2.0, 1.5)
        steps = int(generator.integers(2, 7))
        for step in range(steps):
            dose = generator.choice(["none", "low", "high"], p=[0.5, 0.3, 0.2])
            ended = step == steps - 1
            end = ("died" if lactate > 4 + generator.normal() else "alive") if ended else None
            rows.append((f"S{stay:03d}", 4 * step, round(lactate, 2), dose, "ward <b>A</b>", end))
            lactate = max(0.3, lactate + generator.normal() * 0.6 - 0.4 * (dose == "high"))
    names = ["stay_id", "hour", "lactate", "vasopressor_dose", "ward", "discharge_status"]
    pd.DataFrame(rows, columns=names).to_csv(folder / "icu.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def study(hospital):
    """The study file as `butfor init` drafts it."""
    result = run("init", hospital / "icu.csv", "--out", hospital / "study.toml")
    assert result.exit_code == 0, result.output
    return hospital / "study.toml"


def test_three_commands_lead_from_a_csv_file_to_an_audit(hospital, study):
    text = study.read_text()
    assert "CHECK THIS" in text
    assert 'episode = "stay_id"' in text
    result = run("audit", hospital / "icu.csv", "--study", study, "--out", hospital / "audit")
    assert result.exit_code == 0, result.output
    assert "How well would the policy do?" in result.output
    assert "Checks" in result.output
    audit = Audit.load(hospital / "audit")
    said = audit.conclusion.sentence.replace("episode", "stay").split()
    assert result.stdout.split()[: len(said)] == said
    assert said[-5:] == ["Do", "not", "act", "on", "this."]
    assert len(audit.episodes) == 150
    assert audit.meta.words["episode"] == "stay"
    assert audit.meta.target == "learned from this log"
    assert "MB (cross-fitted)" in set(audit.estimates["estimator"])


def test_the_same_as_json(hospital, study, tmp_path):
    few = ["--flags", "5", "--intervals", "5", "--models", "0"]
    files = [hospital / "icu.csv", "--study", study, "--out", tmp_path / "a"]
    result = run("audit", *files, *few, "--json")
    printed = json.loads(result.stdout)
    assert {row["estimator"] for row in printed["estimates"]} >= {"Observed", "MB", "CF"}
    assert printed["written"] == [str(tmp_path / "a")]
    assert next(iter(printed)) == "conclusion"
    assert printed["conclusion"] == {
        "light": "red",
        "sentence": Audit.load(tmp_path / "a").conclusion.sentence,
        "reason": Audit.load(tmp_path / "a").conclusion.reason,
        "checks": list(Audit.load(tmp_path / "a").conclusion.checks),
    }
    assert {row["light"] for row in printed["diagnostics"]} <= set(LIGHTS)
    made_by = Audit.load(tmp_path / "a").meta.made_by
    assert made_by["study"] == study.read_text()
    assert made_by["planning_discount"] == 0.99


def test_diagnostics_judge_the_weights_that_the_estimates_use(tmp_path):
    generator = np.random.default_rng(0)
    text = ["stay,hour,pulse,drug,end,p"]
    for stay in range(60):
        for hour in range(3):
            drug, p = (("none", 0.7), ("full", 0.3))[int(generator.random() < 0.3)]
            end = generator.choice(["died", "home"]) if hour == 2 else ""
            text.append(f"{stay},{hour},{generator.integers(50, 120)},{drug},{end},{p}")
    (tmp_path / "log.csv").write_text("\n".join(text) + "\n")
    columns = '[columns]\nbehavior_probability = "p"\n'
    (tmp_path / "study.toml").write_text(STUDY.replace("[columns]\n", columns))
    few = {"flags": 0, "models": 0, "intervals": 0, "rehearsal": False}
    audit = audit_log(tmp_path / "log.csv", tmp_path / "study.toml", **few)
    effective = audit.estimates.set_index("estimator").loc["WIS", "effective"]
    light = audit.diagnostics.set_index("check").loc["effective sample size", "value"]
    np.testing.assert_allclose(light, effective / 60)
    log = bf.read_episodes(tmp_path / "log.csv", tmp_path / "study.toml")
    again = bf.estimate_values(log, audit.model, audit.target, estimators=["IS", "WIS"])
    expected = audit.estimates.set_index("estimator").loc[["IS", "WIS"], ["value", "effective"]]
    # only the order of the episodes differs
    found = again.set_index("estimator")[["value", "effective"]]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    summary = AuditSettings(detail="summary", flags=0, rehearsal=False)
    shards = audit_into(tmp_path / "log.csv", tmp_path / "study.toml", tmp_path / "a", summary)
    found = shards.estimates.set_index("estimator").loc[["IS", "WIS"], ["value", "effective"]]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    kept = Audit.load(tmp_path / "a").log().behavior_probability
    in_order = log.select(np.argsort(log.id, kind="stable"))
    np.testing.assert_array_equal(kept, in_order.behavior_probability)


def test_probabilities_of_a_frame_are_read_and_written(tmp_path):
    frame = pd.DataFrame(
        {
            "episode": ["b", "a", "b", "a"],
            "when": [2, 1, 1, 2],
            "state": [0, 1, 1, 0],
            "action": [0, 1, 1, 0],
            "outcome": ["home", None, None, "died"],
            "p": [0.4, 0.1, 0.3, 0.2],
        }
    )
    options = {"time": "when", "behavior_probability": "p"}
    options["outcomes"] = [bf.Outcome("home", 1.0), bf.Outcome("died", -1.0, bad=True)]
    log = bf.Episodes.from_frame(frame, **options)
    assert log.id.tolist() == ["b", "a"]
    np.testing.assert_array_equal(log.behavior_probability, [0.3, 0.4, 0.1, 0.2])
    study = bf.write_episodes(log, tmp_path / "log.parquet")
    again = bf.read_episodes(tmp_path / "log.parquet", study)
    np.testing.assert_array_equal(again.behavior_probability, log.behavior_probability)
    with pytest.raises(ValueError, match="behavior_probability is missing or outside 0 to 1"):
        bf.Episodes.from_frame(frame.assign(p=0.0), **options)


def test_a_draft_keeps_no_treatment_and_never_makes_the_outcome_a_state(tmp_path):
    generator = np.random.default_rng(0)
    text = ["stay_id,hour,lactate,drug,hospital_expire_flag"]
    for stay in range(40):
        died = int(generator.random() < 0.3)
        for hour in range(3):
            drug = generator.choice(["None", "Low", "High"])
            text.append(f"{stay},{hour},{generator.gamma(2):.2f},{drug},{died}")
    (tmp_path / "log.csv").write_text("\n".join(text) + "\n")
    assert run("init", tmp_path / "log.csv", "--out", tmp_path / "study.toml").exit_code == 0
    draft = (tmp_path / "study.toml").read_text()
    assert '"None"' in draft
    assert 'outcome = "hospital_expire_flag"' in draft
    assert "[state.hospital_expire_flag]" not in draft


def test_a_policy_from_a_table_is_judged(hospital, study, tmp_path):
    log = bf.read_episodes(hospital / "icu.csv", study)
    table = pd.DataFrame({"state": range(log.n_states), "action": 2, "probability": 1.0})
    table.to_csv(tmp_path / "policy.csv", index=False)
    audit = audit_log(hospital / "icu.csv", study, target=tmp_path / "policy.csv", flags=2)
    assert (audit.target[:, 2] == 1).all()
    assert audit.meta.target == "policy.csv"
    assert "MB (cross-fitted)" not in set(audit.estimates["estimator"])  # it was not learned here


def test_what_was_done_about_problems_stands_in_the_audit(hospital, study, tmp_path):
    frame = pd.read_csv(hospital / "icu.csv")
    frame.loc[int((frame["hour"] == 4).argmax()), "lactate"] = np.nan
    pd.concat([frame, frame.iloc[[10]]]).to_csv(tmp_path / "log.csv", index=False)
    text = study.read_text()
    (tmp_path / "study.toml").write_text(
        text + '\n[problems]\nduplicates = "drop"\norder = "sort"\nmissing_state = "fill"\n'
    )
    refused = run("audit", tmp_path / "log.csv", "--study", study, "--out", tmp_path / "refused")
    assert refused.exit_code == 2
    assert not (tmp_path / "refused").exists()
    audit = audit_log(tmp_path / "log.csv", tmp_path / "study.toml", flags=0)
    assert audit.meta.problems == {
        "order: rows sorted": 1,
        "duplicates: rows dropped": 1,
        "missing_state: cells filled": 1,
    }


def test_clusters_are_saved_with_the_audit_and_apply_to_new_rows(hospital, study, tmp_path):
    text = study.read_text()
    cluster = '[cluster]\ncolumns = ["lactate"]\ncount = 4\n\n'
    kept = text[: text.index("[state.lactate]")] + cluster + text[text.index("[action") :]
    (tmp_path / "study.toml").write_text(kept)
    audit = audit_log(hospital / "icu.csv", tmp_path / "study.toml", flags=0)
    audit.save(tmp_path / "audit")
    loaded = Audit.load(tmp_path / "audit")
    assert len(loaded.clusters) == 4
    table = loaded.clusters.table()
    assert list(table.columns) == ["cluster", "name", "rows", "lactate"]
    nearest = loaded.clusters.assign(table[["lactate"]].to_numpy())
    assert nearest.tolist() == [0, 1, 2, 3]


def test_each_stage_has_a_line_where_nobody_watches(hospital, study, tmp_path):
    options = ("--models", "3", "--flags", "2", "--no-rehearsal", "--json", "--intervals", "all")
    out = tmp_path / "audit"
    result = run("audit", hospital / "icu.csv", "--study", study, "--out", out, *options)
    assert result.exit_code == 0, result.output
    episodes = json.loads(result.stdout)["counts"]["episodes"]
    assert result.stderr.splitlines() == [
        "Reading the log",
        "Learning the model",
        f"Replaying {episodes:,} stays",
        f"Bounds of {episodes:,} stays",
        "Credible intervals from 3 models",
        "Estimating the value of the policy",
        "Checking the model",
        "Writing the audit",
    ]


def test_a_draft_is_not_overwritten_unless_asked(hospital, study):
    before = study.read_text()
    result = run("init", hospital / "icu.csv", "--out", study)
    assert result.exit_code == 2
    assert "--overwrite" in result.stderr
    assert study.read_text() == before


@pytest.mark.parametrize("name", STUDIES)
def test_a_broken_study_ends_with_code_2_and_leaves_nothing(tmp_path, name):
    broken, _ = STUDIES[name]
    (tmp_path / "study.toml").write_bytes(broken if isinstance(broken, bytes) else broken.encode())
    (tmp_path / "log.csv").write_text(LOG)
    check_refused(tmp_path, tmp_path / "log.csv")


@pytest.mark.parametrize("name", [name for name, (_, _, more) in LOGS.items() if more == ""])
def test_a_broken_log_ends_with_code_2_and_leaves_nothing(tmp_path, name):
    broken = LOGS[name][0]
    (tmp_path / "log.csv").write_bytes(broken if isinstance(broken, bytes) else broken.encode())
    (tmp_path / "study.toml").write_text(STUDY)
    check_refused(tmp_path, tmp_path / "log.csv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "nowhere.csv"], "nowhere.csv"),
        (["--unseen", "heaven"], "unseen 'heaven'"),
        (["--prior", "-1"], "prior -1"),
        (["--smoothing", "-1"], "smoothing -1"),
        (["--mechanism", "gumbel"], "mechanism 'gumbel'"),
        (["--noise-on", " , "], "--noise-on ' , ' names no variable"),
        (["--intervals", "some"], "--intervals some: give a number of episodes"),
    ],
)
def test_bad_options_end_with_code_2_and_leave_nothing(tmp_path, options, message):
    (tmp_path / "log.csv").write_text(LOG)
    (tmp_path / "study.toml").write_text(STUDY)
    result = check_refused(tmp_path, tmp_path / "log.csv", *options)
    assert message in result.stderr


def check_refused(folder, log, *options):
    """Run the audit: exit code 2, a message, no traceback, nothing written."""
    before = sorted(folder.iterdir())
    result = run(
        "audit", log, "--study", folder / "study.toml", "--out", folder / "audit", *options
    )
    assert result.exit_code == 2, result.output
    assert "\nError: " in "\n" + result.stderr  # after the names of stages
    assert "Traceback" not in result.output + result.stderr
    assert sorted(folder.iterdir()) == before
    return result


@pytest.mark.parametrize(
    ("times", "step"),
    [
        ([0, 4, 8, 12], "time_step = 4.0"),
        (["2024-01-01 00:00", "2024-01-01 04:00", "2024-01-01 08:00"], 'time_step = "4h"'),
        ([0, 1, 5, 17], None),
    ],
)
def test_a_draft_tells_how_far_apart_rows_are_where_that_is_clear(tmp_path, times, step):
    rows = [
        f"{stay},{time},{60 + stay + i},{'none' if i % 2 else 'full'},"
        f"{'home' if i == len(times) - 1 else ''}"
        for stay in range(20)
        for i, time in enumerate(times)
    ]
    (tmp_path / "log.csv").write_text("\n".join(["stay_id,hour,pulse,drug,outcome", *rows]) + "\n")
    assert run("init", tmp_path / "log.csv", "--out", tmp_path / "study.toml").exit_code == 0
    draft = (tmp_path / "study.toml").read_text()
    assert ("time_step = " in draft) == (step is not None)
    assert step is None or step in draft


def ward_with(tmp_path, **states):
    """A log of ten stays with these columns of the state, and its draft."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"stay_id": np.repeat(np.arange(10), 5), "hour": np.tile(np.arange(5), 10)}
    )
    for name, values in states.items():
        frame[name.replace("_", " ")] = rng.choice(values, 50)
    frame["dose"] = np.where(frame["hour"] < 4, rng.choice(["low", "high"], 50), None)
    frame["died"] = np.where(frame["hour"] < 4, None, rng.choice(["yes", "no"], 50))
    frame.to_csv(tmp_path / "log.csv", index=False)
    assert run("init", tmp_path / "log.csv", "--out", tmp_path / "study.toml").exit_code == 0
    return (tmp_path / "study.toml").read_text()


def test_a_draft_with_two_state_variables_has_a_model_and_hints_that_can_be_used(tmp_path):
    draft = ward_with(tmp_path, heart_rate=["low", "high"], pain=["no", "yes"])
    assert read_study(tmp_path / "study.toml").model.kind == "factored"
    used = re.sub(r"(?m)^# (parents|order)", r"\1", draft)
    assert used != draft
    (tmp_path / "used.toml").write_text(used)
    model = read_study(tmp_path / "used.toml").model
    assert model.learner == "counts"
    assert model.parents == {"heart rate": ["heart rate", "action.dose"]}
    assert model.order == ["heart rate", "pain"]
    out = tmp_path / "audit"
    result = run("audit", tmp_path / "log.csv", "--study", tmp_path / "used.toml", "--out", out)
    assert result.exit_code == 0, result.output


def test_a_draft_with_one_state_variable_has_no_model(tmp_path):
    assert "[model]" not in ward_with(tmp_path, pain=["no", "yes"])


def test_a_draft_has_no_more_columns_than_transitions_can_be_enumerated(tmp_path):
    # 4 quartiles to the sixth power are 4096 states: 34 million transitions with two actions, and
    # 67 million with four
    columns = {f"x{number}": np.arange(50) for number in range(6)}
    ward_with(tmp_path, **columns)
    assert len(read_study(tmp_path / "study.toml").state) == 6
    frame = pd.read_csv(tmp_path / "log.csv")
    frame["dose"] = np.where(frame["hour"] < 4, np.tile(["a", "b", "c", "d", None], 10), None)
    frame.to_csv(tmp_path / "more.csv", index=False)
    assert run("init", tmp_path / "more.csv", "--out", tmp_path / "more.toml").exit_code == 0
    study = read_study(tmp_path / "more.toml")
    assert (len(study.state), len(study.side), study.model.kind) == (5, 1, "factored")


NURSERY = {  # the last of differing outcomes, and words that are rewards
    "columns": {"episode": "id", "outcome": "died"},
    "state": {"pain": {"levels": ["no", "yes"]}},
    "action": {"drug": {"levels": ["none", "full"]}},
    "outcome": {"0": {"name": "home", "reward": 1.0}, "1": {"name": "died", "reward": -1.0}},
    "problems": {"differing_outcomes": "last"},
}


def nursery():
    return pd.DataFrame(
        {
            "id": [1, 1, 1, 2, 2, 3],
            "pain": ["no", "yes", "no", "yes", "no", "no"],
            "drug": ["none", "full", "none", "full", "none", "full"],
            "died": [0, 0, 1, 0, 0, 0],
            "bed": [4, 4, 4, 5, 5, 6],
        }
    )


def test_the_last_of_differing_outcomes_counts_if_the_study_says_so():
    log = bf.read_episodes(nursery(), NURSERY)
    assert [log.outcomes[outcome].name for outcome in log.outcome] == ["died", "home", "home"]
    assert log.lengths.tolist() == [3, 2, 1]
    with pytest.raises(ValueError, match=r'differing_outcomes = "last" \(takes the last one'):
        bf.read_episodes(nursery(), NURSERY | {"problems": {}})


def test_words_can_be_rewards_and_part_of_the_state():
    study = {
        "columns": {"episode": "id", "reward": "pain"},
        "reward": {"values": {"no": 0.0, "yes": -1.0}},
        "state": NURSERY["state"],
        "action": NURSERY["action"],
        "problems": {"no_transition": "drop", "drop_at_most": 1},
    }
    assert bf.read_episodes(nursery(), study).reward.tolist() == [0, -1, -1]
    with pytest.raises(ValueError, match="have a 'pain' that is not a finite number: 'yes'"):
        bf.read_episodes(nursery(), study | {"reward": {"values": {"no": 0.0}}})
    with pytest.raises(ValueError, match=r"\[reward\] values: needs a column"):
        bf.read_episodes(nursery(), study | {"columns": {"episode": "id"}})


def test_whole_numbers_beside_the_state_are_saved_though_final_states_have_none(tmp_path):
    log = bf.read_episodes(nursery(), NURSERY | {"side": {"bed": {}}})
    model = bf.fit_mdp(log)
    audit = bf.run_audit(log, model, bf.estimate_behavior(log), flags=0, estimators=["Observed"])
    audit.save(tmp_path / "audit")
    beds = Audit.load(tmp_path / "audit").steps["side.bed"]
    assert beds.dropna().tolist() == nursery()["bed"].tolist()
    assert beds.isna().sum() == 3
