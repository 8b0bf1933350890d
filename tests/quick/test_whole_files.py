"""Files that are written completely or not at all, and never over another one unasked."""

import errno
import os
import stat

import pandas as pd
import pytest
from typer.testing import CliRunner

import butfor as bf
from butfor.audit.spreadsheet import write_csv
from butfor.cli.main import app
from butfor.log.whole_files import whole_file
from butfor.review.store import Store
from tests.builders import ward_log
from tests.review_site import small_audit


def test_an_error_leaves_what_was_there_and_nothing_else(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("mine")

    def pieces():
        yield pd.DataFrame({"a": [1]})
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk is full"):
        write_csv(path, pieces(), overwrite=True)
    with pytest.raises(OSError, match="disk is full"):
        write_csv(tmp_path / "new.csv", pieces())
    assert path.read_text() == "mine"
    assert os.listdir(tmp_path) == ["table.csv"]


def test_a_file_that_appears_while_another_is_written_is_kept(tmp_path):
    path = tmp_path / "table.csv"

    def pieces():
        path.write_text("theirs")
        yield pd.DataFrame({"a": [1]})

    with pytest.raises(FileExistsError, match="--overwrite"):
        write_csv(path, pieces())
    assert path.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["table.csv"]


def test_without_hard_links_files_are_written_and_others_kept(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)  # as FAT does
    with whole_file(tmp_path / "new.csv") as new:
        new.write_text("mine")
    assert (tmp_path / "new.csv").read_text() == "mine"
    path = tmp_path / "table.csv"
    with pytest.raises(FileExistsError, match="--overwrite"), whole_file(path):
        path.write_text("theirs")
    assert path.read_text() == "theirs"
    assert sorted(os.listdir(tmp_path)) == ["new.csv", "table.csv"]


def test_permissions_and_links_are_kept(tmp_path):
    path, link = tmp_path / "table.csv", tmp_path / "link.csv"
    link.symlink_to(path)
    before = os.umask(0o077)
    try:
        with whole_file(link) as new:
            new.write_text("one")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with whole_file(link, overwrite=True) as new:
        new.write_text("two")
    assert link.is_symlink()
    assert path.read_text() == "two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_where_nothing_can_be_written_the_remedy_is_told(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder"), whole_file(tmp_path):
        pass
    with pytest.raises(FileNotFoundError, match="create it first"), whole_file(tmp_path / "a/b"):
        pass
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OSError, match="leads to itself"), whole_file(tmp_path / "loop"):
        pass


def test_no_command_writes_over_a_file_unasked(tmp_path):
    bf.write_episodes(ward_log(), tmp_path / "log.csv")
    folder = small_audit().save(tmp_path / "audit")
    with Store(folder) as store:
        store.open_run(small_audit())
    audit = str(folder)
    lines = {
        "reviews.csv": ["review", audit, "--export"],
        "reviews.jsonl": ["review", audit, "--export"],
        "report.html": ["report", audit, "--out"],
        "study.toml": ["init", str(tmp_path / "log.csv"), "--out"],
    }
    for name, line in lines.items():
        path = tmp_path / name
        path.write_text("mine")
        told = CliRunner().invoke(app, [*line, str(path)])
        assert told.exit_code == 2, name
        assert "--overwrite" in told.stderr
        assert path.read_text() == "mine"
        told = CliRunner().invoke(app, [*line, str(path), "--overwrite"])
        assert told.exit_code == 0, told.output
        assert path.read_text() != "mine"
