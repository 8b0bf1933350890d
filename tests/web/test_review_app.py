"""The review app in process: its pages and their JSON, its rules, and what it refuses."""

import csv
import html
import io
import json
import re
import sqlite3
import time
from itertools import combinations

import pytest
from typer.testing import CliRunner

from butfor.cli.main import app as commands
from butfor.review.reviewer import Reviewer, settle
from butfor.review.routes.security import LARGEST_BODY, POLICY
from butfor.review.routes.sessions import (
    FAILURES_KEPT,
    FREE_FAILURES,
    LONGEST_DELAY,
    FailedSignIns,
    Sessions,
    Tokens,
    read_tokens,
)
from butfor.review.shown import make_slug, read_slug
from butfor.review.verdicts import Verdict
from tests.audits import hidden_audit
from tests.reference import agreement as slow
from tests.review_site import BASE, HOSTILE, SCRIPT, Site, as_text, fields, small_audit

TWINS = {
    "/": "/queue",
    "/overview": "/overview",
    "/episodes": "/episodes",
    "/results": "/results",
    "/about": "/run",
    "/audit": "/events",
}
NEVER = r"counterfactual|\bSCM\b|Gumbel|\bMDP\b|posterior|would have survived|avoidable|\bsaved\b"


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path, small_audit())
    yield made
    made.store.close()


@pytest.fixture
def ann(site):
    return site.reviewer("ann")


def stay_page(person, following=None):
    place = following or person.next()
    return f"/episodes/{place['slug']}?place={place['place']}"


def finish(person, verdict=1):
    """Give the same verdict on all that is left, without opening their pages."""
    following = person.next()
    while following:
        path = f"/episodes/{following['slug']}/reviews"
        following = person.post(path, 201, verdict=verdict, place=following["place"])["next"]


def visible(html):
    """Text of a page, without its tags."""
    return re.sub(r"<[^>]*>", " ", re.sub(r"<(script|style).*?</\1>", "", html, flags=re.DOTALL))


# -------------------------------------------------------------------------------------------- pages


def test_every_page_and_its_twin_open_once_the_queue_is_done(site, ann):
    stay = stay_page(ann)
    ann.get(stay)
    ann.json(stay)
    for path in (
        "/overview",
        "/episodes",
        "/results",
        "/export/reviews.csv",
        "/export/report.html",
    ):
        ann.get(path, 403)
    for path in ("/overview", "/episodes", "/results", "/agreement", "/charts/estimates"):
        ann.json(path, 403)
    finish(ann)
    for page, twin in TWINS.items():
        assert not re.search(NEVER, visible(ann.get(page).text)), page
        assert ann.json(twin)["run"] == site.run.id
    for path in ("/agreement", "/charts/estimates", "/charts/overview", "/charts/trajectory"):
        ann.json(path)
    said = ann.json("/overview")["conclusion"]["sentence"]
    assert said == site.audit.conclusion.sentence.replace("episode", "patient")
    assert said in visible(ann.get("/overview").text)
    assert "/api/v1/queue/next" in ann.get("/docs").text
    assert ann.get("/export/report.html").headers["content-disposition"].startswith("attachment")


def test_numbers_of_the_model_stand_beside_their_caveat(ann):
    page = visible(ann.get(stay_page(ann)).text)
    assert "Under the policy the model says" in page
    assert "A model estimate, not a fact." in page
    assert "similar past cases" in page
    assert "only if the model is right" in page
    assert not re.search(r"(?<![\d.])(0|100)%", page)
    assert not re.search(NEVER, page)
    assert "%" not in visible(ann.get("/").text)


def test_a_stay_has_rows_for_its_picture(ann):
    following = ann.next()
    rows = ann.json(f"/episodes/{following['slug']}/trajectory?place={following['place']}")
    assert rows["model"] is True
    assert {"happened", "shade", "evidence", "draws"} <= set(rows["datasets"])
    assert set(rows["datasets"]) <= set(ann.json("/charts/trajectory")["spec"]["datasets"])


def test_nothing_of_the_page_comes_from_elsewhere(ann):
    for path in ("/", stay_page(ann), "/about", "/docs"):
        page = ann.get(path).text
        links = re.findall(r'(?:src|href|action|data-\w+)="([^"]*)"', page)
        assert all(link.startswith(("/", "#", "data:,")) or "/" not in link for link in links)
        assert "<script>" not in page
        assert "style=" not in page


def test_static_files_come_from_the_package_only(ann):
    for name in re.findall(r'"(/static/[^"]+)"', ann.get(stay_page(ann)).text):
        answer = ann.get(name)
        assert "immutable" in answer.headers["cache-control"]
    for path in ("/static/nothing.js", "/static/..%2Fapp.py", "/static/%2e%2e/store.py"):
        assert ann.client.get(path).status_code == 404
    for path in ("/meta.json", "/reviews.sqlite", "/episodes.parquet", "/audit/meta.json"):
        assert ann.client.get(path).status_code == 404


# ----------------------------------------------------------------------------------------- verdicts


def test_a_verdict_by_form_leads_to_the_next_stay_and_can_be_undone(site, ann):
    first = ann.next()
    page = ann.open(stay_page(ann))
    answer = ann.send(
        f"/episodes/{first['slug']}",
        page,
        do="save",
        verdict="2",
        variable="glucose",
        step="1",
        sure="high",
        comment="low\r\nsugar",
        seconds="12",
    )
    second = answer.headers["location"]
    assert second == f"{stay_page(ann)}&saved={ann.json('/queue')['undo']['review']}"
    (kept,) = site.store.reviews(site.run.id)
    assert (kept.verdict, kept.variable, kept.step, kept.comment, kept.seconds) == (
        (2, "glucose", 1, "low\nsugar", 12.0)
    )
    page = ann.open(second)
    undo = re.search(r'<form method="post" action="(/reviews/\d+/withdraw)".*?</form>', page, re.S)
    form = dict(re.findall(r'name="([^"]*)" value="([^"]*)"', undo[0]))
    back = ann.client.post(undo[1], data=form)
    assert back.headers["location"] == stay_page(ann, first)
    page = ann.open(back.headers["location"])
    assert 'value="glucose"' in page
    assert "low\nsugar" in page
    assert site.store.reviews(site.run.id)[0].withdrawn_at
    assert "withdrew a verdict" in ann.get("/audit").text


def test_skipping_and_drafts(site, ann):
    first = ann.next()
    longest = {"form": {"comment": "長" * 10_000}, "place": first["place"]}
    assert ann.post(f"/episodes/{first['slug']}/draft", **longest) == {"kept": True}
    body = {"form": {"verdict": "3", "comment": "not yet"}, "place": first["place"]}
    assert ann.post(f"/episodes/{first['slug']}/draft", **body) == {"kept": True}
    page = ann.open(stay_page(ann))
    assert 'value="3" checked' in page
    assert "not yet" in page
    ann.send(f"/episodes/{first['slug']}", page, do="skip")
    assert ann.next()["id"] != first["id"]
    assert ann.json("/queue")["progress"]["skipped"] == 1


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({}, "verdict", "Choose a verdict."),
        ({"verdict": "6"}, "verdict", "Input should be less than or equal to 5."),
        ({"verdict": "2"}, "variable", "Name the variable that explains it, or write a comment."),
        ({"verdict": "3"}, "step", "Give the step, or name the treatment."),
        ({"verdict": "1", "step": "999"}, "step", "999 is after the last step, "),
        ({"verdict": "1", "sure": "very"}, "sure", "Input should be &#39;&#39;, &#39;low&#39;"),
        ({"verdict": "1", "comment": "x" * 10_001}, "comment", "10,001 characters; at most"),
    ],
)
def test_an_error_is_said_beside_its_field_and_what_was_written_stays(
    site, ann, values, field, words
):
    first = ann.next()
    page = ann.open(stay_page(ann))
    typed = {"comment": "keep me"} | values if field != "variable" else values
    answer = ann.send(f"/episodes/{first['slug']}", page, 422, do="save", **typed)
    beside = re.search(r'class="(?:sure )?wrong">.*?</(?:p|fieldset)>', answer.text, re.DOTALL)[0]
    assert f'<span class="error" id="wrong">{words}' in beside
    assert f'name="{field}"' in beside
    assert 'aria-describedby="wrong"' in beside
    assert f'<strong>Not saved.</strong> <a href="#wrong">{words}' in answer.text
    assert typed.get("comment", "") in answer.text
    assert site.store.reviews(site.run.id) == []


def test_an_error_in_what_no_form_shows_is_said_above_it(ann):
    path, page = f"/episodes/{ann.next()['slug']}", ann.open(stay_page(ann))
    answer = ann.send(path, page, 422, do="save", verdict="1", seconds="nan")
    assert "<strong>Not saved.</strong> Seconds: Input should be" in answer.text
    assert 'id="wrong"' not in answer.text


def test_a_saved_verdict_is_confirmed_once_in_words(site, ann):
    first = ann.next()
    path, page = f"/episodes/{first['slug']}", ann.open(stay_page(ann))
    answer = ann.send(path, page, do="save", verdict="2", variable=" <i>glucose</i>")
    page = ann.open(answer.headers["location"])
    words = f"Saved: patient {first['id']}, &lt;i&gt;glucose&lt;/i&gt; explains it."
    assert words in page
    assert page.count('class="undo') == 1  # the bottom of the page does not repeat it
    assert words in ann.open(f"/?saved={ann.json('/queue')['undo']['review']}")
    for address in ("/", "/?saved=0", "/?saved=x", stay_page(ann)):
        assert "Saved:" not in ann.open(address)
    answer = ann.send(f"/episodes/{ann.next()['slug']}", ann.open(stay_page(ann)), do="skip")
    assert "Saved:" not in ann.open(answer.headers["location"])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "verdict"),
        ({"verdict": "1"}, "verdict"),
        ({"verdict": 2}, "variable"),
        ({"verdict": 3}, "step"),
        ({"verdict": 1, "sure": "very"}, "sure"),
        ({"verdict": 1, "other": 1}, "other"),
    ],
)
def test_a_wrong_field_of_json_is_named(ann, body, field):
    assert ann.post(f"/episodes/{ann.next()['slug']}/reviews", 422, **body)["field"] == field


def test_stale_forms_and_other_runs_are_refused(site, ann):
    first = ann.next()
    page = ann.open(stay_page(ann))
    path = f"/episodes/{first['slug']}"
    ann.send(path, page, 409, do="save", verdict="1", run="f" * 64)
    ann.post(f"{path}/reviews", 409, verdict=1, run="f" * 64)
    ann.post(f"{path}/reviews", 422, {"If-Match": "new"}, verdict=1)
    ann.send(path, page, do="save", verdict="1")
    assert "Not saved" in ann.send(path, page, 409, do="save", verdict="1").text
    assert ann.post(f"{path}/reviews", 409, {"If-Match": '"0"'}, verdict=1)["version"] > 0
    etag = ann.get(f"/api/v1{path}").headers["etag"]
    review = site.store.reviews(site.run.id)[0].id
    ann.post(f"/reviews/{review}/withdraw", 409, {"If-Match": '"1"'})
    ann.post(f"/reviews/{review}/withdraw", 200, {"If-Match": etag})
    ann.post(f"/reviews/{review}/withdraw", 409)
    ann.post("/reviews/99999/withdraw", 404)
    ann.get("/episodes/nobody", 404)


def test_a_new_run_opens_a_new_queue_and_shows_old_verdicts_as_such(tmp_path):
    old = Site(tmp_path, small_audit())
    ann = old.reviewer("ann")
    first = ann.next()
    ann.post(f"/episodes/{first['slug']}/reviews", 201, verdict=5, comment="the old model")
    new = Site(tmp_path, small_audit(flags=7))
    ann.post(f"/episodes/{ann.next()['slug']}/reviews", 409, verdict=1)
    again = new.reviewer("ann")
    assert again.json("/queue")["progress"]["done"] == 0
    page = again.get(f"/episodes/{first['slug']}").text
    assert "About an earlier run" in page
    assert "the old model" in page
    old.store.close()
    new.store.close()


# -------------------------------------------------------------------------------- what is not shown


def test_pages_of_controls_and_of_flagged_stays_have_the_same_structure(site, ann):
    stays = site.store.stays(site.run.id)
    shapes = {}
    for item in ann.json("/queue")["items"]:
        view = ann.json(f"/episodes/{item['slug']}?place={item['place']}")
        page = ann.get(stay_page(ann, item)).text
        rows = ann.json(f"/episodes/{item['slug']}/trajectory?place={item['place']}")["datasets"]
        control = next(stay.control for stay in stays if stay.episode == item["id"])
        tags = re.sub(
            r"<select.*?</select>|<details.*?</details>|<ul.*?</ul>", "", page, flags=re.S
        )
        tags = re.sub(r'<a class="button" id="(previous|next)".*?</a>', "", tags)
        shape = (
            tuple(re.findall(r"<\w+", tags)),
            tuple(sorted(view)),
            tuple(sorted(view["model"])),
            tuple(sorted(rows)),
            bool(rows["shade"]) and bool(rows["draws"]),
        )
        shapes.setdefault(control, set()).add(shape)
    assert shapes[True] == shapes[False]
    assert len(shapes[True]) == 1


def test_nothing_that_reviewers_can_ask_for_tells_controls_flags_or_repeats(site, ann):
    finish(ann)
    first = ann.json("/queue")["items"][0]
    told = [
        ann.get(f"/api/v1{twin}").text for twin in (*TWINS.values(), f"/episodes/{first['slug']}")
    ]
    told.append(ann.get(f"/api/v1/episodes/{first['slug']}/trajectory").text)
    told.append(ann.get("/api/v1/charts/overview").text)
    for text in told:
        assert not re.search(r'"(control|repeat|rank|order|seed)"', text)
        assert "Ringed" not in text
    for event in ann.json("/events")["events"]:
        assert not {"payload", "repeat", "seed"} & set(event)


def test_a_stay_that_comes_back_looks_new(tmp_path):
    site = Site(tmp_path, small_audit(flags=16), repeat_share=0.2)
    ann = site.reviewer("ann")
    seen, back = set(), None
    while following := ann.next():
        if following["id"] in seen:
            back = following
            break
        seen.add(following["id"])
        ann.post(f"/episodes/{following['slug']}/reviews", 201, verdict=1, comment="the first time")
    assert back is not None
    page = ann.get(stay_page(ann, back)).text
    assert "the first time" not in page
    assert "Is the model’s story believable" in page
    answer = ann.send(f"/episodes/{back['slug']}", page, do="save", verdict="4")
    assert answer.status_code == 303
    assert [review.verdict for review in site.store.reviews(site.run.id) if review.repeat] == [4]
    site.store.close()


def test_there_is_one_total_and_no_place_is_a_position(tmp_path):
    site = Site(tmp_path, small_audit(flags=16), repeat_share=0.2)
    ann = site.reviewer("ann")
    for _ in range(12):
        queue = ann.json("/queue")
        total = len(queue["items"])
        assert queue["progress"]["total"] == total
        assert f"of {total} done" in ann.get("/").text
        following = ann.next()
        view = ann.json(f"/episodes/{following['slug']}?place={following['place']}")
        assert view["total"] == total
        assert f"{view['number']} of {total}" in ann.get(stay_page(ann, following)).text
        assert all(item["place"] > total for item in queue["items"])
        ann.json(f"/episodes/{following['slug']}?place={view['number']}", 404)
        ann.post(f"/episodes/{following['slug']}/reviews", 201, verdict=1, place=following["place"])
    site.store.close()


def test_a_page_and_a_post_read_the_queue_once(site, ann, monkeypatch):
    asked = []
    read = Reviewer.queue
    monkeypatch.setattr(Reviewer, "queue", lambda self: asked.append(self) or read(self))
    following = ann.next()
    asked.clear()
    page = ann.get(stay_page(ann, following)).text
    assert len(asked) == 1
    ann.send(f"/episodes/{following['slug']}", page, do="save", verdict="1")
    assert len(asked) == 2
    ann.get("/")
    assert len(asked) == 3


def test_what_was_inferred_is_shown_with_the_model_only(tmp_path):
    site = Site(tmp_path, hidden_audit(), first_impression=True)
    ann = site.reviewer("ann")
    path = f"/episodes/{ann.next()['slug']}"
    blind = ann.json(path)
    assert blind["inferred"] == []
    assert "Inferred" not in as_text(blind)
    assert ann.json(f"{path}/trajectory")["datasets"]["inferred"] == []
    assert "Inferred" not in ann.open(path)
    ann.post(f"{path}/impression", 201, first_impression="nothing")
    seen = ann.json(path)
    assert [name for name, _ in seen["inferred"]] == ["diabetes", "glucose"]
    assert ann.json(f"{path}/trajectory")["datasets"]["inferred"]
    assert "Inferred by the model</h3>" in ann.open(path)
    assert "Violet rows" in ann.open("/about")
    site.store.close()


def test_the_model_stays_hidden_until_the_first_impression(tmp_path):
    site = Site(tmp_path, small_audit(), first_impression=True)
    ann = site.reviewer("ann")
    first = ann.next()
    path, place = f"/episodes/{first['slug']}", f"?place={first['place']}"
    page = ann.open(path + place)
    assert "Was anything else worth trying?" in page
    assert "the model says" not in visible(page).replace("see what the model says", "")
    assert ann.json(path + place)["model"] is None
    assert "%" not in visible(page)
    rows = ann.json(f"{path}/trajectory{place}")
    assert rows["model"] is False
    assert not any(
        rows["datasets"].get(n) for n in ("shade", "draws", "evidence", "places", "first")
    )
    assert ann.post(f"{path}/reviews", 422, verdict=1)["field"] == "first_impression"
    ann.send(path, page, 422, do="impression", first_impression=" ")
    ann.send(path, page, do="impression", first_impression="more fluid")
    page = ann.open(path + place)
    assert "the model says" in page
    ann.send(path, page, do="save", verdict="1")
    assert site.store.reviews(site.run.id)[0].first_impression == "more fluid"
    site.store.close()


def test_others_are_hidden_until_ones_own_verdict_and_a_third_settles(site, ann):
    bob, eve = site.reviewer("bob"), site.reviewer("eve")
    first = ann.next()
    path = f"/episodes/{first['slug']}"
    ann.post(f"{path}/reviews", 201, verdict=1, comment="ann thinks so")
    assert "ann thinks so" not in bob.get(path).text
    bob.get(f"/disagreements/{first['slug']}", 403)
    bob.post(f"{path}/reviews", 201, verdict=5, comment="bob does not")
    page = bob.get(path).text
    assert "ann thinks so" in page
    assert "Reviewer 1" in page
    settling = f"/disagreements/{first['slug']}"
    assert settling in eve.get("/").text
    page = eve.open(settling)
    assert "ann thinks so" in page
    assert "bob does not" in page
    assert re.findall(r"<li><strong>(.*?)</strong>:", page) == ["Reviewer 1", "Reviewer 2"]
    assert "somebody else must settle it" in ann.get(settling).text
    ann.post(f"{path}/settle", 403, verdict=1, reason="mine")
    eve.send(settling, page, 422, do="settle", verdict="1", reason="")
    eve.send(settling, page, 422, do="settle", reason="why")
    eve.send(settling, page, do="settle", verdict="1", reason="as the chart says")
    eve.send(settling, page, 409, do="settle", verdict="1", reason="again")
    page = ann.get(settling).text
    assert re.findall(r"<li><strong>(.*?)</strong>:", page) == ["ann", "Reviewer 2"]
    assert "Settled</strong> by Reviewer 3" in page  # other patients are open
    assert eve.json(settling)["settlement"]["mine"]
    review = site.store.reviews(site.run.id)[0].id
    ann.post(f"/reviews/{review}/withdraw", 403)
    bob.post(f"/reviews/{review}/withdraw", 403)
    eve.send(settling, eve.open(settling), 409, do="unsettle", version="1")
    eve.post(f"{path}/unsettle", 200)
    assert eve.json(settling)["may_settle"]


def test_who_opens_a_disagreement_cannot_come_back_with_a_verdict(tmp_path):
    site = Site(tmp_path, small_audit(), first_impression=True)
    ann, bob, eve = (site.reviewer(name) for name in ("ann", "bob", "eve"))
    first = ann.next()
    path = f"/episodes/{first['slug']}"
    given = []
    for person, verdict in ((ann, 1), (bob, 5)):
        person.post(f"{path}/impression", 201, first_impression="nothing")
        given.append(person.post(f"{path}/reviews", 201, verdict=verdict)["review"])
    page = visible(eve.get(path).text)
    assert "others have read this meanwhile" in page.lower()
    assert "%" not in page
    assert eve.json(path)["model"] is None
    assert "you cannot give a verdict of your own" in eve.get("/").text
    assert eve.json(f"{path}/trajectory?settling=true")["model"]
    assert eve.json(path)["model"] is not None
    bob.post(f"/reviews/{given[1]}/withdraw")
    eve.post(f"{path}/impression", 403, first_impression="I guess")
    assert "settle" in eve.post(f"{path}/reviews", 403, verdict=1)["error"]
    listed = {item["id"]: item["status"] for item in eve.json("/queue")["items"]}
    assert listed[first["id"]] == "Opened to settle"
    assert "Opened to settle" in eve.get("/").text
    assert "opened a disagreement" in eve.get("/audit").text
    bob.get(f"/disagreements/{first['slug']}", 403)
    site.store.close()


def test_one_who_took_a_verdict_back_is_not_asked_to_settle(site, ann):
    bob, eve = site.reviewer("bob"), site.reviewer("eve")
    first = ann.next()
    path = f"/episodes/{first['slug']}"
    eve.post(f"/reviews/{eve.post(f'{path}/reviews', 201, verdict=1)['review']}/withdraw")
    ann.post(f"{path}/reviews", 201, verdict=1)
    bob.post(f"{path}/reviews", 201, verdict=5)
    assert eve.json("/queue")["to_settle"] == []
    assert "withdrew your verdict" in eve.get(f"/disagreements/{first['slug']}", 403).text


def test_skipping_everything_opens_nothing(tmp_path):
    site = Site(tmp_path, small_audit(), repeat_share=0)
    ann = site.reviewer("ann")
    for item in ann.json("/queue")["items"]:
        ann.post(f"/episodes/{item['slug']}/skip", place=item["place"])
    assert ann.next() is None
    skipped = len(ann.json("/queue")["items"])
    assert f"You skipped {skipped} patients" in ann.get("/overview", 403).text
    assert f"You skipped {skipped}" in ann.get("/").text
    for path in ("/results", "/export/reviews.csv", "/export/report.html"):
        ann.get(path, 403)
    assert not ann.json("/events")["everybody"]
    for item in ann.json("/queue")["items"]:
        ann.post(f"/episodes/{item['slug']}/reviews", 201, verdict=1, place=item["place"])
    ann.get("/overview")
    ann.get("/results")
    assert [e.action for e in site.store.events(reviewer="ann")].count("overview") == 1


def test_results_and_exports_do_not_name_others_who_differ(site, ann):
    bob = site.reviewer("bob")
    finish(ann)
    for following in iter(bob.next, None):
        bob.post(f"/episodes/{following['slug']}/reviews", 201, verdict=4, place=following["place"])
    for path in ("/api/v1/results", "/api/v1/agreement", "/results", "/export/reviews.csv"):
        text = ann.get(path).text
        assert "Reviewer" in text
        assert "bob" not in text
    lines = ann.get("/export/reviews.jsonl").text.splitlines()
    assert not any("bob" in line for line in lines)
    (pair,) = ann.json("/agreement")["kappas"]
    assert (pair["first"], pair["second"]) == ("ann", "Reviewer 2")
    assert {event["who"] for event in ann.json("/events")["events"]} == {"", "ann", "Reviewer 2"}
    assert "In the reviews you are Reviewer 1." in ann.get("/results").text
    assert "Names stay hidden" in ann.get("/export/reviews.csv?real_names=true", 403).text
    eve = site.reviewer("eve")
    for stay in eve.json("/queue")["to_settle"]:
        eve.get(f"/disagreements/{stay['slug']}")
        eve.post(f"/episodes/{stay['slug']}/settle", verdict=1, reason="so")
    assert "/export/reviews.csv?real_names=true" in ann.get("/results").text
    text = ann.get("/export/reviews.csv?real_names=true").text
    assert {row["reviewer"] for row in csv.DictReader(io.StringIO(text))} == {"ann", "bob"}
    assert "bob" not in ann.get("/export/reviews.csv").text
    assert {event["who"] for event in ann.json("/events")["events"]} == {"", "ann", "bob", "eve"}


def kappas(pairs):
    return {frozenset((pair["first"], pair["second"])): pair["kappa"]["value"] for pair in pairs}


def test_page_browser_and_command_line_give_the_same_kappa(tmp_path):
    # Ten patients for each pair of readers, the rest for the last pair; they differ about every
    # third, and half of these are settled by the third reviewer.
    audit = small_audit(24)
    audit.save(tmp_path / "audit")
    site = Site(tmp_path / "audit", audit, show_overview=True)
    real = {name: site.store.join(site.run.id, name).name for name in ("ann", "bob", "eve")}
    hidden = {"ann": "Reviewer 1", "bob": "Reviewer 2", "eve": "Reviewer 3"}
    said = {}
    for i, stay in enumerate(site.store.stays(site.run.id)):
        readers = list(combinations(real, 2))[min(i // 10, 2)]
        for j, name in enumerate(readers):
            said[name, stay.episode] = 1 + (i * i + (j and i % 3 == 0)) % 5
            verdict = Verdict(said[name, stay.episode], variable="glucose")
            site.store.reviewer(site.run.id, name).submit(stay.episode, verdict)
        if i % 6 == 0:
            (third,) = real.keys() - set(readers)
            settle(site.store.reviewer(site.run.id, third), stay.episode, 1, "so")
    states = {stay.state for stay in site.store.stays(site.run.id)}
    assert states == {"reviewed", "disagreement", "settled"}

    def expected(names):
        """The kappa of each pair by its definition, from what was said above."""
        found = {}
        for first, second in combinations(real, 2):
            both = [e for name, e in said if name == first and (second, e) in said]
            pairs = [(said[first, e], said[second, e]) for e in both]
            value = pytest.approx(slow.kappa(pairs, range(1, 6)))
            found[frozenset((names[first], names[second]))] = value
        return found

    for name in real:
        person = site.reviewer(name)
        found = kappas(person.json("/agreement")["kappas"])
        assert found == expected(hidden | {name: name})
        assert len(set(found.values())) == 3
        page = person.get("/results").text
        assert all(f"<td>{value:.2f}" in page for value in found.values())
        browser = tmp_path / "browser.csv"
        browser.write_bytes(person.get("/export/reviews.csv").content)
        assert agreement_of(browser) == expected(hidden)
    command = tmp_path / "command.csv"
    for options, names in (((), hidden), (("--real-names",), real)):
        folder = str(tmp_path / "audit")
        line = ["review", folder, "--export", str(command), "--overwrite", *options]
        told = CliRunner().invoke(commands, line)
        assert told.exit_code == 0, told.output
        assert agreement_of(command) == expected(names)
    site.store.close()


def agreement_of(path):
    told = CliRunner().invoke(commands, ["agreement", str(path), "--json"])
    (found,) = json.loads(told.output).values()
    return kappas(found["kappas"])


def test_a_list_can_be_ordered_by_the_difference(site, ann):
    finish(ann)
    differences = dict(
        zip(site.audit.episodes["id"], site.audit.episodes["difference"], strict=True)
    )
    for sort, expected in (("difference", min), ("-difference", max)):
        rows = ann.json(f"/episodes?sort={sort}")["episodes"]
        values = [row["difference"] for row in rows]
        assert values == sorted(values, reverse=expected is max)
        assert values[0] == expected(differences.values())
        assert f'value="{sort}" selected' in ann.get(f"/episodes?sort={sort}").text


def test_no_message_calls_a_patient_a_stay(site, ann):
    first = ann.next()
    path = f"/episodes/{first['slug']}"
    page = ann.open(stay_page(ann))
    ann.send(path, page, do="save", verdict="1")
    for error in (
        ann.post(f"{path}/reviews", 409, verdict=1),
        ann.post(f"{path}/reviews", 409, {"If-Match": '"0"'}, verdict=1),
        ann.post(f"{path}/settle", 409, verdict=1, reason="so"),
        ann.post(f"{path}/unsettle", 409),
        ann.json(f"/disagreements/{first['slug']}", 403),
    ):
        assert "stay" not in error["error"]


def test_what_others_finished_is_listed_as_that(site, ann):
    first = ann.next()
    for name in ("bob", "eve"):
        site.reviewer(name).post(f"/episodes/{first['slug']}/reviews", 201, verdict=1)
    listed = {item["id"]: item["status"] for item in ann.json("/queue")["items"]}
    assert listed.pop(first["id"]) == "Read by others"
    assert set(listed.values()) == {"Waiting"}


def test_what_was_written_is_kept_or_quoted_when_it_was_too_late(site, ann):
    first = ann.next()
    path = f"/episodes/{first['slug']}"
    page = ann.open(stay_page(ann))
    ann.post(f"{path}/skip", place=first["place"])
    late = ann.send(path, page, 409, do="save", verdict="1", comment="a thought").text
    assert "What you wrote is still below" in late
    assert ">a thought</textarea>" in late
    ann.post(f"{path}/reviews", 201, verdict=5)
    late = ann.send(path, page, 409, do="save", verdict="1", comment="a thought").text
    assert "still below" not in late
    assert "What you wrote" in late
    assert '<dd class="comment">a thought</dd>' in late
    assert '<dd class="comment">(1) Believable</dd>' in late


def test_intervals_stand_beside_what_they_cover_and_marked_verdicts_are_counted(site, ann):
    bob = site.reviewer("bob")
    finish(ann)
    page = visible(ann.get("/results").text)
    assert page.count("Covers chance in the sample, not errors in the model.") == 3
    assert "Excluded" not in page
    path = f"/episodes/{bob.next()['slug']}"
    bob.post(f"/reviews/{bob.post(f'{path}/reviews', 201, verdict=1)['review']}/withdraw")
    bob.post(f"{path}/reviews", 201, verdict=1)
    assert "Excluded: 1 verdict given after seeing" in visible(ann.get("/results").text)
    assert ann.json("/results")["informed"] == 1


# ------------------------------------------------------------------------------------- hostile text


def test_hostile_text_is_shown_as_text_everywhere(tmp_path):
    audit = small_audit(hostile=True)
    site = Site(tmp_path, audit)
    ann = site.reviewer(SCRIPT)
    evil = f"{SCRIPT}'\"&=1+1\N{RIGHT-TO-LEFT OVERRIDE}" + "𝕏" * 500
    pages = []
    shown = set()
    while following := ann.next():
        page = ann.open(stay_page(ann, following))
        assert ann.json(f"/episodes/{following['slug']}")["id"] == following["id"]
        shown.add(following["id"])
        form = {"verdict": "2", "variable": "=1+1", "comment": evil}
        answer = ann.client.post(
            f"/episodes/{following['slug']}", data=fields(page) | form | {"do": "save"}
        )
        assert answer.status_code == 303
        pages += [page, ann.open(stay_page(ann, following))]
    assert shown >= set(HOSTILE)  # all of them
    pages += [ann.get(path).text for path in TWINS]
    pages.append(ann.get("/episodes?obs=" + SCRIPT + "&status='\"&after=<b>").text)
    for page in pages:
        assert SCRIPT not in page
        assert "<i>case" not in page
        assert "<b>died" not in page
        assert "<img src=x" not in page
        assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in html.unescape(page)
        assert "{{ 7*7 }}" in page or "49" not in re.findall(r"case\S* (\S+):", page)
    rows = list(csv.DictReader(io.StringIO(ann.get("/export/reviews.csv").text)))
    assert {row["variable"] for row in rows} == {"'=1+1"}
    assert all(row["comment"] == evil for row in rows)
    assert not any(cell.startswith(("=", "@")) for row in rows for cell in row.values())
    lines = [json.loads(line) for line in ann.get("/export/reviews.jsonl").text.splitlines()]
    assert {line["variable"] for line in lines} == {"=1+1"}
    assert all(line["history"] for line in lines)
    table = list(csv.DictReader(io.StringIO(ann.get("/export/episodes.csv").text)))
    assert len(table) == 200
    assert not any(cell.startswith(("=", "@")) for row in table for cell in row.values())
    assert ann.get("/export/episodes.jsonl").text.count("\n") == 200
    site.store.close()


@pytest.mark.parametrize("name", HOSTILE)
def test_every_name_has_an_address(name):
    assert read_slug(make_slug(name)) == name
    assert re.fullmatch(r"[A-Za-z0-9_.~-]+", make_slug(name))
    assert not make_slug(name).startswith(".")


# ----------------------------------------------------------------------------------------- refusals


def test_every_answer_carries_the_headers_of_safety(site, ann):
    for path in ("/", "/nothing", "/static/review.js", "/api/v1/run", "/api/v1/nothing"):
        headers = ann.client.get(path).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store" or path.startswith("/static/")
    cookie = site.client().get("/sign-in").headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" not in cookie


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8000", 303),
        ("LOCALHOST:8000", 303),
        ("evil.example", 421),
        ("127.0.0.1", 421),
        ("127.0.0.1:80", 421),
        ("127.0.0.1:8000.evil.example", 421),
        ("", 400),
    ],
)
def test_the_host_must_be_ones_own(site, host, status):
    assert site.client().get("/", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": BASE}, 201),
        ({}, 201),
        ({"origin": "null", "sec-fetch-site": "same-origin"}, 201),
        ({"origin": "null"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "https://127.0.0.1:8000"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"origin": BASE, "sec-fetch-site": "cross-site"}, 403),
    ],
)
def test_posts_come_from_ones_own_pages(ann, headers, status):
    ann.post(f"/episodes/{ann.next()['slug']}/reviews", status, headers, verdict=1)


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site"},
        # what Chromium sends for the speculation rules of a page on another port, with cookies
        {"sec-fetch-site": "none", "sec-purpose": "prefetch"},
        {"sec-fetch-site": "none", "sec-purpose": "prefetch;prerender"},
    ],
    ids=["same site", "cross site", "prefetched", "prerendered"],
)
def test_a_page_elsewhere_cannot_take_a_reviewers_right_to_a_verdict(site, elsewhere):
    first, second, eve = (site.reviewer(name) for name in ("ann", "bob", "eve"))
    slug = first.next()["slug"]
    first.post(f"/episodes/{slug}/reviews", 201, verdict=1)
    second.post(f"/episodes/{slug}/reviews", 201, verdict=5)
    paths = [f"/disagreements/{slug}", f"/api/v1/disagreements/{slug}", "/overview"]
    paths.append(f"/api/v1/episodes/{slug}/trajectory?settling=true")
    before = site.store.last_event()
    for path in paths:
        assert eve.client.get(path, headers=elsewhere).status_code == 403
    assert site.store.last_event() == before
    answer = eve.client.get("/", headers=elsewhere)  # a link in an e-mail
    assert answer.status_code in (200, 303)
    eve.get(f"/disagreements/{slug}")
    assert site.store.last_event() == before + 1


def test_posts_bring_back_the_token_of_their_session(site, ann):
    bob = site.reviewer("bob")
    first = ann.next()
    path = f"/episodes/{first['slug']}"
    form = fields(ann.open(stay_page(ann))) | {"do": "save", "verdict": "1"}
    for wrong in ("", "x" * 43, bob.csrf):
        assert ann.client.post(path, data=form | {"csrf": wrong}).status_code == 403
        ann.post(f"{path}/reviews", 403, {"x-csrf-token": wrong}, verdict=1)
    ann.post(f"{path}/reviews", 403, csrf=False, verdict=1)
    assert site.client().post(path, data=form).status_code == 401
    assert site.client().post("/sign-in", data={"reviewer": "x"}).status_code == 403
    assert site.store.reviews(site.run.id) == []
    ann.client.post("/sign-out", data={"csrf": ann.csrf})
    assert ann.client.get("/").headers["location"] == "/sign-in"
    assert ann.client.get("/api/v1/run").status_code == 401


@pytest.mark.parametrize("goal", ["//evil.example", "/\\evil.example", "https://evil.example", "x"])
def test_signing_in_leads_nowhere_else(site, goal):
    client = site.client()
    form = fields(client.get("/sign-in", params={"next": goal}).text)
    assert form["next"] == "/"
    answer = client.post("/sign-in", data=form | {"reviewer": "ann", "next": goal})
    assert answer.headers["location"] == "/start"  # the first page


def test_a_page_elsewhere_does_not_choose_what_signing_in_opens(site):
    for elsewhere, goal in ((None, "/disagreements/7"), ("same-site", "/"), ("cross-site", "/")):
        headers = {} if elsewhere is None else {"sec-fetch-site": elsewhere}
        page = site.client().get("/sign-in?next=/disagreements/7", headers=headers)
        assert fields(page.text)["next"] == goal


@pytest.mark.parametrize(
    "path",
    [
        "/episodes?obs=a%26b&model=%C3%A9t%C3%A9+%3F&sort=-id",
        "/episodes?obs=100%25&after=a%2Bb%23c",
        "/episodes/%C3%A9t%C3%A9?place=3",
    ],
)
def test_signing_in_leads_back_to_the_page_that_was_asked_for(site, path):
    client = site.client()
    page = client.get(client.get(path).headers["location"]).text
    form = {name: html.unescape(value) for name, value in fields(page).items()}
    answer = client.post("/sign-in", data=form | {"reviewer": "ann"})
    assert answer.headers["location"] == path


def test_what_was_written_when_the_session_ended_is_shown_again(site, ann):
    written = {"verdict": "2", "variable": "glucose", "comment": f"first\nsecond {SCRIPT}"}
    path, page = stay_page(ann), ann.open(stay_page(ann))
    site.app.app.state.access.sessions.end(ann.client.cookies["butfor_session_8000"])
    answer = ann.send(path.split("?")[0], page, 401, do="save", **written)
    assert f'name="next" value="{path}"' in answer.text
    assert 'value="ann"' in answer.text  # the name is there again
    shown = html.unescape(visible(answer.text))
    for text in ("(2) No: something the model did not see", "glucose", "first\nsecond <script>"):
        assert text in shown
    assert SCRIPT not in answer.text
    assert fields(page)["csrf"] not in answer.text
    back = ann.client.post("/sign-in", data=fields(answer.text) | {"reviewer": "ann"})
    assert back.headers["location"] == path
    # a form from before somebody signed in again is refused, with what was written
    answer = ann.send(path.split("?")[0], page, 403, do="save", **written)
    assert "glucose" in visible(answer.text)
    assert "Not saved" in visible(answer.text)
    assert f'href="{path}"' in answer.text
    assert site.store.reviews(site.run.id) == []


def test_a_settlement_and_an_undo_lead_back_when_the_session_ended(site):
    client = site.client()
    form = {"csrf": "x", "reason": "the chart says so", "verdict": "9"}
    answer = client.post("/disagreements/817", data=form)
    assert answer.status_code == 401
    assert 'name="next" value="/disagreements/817"' in answer.text
    assert "the chart says so" in answer.text
    answer = client.post("/reviews/3/withdraw", data={"csrf": "x"})
    assert answer.status_code == 401
    assert 'name="next" value="/"' in answer.text
    assert "What you wrote" not in answer.text


def test_a_page_to_sign_in_from_before_a_restart_asks_again(site):
    client = site.client()
    form = {"csrf": "old", "reviewer": "ann", "next": "/episodes/60?place=3"}
    answer = client.post("/sign-in", data=form)
    assert answer.status_code == 403
    assert 'value="ann"' in answer.text
    answer = client.post("/sign-in", data=fields(answer.text) | {"reviewer": "ann"})
    assert answer.headers["location"] == "/episodes/60?place=3"


def test_after_signing_out_the_name_is_forgotten(site):
    person = site.reviewer("Zoë O’Neill; 長")
    assert person.json("/session")["reviewer"] == "Zoë O’Neill; 長"
    person.client.cookies.delete("butfor_session_8000")
    assert 'value="Zoë O’Neill; 長"' in person.client.get("/sign-in").text
    person = site.reviewer("ann")
    person.client.post("/sign-out", data={"csrf": person.csrf})
    assert 'value="ann"' not in person.client.get("/sign-in").text


def test_reviews_on_two_ports_of_a_machine_do_not_sign_each_other_out(site, tmp_path_factory):
    other = Site(tmp_path_factory.mktemp("other"), small_audit(), port=8001)
    ann, bob = site.reviewer("ann"), other.reviewer("bob")
    cookies = dict(ann.client.cookies) | dict(bob.client.cookies)
    for person, name in ((ann, "ann"), (bob, "bob")):
        person.client.cookies.update(cookies)
        assert person.json("/session")["reviewer"] == name
    other.store.close()


def test_what_is_no_form_no_json_or_too_large_is_refused(ann):
    path = f"/episodes/{ann.next()['slug']}"
    client, token = ann.client, {"x-csrf-token": ann.csrf}
    large = b"x" * (LARGEST_BODY + 1)
    form = {"content-type": "application/x-www-form-urlencoded"}
    api = {"content-type": "application/json"} | token
    assert client.post(path, content=large, headers=form).status_code == 413
    assert client.post(path, content=iter([large]), headers=form).status_code == 413
    assert client.post(path, content=b"a=%ff", headers=form).status_code == 400
    assert client.post(path, content="é".encode(), headers=form).status_code == 400
    assert client.post(path, content=b"a=b&" * 100, headers=form).status_code == 400
    assert client.post(path, content=b"{}", headers=api).status_code == 415
    for body in (b"{", b"[" * 100_000, b"\xff", b'{"verdict": 1e999}', b"null", b""):
        answer = client.post(f"/api/v1{path}/reviews", content=body, headers=api)
        assert answer.status_code in (400, 422), body[:20]
    assert client.post("/", data={}).status_code == 405


def test_names_that_are_none_are_refused(site):
    client = site.client()
    form = fields(client.get("/sign-in").text)
    for name in ("", "  ", "x" * 81, "a\nb"):
        answer = client.post("/sign-in", data=form | {"reviewer": name})
        assert answer.status_code == 422
        assert "Reviewer:" in answer.text


# ------------------------------------------------------------------------------------------- tokens


def write_tokens(folder, text, mode=0o600):
    path = folder / "tokens"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_with_tokens_only_those_named_come_in_and_cookies_need_tls(tmp_path):
    ann, bob = "3f9c1e7ab2d84605c1f7e9a03b5d2864", "b7e20d6c91f34a58e6c80b1d7f2a9350"
    path = write_tokens(tmp_path, f"# who\nann  {ann}\nBob Dylan {bob}\n")
    site = Site(tmp_path, small_audit(), tokens=read_tokens(path), tls=True)
    client = site.client()
    page = client.get("/sign-in")
    assert "secure" in page.headers["set-cookie"].lower()
    assert page.headers["strict-transport-security"] == "max-age=31536000"
    assert 'type="password"' in page.text
    form = fields(page.text)

    def attempt(name, token):
        return client.post("/sign-in", data=form | {"reviewer": name, "token": token}).status_code

    assert attempt("eve", ann) == 401
    assert attempt("ann", "") == 401
    assert attempt("Bob Dylan", bob) == 303
    site.store.close()


def test_wrong_tokens_slow_an_address_down_but_never_keep_the_right_one_out(tmp_path, monkeypatch):
    monkeypatch.setattr("butfor.review.routes.sessions.FIRST_DELAY", 0.02)
    tokens = Tokens(
        {"ann": "3f9c1e7ab2d84605c1f7e9a03b5d2864", "bob": "b7e20d6c91f34a58e6c80b1d7f2a9350"}
    )
    site = Site(tmp_path, small_audit(), tokens=tokens)

    def attempt(name, token):
        began = time.monotonic()
        body = {"reviewer": name, "token": token}
        said = site.client().post("/api/v1/session", json=body).status_code
        return said, time.monotonic() - began

    names = [("ann", "bob", "eve")[turn % 3] for turn in range(FREE_FAILURES + 4)]
    assert [attempt(name, "x" * 16)[0] for name in names] == [401] * len(names)
    said, seconds = attempt("ann", "x" * 16)
    assert said == 401
    assert seconds > 0.02 * 2**4
    # a right token is answered as late, so that a slow answer does not mean a wrong one
    said, seconds = attempt("ann", "3f9c1e7ab2d84605c1f7e9a03b5d2864")
    assert said == 200
    assert seconds > 0.02 * 2**5
    site.store.close()


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("ann 3f9c1e7ab2d84605c1f7e9a03b5d2864", 0o644, "chmod 600"),
        ("ann short", 0o600, "about 8 bits where 64 are needed"),
        (f"ann {'a' * 40}", 0o600, "too easy to guess"),
        (f"ann {'0123456789abcdef' * 3}", 0o600, "too easy to guess"),
        ("ann passwordpasswordpassword", 0o600, "too easy to guess"),
        ("3f9c1e7ab2d84605c1f7e9a03b5d2864", 0o600, "name token"),
        (
            "ann 3f9c1e7ab2d84605c1f7e9a03b5d2864\nann b7e20d6c91f34a58e6c80b1d7f2a9350",
            0o600,
            "twice",
        ),
        ("# nobody", 0o600, "names no reviewer"),
    ],
)
def test_bad_files_of_tokens_are_refused(tmp_path, text, mode, words):
    with pytest.raises(ValueError, match=words):
        read_tokens(write_tokens(tmp_path, text, mode))


def test_sessions_end_and_are_never_too_many(monkeypatch):
    monkeypatch.setattr("butfor.review.routes.sessions.MOST_SESSIONS", 3)
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    ann = sessions.start("ann")
    for _ in range(5):
        sessions.start()
    assert sessions.find(ann.id) == ann
    now[0] = 13 * 3600
    assert sessions.find(ann.id) is None
    assert sessions.find(None) is None


def test_the_delay_doubles_with_each_failure_and_is_forgotten(monkeypatch):
    monkeypatch.setattr("butfor.review.routes.sessions.MOST_ADDRESSES", 3)
    now = [0.0]
    failures = FailedSignIns(lambda: now[0])
    delays = []
    for _ in range(100):
        failures.add("here")
        delays.append(failures.delay("here"))
    assert delays[: FREE_FAILURES + 2] == [0] * (FREE_FAILURES - 1) + [0.5, 1, 2]
    assert delays[-1] == LONGEST_DELAY
    assert failures.delay("there") == 0
    now[0] = FAILURES_KEPT
    assert failures.delay("here") == 0
    for address in "abcdef":  # however many addresses there are, only the latest are kept
        failures.add(address)
    assert list(failures._failed) == ["d", "e", "f"]
    assert not Tokens({"ann": "x" * 16}).match("", "")


def test_what_goes_wrong_with_the_file_is_logged_and_not_shown(site, ann, tmp_path, caplog):
    path = site.store.path
    path.rename(path.with_name("elsewhere.sqlite"))
    path.touch()
    for address in ("/", "/api/v1/queue"):
        answer = ann.get(address, 503)
        assert "tell whoever runs it" in html.unescape(answer.text)
        assert str(tmp_path) not in answer.text
        assert "sqlite" not in answer.text
    assert str(path) in caplog.text


# ----------------------------------------------------------------------------------------- commands


def test_verify_tells_the_head_and_finds_a_change(tmp_path):
    site = Site(tmp_path, small_audit())
    ann, bob = site.reviewer("ann"), site.reviewer("bob")
    first = ann.next()
    for person in (ann, bob):
        person.post(f"/episodes/{first['slug']}/reviews", 201, verdict=1)
    head = site.store.verify().head
    site.store.close()
    found = CliRunner().invoke(commands, ["review", str(tmp_path), "--verify", "--head", head])
    assert found.exit_code == 0
    assert head in found.output
    site.audit.save(tmp_path / "audit")
    (tmp_path / "reviews.sqlite").rename(tmp_path / "audit" / "reviews.sqlite")
    out = tmp_path / "reviews.csv"
    folder = str(tmp_path / "audit")
    assert CliRunner().invoke(commands, ["review", folder, "--export", str(out)]).exit_code == 0
    told = CliRunner().invoke(commands, ["agreement", str(out)])
    assert "Krippendorff's alpha" in told.output
    told = CliRunner().invoke(commands, ["agreement", str(out), "--json"])
    assert json.loads(told.output)[site.run.id]["stays"] == 1
    with sqlite3.connect(tmp_path / "audit" / "reviews.sqlite") as connection:
        connection.execute("DROP TRIGGER event_no_update")
        change = """UPDATE event SET payload = replace(payload, '"verdict":1', '"verdict":2')"""
        connection.execute(change)
    connection.close()
    found = CliRunner().invoke(commands, ["review", folder, "--verify"])
    assert found.exit_code == 1
    assert "BROKEN" in found.output
    empty = CliRunner().invoke(commands, ["review", str(tmp_path), "--verify"])
    assert empty.exit_code == 2
