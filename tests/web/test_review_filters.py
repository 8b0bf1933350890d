"""Filters, search and pages of the queue and of the history, without JavaScript."""

import html
import re
from urllib.parse import urlencode

import pytest

from butfor.review.routes import overview, stay
from butfor.review.verdicts import Verdict
from tests.review_site import HOSTILE, Site, small_audit

ROW = r'<th scope="row"><a [^>]*>([^<]*)</a>'


@pytest.fixture
def site(tmp_path):
    made = Site(
        tmp_path,
        small_audit(),
        show_overview=True,
        coordinators=["zoe"],
        verdicts_only=True,
        repeat_share=0.0,
    )
    yield made
    made.store.close()


@pytest.fixture
def ann(site):
    return site.reviewer("ann")


def listed(person, **filters):
    """Ids in the queue by its JSON, which the page shows too."""
    query = urlencode(filters)
    found = [item["id"] for item in person.json(f"/queue?{query}")["items"]]
    page = person.get(f"/?{query}").text
    assert re.findall(ROW, page) == found
    return found


def test_the_queue_by_status_outcome_and_part_of_the_id(site, ann):
    items = ann.json("/queue")["items"]
    one, two, three, *rest = (item["id"] for item in items)
    reviewer = site.store.reviewer(site.run.id, "ann")
    reviewer.submit(one, Verdict(1))
    reviewer.skip(two)
    reviewer.save_draft(three, {"comment": "so far"})
    assert listed(ann, status="submitted") == [one]
    assert listed(ann, status="skipped") == [two]
    assert listed(ann, status="draft") == [three]
    assert listed(ann, status="waiting") == rest
    assert listed(ann, status="withdrawn") == []
    outcomes = {item["observed"] for item in items}
    assert len(outcomes) > 1
    for outcome in outcomes:
        expected = [item["id"] for item in items if item["observed"] == outcome]
        assert listed(ann, obs=outcome) == expected
    part = one[-2:]
    assert listed(ann, text=f" {part} ") == [i["id"] for i in items if part in i["id"]]
    assert listed(ann, text=one, status="skipped") == [i for i in (two,) if one in i]
    assert listed(ann, status="no such status") == []
    # what is chosen stays chosen, and the counts above are those of the whole queue
    page = ann.get("/?status=skipped").text
    assert '<option value="skipped" selected>' in page
    assert f"1 of {len(items)} done" in page
    empty = ann.get("/?text=nowhere").text
    assert "No patient in your queue matches." in empty
    assert 'value="nowhere"' in empty
    assert '<a href="/">Show all</a>' in empty


def follow(person, path):
    """Every page of a list, by its own links."""
    pages = []
    while path:
        pages.append(person.get(path).text)
        found = re.search(r'href="([^"]*)">Next page', pages[-1])
        path = html.unescape(found[1]) if found else None
    return pages


def test_a_long_queue_has_pages(site, ann, monkeypatch):
    whole = listed(ann, status="waiting")
    monkeypatch.setattr(stay, "QUEUE_PAGE", 5)
    pages = follow(ann, "/?status=waiting")
    assert len(pages) == -(-len(whole) // 5) > 2
    found = [name for page in pages for name in re.findall(ROW, page)]
    assert found == whole
    assert "1 to 5 of" in pages[0]
    assert 'href="/?status=waiting">First page' in pages[1]
    assert 'value="waiting" selected' in pages[-1]


def lines(person, **filters):
    """Actions and authors in the history by its JSON, which the page shows too."""
    query = urlencode(filters)
    rows = person.json(f"/events?{query}")["events"]
    page = person.get(f"/audit?{query}").text
    assert page.count("<code>") == len(rows)
    return [(row["who"], row["action"], row["stay"]) for row in rows]


def test_the_history_by_who_action_stay_and_text(site, ann):
    one, two, *_ = (stay.episode for stay in site.store.stays(site.run.id))
    bob, zoe = site.store.join(site.run.id, "bob"), site.reviewer("zoe")
    mine = site.store.reviewer(site.run.id, "ann")
    mine.submit(one, Verdict(1, comment="Lactate fell"))
    mine.skip(two)
    bob.submit(one, Verdict(4, comment="lactate missing"))
    ann.get("/audit")  # notes, once, that she saw what others do
    assert lines(ann, who="Reviewer 2") == [
        ("Reviewer 2", "join", ""),
        ("Reviewer 2", "submit", one),
    ]
    assert lines(ann, who="Reviewer 1", stay=two) == [("ann", "skip", two)]
    assert lines(ann, who="Coordinator") == [("Coordinator", "coordinate", "")]
    assert lines(ann, action="submit") == [("ann", "submit", one), ("Reviewer 2", "submit", one)]
    assert lines(ann, text="LACTATE m") == [("Reviewer 2", "submit", one)]
    assert lines(ann, text="skipped") == [("ann", "skip", two)]
    assert lines(ann, stay=one) == lines(ann, action="submit")
    assert lines(ann, text="bob") == []  # a name cannot be found by searching for it
    assert lines(ann, who="bob") == []
    empty = ann.get("/audit?text=nowhere").text
    assert "No line matches." in empty
    assert '<a href="/audit">Show all</a>' in empty
    assert '<option value="Reviewer 2">Reviewer 2</option>' in ann.get("/audit").text
    # the same address shows a coordinator the same lines, with names
    assert lines(zoe, who="Reviewer 2", action="submit") == [("bob (Reviewer 2)", "submit", one)]
    assert '<option value="Reviewer 2" selected>bob (Reviewer 2)' in (
        zoe.get("/audit?who=Reviewer+2").text
    )


def test_filters_show_nothing_of_others_before_the_queue_is_done(tmp_path):
    site = Site(tmp_path, small_audit(), verdicts_only=True)
    ann, bob = site.reviewer("ann"), site.store.join(site.run.id, "bob")
    one = site.store.stays(site.run.id)[0].episode
    bob.submit(one, Verdict(4, comment="lactate missing"))
    for filters in ({"who": "Reviewer 2"}, {"text": "lactate"}, {"stay": one}, {"action": "run"}):
        assert lines(ann, **filters) == []
    assert lines(ann) == [("ann", "join", "")]
    assert "Reviewer 2" not in ann.get("/audit").text
    site.store.close()


def test_a_long_history_has_pages(site, ann, monkeypatch):
    reviewer = site.store.reviewer(site.run.id, "ann")
    for item in site.store.stays(site.run.id):
        reviewer.skip(item.episode)
    ann.get("/audit")
    whole = lines(ann, action="skip")
    monkeypatch.setattr(overview, "HISTORY_PAGE", 5)
    pages = follow(ann, "/audit?action=skip")
    assert [page.count("<code>") for page in pages[:-1]] == [5] * (len(pages) - 1)
    assert sum(page.count("<code>") for page in pages) == len(whole)
    assert f"6 to 10 of {len(whole)}" in pages[1]
    assert all('value="skip" selected' in page for page in pages)


def test_hostile_filters_are_shown_as_text(tmp_path):
    site = Site(tmp_path, small_audit(hostile=True), show_overview=True, verdicts_only=True)
    ann = site.reviewer("ann")
    for text in (*HOSTILE, "\x00", "%"):
        query = urlencode({"text": text, "status": text, "obs": text, "stay": text, "who": text})
        for path in ("/", "/audit", "/episodes"):
            page = ann.get(f"{path}?{query}").text
            assert "<script>alert" not in page
            assert "<img" not in page
    site.store.close()
