"""Audits too large to be read whole: the episodes shown are read, and pages say so."""

import numpy as np
import pandas as pd
import pytest

import butfor as bf
import butfor.audit_writing
import butfor.io.sources
from butfor.pages import Stays
from tests.audits import hidden_audit, sepsis_audit, trade_audit

BOUNDS = ["low_any", "high_any", "low_stable", "high_stable"]


def save_in_groups(audit, folder, monkeypatch):
    """Save an audit in many row groups, to be read in pieces that end elsewhere."""
    monkeypatch.setattr(butfor.audit_writing, "ROW_GROUP", 100)
    monkeypatch.setattr(butfor.io.sources, "PIECE", 37)
    return audit.save(folder)


def is_shown(table):
    return ((table["rank"] > 0) | table["control"]).to_numpy()


@pytest.fixture(scope="module")
def audit():
    """An audit as shards write it: bounds only of the episodes shown."""
    made = sepsis_audit()
    others = ~is_shown(made.episodes)
    made.episodes.loc[others, BOUNDS] = np.nan
    made.episodes.loc[others, "survives"] = None
    return made


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
    np.testing.assert_array_equal(part.decisions, Stays(whole).counts)
    assert part.meta == whole.meta
    assert part.partial
    assert not whole.partial
    log, chosen = part.log(), whole.log().select(np.flatnonzero(shown))
    for name in ("state", "action", "next_state", "reward", "offsets", "outcome", "id"):
        np.testing.assert_array_equal(getattr(log, name), getattr(chosen, name))


def test_an_audit_without_flags_has_no_episode_to_read(tmp_path):
    folder = trade_audit(flags=0).save(tmp_path / "audit")
    part = bf.Audit.load(folder, shown=True)
    assert (len(part.episodes), len(part.steps), part.decisions.sum() > 0) == (0, 0, True)


def test_an_audit_of_which_some_was_read_is_not_saved(audit, tmp_path):
    part = bf.Audit.load(audit.save(tmp_path / "audit"), shown=True)
    with pytest.raises(ValueError, match="only some of the episodes were read"):
        part.save(tmp_path / "part")


def test_bounds_may_be_missing_where_nothing_is_shown_only(audit, tmp_path):
    folder = audit.save(tmp_path / "audit")
    assert bf.Audit.load(folder).episodes["low_any"].isna().sum() == 300 - 15
    table = audit.episodes.copy()
    table.loc[table["rank"] == 1, "high_stable"] = np.nan
    table.to_parquet(folder / "episodes.parquet", index=False)
    for shown in (False, True):
        with pytest.raises(ValueError, match="high_stable is missing where an episode is flagged"):
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
    folder = audit.save(tmp_path / "audit")
    path = folder / f"{name}.parquet"
    change(pd.read_parquet(path)).to_parquet(path, index=False)
    with pytest.raises(ValueError, match=words) as found:
        bf.Audit.load(folder, shown=True)
    assert str(path) in str(found.value)
    assert "restore the folder" in str(found.value)


@pytest.mark.parametrize("name", ["episodes", "steps"])
def test_a_damaged_row_group_is_refused(name, audit, tmp_path, monkeypatch):
    folder = save_in_groups(audit, tmp_path / "audit", monkeypatch)
    path = folder / f"{name}.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 3 : len(data) // 3 + 2000] = b"\xff" * 2000
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"{name}\.parquet: .*restore the folder"):
        bf.Audit.load(folder, shown=True)
