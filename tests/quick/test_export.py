"""Results as CSV files, and an audit in ten lines."""

import csv

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import butfor as bf
from butfor.audit.spreadsheet import guarded, restored, write_csv
from butfor.cli.main import app
from butfor.evaluate.wording import digits_for
from tests.builders import HOME, ward_log

QUICK = {"flags": 2, "draws": 0, "estimators": ["Observed", "MB"], "resamples": 20}


@pytest.fixture(scope="module")
def audit():
    log = ward_log(id=["=1+1", "b", "c", "d"])
    target = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    return bf.run_audit(
        log, bf.fit_mdp(log), target, record={"words": {"episode": "stay"}}, **QUICK
    )


def test_an_export_has_every_table_and_says_what_it_is(audit, tmp_path):
    written = bf.export_audit(audit, tmp_path / "tables")
    assert {path.name for path in written} == {
        "README.txt",
        "checks.csv",
        "decomposition.csv",
        "episodes.csv",
        "estimates.csv",
        "outcomes-expected.csv",
        "outcomes.csv",
        "policy-by-action.csv",
        "policy-by-variable.csv",
        "policy.csv",
        "steps.csv",
    }
    told = (tmp_path / "tables" / "README.txt").read_text()
    assert "episodes.csv: one row per stay (4 rows)" in told
    again = pd.read_csv(tmp_path / "tables" / "estimates.csv")
    assert again["estimator"].tolist() == audit.estimates["estimator"].tolist()
    np.testing.assert_array_equal(again["value"], audit.estimates["value"])
    assert len(pd.read_csv(tmp_path / "tables" / "steps.csv")) == len(audit.steps)


def test_a_folder_is_exported_like_the_audit_in_memory(audit, tmp_path):
    audit.save(tmp_path / "audit")
    bf.export_audit(audit, tmp_path / "one")
    seen = []
    bf.export_audit(tmp_path / "audit", tmp_path / "two", progress=lambda *at: seen.append(at))
    assert seen[-1] == (12, 12)
    for path in (tmp_path / "one").glob("*.csv"):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def test_no_cell_is_a_formula(audit, tmp_path):
    bf.export_audit(audit, tmp_path / "tables")
    with (tmp_path / "tables" / "episodes.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["id"] == "'=1+1"
    for text in (
        "=1",
        "+1",
        "-1",
        "@x",
        "'=1",
        " =1",
        "＝1",
        "＋1",
        "－1",
        "＠x",
        "\u3000 ＝1",
        "\ufeff=1",
    ):
        assert guarded(text) == f"'{text}"
        assert restored(guarded(text)) == text
    for text in ("plain", "''", " plain", "1-1", "''x", "a ＝ b"):
        assert guarded(text) == restored(text) == text
    assert guarded(-1.5) == -1.5


def test_missing_values_are_empty_and_pieces_are_joined(tmp_path):
    pieces = [pd.DataFrame({"a": [1, 2], "b": [0.5, np.nan]}), pd.DataFrame({"a": [3], "b": [1.0]})]
    assert write_csv(tmp_path / "x.csv", pieces) == 3
    assert (tmp_path / "x.csv").read_text().split() == ["a,b", "1,0.5", "2,", "3,1.0"]


def test_nothing_is_written_over_unasked(audit, tmp_path):
    bf.export_audit(audit, tmp_path / "tables")
    with pytest.raises(FileExistsError, match="--overwrite"):
        bf.export_audit(audit, tmp_path / "tables")
    bf.export_audit(audit, tmp_path / "tables", overwrite=True)
    other = tmp_path / "mine"
    other.mkdir()
    (other / "thesis.txt").write_text("x")
    with pytest.raises(FileExistsError, match="will not be replaced"):
        bf.export_audit(audit, other, overwrite=True)
    assert (other / "thesis.txt").read_text() == "x"


def test_the_command_writes_the_folder_and_names_its_files(audit, tmp_path):
    audit.save(tmp_path / "audit")
    command = ["export", str(tmp_path / "audit"), "--to", str(tmp_path / "tables")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0
    assert str(tmp_path / "tables" / "policy.csv") in done.stdout.splitlines()
    again = CliRunner().invoke(app, [*command, "--json"])
    assert again.exit_code == 2
    assert "--overwrite" in again.stderr


def test_a_failed_export_leaves_nothing(audit, tmp_path):
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bf.export_audit(audit, tmp_path / "tables", progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_an_audit_is_not_exported(tmp_path):
    log = ward_log()
    audit = bf.run_audit(log, bf.fit_mdp(log), np.full((3, 2), 0.5), review_size=2, **QUICK)
    few = bf.Audit.load(audit.save(tmp_path / "audit"), shown=True)
    assert few.partial
    with pytest.raises(ValueError, match="give the folder"):
        bf.export_audit(few, tmp_path / "tables")


def test_an_audit_is_printed_in_ten_lines_with_the_words_of_the_study(audit):
    lines = str(audit).splitlines()
    assert len(lines) <= 10
    assert lines[0] == "Audit of 4 stays with 8 decisions; tabular model of 3 states and 2 actions"
    assert "50% of the decisions" in lines[1]
    value = audit.estimates.set_index("estimator")["value"]
    assert digits_for(value).value(value["MB"]) in str(audit)
    assert "episode" not in str(audit)


def test_returns_of_zero_and_one_are_rates():
    lost = bf.Outcome("lost", 0.0, bad=True)
    won = bf.Outcome("won", 1.0)
    target = np.full((3, 2), 0.5)
    for outcomes, rate in (((lost, won), True), ((lost, HOME), HOME.reward == 1.0)):
        log = ward_log(outcomes=list(outcomes))
        assert bf.run_audit(log, bf.fit_mdp(log), target, **QUICK).is_rate is rate
    log = ward_log(reward=np.full(8, 0.5))
    assert not bf.run_audit(log, bf.fit_mdp(log), target, **QUICK).is_rate
