"""The chances that reviewers give before they see the model: in store, API and pages."""

import re
from dataclasses import asdict, replace

import pytest

from butfor.present import Stays
from butfor.review.events import record
from butfor.review.plan import ReviewSettings, plan_stays, run_id
from butfor.review.reviewer import settle
from butfor.review.store import Store
from butfor.review.verdicts import (
    Chances,
    DamagedError,
    FieldError,
    RefusedError,
    StaleError,
    Verdict,
)
from tests.audits import hidden_audit
from tests.reference.review_tables import make_version
from tests.review_site import Site, change_file, small_audit
from tests.web.test_review_app import stay_page, visible

YES, EXPECTED = Verdict(1), Chances((3, 7, 0), sure="mid")
GIVEN = {"died": 3, "discharged": 7, "still in ICU": 0}


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path) as opened:
        yield opened


@pytest.fixture
def run(store):
    opened = store.open_run(small_audit(), ReviewSettings(repeat_share=0))
    for name in ("ann", "bob", "eve"):
        store.join(opened.id, name)
    return opened.id


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path, small_audit(), verdicts_only=False)
    yield made
    made.store.close()


def first_of(store, run, name="ann"):
    return store.reviewer(run, name).queue().items[0].episode


# -------------------------------------------------------------------------------------------- store


def test_chances_come_before_the_verdict_and_are_given_once(store, run):
    ann, name = store.reviewer(run, "ann"), first_of(store, run)
    with pytest.raises(FieldError, match="chances: give them before the verdict"):
        ann.submit(name, YES)
    item = ann.answer(name, EXPECTED, seconds=12)
    assert item.state == "draft"  # begun
    with pytest.raises(StaleError, match="already given the chances"):
        ann.answer(name, Chances((10, 0, 0)))
    done = ann.submit(name, YES)
    (answer,) = store.answers(run)
    assert (answer.id, answer.out_of_ten, answer.sure, answer.seconds) == (
        (item.answer, (3, 7, 0), "mid", 12.0)
    )
    assert not answer.informed
    # a verdict can be withdrawn and given again; what was expected before stays
    ann.withdraw(done.review)
    with pytest.raises(StaleError):
        ann.answer(name, Chances((10, 0, 0)))
    ann.submit(name, YES)
    assert [e.action for e in store.events(reviewer="ann")] == [
        *("join", "answer", "submit", "withdraw", "submit")
    ]
    assert store.answers(run) == [answer]


@pytest.mark.parametrize(
    ("chances", "field", "words"),
    [
        ({"out_of_ten": (3, 3, 3)}, "chances", "these add up to 9; make them add up to 10"),
        ({"out_of_ten": (11, -1, 0)}, "chances", "11: give whole numbers from 0 to 10"),
        ({"out_of_ten": (2.5, 7.5, 0)}, "chances", "2.5: give whole numbers"),
        ({"out_of_ten": (3, 7)}, "chances", "give 3 numbers: died, discharged, still in ICU"),
        ({"out_of_ten": None}, "reason", "required"),
        ({"out_of_ten": (3, 7, 0), "sure": "very"}, "sure", "'very' is not one of"),
    ],
)
def test_wrong_chances_are_refused(store, run, chances, field, words):
    with pytest.raises(FieldError, match=re.escape(words)) as caught:
        store.reviewer(run, "ann").answer(first_of(store, run), Chances(**chances))
    assert caught.value.field == field
    assert store.answers(run) == []


def test_who_cannot_tell_says_why_and_goes_on(store, run):
    ann, name = store.reviewer(run, "ann"), first_of(store, run)
    ann.answer(name, Chances(None, reason="no weight recorded"))
    ann.submit(name, YES)
    (answer,) = ann.answers(name)
    assert (answer.out_of_ten, answer.reason) == (None, "no weight recorded")


def test_no_chances_are_taken_of_what_is_closed_or_in_a_review_of_verdicts_only(store, run):
    name = first_of(store, run)
    for reviewer, verdict in (("ann", 1), ("bob", 5)):
        store.reviewer(run, reviewer).answer(name, EXPECTED)
        store.reviewer(run, reviewer).submit(name, Verdict(verdict))
    with pytest.raises(RefusedError, match="others have read this meanwhile"):
        store.reviewer(run, "eve").answer(name, EXPECTED)
    short = store.open_run(small_audit(flags=5), ReviewSettings(verdicts_only=True))
    assert short.outcomes == ()
    ann = store.join(short.id, "ann")
    name = first_of(store, short.id)
    with pytest.raises(RefusedError, match="verdicts only"):
        ann.answer(name, EXPECTED)
    ann.submit(name, YES)


def test_answers_follow_from_the_events(store, run):
    for name in ("ann", "bob"):
        store.reviewer(run, name).answer(first_of(store, run), EXPECTED)
    answers = store.answers(run)
    with Store(store.path.parent) as again:
        assert again.answers(run) == answers
    change = "UPDATE event SET payload = replace(payload, '[3,7,0]', '[10,0,0]')"
    change_file(store.path, f"{change} WHERE reviewer = 'ann'")
    assert store.answers(run) == answers  # as they were when this was opened
    assert "was changed" in store.verify().problem
    with pytest.raises(DamagedError, match=r"event \d+ was changed; restore a backup"):
        Store(store.path.parent)


def test_a_file_of_the_version_before_keeps_its_verdicts_and_asks_for_no_chances(tmp_path):
    audit = small_audit()
    run, chosen = run_id(audit), ReviewSettings(repeat_share=0)
    payload = {  # as it was written then
        "settings": {k: v for k, v in asdict(chosen).items() if k != "verdicts_only"},
        "stays": [[s.episode, int(s.control), s.steps] for s in plan_stays(audit, chosen)],
        "butfor": "0.1",
    }
    with Store(tmp_path) as store:
        with store.file.writing() as transaction:
            record(transaction, "run", run=run, payload=payload)
        store.join(run, "ann").submit(first_of(store, run), Verdict(4))
        path = store.path
    make_version(path, 2)
    with Store(tmp_path) as again:
        assert again.open_run(audit, chosen).outcomes == ()
        assert [review.verdict for review in again.reviews(run)] == [4]
        ann = again.reviewer(run, "ann")
        ann.submit(ann.queue().next_item.episode, YES)
        assert again.verify().ok
    site = Site(tmp_path, audit, repeat_share=0, repeat_minutes=10.0, verdicts_only=False)
    assert "Is the model’s story believable" in site.reviewer("bob").open("/episodes/60")
    site.store.close()


TYPED = {"chances.0": "2", "chances.1": "8", "chances.2": "0", "sure": "low", "reason": ""}
TABS = [  # what one tab sends, what the other one had sent, what is shown of the first
    ("answer", TYPED, {"chances": GIVEN}, "2, 8, 0"),
    ("impression", {"first_impression": "fluids"}, {"first_impression": "wait"}, "fluids"),
]


@pytest.mark.parametrize(("action", "written", "other", "shown"), TABS)
def test_what_a_second_tab_wrote_is_listed_when_its_question_is_gone(
    tmp_path, action, written, other, shown
):
    first = action == "impression"
    site = Site(tmp_path, small_audit(), first_impression=first, verdicts_only=first)
    ann = site.reviewer("ann")
    page, item = ann.open(stay_page(ann)), ann.next()
    ann.post(f"/episodes/{item['slug']}/{action}", 201, place=item["place"], **other)
    late = ann.send(f"/episodes/{item['slug']}", page, 409, do=action, **written).text
    assert "still below" not in late
    assert f'<dd class="comment">{shown}</dd>' in late
    assert "Copy what you want to keep" in late
    site.store.close()


def test_what_a_second_tab_wrote_to_settle_is_listed_when_somebody_else_was_faster(store, run):
    same = {"repeat_share": 0, "repeat_minutes": 10.0, "verdicts_only": False}
    site = Site(store.path.parent, small_audit(), **same)
    name = first_of(store, run)
    for reviewer, verdict in (("ann", 1), ("bob", 5)):
        store.reviewer(run, reviewer).answer(name, EXPECTED)
        store.reviewer(run, reviewer).submit(name, Verdict(verdict))
    eve, path = site.reviewer("eve"), f"/disagreements/{name}"
    page = eve.open(path)
    settle(store.reviewer(run, "eve"), name, 1, "it is believable")
    late = eve.send(path, page, 409, do="settle", verdict="4", reason="the record is wrong").text
    assert "still below" not in late
    assert '<dd class="comment">the record is wrong</dd>' in late
    assert '<dd class="comment">(4) The record is wrong or incomplete</dd>' in late
    site.store.close()


def test_the_total_of_a_third_reviewer_counts_what_is_wanted_of_them(store, run):
    items = store.reviewer(run, "eve").queue().items
    mine, differ, *_ = agreed = [item.episode for item in items[:3]]
    store.reviewer(run, "eve").answer(mine, EXPECTED)
    store.reviewer(run, "eve").submit(mine, YES)
    for reviewer, verdict in (("ann", 1), ("bob", 5)):
        for episode in agreed:
            one = store.reviewer(run, reviewer)
            if one.item(episode).closed:
                continue
            one.answer(episode, EXPECTED)
            one.submit(episode, Verdict(verdict if episode == differ else 1))
    progress = store.reviewer(run, "eve").queue().progress
    assert (progress.done, progress.total, progress.left) == (1, len(items) - 2, len(items) - 3)
    assert store.reviewer(run, "ann").queue().progress.total == len(items)


# ------------------------------------------------------------------------------- API and pages


def test_nothing_of_the_model_is_shown_before_the_chances_are_given(site):
    ann = site.reviewer("ann")
    first = ann.next()
    path, place = f"/episodes/{first['slug']}", f"?place={first['place']}"
    page = ann.open(path + place)
    assert "out of 10 such patients, how many would have had each outcome?" in page
    assert "The policy gives" in page
    assert not re.search("the model says|similar past|%|Expected return|Show five", visible(page))
    view, rows = ann.json(path + place), ann.json(f"{path}/trajectory{place}")
    assert (view["model"], view["asks"], view["answer"]) == (None, "chances", None)
    assert rows["model"] is False
    assert rows["datasets"]["treatments"]
    told = ("shade", "draws", "evidence", "places", "first", "inferred")
    assert not any(rows["datasets"][name] for name in told)
    assert set(rows["datasets"]) <= set(
        ann.json("/charts/trajectory?model=false")["spec"]["datasets"]
    )
    assert ann.post(f"{path}/reviews", 422, verdict=1)["field"] == "chances"
    ann.post(f"{path}/answer", 201, chances=GIVEN, sure="high", place=first["place"], seconds=4.5)
    page, view = ann.open(path + place), ann.json(path + place)
    assert "the model says" in page
    assert re.search(r"died\s*</th><td>3 of 10</td><td>\S", page)
    assert view["answer"]["chances"] == GIVEN
    assert view["answer"]["words"] == "3 of 10 died, 7 of 10 discharged"
    ann.post(f"{path}/answer", 409, chances=GIVEN)
    ann.post(f"{path}/reviews", 201, verdict=1)
    events = [(event["words"], event["after"]) for event in ann.json("/events")["events"]]
    assert ("gave the chances", "3 of 10 died, 7 of 10 discharged") in events
    assert "3 of 10 died" in ann.open("/audit")
    assert site.store.answers(site.run.id)[0].seconds == 4.5


def test_a_first_impression_comes_before_the_chances(tmp_path):
    site = Site(tmp_path, small_audit(), first_impression=True, verdicts_only=False)
    ann = site.reviewer("ann")
    path = f"/episodes/{ann.next()['slug']}"
    assert ann.json(path)["asks"] == "impression"
    ann.send(path, ann.open(path), do="impression", first_impression="fluids")
    assert (ann.json(path)["asks"], ann.json(path)["model"]) == ("chances", None)
    ann.post(f"{path}/answer", 201, chances=GIVEN)
    assert ann.json(path)["asks"] == ""
    assert ann.json(path)["model"]
    site.store.close()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "reason"),
        ({"chances": {"died": 10}}, "chances"),
        ({"chances": GIVEN | {"flew": 0}}, "chances"),
        ({"chances": GIVEN | {"died": 4}}, "chances"),
        ({"chances": GIVEN | {"died": "3"}}, "chances.died"),
        ({"chances": GIVEN, "sure": "very"}, "sure"),
        ({"reason": "x" * 10_001}, "reason"),
        ({"chances": GIVEN, "other": 1}, "other"),
    ],
)
def test_a_wrong_field_of_json_is_named(site, body, field):
    ann = site.reviewer("ann")
    assert ann.post(f"/episodes/{ann.next()['slug']}/answer", 422, **body)["field"] == field


@pytest.mark.parametrize(
    ("numbers", "more", "field", "words"),
    [
        (("", "", ""), {}, "chances.0", "Give a number for each outcome, or tick"),
        (("3", "3", ""), {}, "chances.0", "These add up to 6; make them add up to 10."),
        (("3", "x", ""), {}, "chances.0", "&#39;x&#39;: give whole numbers from 0 to 10."),
        (("3", "", ""), {"cannot_tell": "yes"}, "reason", "Write a reason."),
    ],
)
def test_an_error_is_said_beside_its_field_and_what_was_written_stays(
    site, numbers, more, field, words
):
    ann = site.reviewer("ann")
    path, page = f"/episodes/{ann.next()['slug']}", ann.open(stay_page(ann))
    written = {f"chances.{i}": number for i, number in enumerate(numbers)}
    answer = ann.send(path, page, 422, do="answer", sure="low", **written, **more)
    beside = re.search(r'class="(?:chances )?wrong">.*?</(?:p|fieldset)>', answer.text, re.DOTALL)[
        0
    ]
    assert f'<span class="error" id="wrong">{words}' in beside
    assert f'name="{field}"' in beside
    assert f'value="{numbers[0]}"' in answer.text
    assert 'value="low" checked' in answer.text
    assert site.store.answers(site.run.id) == []


def test_by_form_and_without_scripts_both_answers_are_given_and_those_of_others_come_last(site):
    ann, bob, eve = (site.reviewer(name) for name in ("ann", "bob", "eve"))
    first = ann.next()
    path = f"/episodes/{first['slug']}"
    for person, number, verdict in ((ann, "3", "1"), (bob, "9", "5")):
        page = person.open(path)
        assert "3 of 10 died" not in page
        sent = {"chances.0": number, "chances.1": str(10 - int(number)), "seconds": "7"}
        back = person.send(path, page, do="answer", **sent).headers["location"]
        page = person.open(back)
        assert f"<td>{number} of 10</td>" in page
        assert "Expected: " not in page  # those of others
        assert 'value="low" checked' not in page
        person.send(path, page, do="save", verdict=verdict)
    assert "Expected: 3 of 10 died, 7 of 10 discharged" in bob.open(path)
    assert "Expected: 9 of 10 died" in ann.open(path)
    assert eve.json(path)["model"] is None  # closed, and never asked
    page = eve.open(f"/disagreements/{first['slug']}")
    assert page.count("Expected: ") == 2
    assert [answer.seconds for answer in site.store.answers(site.run.id)] == [7.0, 7.0]
    assert site.store.verify().ok


def test_a_stay_that_comes_back_is_asked_about_again(tmp_path):
    site = Site(tmp_path, small_audit(flags=16), repeat_share=0.2, verdicts_only=False)
    ann = site.reviewer("ann")
    seen = set()
    while (following := ann.next())["id"] not in seen:
        seen.add(following["id"])
        path = f"/episodes/{following['slug']}"
        ann.post(f"{path}/answer", 201, chances=GIVEN, place=following["place"])
        ann.post(f"{path}/reviews", 201, verdict=1, place=following["place"])
    view = ann.json(f"/episodes/{following['slug']}?place={following['place']}")
    assert (view["asks"], view["model"], view["answer"], view["mine"]) == (
        "chances",
        None,
        None,
        None,
    )
    assert "3 of 10" not in ann.open(stay_page(ann, following))
    path = f"/episodes/{following['slug']}"
    ann.post(f"{path}/answer", 201, reason="forgot", place=following["place"])
    assert [answer.out_of_ten for answer in site.store.answers(site.run.id) if answer.repeat] == [
        None
    ]
    site.store.close()


def test_after_settling_the_next_one_to_settle_is_shown_with_a_confirmation(tmp_path):
    site = Site(tmp_path, small_audit())
    ann, bob, eve = (site.reviewer(name) for name in ("ann", "bob", "eve"))
    for item in ann.json("/queue")["items"][:2]:
        for person, verdict in ((ann, 1), (bob, 5)):
            person.post(f"/episodes/{item['slug']}/reviews", 201, verdict=verdict)
    first, second = eve.json("/queue")["to_settle"]
    settling = f"/disagreements/{first['slug']}"
    answer = eve.send(settling, eve.open(settling), do="settle", verdict="1", reason="so")
    following = answer.headers["location"]
    assert following == f"/disagreements/{second['slug']}?settled={first['slug']}"
    page = eve.open(following)
    assert f"Settled: patient {first['id']}, believable." in page
    undo = re.search(r'action="([^"]*)" class="undo saved">(.*?)</form>', page, re.DOTALL)
    form = dict(re.findall(r'name="([^"]*)" value="([^"]*)"', undo[2]))
    assert form["do"] == "unsettle"
    assert eve.client.post(undo[1], data=form).headers["location"] == settling
    assert "Settled:" not in eve.open(following)  # no longer so
    assert "Settled:" not in eve.open(f"/disagreements/{second['slug']}?settled=nobody")
    for one in (first, second):
        settle(site.store.reviewer(site.run.id, "eve"), one["id"], 1, "so")
    assert "Settled:" not in ann.open(following)  # by somebody else
    site.store.close()


# --------------------------------------------------------------------------------------- treatments


@pytest.mark.parametrize("audit", [small_audit, hidden_audit], ids=["states", "hidden"])
def test_treatments_are_those_of_the_record_and_of_the_policy_in_its_states(audit):
    found = audit()
    stays, names = Stays(found), [variable.name for variable in found.meta.variables.action]
    assert (found.target.max(axis=1) == 1).all()
    for position in range(20):
        rows = stays.treatments(found.episodes["id"].iloc[position])
        steps = found.steps[found.steps["episode"] == position]
        listed = [
            (step, row["given"], row["policy"] if row["differs"] == "yes" else row["given"])
            for row in rows
            for step in range(row["step"], row["last"] + 1)
        ]
        decided = steps[steps["action"] >= 0]
        expected = [
            (step, words(names, action), words(names, int(found.target[state].argmax())))
            for step, state, action in zip(
                decided["step"], decided["state"], decided["action"], strict=True
            )
        ]
        assert listed == expected


def test_a_random_policy_is_told_by_its_likely_treatments():
    found = small_audit()
    parameters = found.meta.parameters.model_copy(update={"action_noise": "fresh"})
    meta = found.meta.model_copy(update={"parameters": parameters})
    # the best treatment with probability .7 + .3 / 8 = .7375, each other one with .0375
    random = replace(found, meta=meta, target=0.7 * found.target + 0.3 / 8)
    for name in found.flagged["id"]:
        pairs = zip(Stays(found).treatments(name), Stays(random).treatments(name), strict=True)
        for fixed, mixed in pairs:
            assert mixed["policy"] == f"{fixed['policy']} (74%) or others (26%)"
            assert mixed["differs"] == {"no": "may", "yes": "yes"}[fixed["differs"]]


def words(names, action):
    """Name the switches that are on, the last of which is the last digit."""
    switches = f"{action:0{len(names)}b}"
    *most, last = [n for n, s in zip(names, switches, strict=True) if s == "1"] or ["nothing"]
    return f"{', '.join(most)} and {last}" if most else last
