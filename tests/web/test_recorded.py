"""Times and numbers of the log on the pages of single episodes: in the report and in the review."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import butfor as bf
from butfor.audit.audit import Audit
from butfor.audit.source import audit_log
from butfor.present import Stays
from butfor.present.report.write import render_report
from tests.browser import open_browser
from tests.grids import few
from tests.quick.test_old_audits import FOLDER
from tests.review_site import Site
from tests.ward import CLUSTERED, PRESSORS, ward_log, write_ward

DATE = re.compile(r"2024-\d\d-\d\d")
NEVER = "Never given to the model:"


@pytest.fixture(scope="module")
def audit(tmp_path_factory) -> Audit:
    log, file = write_ward(tmp_path_factory.mktemp("ward"))
    return audit_log(log, file, models=0, rehearsal=False, flags=5)


@pytest.fixture(scope="module")
def clustered(tmp_path_factory) -> Audit:
    log, file = write_ward(tmp_path_factory.mktemp("clusters"), CLUSTERED)
    return audit_log(log, file, models=0, rehearsal=False, flags=5)


@pytest.fixture(scope="module")
def page(audit) -> str:
    return render_report(audit)


def rows_of(found: dict) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in found["table"]}


def test_each_stay_has_the_times_and_numbers_of_its_rows(audit) -> None:
    log, stays = ward_log(), Stays(audit)
    for identifier in audit.episodes["id"]:
        stay = stays.one(identifier)
        mine = log[log["stay"] == identifier]
        rows = rows_of(stay["recorded"])
        steps = range(len(mine) + 1)
        assert rows["Hour"] == [str(4 * step) for step in steps]
        times = mine["at"].dt.strftime("%Y-%m-%d %H:%M").tolist()
        days = ["", *(time[:10] for time in times)]
        shown = [
            time if time[:10] != day else time[11:] for day, time in zip(days, times, strict=False)
        ]
        assert rows["Time in the log"] == [*shown, ""]  # no row tells about the end
        # what is missing is carried forward, or 1.5 before the first number
        known = mine["lactate"].ffill().fillna(1.5)
        texts = [
            f"({now:g})" if missing else f"{now:g}"
            for now, missing in zip(known, mine["lactate"].isna(), strict=True)
        ]
        assert rows["Lactate (mmol/l)"] == [*texts, ""]
        assert ("In parentheses" in stay["recorded"]["caption"]) == mine["lactate"].isna().any()
        assert set(rows) == {"Hour", "Time in the log", "Lactate (mmol/l)"}
        (given,) = stay["given"]  # what never changes is not repeated at each step
        assert given[1].endswith(f": {mine['age'].iloc[0]}")


def test_numbers_stand_beside_the_levels_of_the_chart(audit) -> None:
    identifier = audit.flagged["id"].iloc[0]
    stay = Stays(audit).one(identifier)
    numbers = rows_of(stay["recorded"])["Lactate (mmol/l)"]
    head, *rows = stay["table"]
    column = head.index("Lactate (mmol/l)")
    for row, number in list(zip(rows, numbers, strict=False))[:-1]:
        assert row[column].endswith(f": {number}")


def test_numbers_behind_clusters_are_shown_and_not_called_never_given(clustered) -> None:
    stays = Stays(clustered)
    rows = rows_of(stays.one(clustered.episodes["id"].iloc[0])["recorded"])
    assert {"Lactate (mmol/l)", "age"} <= set(rows)
    assert stays.hidden() == []
    report = render_report(clustered)
    assert NEVER not in report


def test_what_the_model_was_not_given_is_still_said(audit, page) -> None:
    stays = Stays(audit)
    assert stays.hidden() == ["beds"]
    assert f"{NEVER} beds." in page


def test_redacted_reports_have_neither_dates_nor_numbers(audit, page) -> None:
    identifier = audit.flagged["id"].iloc[0]
    stay = Stays(audit, redact=True).one(identifier)
    assert stay["recorded"] == {"table": [], "caption": ""}
    assert stay["given"][0][1] in ("below 50", "50 to 70", "70 or more")
    assert DATE.search(page)
    assert not DATE.search(render_report(audit, redact=True))


def test_times_that_only_repeat_the_clock_are_left_out(audit) -> None:
    steps = audit.steps.drop(columns=[name for name in audit.steps if name.startswith("raw.")])
    hours = replace(audit, steps=steps.assign(time=4.0 * steps["step"]))
    first = audit.episodes["id"].iloc[0]
    assert "Time in the log" not in rows_of(Stays(hours).one(first)["recorded"])
    later = replace(audit, steps=steps.assign(time=4.0 * steps["step"] + 100))
    assert rows_of(Stays(later).one(first)["recorded"])["Time in the log"][:2] == ["100", "104"]


def test_older_audits_have_no_record() -> None:
    old = Audit.load(FOLDER)
    stay = Stays(old).one(old.episodes["id"].iloc[0])
    assert stay["recorded"]["table"] == []


def test_reviewers_see_the_record_before_and_after_the_model(audit, tmp_path) -> None:
    site = Site(tmp_path, audit, verdicts_only=False)
    ann = site.reviewer("ann")
    slug = ann.next()["slug"]
    before = ann.json(f"/episodes/{slug}")
    assert before["model"] is None
    assert rows_of(before["recorded"])["Time in the log"][0].startswith("2024-")
    assert "Lactate (mmol/l)" in before["variables"]


@pytest.mark.parametrize(
    ("name", "width"),
    few([("audit", 1280), ("clustered", 390), ("audit", 390), ("clustered", 1280)], 2),
)
def test_the_page_shows_the_table_and_whole_names_of_levels(name, width, request, tmp_path) -> None:
    path = bf.write_report(request.getfixturevalue(name), tmp_path / "report.html")
    with open_browser(width) as browser:
        browser.goto(path.as_uri())
        browser.wait_for("document.documentElement.dataset.ready == 'yes'")
        assert DATE.search(browser.text("#stay table.values"))
        wide = browser.evaluate("document.documentElement.scrollWidth")
        assert wide <= width
        # lines of a name are parts of one text
        drawn = browser.evaluate(
            "[...document.querySelectorAll('#stay .chart svg text')].map((text) => "
            "[...text.childNodes].map((part) => part.textContent).join(' '))"
        )
        assert set(PRESSORS) <= set(drawn)
        assert not any("…" in text for text in drawn)
        never = "document.querySelector('#stay h3.hidden').getClientRects().length"
        assert bool(browser.evaluate(never)) == (name == "audit")
        assert browser.problems() == []
