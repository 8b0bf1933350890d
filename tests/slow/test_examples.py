"""The small logs in examples/: written by their scripts, drafted, read and audited."""

import runpy
import sys
from pathlib import Path

import pytest

from butfor.audit.source import audit_log
from butfor.log.draft import draft
from butfor.log.read import read_log
from butfor.log.study import read_study

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("icu", "clinic", "helpdesk")


def files(name):
    return EXAMPLES / name / f"{name}.csv", EXAMPLES / name / "study.toml"


@pytest.mark.parametrize("name", NAMES)
def test_the_script_writes_the_log_again(name, tmp_path, monkeypatch):
    log, again = files(name)[0], tmp_path / "again.csv"
    monkeypatch.setattr(sys, "argv", ["make_log.py", str(again)])
    runpy.run_path(str(log.with_name("make_log.py")), run_name="__main__")
    assert again.read_bytes() == log.read_bytes()
    assert log.stat().st_size < 150_000


@pytest.mark.parametrize("name", NAMES)
def test_the_draft_finds_the_columns_that_the_study_file_names(name):
    log, study = files(name)
    found = {finding.column: finding.role for finding in draft(log).findings}
    study = read_study(study)
    assert found[study.columns.episode] == "episode"
    assert found[study.columns.outcome] == "outcome"
    assert {column for column, role in found.items() if role == "action"} == set(study.action)
    assert set(study.state) <= {column for column, role in found.items() if role == "state"}


@pytest.mark.parametrize(
    ("name", "episodes", "told"),
    [
        ("icu", 500, ("merged", "steps added", "carried forward", "median", "no_outcome")),
        ("clinic", 1000, ()),
        ("helpdesk", 1000, ("no_outcome",)),
    ],
)
def test_the_log_is_read_and_what_was_changed_is_counted(name, episodes, told):
    reading = read_log(*files(name))
    assert len(reading.episodes.id) == episodes
    assert all(any(words in kind for kind in reading.done) for words in told)


@pytest.mark.parametrize("name", NAMES)
def test_the_example_is_audited(name):
    target = {"helpdesk": {"target": "log"}}.get(name, {})
    few = {"models": 0, "rehearsal": False, "flags": 5, "draws": 2, "intervals": 5}
    audit = audit_log(*files(name), **few, **target)
    assert len(audit.flagged) == 5
    assert audit.conclusion
