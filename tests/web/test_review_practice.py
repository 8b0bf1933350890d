"""The first page: what is asked, and a practice case of which nothing is kept."""

import pytest

from tests.review_site import Site, fields, small_audit


@pytest.fixture(scope="module")
def audit():
    return small_audit(6)


@pytest.fixture
def site(tmp_path, audit):
    made = Site(tmp_path, audit, verdicts_only=False)
    yield made
    made.store.close()


def sign_in(site, name):
    client = site.client()
    form = fields(client.get("/sign-in").text) | {"reviewer": name}
    return client.post("/sign-in", data=form).headers["location"]


def numbers(site, given):
    return {f"chances.{place}": str(number) for place, number in enumerate(given)}


def test_who_has_not_begun_is_told_what_is_asked_and_others_go_on(site):
    assert sign_in(site, "ann") == "/start"
    ann = site.reviewer("ann")
    item = ann.next()
    out_of_ten = dict.fromkeys(site.run.outcomes, 0) | {site.run.outcomes[0]: 10}
    ann.post(f"/episodes/{item['slug']}/answer", 201, chances=out_of_ten, place=item["place"])
    assert sign_in(site, "ann") == "/"


def test_the_practice_case_is_not_under_review_and_hides_the_model_until_it_is_solved(site):
    ann = site.reviewer("ann")
    view = ann.json("/practice")
    assert view["has_practice"]
    assert view["model"] is None
    reviewed = {stay.episode for stay in site.store.stays(site.run.id)}
    assert not any(f" {name}:" in view["title"] for name in reviewed)
    assert not ann.json("/practice/trajectory")["model"]
    page = ann.get("/start").text
    assert "Solution" not in page
    assert "What you enter here is not kept" in page


def test_what_is_said_of_the_queue_is_true_and_leads_nobody(site):
    ann = site.reviewer("ann")
    page = ann.get("/start").text
    assert "does not mark which is which, but what happened can give it away" in page
    for text in (page, ann.get("/about").text):
        for words in ("nothing tells", "look there first", "most useful verdict"):
            assert words not in text


def test_the_results_say_that_flags_could_be_guessed(tmp_path, audit):
    site = Site(tmp_path, audit, show_overview=True)
    page = site.reviewer("ann").get("/results").text
    assert "reviewers may have guessed which patients were flagged" in page
    site.store.close()


def test_a_solution_shows_the_model_and_records_nothing(site):
    ann = site.reviewer("ann")
    before = site.store.last_event()
    form = fields(ann.get("/start").text) | {"do": "answer"}
    wrong = ann.client.post("/start", data=form | numbers(site, [3, 3, 3]))
    assert wrong.status_code == 422
    assert "make them add up to 10" in wrong.text
    assert "Solution" not in wrong.text
    right = ann.client.post("/start", data=form | numbers(site, [3, 3, 4]))
    assert right.status_code == 200
    assert "Solution" in right.text
    assert "3 of 10" in right.text
    assert ann.json("/practice/trajectory?model=true")["model"]
    assert site.store.last_event() == before
    assert ann.json("/queue")["progress"]["done"] == 0


def test_a_program_can_practise_too(site):
    ann = site.reviewer("ann")
    solved = ann.post("/practice", chances=None, reason="no record of the dose")
    assert solved["model"]["outcomes"]
    assert solved["answer"]["words"] == "cannot tell: no record of the dose"


def test_with_verdicts_only_the_model_is_shown_at_once(tmp_path, audit):
    site = Site(tmp_path, audit)
    page = site.reviewer("ann").get("/start").text
    assert "Solution" in page
    assert "out of 10" not in page
    site.store.close()


def test_where_all_are_under_review_there_is_nothing_to_practise_on(tmp_path):
    site = Site(tmp_path, small_audit(500), verdicts_only=False)
    ann = site.reviewer("ann")
    assert "none to practise on" in ann.get("/start").text
    ann.json("/practice/trajectory", 404)
    site.store.close()


def test_a_coordinator_is_not_asked(tmp_path, audit):
    site = Site(tmp_path, audit, coordinators=("zoe",))
    assert sign_in(site, "zoe") != "/start"
    site.store.close()
