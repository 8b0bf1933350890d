"""Audits too large to be read whole: the episodes shown are read, and pages say so."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import butfor as bf
import butfor.audit.audit
import butfor.audit.files
import butfor.log.sources
from butfor.audit.audit import load_for_readers
from butfor.present import Stays
from butfor.present.report import content, write_report
from butfor.review.export import export_reviews
from butfor.review.plan import ReviewSettings, plan_stays
from butfor.review.store import verify_folder
from tests.audits import hidden_audit, sepsis_audit, trade_audit, unseal
from tests.review_site import Site

READ = 52  # 12 flagged stays and 40 controls
SCOPE = f"the {READ} stays that are flagged or controls, of 300 in all"
BOUNDS = ["low_any", "high_any", "low_stable", "high_stable"]


def save_in_groups(audit, folder, monkeypatch):
    """Save an audit in many row groups, to be read in pieces that end elsewhere."""
    monkeypatch.setattr(butfor.audit.files, "ROW_GROUP", 100)
    monkeypatch.setattr(butfor.log.sources, "PIECE", 37)
    return audit.save(folder)


def is_shown(table):
    return ((table["rank"] > 0) | table["control"]).to_numpy()


@pytest.fixture(scope="module")
def audit():
    """An audit as shards write it: bounds only of the episodes shown."""
    made = sepsis_audit()
    episodes = made.episodes.copy()
    others = ~is_shown(episodes)
    episodes.loc[others, BOUNDS] = np.nan
    episodes.loc[others, "survives"] = None
    return replace(made, episodes=episodes)


# ---------------------------------------------------------------------------------------- loading


@pytest.mark.parametrize("make", [sepsis_audit, trade_audit, hidden_audit])
def test_the_episodes_shown_are_read_as_if_all_were(make, tmp_path, monkeypatch):
    folder = save_in_groups(make(), tmp_path / "audit", monkeypatch)
    whole, part = bf.Audit.load(folder), bf.Audit.load(folder, shown=True)
    shown = is_shown(whole.episodes)
    assert 0 < shown.sum() < len(shown)
    expected = whole.episodes[shown].reset_index(drop=True)
    pd.testing.assert_frame_equal(part.episodes, expected)
    steps = whole.steps[shown[whole.steps["episode"]]].reset_index(drop=True)
    steps["episode"] = np.repeat(np.arange(len(expected)), expected["length"] + 1)
    pd.testing.assert_frame_equal(part.steps, steps)
    for name in ("estimates", "diagnostics", "decomposition", "draws", "courses", "course_steps"):
        pd.testing.assert_frame_equal(getattr(part, name), getattr(whole, name))
    np.testing.assert_array_equal(part.decisions, whole.counts)
    assert part.meta == whole.meta
    assert part.partial
    assert not whole.partial
    log, chosen = part.log(), whole.log().select(np.flatnonzero(shown))
    for name in ("state", "action", "next_state", "reward", "offsets", "outcome", "id"):
        np.testing.assert_array_equal(getattr(log, name), getattr(chosen, name))


def test_an_audit_without_a_review_has_no_episode_to_read(tmp_path):
    folder = trade_audit(review_size=0).save(tmp_path / "audit")
    part = bf.Audit.load(folder, shown=True)
    assert (len(part.episodes), len(part.steps), part.decisions.sum() > 0) == (0, 0, True)


def test_an_audit_of_which_some_was_read_is_not_saved(audit, tmp_path):
    part = bf.Audit.load(audit.save(tmp_path / "audit"), shown=True)
    with pytest.raises(ValueError, match="only some of the episodes were loaded"):
        part.save(tmp_path / "part")


def test_bounds_may_be_missing_where_nothing_is_shown_only(audit, tmp_path):
    folder = unseal(audit.save(tmp_path / "audit"))
    assert bf.Audit.load(folder).episodes["low_any"].isna().sum() == 300 - READ
    table = audit.episodes.copy()
    table.loc[table["rank"] == 1, "high_stable"] = np.nan
    table.to_parquet(folder / "episodes.parquet", index=False)
    for shown in (False, True):
        with pytest.raises(ValueError, match="high_stable is missing for an episode that"):
            bf.Audit.load(folder, shown=shown)


def spoil(column, value):
    """Return a change of the last row of a table."""

    def change(table):
        table.loc[table.index[-1], column] = value
        return table

    return change


CASES = {
    "too few rows": ("episodes", lambda t: t[:-1], "299 rows, but meta.json counts 300"),
    "a length": ("episodes", spoil("length", 0), "row 299: length is 0, outside 1..20"),
    "a rank": ("episodes", spoil("rank", -1), "row 299: rank is -1"),
    "no control": ("episodes", lambda t: t.drop(columns="control"), "no column 'control'"),
    "too few steps": ("steps", lambda t: t[:-1], "rows, expected"),
    "a state": ("steps", spoil("state", 10**6), "state or action that meta.json does not list"),
    "an action": ("steps", spoil("action", -2), "state or action that meta.json does not list"),
    "other steps": ("steps", lambda t: t[::-1], "episodes are not those of episodes.parquet"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_found_without_reading_all(case, audit, tmp_path):
    name, change, words = CASES[case]
    folder = unseal(audit.save(tmp_path / "audit"))
    path = folder / f"{name}.parquet"
    change(pd.read_parquet(path)).to_parquet(path, index=False)
    with pytest.raises(ValueError, match=words) as found:
        bf.Audit.load(folder, shown=True)
    assert str(path) in str(found.value)
    assert "restore the folder" in str(found.value)


@pytest.mark.parametrize("name", ["episodes", "steps"])
def test_a_damaged_row_group_is_refused(name, audit, tmp_path, monkeypatch):
    folder = unseal(save_in_groups(audit, tmp_path / "audit", monkeypatch))
    path = folder / f"{name}.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 3 : len(data) // 3 + 2000] = b"\xff" * 2000
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"{name}\.parquet: .*restore the folder"):
        bf.Audit.load(folder, shown=True)


# ----------------------------------------------------------------------------------------- report


def written(source, tmp_path, name="report.html"):
    return write_report(source, tmp_path / name, overwrite=True).read_text()


def cells_of(page):
    """What happened and the model's likeliest as numbers, and how many have both."""
    pattern = (
        r'data-observed="(\d)" data-model="(\d)".*?<b>(\d+)</b><small>expected ([^<]+)</small>'
    )
    return re.findall(pattern, page)


def block(page, name):
    return json.loads(re.search(rf'id="data-{name}"[^>]*>(.*?)</script>', page, re.DOTALL)[1])


def test_only_large_audits_are_read_in_part(audit, tmp_path, monkeypatch):
    folder = audit.save(tmp_path / "audit")
    assert not load_for_readers(folder).partial
    monkeypatch.setattr(butfor.audit.audit, "MOST_LOADED", 299)
    assert load_for_readers(folder).partial
    monkeypatch.setattr(butfor.audit.audit, "MOST_LOADED", 300)
    assert not load_for_readers(folder).partial


def test_the_report_of_a_large_audit_says_what_it_is_about(audit, tmp_path, monkeypatch):
    folder = audit.save(tmp_path / "audit")
    whole = written(folder, tmp_path)
    monkeypatch.setattr(butfor.audit.audit, "MOST_LOADED", 100)
    part = written(folder, tmp_path)
    assert "<dd>300 stays, " in part
    assert f"On average over {SCOPE}, " in part
    assert f"Shown are {SCOPE}: they were selected, and do not represent the others." in part
    assert f"Listed: how many of them are in the list, which has {SCOPE}." in part
    assert block(part, "listing")["scope"] == SCOPE
    for words in ("Everyone at a glance", "<small>thin", f"of {READ} stays"):
        assert words not in part
    assert "that are flagged or controls" not in whole
    # counts of all episodes
    assert len(cells_of(part)) == 9
    assert cells_of(part) == cells_of(whole)
    listed = re.findall(r"<small>listed (\d+)</small>", part)
    assert sum(map(int, listed)) == len(block(part, "listing")["rows"]) == READ

    def evidence(page):
        return re.search(r'<section id="evidence">.*?</section>', page, re.DOTALL)[0]

    assert evidence(part) == evidence(whole)
    # stays step by step
    assert block(part, "stay-0") == block(whole, "stay-0")
    assert block(part, "stay-11") == block(whole, "stay-11")


def test_a_large_audit_without_a_review_has_a_report(tmp_path, monkeypatch):
    folder = trade_audit(review_size=0).save(tmp_path / "audit")
    monkeypatch.setattr(butfor.audit.audit, "MOST_LOADED", 10)
    page = written(folder, tmp_path)
    assert "<dd>80 deliveries, " in page
    assert "the 0 deliveries that are flagged or controls, of 80 in all" in page
    assert "No delivery is flagged" in page
    assert block(page, "glance")["datasets"]["marks"] == []


def test_bounds_that_were_not_worked_out_are_left_out(audit, tmp_path):
    page = write_report(audit, tmp_path / "report.html", episodes=20).read_text()
    rows = block(page, "listing")["rows"]
    low = audit.episodes.set_index("id")["low_any"]
    for row in rows:
        assert (row[6] is None) == (row[10][2] == "") == bool(np.isnan(low[int(row[0])]))
    fields, *marks = block(page, "glance")["datasets"]["marks"]
    assert sum(mark[fields.index("low")] is None for mark in marks) == 300 - READ
    glance = content.glance(Stays(audit))
    assert glance["caption"].endswith("Worst and best case were computed for some only.")
    assert all(row[5:7] == ["", ""] for row in glance["table"][1:])
    ranges = [block(page, f"stay-{number}")["range"] for number in range(20)]
    assert any("worst and best case were not computed" in text for text in ranges)


# ----------------------------------------------------------------------------------------- review


@pytest.fixture
def folder(audit, tmp_path, monkeypatch):
    """The folder of an audit that counts as large."""
    monkeypatch.setattr(butfor.audit.audit, "MOST_LOADED", 100)
    return audit.save(tmp_path / "audit")


def test_the_same_stays_are_reviewed(audit, folder):
    assert plan_stays(load_for_readers(folder), ReviewSettings()) == plan_stays(
        audit, ReviewSettings()
    )


def test_the_review_of_a_large_audit_says_what_it_is_about(audit, folder):
    person = Site(folder, load_for_readers(folder), show_overview=True).reviewer("ann")
    page = person.open("/overview")
    assert f"Shown are {SCOPE}: " in page
    assert "Flagged stays and controls at a glance" in page
    assert "<small>thin" not in page
    counts = [
        (row["name"], cell["count"])
        for row in person.json("/overview")["cells"]["rows"]
        for cell in row["cells"]
    ]
    expected = audit.outcome_table()
    assert sum(count for _, count in counts) == 300
    for name in expected.index:
        assert sum(n for row, n in counts if row == name) == expected.loc[name].sum()
    page = person.open("/episodes")
    assert f"<h1>{READ} stays</h1>" in page
    assert f"This list covers {SCOPE}." in page
    assert "<dd>300</dd>" in person.open("/about")
    assert f"Files of stays cover {SCOPE}." in person.open("/results")
    rows = list(csv.DictReader(person.get("/export/episodes.csv").text.splitlines()))
    shown = audit.episodes[is_shown(audit.episodes)]
    assert [row["episode_id"] for row in rows] == shown["id"].map(str).tolist()


def test_verdicts_on_a_large_audit_are_exported_and_verified(audit, folder, tmp_path, monkeypatch):
    site = Site(folder, load_for_readers(folder))
    person = site.reviewer("ann")
    place = person.next()
    page = person.open(f"/episodes/{place['slug']}?place={place['place']}")
    person.send(f"/episodes/{place['slug']}", page, do="save", verdict="1")
    part = export_reviews(folder, tmp_path / "part.csv").read_text()
    assert [row["episode_id"] for row in csv.DictReader(part.splitlines())] == [place["id"]]
    monkeypatch.setattr(butfor.audit.audit, "MOST_LOADED", 1000)
    assert export_reviews(folder, tmp_path / "whole.csv").read_text() == part
    assert verify_folder(folder).ok


def test_a_review_leaves_out_bounds_that_were_not_worked_out(audit, tmp_path):
    person = Site(audit.save(tmp_path / "audit"), audit, show_overview=True).reviewer("ann")
    rows = person.json("/episodes")["episodes"]
    unknown = [row for row in rows if row["low_any"] is None]
    assert unknown
    assert "no estimate" not in person.open("/episodes")
    page = person.open(f"/episodes/{unknown[0]['slug']}")
    assert "Its worst and best case were not computed" in page
