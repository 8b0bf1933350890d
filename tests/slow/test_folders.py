"""Folders are written whole, by one program at a time, and nothing else in them is touched."""

import errno
import os
import threading

import pytest

from butfor.audit.audit import AUDIT, Audit
from butfor.audit.folders import NEW, READY, STALE, Kind, claimed, settle, whole_folder
from butfor.audit.shards.parts import parts_folder
from tests.review_site import small_audit

NOTES = Kind("notes.txt", b"\\Anotes of", ("notes.txt", "*.csv", "figures/*"))


def write(folder, *names, overwrite=False, text="notes of today"):
    with whole_folder(folder, NOTES, overwrite=overwrite) as new:
        for name in ("notes.txt", *names):
            (new / name).parent.mkdir(exist_ok=True)
            (new / name).write_text(text)


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_only_the_files_of_its_kind_are_replaced(tmp_path):
    folder = tmp_path / "notes"
    write(folder, "a.csv", "figures/a.png")
    (folder / "reviews.sqlite").write_text("verdicts")
    (folder / "mine").mkdir()
    (folder / "mine" / "a.csv").write_text("mine")
    kept = (folder / "reviews.sqlite").stat().st_ino
    write(folder, "b.csv", "figures/b.png", overwrite=True, text="notes of tomorrow")
    new = "notes of tomorrow"
    assert content(folder) == {
        "notes.txt": new,
        "b.csv": new,
        os.path.join("figures", "b.png"): new,
        "reviews.sqlite": "verdicts",
        os.path.join("mine", "a.csv"): "mine",
    }
    assert (folder / "reviews.sqlite").stat().st_ino == kept
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


@pytest.mark.parametrize("exists", [False, True])
def test_nothing_changes_when_writing_fails(tmp_path, exists):
    if exists:
        write(tmp_path / "in" / "notes")
    before = content(tmp_path)
    with pytest.raises(FileNotFoundError, match="missing"):
        write(tmp_path / "in" / "notes", "half.csv", "missing/deep/half.csv", overwrite=True)
    assert content(tmp_path) == before
    assert (tmp_path / "in").exists() == exists


@pytest.mark.parametrize("text", ["{}", '{"butfor": "0.2.0"}', '{"digest": "%s"}' % ("0" * 64)])
def test_a_meta_json_of_another_program_does_not_make_an_audit(tmp_path, text):
    (tmp_path / "meta.json").write_text(text)
    (tmp_path / "thesis.txt").write_text("years of work")
    with (
        pytest.raises(FileExistsError, match=r"its meta\.json is not from butfor"),
        claimed(tmp_path, AUDIT, overwrite=True),
    ):
        pass
    assert content(tmp_path) == {"meta.json": text, "thesis.txt": "years of work"}


def test_a_second_run_is_told_of_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr("butfor.audit.folders.PATIENCE", 0.1)  # not 2 seconds
    with claimed(tmp_path / "audit", AUDIT):
        with pytest.raises(OSError, match=rf"another run \(process {os.getpid()}\) is writing"):
            write(tmp_path / "audit")
        write(tmp_path / "other")
    write(tmp_path / "audit")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit", "other"]


def fails(number):
    def call(*_, **__):
        raise OSError(number, os.strerror(number))

    return call


def test_a_lock_that_a_full_disk_leaves_empty_is_released(tmp_path, monkeypatch):
    with monkeypatch.context() as full:
        full.setattr(os, "write", fails(errno.ENOSPC))
        with claimed(tmp_path / "notes", NOTES):
            pass
    assert not list(tmp_path.iterdir())
    write(tmp_path / "notes")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_who_cannot_finish_what_was_interrupted_is_told_who_can(number, tmp_path, monkeypatch):
    write(tmp_path / "notes")
    interrupted(tmp_path / "notes", "a.csv")
    with monkeypatch.context() as forbidden:
        forbidden.setattr(os, "open", fails(number))
        with pytest.raises(PermissionError, match="open it once as somebody who may write"):
            settle(tmp_path / "notes")
    settle(tmp_path / "notes")
    assert content(tmp_path / "notes") == {"notes.txt": "notes of today", "a.csv": "new"}


@pytest.mark.parametrize("exists", [False, True])
def test_a_link_leads_to_the_folder_that_is_written(tmp_path, exists):
    if exists:
        write(tmp_path / "disk" / "notes", "a.csv")
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "notes")
    write(tmp_path / "link", overwrite=True, text="notes of tomorrow")
    assert (tmp_path / "link").is_symlink()
    assert content(tmp_path / "disk" / "notes") == {"notes.txt": "notes of tomorrow"}
    assert parts_folder(tmp_path / "link") == tmp_path / "disk" / "notes.unfinished"


def test_a_link_that_leads_to_itself_is_refused(tmp_path):
    (tmp_path / "there").symlink_to(tmp_path / "back")
    (tmp_path / "back").symlink_to(tmp_path / "there")
    with pytest.raises(OSError, match=r"there is a symbolic link that leads to itself"):
        write(tmp_path / "there")
    assert parts_folder(tmp_path / "there").parent == tmp_path


def test_a_folder_in_the_place_of_a_file_is_refused_at_once(tmp_path):
    kind = Kind("notes.txt", NOTES.sign, ("notes.txt", "table.csv"))
    write(tmp_path / "notes")
    (tmp_path / "notes" / "table.csv").mkdir()
    with (
        pytest.raises(
            IsADirectoryError, match=r"table\.csv is a folder where a file has to be written"
        ),
        claimed(tmp_path / "notes", kind, overwrite=True),
    ):
        pytest.fail("what is computed now would be lost")
    assert content(tmp_path / "notes") == {"notes.txt": "notes of today"}


def interrupted(folder, *names, stale=()):
    """A folder whose new files are all there, but none is in its place."""
    for name in (*names, STALE):
        (folder / READY / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / READY / name).write_text("\n".join(stale) if name == STALE else "new")


def test_the_next_run_finishes_what_was_interrupted(tmp_path):
    folder = tmp_path / "notes"
    write(folder, "a.csv", "b.csv")
    interrupted(folder, "b.csv", "figures/c.png", stale=["a.csv"])
    (folder / NEW).mkdir()
    with pytest.raises(FileExistsError, match="--overwrite"):
        write(folder)
    figure = os.path.join("figures", "c.png")
    assert content(folder) == {"notes.txt": "notes of today", "b.csv": "new", figure: "new"}
    write(folder, overwrite=True)
    assert content(folder) == {"notes.txt": "notes of today"}
    assert [path.name for path in folder.iterdir() if path.is_file()] == ["notes.txt"]


def test_a_folder_of_a_stranger_moves_and_removes_nothing_elsewhere(tmp_path):
    """What is left to finish may be forged: nothing outside the folder may change."""
    folder = tmp_path / "in" / "notes"
    write(folder)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.csv").write_text("mine")
    (folder / "figures").symlink_to(tmp_path / "mine")
    names = ["../../mine/a.csv", str(tmp_path / "mine" / "a.csv"), "figures/a.csv", "", ".."]
    interrupted(folder, "figures/a.csv", "figures/b.csv", stale=names)
    write(folder, overwrite=True)
    (folder / READY).symlink_to(tmp_path / "mine")
    with pytest.raises(NotADirectoryError):
        write(folder, overwrite=True)
    with pytest.raises(FileNotFoundError, match="not an audit"):
        Audit.load(folder)
    assert content(tmp_path / "mine") == {"a.csv": "mine"}


def test_who_reads_while_an_audit_is_replaced_reads_one_of_both(tmp_path):
    """Either all of the old audit or all of the new one, however often it changes."""
    audits = small_audit(), small_audit(seed=1)
    folder = audits[0].save(tmp_path / "audit")
    stop = threading.Event()

    def replace():
        turn = 0
        while not stop.wait(0.05):
            turn += 1
            audits[turn % 2].save(folder, overwrite=True)

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        for _ in range(10):
            found = Audit.load(folder)
            same = [one for one in audits if one.meta.digest == found.meta.digest]
            assert found.episodes["difference"].equals(same[0].episodes["difference"])
            assert found.target.tobytes() == same[0].target.tobytes()
    finally:
        stop.set()
        writer.join()
