"""Who coordinates a review: what they see, what they cannot do, and what reviewers do not see."""

import csv
import io

import pytest
from typer.testing import CliRunner

from butfor.cli.main import app as commands
from butfor.review.coordination import read_progress
from butfor.review.plan import ReviewSettings
from butfor.review.routes.sessions import Tokens
from butfor.review.serve import check_coordinators
from butfor.review.store import Store
from butfor.review.verdicts import FieldError, RefusedError, Verdict
from tests.review_site import Site, small_audit


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path, small_audit(), coordinators=["Zoe"], verdicts_only=True, repeat_share=0.0)
    yield made
    made.store.close()


def give(site, name, verdict, stays, seconds=10.0):
    reviewer = site.store.join(site.run.id, name)
    for stay in stays:
        reviewer.submit(stay, Verdict(verdict), seconds=seconds)
    return reviewer


def names_of(site):
    return [stay.episode for stay in site.store.stays(site.run.id)]


def test_the_progress_is_that_of_hand_counted_reviewers(site):
    first, second, third, fourth, *_ = stays = names_of(site)
    ann = give(site, "ann", 1, [first, second], seconds=20.0)
    give(site, "bob", 4, [first], seconds=30.0)
    give(site, "bob", 1, [second], seconds=50.0)
    ann.skip(third)
    ann.save_draft(fourth, {"comment": "so far"})
    zoe = site.reviewer("zoe")
    found = zoe.json("/progress")
    # two stays have two verdicts each, the first one 1 and 4; ann skipped one and began one
    n = len(stays)
    assert found["total"] == n
    assert found["finished"] == 1
    assert found["stays"] == {
        "disagreement": 1,
        "reviewed": 1,
        "in_review": 1,
        "waiting": n - 3,
    }
    one, two = found["reviewers"]
    assert (one["name"], one["pseudonym"]) == ("ann", "Reviewer 1")
    counted = ("done", "begun", "skipped", "left", "median_seconds")
    assert [one[key] for key in counted] == [2, 1, 1, n - 3, 20.0]
    assert [two[key] for key in counted] == [2, 0, 0, n - 2, 40.0]
    events = site.store.events(run=site.run.id, reviewer="bob")
    assert two["last_active"] == events[-1].at
    assert one["last_active"] >= site.store.events(run=site.run.id, reviewer="ann")[-1].at
    (waiting,) = [stay for stay in found["waiting"] if stay["id"] == third]
    assert waiting == {
        "id": third,
        "slug": third,
        "verdicts": 0,
        "missing": 2,
        "readers": ["bob"],
        "skipped_by": ["ann"],
        "stuck": True,
    }
    assert [stay["stuck"] for stay in found["waiting"]] == [True] + [False] * (n - 3)
    (differing,) = found["differing"]
    assert differing["may_settle"] == []
    assert [v["verdict"] for v in differing["verdicts"]] == [1, 4]
    page = zoe.get("/coordinator").text
    assert "Nobody yet:" in page
    assert "ann" in page
    give(site, "eve", 1, [])
    assert zoe.json("/progress")["differing"][0]["may_settle"] == ["eve"]
    assert not any(stay["stuck"] for stay in zoe.json("/progress")["waiting"])


def test_a_coordinator_is_no_reviewer_and_gives_no_verdict(site):
    give(site, "ann", 1, names_of(site)[:1])
    give(site, "bob", 4, names_of(site)[:1])
    give(site, "eve", 1, [])
    stay = names_of(site)[0]
    zoe = site.reviewer("zoe")
    answer = zoe.client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/coordinator")
    zoe.json("/queue", 403)
    zoe.json("/queue/next", 403)
    for path, body in (
        (f"/episodes/{stay}/reviews", {"verdict": 1}),
        (f"/episodes/{stay}/skip", {}),
        (f"/episodes/{stay}/draft", {"form": {}}),
        (f"/episodes/{stay}/settle", {"verdict": 1, "reason": "so"}),
        (f"/episodes/{stay}/unsettle", {}),
    ):
        assert "no verdicts" in zoe.post(path, 403, **body)["error"]
    seen = zoe.json(f"/disagreements/{stay}")
    assert not seen["may_settle"]
    assert {o["reviewer"] for o in seen["opinions"]} == {"ann (Reviewer 1)", "bob (Reviewer 2)"}
    assert zoe.json(f"/episodes/{stay}")["place"] is None
    zoe.get(f"/disagreements/{stay}")
    zoe.json(f"/episodes/{stay}/trajectory?settling=true")
    for path in ("/overview", "/results", "/episodes", "/audit", "/about", "/docs"):
        zoe.get(path)
    assert set(site.store.pseudonyms()) == {"ann", "bob", "eve"}
    assert [e.action for e in site.store.events(reviewer="zoe")] == ["coordinate"]
    assert site.store.verify().ok
    zoe.client.post("/sign-out", data={"csrf": zoe.csrf})
    assert zoe.client.get("/coordinator").headers["location"].startswith("/sign-in")


def test_only_the_coordinator_sees_the_progress_and_the_names(site):
    ann, zoe = site.reviewer("ann"), site.reviewer("ZOE")
    give(site, "ann", 1, names_of(site))
    give(site, "bob", 4, names_of(site))
    assert "only a coordinator" in ann.json("/progress", 403)["error"]
    ann.get("/coordinator", 403)
    ann.get("/export/reviews.csv?real_names=true", 403)
    for path in ("/", "/overview", "/results", "/audit", f"/episodes/{names_of(site)[0]}"):
        text = ann.get(path).text
        assert not any(word in text for word in ("bob", "ZOE", "/coordinator"))
    line = next(e for e in ann.json("/events")["events"] if e["action"] == "coordinate")
    assert line["who"] == "Coordinator"

    def reviewers(query=""):
        text = zoe.get(f"/export/reviews.csv{query}").text
        return {row["reviewer"] for row in csv.DictReader(io.StringIO(text))}

    assert reviewers() == {"Reviewer 1", "Reviewer 2"}
    assert reviewers("?real_names=true") == {"ann", "bob"}
    assert "ann (Reviewer 1)" in zoe.get("/results").text
    (pair,) = zoe.json("/agreement")["kappas"]
    (same,) = ann.json("/agreement")["kappas"]
    assert pair["kappa"] == same["kappa"]


def test_a_link_on_another_site_leads_a_coordinator_to_the_progress_and_changes_nothing(site):
    zoe = site.reviewer("zoe")
    before = site.store.last_event()
    elsewhere = {"sec-fetch-site": "same-site"}  # browsers say the same of the redirect
    answer = zoe.client.get("/", headers=elsewhere, follow_redirects=True)
    assert answer.status_code == 200
    assert answer.url.path == "/coordinator"
    assert site.store.last_event() == before


def test_nobody_reviews_and_coordinates_the_same_run(site):
    store, run = site.store, site.run.id
    store.join(run, "Ann")
    for act in (store.check_coordinator, store.coordinate):
        with pytest.raises(RefusedError, match="Ann has joined this review as a reviewer"):
            act(run, "ann")
    assert store.coordinate(run, "zoe") == store.coordinate(run, "Zoe") == "zoe"
    with pytest.raises(RefusedError, match="zoe has coordinated this review"):
        store.join(run, "ZOE")
    # without --coordinator the next time, she is told on the page where she signs in
    again = Site(site.store.path.parent, small_audit(), verdicts_only=True, repeat_share=0.0)
    client = again.client()
    page = client.get("/sign-in").text
    csrf = page.split('name="csrf" value="')[1].split('"')[0]
    answer = client.post("/sign-in", data={"csrf": csrf, "reviewer": "zoe"})
    assert answer.status_code == 403
    assert "has coordinated this review" in answer.text
    assert 'name="reviewer"' in answer.text
    again.store.close()


def test_a_coordinator_of_one_run_may_review_another(tmp_path):
    with Store(tmp_path) as store:
        first = store.open_run(small_audit())
        store.coordinate(first.id, "zoe")
        second = store.open_run(small_audit(seed=1))
        assert store.join(second.id, "Zoe").name == "zoe"
        assert store.pseudonyms() == {"zoe": "Reviewer 1"}
        with pytest.raises(RefusedError):
            store.check_coordinator(second.id, "zoe")


def test_a_coordinator_needs_a_token_where_others_do(tmp_path):
    tokens = Tokens(
        {"ann": "3f9c1e7ab2d84605c1f7e9a03b5d2864", "Zoe": "b7e20d6c91f34a58e6c80b1d7f2a9350"}
    )
    check_coordinators(["zoe"], tokens)
    check_coordinators(["anybody"], None)
    with pytest.raises(ValueError, match="--coordinator max: the token file has no such name"):
        check_coordinators(["max"], tokens)
    with pytest.raises(FieldError, match="enter a name"):
        check_coordinators([" "], tokens)
    site = Site(tmp_path, small_audit(), tokens=tokens, coordinators=["Zoe"])
    client = site.client()
    wrong = {"reviewer": "Zoe", "token": "3f9c1e7ab2d84605c1f7e9a03b5d2864"}
    assert client.post("/api/v1/session", json=wrong).status_code == 401
    right = wrong | {"token": "b7e20d6c91f34a58e6c80b1d7f2a9350"}
    assert client.post("/api/v1/session", json=right).status_code == 200
    assert client.get("/api/v1/session").json()["coordinator"] is True
    assert client.get("/api/v1/progress").json()["not_signed_in"] == ["ann"]
    assert "Not signed in yet: ann." in client.get("/coordinator").text
    site.store.close()


def test_the_command_refuses_a_coordinator_who_reviewed(tmp_path):
    folder = small_audit().save(tmp_path / "audit")
    with Store(folder) as store:
        store.join(store.open_run(small_audit(), ReviewSettings()).id, "ann")
    told = CliRunner().invoke(commands, ["review", str(folder), "--coordinator", "Ann"])
    assert told.exit_code == 2
    assert "somebody else must coordinate it" in told.output


def test_the_progress_of_an_empty_review_says_so(site):
    zoe = site.reviewer("zoe")
    page = zoe.get("/coordinator").text
    assert "Nobody has signed in to review yet." in page
    found = read_progress(site.store, site.run.id)
    assert found.reviewers == ()
    assert all(stay.stuck for stay in found.waiting)
