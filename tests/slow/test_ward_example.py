"""The example of the tutorial: its log, its study file and its comparison of learners."""

import re
import runpy
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

import butfor as bf
from butfor.audit.settings import AuditSettings
from butfor.audit.source import audit_into
from butfor.log.draft import draft_study
from butfor.log.study import read_study

ROOT = Path(__file__).parents[2]
WARD = ROOT / "examples" / "ward"


def run_script(name, *arguments):
    """Run a script as a command would, in this process: starting another takes longer."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as printed:
        patch.setattr(sys, "argv", [name, *map(str, arguments)])
        patch.syspath_prepend(WARD)  # where scripts find each other
        runpy.run_path(str(WARD / name), run_name="__main__")
    return printed.getvalue()


@pytest.fixture(scope="module")
def ward(tmp_path_factory):
    path = tmp_path_factory.mktemp("ward") / "ward.csv"
    run_script("make_log.py", path, "--patients", 120)
    return path


def test_the_log_begins_as_the_tutorial_shows(tmp_path):
    run_script("make_log.py", tmp_path / "ward.csv")
    shown = re.search(
        r"```\n(patient,.*?)```", (ROOT / "docs" / "ten-variables.md").read_text(), re.S
    )
    assert (tmp_path / "ward.csv").read_text().startswith(shown[1])


def test_the_draft_finds_what_the_tutorial_says(tmp_path):
    run_script("make_log.py", tmp_path / "ward.csv")
    draft = draft_study(tmp_path / "ward.csv")
    for line in ("time_step = 6.0", "[action.oxygen]", "[action.antibiotics]", "[model]"):
        assert line in draft
    assert draft.count("[side.") == draft.count("[side.smoker]") == 1
    assert draft.count("\nstatic = true") == 2


def test_ten_variables_three_of_them_numbers_have_the_states_that_the_tutorial_says(ward):
    study = read_study(WARD / "study.toml")
    assert len(study.state) == 10
    assert list(study.number_columns()) == ["age", "spo2", "rate"]
    log = bf.read_episodes(ward, study)
    assert log.n_states == 1536
    rows = bf.fit_factored(log).tabular()
    # 3 x 2 x 2 x 2 x 2 next states, and two outcomes
    assert len(rows.probability) == 1536 * 4 * (48 + 2)


def test_the_audit_of_the_tutorial_is_exact(ward, tmp_path, monkeypatch):
    monkeypatch.setattr("butfor.evaluate.crossfit.SPLITS", 1)  # not 10: each plans twice
    few = {"flags": 2, "review_size": 4, "intervals": 2, "rehearsal": False}
    settings = AuditSettings(draws=2, models=0, **few)
    audit = audit_into(ward, WARD / "study.toml", tmp_path / "audit", settings)
    assert isinstance(audit.model, bf.FactoredModel)
    assert audit.model.factor("on_oxygen").source == "copies action.oxygen"
    assert "log score" in audit.diagnostics["check"].tolist()


@pytest.mark.exhaustive
def test_learners_are_compared():
    printed = run_script("compare.py", "--patients", 30, "--logs", 1, "--judged", 100)
    for learner in ("physicians", "counts", "logistic, numbers", "boosting, levels", "tabular"):
        assert learner in printed
