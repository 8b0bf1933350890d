"""The review: its rules, its file under concurrent writes and kills, its exports and results."""

import csv
import hashlib
import io
import json
import signal
import sqlite3
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import butfor as bf
from butfor.audit.meta import Meta, Parameters, SamplingDesign, Stratum
from butfor.audit.run import run_audit
from butfor.audit.spreadsheet import FORMULA, guarded, restored
from butfor.review import export
from butfor.review.events import SCHEMAS, read_chain, record, verify
from butfor.review.plan import ReviewSettings, plan_stays, reviewer_order, run_id
from butfor.review.results import summarize
from butfor.review.reviewer import (
    earlier_opinions,
    list_disagreements,
    note_overview,
    open_disagreement,
    settle,
    unsettle,
    visible_opinions,
)
from butfor.review.store import Store, verify_folder
from butfor.review.verdicts import (
    LONGEST_DRAFT,
    DamagedError,
    FieldError,
    RefusedError,
    ReviewError,
    RunChangedError,
    StaleError,
    StoreError,
    UnknownError,
    Verdict,
)
from tests.processes import start
from tests.reference.review_tables import make_version
from tests.review_site import change_file


class Clock:
    """A clock that moves only when set."""

    def __init__(self):
        self.now = 1_800_000_000.0

    def __call__(self):
        return self.now


def fake_audit(flagged=8, others=40, digest="a", horizon=20, **columns):
    """The parts of an audit that the review reads."""
    n = flagged + others
    table = pd.DataFrame(
        {
            "id": range(n),
            "length": 19,
            "rank": [*range(1, flagged + 1), *[0] * others],
            "observed_outcome": "died",
            "p_died": 0.25,
            "expected_return": -0.5,
            "difference": 0.5,
        }
        | columns
    )
    parameters = Parameters(
        action_noise="shared",
        mechanism="GumbelMax()",
        horizon=horizon,
        discount=1.0,
        terminal="visits",
        draws=5,
    )
    meta = Meta.model_construct(digest=digest, parameters=parameters, butfor=bf.__version__)
    return SimpleNamespace(meta=meta, episodes=table)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, clock):
    with Store(tmp_path, clock=clock) as opened:
        yield opened


@pytest.fixture
def early_run(store, monkeypatch):
    """A run as earlier versions opened it, without a secret."""
    monkeypatch.setattr("butfor.review.store.secrets.token_hex", lambda size: "")
    opened = store.open_run(fake_audit())
    for name in ("ann", "bob", "eve"):
        store.join(opened.id, name)
    return opened.id


@pytest.fixture
def run(store):
    """A run reviewed by ann, bob and eve."""
    opened = store.open_run(fake_audit())
    for name in ("ann", "bob", "eve"):
        store.join(opened.id, name)
    return opened.id


YES, UNSEEN = Verdict(1), Verdict(2, variable="glucose", step=7, sure="high", comment="low sugar")


def joined(store, run):
    return [event.reviewer for event in store.events(run=run) if event.action == "join"]


def raw(store):
    return sqlite3.connect(store.path)


# --------------------------------------------------------------------------------- runs and queues


def test_controls_are_a_fifth_of_all_stays_and_chosen_by_seed():
    audit = fake_audit(60, 400)
    stays = plan_stays(audit, ReviewSettings())
    assert [stay.episode for stay in stays if not stay.control] == [str(i) for i in range(60)]
    controls = [int(stay.episode) for stay in stays if stay.control]
    assert len(controls) == len(set(controls)) == 15
    assert min(controls) >= 60
    assert stays == plan_stays(audit, ReviewSettings())
    other = plan_stays(audit, ReviewSettings(seed=1))
    assert {stay.episode for stay in other} != {stay.episode for stay in stays}
    assert len(plan_stays(fake_audit(60, 3), ReviewSettings())) == 63
    assert len(plan_stays(audit, ReviewSettings(control_share=0))) == 60
    assert plan_stays(fake_audit(0, 9), ReviewSettings()) == []


def test_controls_that_no_audit_drew_cannot_be_computed_from_what_reviewers_know(tmp_path):
    audit, chosen = fake_audit(60, 400), []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with Store(tmp_path / name) as store:
            stays = store.stays(store.open_run(audit).id)
            chosen.append({stay.episode for stay in stays if stay.control})
    known = {stay.episode for stay in plan_stays(audit, ReviewSettings()) if stay.control}
    assert len(known) == len(chosen[0]) == len(chosen[1]) == 15
    assert len({frozenset(found) for found in (known, *chosen)}) == 3


def test_all_controls_that_an_audit_drew_are_reviewed():
    audit = fake_audit(6, 40, control=[False] * 6 + [True] * 30 + [False] * 10)
    assert sum(stay.control for stay in plan_stays(audit, ReviewSettings())) == 2
    audit.meta = designed(audit.meta)
    stays = plan_stays(audit, ReviewSettings())
    assert {int(stay.episode) for stay in stays if stay.control} == set(range(6, 36))


def designed(meta, review_size=36):
    """The meta of an audit that drew its controls at random."""
    stratum = Stratum(episodes=6, drawn=6)
    design = SamplingDesign(review_size=review_size, seed=0, cuts=(0.5, 1.0), strata=(stratum,))
    return meta.model_copy(update={"design": design})


def test_runs_of_earlier_versions_keep_their_name_and_other_designs_are_other_runs():
    audit = fake_audit()
    made_of = audit.meta.model_dump(include={"digest", "parameters"})
    for name in ("censored", "censoring", "by_row"):  # what earlier versions did not have
        del made_of["parameters"][name]
    known = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()
    assert run_id(audit) == known
    audit.meta = designed(audit.meta)
    first = run_id(audit)
    audit.meta = designed(audit.meta, review_size=50)
    assert len({known, first, run_id(audit)}) == 3


@settings(deadline=None)
@given(n=st.integers(0, 200), seed=st.integers(0, 2**40), share=st.floats(0, 0.5))
def test_an_order_has_every_stay_and_repeats_come_half_of_all_stays_later(n, seed, share):
    episodes = [str(i) for i in range(n)]
    order = reviewer_order(episodes, seed, repeat_share=share)
    assert order == reviewer_order(episodes, seed, repeat_share=share)
    assert sorted(e for e, repeat in order if not repeat) == sorted(episodes)
    repeats = [(place, e) for place, (e, repeat) in enumerate(order) if repeat]
    assert len(repeats) == len({e for _, e in repeats}) == min(round(n * share), n // 2)
    for place, episode in repeats:
        assert place - order.index((episode, False)) > n // 2


def test_one_in_twenty_comes_back_and_orders_differ_between_reviewers(store):
    run = store.open_run(fake_audit(80, 100)).id
    orders = {}
    for name in ("ann", "bob"):
        store.join(run, name)
        items = [
            place
            for event in store.events(run=run, reviewer=name)
            for place in event.payload["order"]
        ]
        orders[name] = [episode for episode, repeat in items if not repeat]
        assert sum(repeat for _, repeat in items) == 5
    assert sorted(orders["ann"]) == sorted(orders["bob"])
    assert orders["ann"] != orders["bob"]
    flagged = {stay.episode for stay in store.stays(run) if not stay.control}
    assert {e in flagged for e in orders["ann"][:30]} == {True, False}  # controls are mixed in


def test_joining_again_keeps_the_queue_and_names_are_tidied(store, run):
    before = store.reviewer(run, "ann").queue().items
    assert store.join(run, "  ann ").name == "ann"
    assert store.reviewer(run, "ann").queue().items == before
    assert joined(store, run) == ["ann", "bob", "eve"]
    assert [item.state for item in before] == ["waiting"] * 10
    assert store.join(run, "Zoe\u0308") == store.join(run, "Zo\u00eb")
    assert store.join(run, "Bob  Dylan").name == "Bob Dylan"
    assert store.join(run, " bob DYLAN").name == "Bob Dylan"
    assert store.join(run, "ANN").name == "ann"
    assert joined(store, run) == ["ann", "bob", "eve", "Zo\u00eb", "Bob Dylan"]
    new = store.open_run(fake_audit(digest="b")).id
    assert store.join(new, "Ann").name == "ann"  # also in another run
    store.open_run(fake_audit())
    for bad in ("", "  ", "a\nb", "x" * 81, "\ud800", None):
        with pytest.raises(FieldError) as caught:
            store.join(run, bad)
        assert caught.value.field == "reviewer"


def test_a_changed_audit_opens_a_new_queue_and_old_verdicts_stay_apart(store, run):
    store.reviewer(run, "ann").submit("3", UNSEEN)
    store.reviewer(run, "bob").submit("3", UNSEEN)
    new = store.open_run(fake_audit(digest="b"))
    assert new.current
    assert [one.current for one in store.runs()] == [False, True]
    store.join(new.id, "ann")
    store.join(new.id, "eve")
    assert store.stay(new.id, "3").state == "waiting"
    assert store.stay(run, "3").final == 2
    with pytest.raises(RunChangedError, match="has changed") as caught:
        store.reviewer(run, "eve").submit("3", YES)
    assert caught.value.run == new.id
    assert [r.reviewer for r in earlier_opinions(store.reviewer(new.id, "ann"), "3")] == ["ann"]
    assert (
        earlier_opinions(store.reviewer(new.id, "eve"), "3") == []
    )  # hidden until one's own is in
    store.reviewer(new.id, "eve").submit("3", YES)
    assert [r.run for r in earlier_opinions(store.reviewer(new.id, "eve"), "3")] == [run, run]
    assert store.stay(new.id, "3").verdicts == 1
    assert store.open_run(fake_audit()).id == run  # back to the first: its verdicts are there
    assert store.stay(run, "3").verdicts == 2
    assert store.verify().ok


def test_a_run_is_also_another_one_if_only_its_parameters_changed():
    assert run_id(fake_audit(horizon=21)) != run_id(fake_audit())


def test_a_run_keeps_its_settings(store):
    kept = ReviewSettings(needed=3)
    store.open_run(fake_audit(), kept)
    assert store.open_run(fake_audit()).settings == kept
    assert store.open_run(fake_audit(), kept).settings == kept
    with pytest.raises(ValueError, match=r"under review with .*needed=3"):
        store.open_run(fake_audit(), ReviewSettings())
    assert len(store.events()) == 1


@pytest.mark.parametrize(
    "bad",
    [
        {"needed": 0},
        {"control_share": 0.9},
        {"repeat_share": -1},
        {"claim_minutes": -1},
        {"seed": -1},
    ],
)
def test_settings_are_checked(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        ReviewSettings(**bad)


# ----------------------------------------------------------------------------------------- states


def test_a_stay_goes_from_waiting_to_reviewed(store, run, clock):
    assert store.stay(run, "3").state == "waiting"
    store.reviewer(run, "ann").claim("3")
    assert store.stay(run, "3").state == "in_review"
    clock.now += 31 * 60
    assert store.stay(run, "3").state == "waiting"
    store.reviewer(run, "ann").submit("3", YES)
    assert store.stay(run, "3").state == "in_review"
    store.reviewer(run, "bob").submit("3", YES)
    stay = store.stay(run, "3")
    assert (stay.state, stay.final, stay.verdicts) == ("reviewed", 1, 2)


def test_a_disagreement_is_settled_by_a_third_with_a_reason(store, run):
    store.reviewer(run, "ann").submit("3", YES)
    store.reviewer(run, "bob").submit("3", UNSEEN)
    stay = store.stay(run, "3")
    assert (stay.state, stay.final) == ("disagreement", None)
    with pytest.raises(RefusedError, match="somebody else must settle"):
        settle(store.reviewer(run, "ann"), "3", 2, "I say so")
    with pytest.raises(FieldError) as caught:
        settle(store.reviewer(run, "eve"), "3", 2, "  ")
    assert caught.value.field == "reason"
    with pytest.raises(FieldError) as caught:
        settle(store.reviewer(run, "eve"), "3", 6, "so")
    assert caught.value.field == "verdict"
    with pytest.raises(StaleError):
        settle(store.reviewer(run, "eve"), "3", 2, "so", expected_version=stay.version - 1)
    settled = settle(
        store.reviewer(run, "eve"), "3", 2, "sugar was low", expected_version=stay.version
    )
    assert (settled.state, settled.final) == ("settled", 2)
    mine = store.reviewer(run, "ann").item("3").review
    with pytest.raises(RefusedError, match="is settled"):
        store.reviewer(run, "ann").withdraw(mine)
    with pytest.raises(StaleError, match="nothing to settle"):
        settle(store.reviewer(run, "zoe"), "3", 1, "no")
    with pytest.raises(RefusedError, match="somebody else settled"):
        unsettle(store.reviewer(run, "bob"), "3")
    assert unsettle(store.reviewer(run, "eve"), "3").state == "disagreement"
    with pytest.raises(StaleError, match="not settled"):
        unsettle(store.reviewer(run, "eve"), "3")
    assert [one.reason for one in store.settlements(run)] == ["sugar was low"]


def test_who_opened_a_disagreement_can_give_no_verdict_there(store, run):
    store.reviewer(run, "ann").submit("3", YES)
    mine = store.reviewer(run, "bob").submit("3", UNSEEN)
    assert list_disagreements(store.reviewer(run, "eve")) == ["3"]
    for _ in range(2):
        open_disagreement(store.reviewer(run, "eve"), "3")
        open_disagreement(store.reviewer(run, "ann"), "3")
    noted = [(e.reviewer, e.action) for e in store.events(episode="3") if e.action == "settling"]
    assert noted == [("eve", "settling")]  # once, and not of those whose verdict is in
    store.reviewer(run, "bob").withdraw(mine.review)
    assert store.stay(run, "3").state == "in_review"
    with pytest.raises(RefusedError, match="opened this to settle it"):
        store.reviewer(run, "eve").submit("3", YES)
    with pytest.raises(RefusedError, match="opened this to settle it"):
        store.reviewer(run, "eve").give_impression("3", "hm")
    assert not store.reviewer(run, "eve").save_draft("3", {"verdict": 1})
    assert store.reviewer(run, "eve").item("3").closed == "settling"
    assert all(item.episode != "3" for item in store.reviewer(run, "eve").queue().offered)
    assert store.verify().ok


def test_a_disagreement_takes_no_further_verdict_while_it_is_one(store, run):
    store.reviewer(run, "eve").save_draft("3", {"comment": "half a thought"})
    store.reviewer(run, "ann").submit("3", YES)
    mine = store.reviewer(run, "bob").submit("3", UNSEEN)
    with pytest.raises(RefusedError, match="others have read this meanwhile"):
        store.reviewer(run, "eve").submit("3", YES)
    assert all(item.episode != "3" for item in store.reviewer(run, "eve").queue().offered)
    store.reviewer(run, "bob").withdraw(mine.review)
    assert store.reviewer(run, "eve").draft("3") == {"comment": "half a thought"}
    assert store.reviewer(run, "eve").submit("3", YES).state == "submitted"


def test_a_verdict_given_after_seeing_others_is_marked(store, run):
    def informed(name, episode):
        return [r.informed for r in store.reviews(run, reviewer=name, episode=episode)]

    def give_again(name, episode):
        store.reviewer(run, name).withdraw(store.reviewer(run, name).submit(episode, YES).review)
        store.reviewer(run, name).submit(episode, YES)

    give_again("ann", "3")  # nobody else had said anything
    assert informed("ann", "3") == [False, False]
    give_again("bob", "3")  # what ann said stood beside bob's own
    assert informed("bob", "3") == [False, True]
    give_again("bob", "4")
    assert informed("bob", "4") == [False, False]
    for _ in range(2):
        note_overview(store.reviewer(run, "bob"))
    store.reviewer(run, "bob").submit("5", YES)
    assert informed("bob", "5") == [True]
    assert [e.action for e in store.events(reviewer="bob")].count("overview") == 1
    assert summarize(store, run, resamples=10).informed == 2
    assert summarize(store, run, resamples=10).agreement.stays == 0
    assert store.verify().ok


def test_a_queue_is_done_when_no_verdict_is_wanted_any_more(store, run):
    for item in store.reviewer(run, "ann").queue().items:
        store.reviewer(run, "ann").skip(item.episode)
    assert store.reviewer(run, "ann").queue().next_item is None
    assert not store.reviewer(run, "ann").queue().progress.finished
    assert store.reviewer(run, "ann").queue().progress.skipped == 10
    first, second, third, *others = (
        item.episode for item in store.reviewer(run, "ann").queue().items
    )
    for episode in others:
        store.reviewer(run, "ann").submit(episode, YES)
    for name, other in (("bob", UNSEEN), ("eve", YES)):
        store.reviewer(run, name).submit(first, YES)
        store.reviewer(run, name).submit(second, other)
    assert store.reviewer(run, "ann").queue().progress.skipped == 1
    assert not store.reviewer(run, "ann").queue().progress.finished
    store.reviewer(run, "ann").submit(third, YES)
    assert store.reviewer(run, "ann").queue().progress.finished


def test_one_who_withdrew_a_verdict_cannot_settle(store, run):
    store.reviewer(run, "eve").withdraw(store.reviewer(run, "eve").submit("3", YES).review)
    store.reviewer(run, "ann").submit("3", YES)
    store.reviewer(run, "bob").submit("3", UNSEEN)
    assert list_disagreements(store.reviewer(run, "eve")) == []
    with pytest.raises(RefusedError, match="withdrew your verdict"):
        open_disagreement(store.reviewer(run, "eve"), "3")
    with pytest.raises(RefusedError):
        settle(store.reviewer(run, "eve"), "3", 1, "because")


def test_undo_is_an_event_and_the_verdict_can_be_given_anew(store, run):
    first = store.reviewer(run, "ann").submit("3", YES, seconds=12.5)
    assert first.state == "submitted"
    with pytest.raises(RefusedError, match="belongs to somebody else"):
        store.reviewer(run, "bob").withdraw(first.review)
    back = store.reviewer(run, "ann").withdraw(first.review, expected_version=first.version)
    assert (back.state, back.review) == ("withdrawn", None)
    assert store.stay(run, "3").state == "waiting"
    with pytest.raises(StaleError, match="already withdrawn"):
        store.reviewer(run, "ann").withdraw(first.review)
    with pytest.raises(UnknownError):
        store.reviewer(run, "ann").withdraw(999)
    again = store.reviewer(run, "ann").submit("3", UNSEEN, expected_version=back.version)
    assert again.version > back.version > first.version
    kept = store.reviews(run, reviewer="ann", episode="3")
    assert [(r.verdict, r.withdrawn_at is None, r.seconds) for r in kept] == [
        (1, False, 12.5),
        (2, True, 0.0),
    ]
    assert [event.action for event in store.events(run=run, episode="3")] == [
        "submit",
        "withdraw",
        "submit",
    ]


def test_stale_versions_and_double_clicks_are_refused(store, run):
    item = store.reviewer(run, "ann").item("3")
    assert item.version == 0
    done = store.reviewer(run, "ann").submit("3", YES, expected_version=0)
    for options in ({"expected_version": 0}, {}):
        with pytest.raises(StaleError) as caught:
            store.reviewer(run, "ann").submit("3", YES, **options)
        assert caught.value.version == done.version
    with pytest.raises(StaleError):
        store.reviewer(run, "ann").skip("3")
    with pytest.raises(StaleError):
        store.reviewer(run, "ann").withdraw(done.review, expected_version=done.version - 1)
    assert len(store.reviews(run)) == 1
    store.reviewer(run, "bob").submit(
        "3", YES, expected_version=0
    )  # what others do makes no one stale


def test_a_skipped_stay_is_not_offered_and_can_still_be_read(store, run):
    first = store.reviewer(run, "ann").queue().next_item
    assert store.reviewer(run, "ann").skip(first.episode, expected_version=0).state == "skipped"
    assert store.reviewer(run, "ann").queue().next_item.episode != first.episode
    assert store.reviewer(run, "ann").queue().progress.skipped == 1
    assert store.reviewer(run, "ann").submit(first.episode, YES).state == "submitted"


def test_skipping_keeps_what_was_written(store, run):
    store.reviewer(run, "ann").save_draft("3", {"comment": "half a thought"})
    assert store.reviewer(run, "ann").skip("3").state == "skipped"
    assert store.reviewer(run, "ann").draft("3") == {"comment": "half a thought"}
    assert all(item.episode != "3" for item in store.reviewer(run, "ann").queue().offered)
    store.reviewer(run, "ann").save_draft("3", {"comment": "a thought"})
    assert store.reviewer(run, "ann").item("3").state == "draft"  # taken up again
    store.reviewer(run, "ann").submit("3", YES)
    assert store.reviewer(run, "ann").draft("3") is None


def test_others_verdicts_are_hidden_until_ones_own_is_in_and_names_until_all_are_settled(
    store, run
):
    store.reviewer(run, "ann").submit("3", YES)
    assert visible_opinions(store.reviewer(run, "bob"), "3") == []
    with pytest.raises(RefusedError, match="do not differ"):
        open_disagreement(store.reviewer(run, "eve"), "3")
    mine = store.reviewer(run, "bob").submit("3", UNSEEN)
    assert [(r.reviewer, r.verdict) for r in visible_opinions(store.reviewer(run, "bob"), "3")] == [
        ("Reviewer 1", 1),
        ("bob", 2),
    ]
    assert visible_opinions(store.reviewer(run, "eve"), "3") == []
    seen = open_disagreement(store.reviewer(run, "eve"), "3")
    assert [r.reviewer for r in seen] == ["Reviewer 1", "Reviewer 2"]
    store.reviewer(run, "bob").withdraw(mine.review)
    assert visible_opinions(store.reviewer(run, "bob"), "3") == []
    assert list_disagreements(store.reviewer(run, "eve")) == []
    store.reviewer(run, "bob").submit("3", UNSEEN)
    settle(store.reviewer(run, "eve"), "3", 2, "clear")
    seen = visible_opinions(store.reviewer(run, "bob"), "3")
    assert [r.reviewer for r in seen] == ["Reviewer 1", "bob"]  # others are still open
    for stay in store.stays(run):
        if stay.episode != "3":
            store.reviewer(run, "ann").submit(stay.episode, YES)
            store.reviewer(run, "eve").submit(stay.episode, YES)
    seen = visible_opinions(store.reviewer(run, "bob"), "3")
    assert [r.reviewer for r in seen] == ["ann", "bob"]
    unsettle(store.reviewer(run, "eve"), "3")
    seen = visible_opinions(store.reviewer(run, "bob"), "3")
    assert [r.reviewer for r in seen] == ["Reviewer 1", "bob"]


def test_a_claim_makes_others_read_something_else_but_never_blocks(store, run, clock):
    first = store.reviewer(run, "ann").queue().next_item.episode
    store.reviewer(run, "bob").claim(first)
    assert store.reviewer(run, "ann").queue().next_item.episode == first  # two verdicts are needed
    store.reviewer(run, "eve").claim(first)
    assert store.reviewer(run, "ann").queue().next_item.episode != first
    for stay in store.stays(run):
        for name in ("bob", "eve"):
            store.reviewer(run, name).claim(stay.episode)
    assert (
        store.reviewer(run, "ann").queue().next_item.episode == first
    )  # all are claimed: the first after all
    assert store.reviewer(run, "ann").submit(first, YES).state == "submitted"
    clock.now += 31 * 60
    assert {stay.state for stay in store.stays(run)} == {"waiting", "in_review"}


def test_stays_that_others_finished_are_not_offered(store, run):
    first = store.reviewer(run, "ann").queue().next_item.episode
    for name in ("bob", "eve"):
        store.reviewer(run, name).submit(first, YES)
    assert store.reviewer(run, "ann").queue().next_item.episode != first
    assert store.reviewer(run, "ann").queue().progress.left == 9
    for item in store.reviewer(run, "ann").queue().items[:]:
        store.reviewer(run, "ann").submit(item.episode, YES)
    assert store.reviewer(run, "ann").queue().next_item is None
    assert store.reviewer(run, "ann").queue().progress.finished


def test_a_stay_comes_back_after_others_and_counts_apart(store, clock):
    run = store.open_run(fake_audit(16, 40)).id
    store.join(run, "ann")
    read = []
    while (item := store.reviewer(run, "ann").queue().next_item) is not None:
        assert len(read) < 30
        clock.now += 60
        read.append((item.episode, item.repeat))
        store.reviewer(run, "ann").submit(
            item.episode, YES, repeat=item.repeat, expected_version=item.version
        )
    again = [episode for episode, repeat in read if repeat]
    assert len(read) == 21
    assert len(again) == 1
    assert read.index((again[0], True)) - read.index((again[0], False)) > 5
    assert store.stay(run, again[0]).verdicts == 1
    assert summarize(store, run).self_agreement.count == 1
    assert summarize(store, run).self_agreement.total == 1
    assert summarize(store, run).agreement.stays == 0  # nobody agrees with oneself


def test_a_stay_does_not_come_back_within_minutes(store, clock):
    run = store.open_run(fake_audit(16, 40)).id
    ann = store.join(run, "ann")
    while (item := ann.queue().next_item) is not None:
        assert not item.repeat
        ann.submit(item.episode, YES)
    join, *_ = store.events(run=run, reviewer="ann")
    again = next(episode for episode, repeat in join.payload["order"] if repeat)
    clock.now += 9 * 60
    assert ann.queue().next_item is None
    with pytest.raises(RefusedError, match="not to be read for the second time yet"):
        ann.submit(again, YES, repeat=True)
    clock.now += 2 * 60
    assert ann.queue().next_item.episode == again
    ann.submit(again, YES, repeat=True)


def test_what_comes_back_cannot_be_computed_from_what_reviewers_know(tmp_path):
    orders, seeds = [], []
    for name in ("one", "two"):  # the same audit, settings and reviewer
        (tmp_path / name).mkdir()
        with Store(tmp_path / name) as store:
            run = store.open_run(fake_audit(80, 100))
            store.join(run.id, "ann")
            (join,) = store.events(run=run.id, reviewer="ann")
            orders.append(join.payload["order"])
            seeds.append(join.payload["seed"])
            assert run.secret not in repr(run)
    assert sorted(e for e, _ in orders[0]) != sorted(e for e, _ in orders[1])  # who comes back
    assert [e for e, _ in orders[0]] != [e for e, _ in orders[1]]
    assert max(seeds) > 2**48  # which could all be tried; once in 2^30 both are that small


def test_places_tell_nothing_of_the_order_nor_of_repeats_to_come(store):
    run = store.open_run(fake_audit(80, 100)).id
    queues = {}
    for name in ("ann", "bob"):
        store.join(run, name)
        queues[name] = store.reviewer(run, name).queue().items
        places = [item.place for item in queues[name]]
        assert len(set(places)) == len(places) == 100
        assert places != sorted(places)
        assert max(places) - min(places) > 2**40  # no gaps to be seen among them
        assert store.reviewer(run, name).queue().progress.total == 100  # and not 105
    assert not {i.place for i in queues["ann"]} & {i.place for i in queues["bob"]}
    first = queues["ann"][0]
    assert store.reviewer(run, "ann").item(first.episode, first.place) == first
    with pytest.raises(UnknownError, match="not in your queue"):
        store.reviewer(run, "bob").item(first.episode, first.place)


def test_a_repeat_is_refused_before_the_first_reading(store):
    run = store.open_run(fake_audit(16, 40)).id
    store.join(run, "ann")
    (join,) = store.events(run=run, reviewer="ann")
    again = next(episode for episode, repeat in join.payload["order"] if repeat)
    assert all(not item.repeat for item in store.reviewer(run, "ann").queue().items)
    with pytest.raises(RefusedError, match="second time yet"):
        store.reviewer(run, "ann").submit(again, YES, repeat=True)
    other = next(e for e, _ in join.payload["order"] if e != again)
    with pytest.raises(UnknownError, match="second time"):
        store.reviewer(run, "ann").submit(other, YES, repeat=True)


def test_the_last_draft_wins_and_goes_with_the_verdict(store, run):
    assert store.reviewer(run, "ann").draft("3") is None
    assert store.reviewer(run, "ann").save_draft("3", {"verdict": 2})
    assert store.reviewer(run, "ann").save_draft("3", {"verdict": 2, "comment": "sug"})
    assert store.reviewer(run, "ann").draft("3") == {"verdict": 2, "comment": "sug"}
    assert store.reviewer(run, "ann").item("3").state == "draft"
    assert store.stay(run, "3").state == "in_review"
    assert store.reviewer(run, "bob").item("3").state == "waiting"
    store.reviewer(run, "ann").submit("3", UNSEEN)
    assert store.reviewer(run, "ann").draft("3") is None
    assert not store.reviewer(run, "ann").save_draft("3", {"verdict": 1})  # came late
    assert store.reviewer(run, "ann").item("3").state == "submitted"
    with pytest.raises(FieldError) as caught:
        store.reviewer(run, "bob").save_draft("3", {"comment": "x" * (LONGEST_DRAFT + 1)})
    assert caught.value.field == "draft"
    assert {event.action for event in store.events()} == {"run", "join", "submit"}


def test_the_first_impression_is_kept_and_comes_first(store):
    run = store.open_run(fake_audit(), ReviewSettings(first_impression=True)).id
    store.join(run, "ann")
    with pytest.raises(FieldError) as caught:
        store.reviewer(run, "ann").submit("3", YES)
    assert caught.value.field == "first_impression"
    with pytest.raises(FieldError):
        store.reviewer(run, "ann").give_impression("3", " ")
    item = store.reviewer(run, "ann").give_impression("3", "antibiotics")
    assert (item.state, item.first_impression) == ("waiting", "antibiotics")
    with pytest.raises(StaleError):
        store.reviewer(run, "ann").give_impression("3", "nothing")
    store.reviewer(run, "ann").submit("3", YES, expected_version=item.version)
    assert store.reviews(run)[0].first_impression == "antibiotics"


def test_what_is_not_there_is_named(store, run):
    for call in (
        lambda: store.stays("other"),
        lambda: store.stay(run, "999"),
        lambda: store.reviewer(run, "zoe").queue().items,
        lambda: store.reviewer(run, "zoe").submit("3", YES),
        lambda: store.reviewer(run, "ann").submit("999", YES),
        lambda: store.reviewer("other", "ann").submit("3", YES),
    ):
        with pytest.raises(UnknownError):
            call()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"verdict": 0}, "verdict"),
        ({"verdict": True}, "verdict"),
        ({"verdict": "1"}, "verdict"),
        ({"verdict": 2}, "variable"),
        ({"verdict": 2, "comment": " ", "variable": "\n"}, "variable"),
        ({"verdict": 3}, "step"),
        ({"verdict": 3, "comment": "no"}, "step"),
        ({"verdict": 1, "step": -1}, "step"),
        ({"verdict": 1, "step": 1.5}, "step"),
        ({"verdict": 1, "sure": "very"}, "sure"),
        ({"verdict": 1, "comment": "x" * 10_001}, "comment"),
        ({"verdict": 1, "variable": "x" * 201}, "variable"),
        ({"verdict": 1, "comment": "\ud800"}, "comment"),
        ({"verdict": 1, "comment": None}, "comment"),
    ],
)
def test_a_verdict_that_cannot_be_taken_names_its_field(fields, field):
    with pytest.raises(FieldError) as caught:
        Verdict(**fields)
    assert caught.value.field == field


def test_verdicts_that_say_enough_are_taken(store, run):
    for verdict in (
        Verdict(2, comment="sugar"),
        Verdict(2, variable="glucose"),
        Verdict(3, step=19),
        Verdict(3, variable="vasopressor"),
        Verdict(4),
        Verdict(5, comment="x" * 10_000),
    ):
        item = store.reviewer(run, "ann").submit(
            store.reviewer(run, "ann").queue().next_item.episode, verdict
        )
        kept = store.reviews(run, episode=item.episode)[0]
        assert Verdict(kept.verdict, kept.variable, kept.step, kept.sure, kept.comment) == verdict
    last = store.reviewer(run, "ann").queue().next_item.episode
    with pytest.raises(FieldError, match="step: 20 is after the last step, 19"):
        store.reviewer(run, "ann").submit(last, Verdict(3, step=20))
    for seconds in (-1, float("nan"), 1e9, "5", True):
        with pytest.raises(FieldError) as caught:
            store.reviewer(run, "ann").submit(last, YES, seconds=seconds)
        assert caught.value.field == "seconds"


# --------------------------------------------------------------------------------------- the file


def tables(store):
    with raw(store) as connection:
        found = {
            name: connection.execute(f"SELECT * FROM {name} ORDER BY rowid").fetchall()
            for name in ("event", "draft", "claim", "head")
        }
    connection.close()
    return found


def work(store, run):
    """A bit of everything."""
    store.reviewer(run, "ann").submit("3", YES, seconds=3)
    store.reviewer(run, "ann").withdraw(store.reviewer(run, "ann").item("3").review)
    store.reviewer(run, "ann").give_impression("3", "hm")
    store.reviewer(run, "ann").submit("3", UNSEEN)
    store.reviewer(run, "bob").submit("3", YES)
    settle(store.reviewer(run, "eve"), "3", 2, "clear")
    store.reviewer(run, "bob").skip("4")
    store.reviewer(run, "bob").save_draft("5", {"a": 1})


def test_a_reopened_file_says_the_same(store, run, tmp_path, clock):
    work(store, run)
    before = (
        store.stays(run),
        store.reviewer(run, "bob").queue().items,
        store.events(),
        store.verify(),
    )
    store.close()
    with Store(tmp_path, clock=clock) as again:
        assert (
            again.stays(run),
            again.reviewer(run, "bob").queue().items,
            again.events(),
            again.verify(),
        ) == before
        assert again.reviewer(run, "bob").draft("5") == {"a": 1}


def test_events_can_be_selected(store, run):
    work(store, run)
    everything = store.events()
    assert [event.id for event in everything] == list(range(1, len(everything) + 1))
    assert {event.reviewer for event in store.events(reviewer="bob")} == {"bob"}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET reviewer = 'eve' WHERE id = 5",
        "DELETE FROM event WHERE id = 5",
        "INSERT OR REPLACE INTO event SELECT id, at, run, 'eve', episode, action, payload, "
        "prev_hash, hash FROM event WHERE id = 5",
    ],
)
def test_events_cannot_be_changed(store, run, statement):
    work(store, run)
    connection = raw(store)
    with pytest.raises(sqlite3.IntegrityError, match="events are"):
        connection.execute(statement)
    connection.close()
    assert store.verify().ok


@pytest.mark.parametrize(
    ("statement", "broken", "problem"),
    [
        ("UPDATE event SET reviewer = 'eve' WHERE id = 5", 5, "event 5 was changed"),
        ("UPDATE event SET at = '2020' WHERE id = 1", 1, "event 1 was changed"),
        ("UPDATE event SET payload = x'00' WHERE id = 5", 5, "event 5 was changed"),
        ("UPDATE event SET payload = replace(payload, 'glucose', 'x')", 8, "event 8 was changed"),
        ("DELETE FROM event WHERE id = 5", 5, "event 5 is missing"),
        ("DELETE FROM event WHERE id > 9", 10, "events after 9 are missing: there were 11"),
        ("DELETE FROM event", 1, "events after 0 are missing"),
        ("UPDATE event SET hash = 'x' WHERE id = 5", 5, "event 5 was changed"),
        ("UPDATE event SET id = id + 100 WHERE id > 5", 6, "event 6 is missing"),
        ("UPDATE head SET hash = 'x'", 11, "not the last one"),
        ("DELETE FROM head", 11, "not the last one"),
        ("UPDATE head SET id = 'x'", 11, "not the last one"),
        (
            """UPDATE event SET payload = replace(payload, '"verdict":1', '"verdict":5')""",
            5,
            "event 5 was changed",
        ),
    ],
)
def test_tampering_is_found(store, run, statement, broken, problem):
    work(store, run)
    assert len(store.events()) == 11
    change_file(store.path, statement)
    found = store.verify()
    assert not found.ok
    assert verify_folder(store.path.parent) == found
    with pytest.raises(DamagedError, match=f"{problem}.*; restore a backup"):
        Store(store.path.parent)
    assert found.broken == broken
    assert problem in found.problem


def test_hashes_are_those_of_butfor_0_2(store):
    # written on 2026-11-16 by butfor 0.2.0, before the review was split into modules
    said = {"verdict": 2, "comment": "gl\u00fccose", "step": None, "seconds": 1.5, "repeat": False}
    said = json.dumps(said, sort_keys=True, separators=(",", ":"))
    at, start = "2027-01-15T08:00:00.000+00:00", "0" * 64
    first = "a5d59fa3ebe8a339b7266fcf861e94f9333dea273ccce2ddf06575dc5f848f04"
    second = "3dff32c9e79b869d015b1381cc081cd0151ae8d63b51e58a8946b0da9b4fd954"
    with store.file.writing() as transaction:
        for row in (
            (1, at, "r", "", "", "run", "{}", start, first),
            (2, at, "r", "ann", "3", "submit", said, first, second),
        ):
            transaction.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        transaction.execute("UPDATE head SET id = 2, hash = ?", (second,))
        assert verify(transaction.connection).ok
        assert [event.id for event in read_chain(transaction.connection)] == [1, 2]


def test_a_hash_tells_nothing_of_an_event_that_one_could_guess(store, run):
    hashes = set()
    for _ in range(2):
        with suppress(KeyboardInterrupt), store.file.writing() as transaction:
            event = record(transaction, "overview", run=run, reviewer="ann", payload={"a": 1})
            assert event.payload == {"a": 1}  # the salt is nobody's business
            hashes.add(event.hash)
            raise KeyboardInterrupt  # so that nothing is kept
        assert len(store.events()) == 4
    assert len(hashes) == 2


def test_the_clock_does_not_tell_what_came_first(store, run, clock):
    ann, bob = (store.reviewer(run, name) for name in ("ann", "bob"))
    ann.submit("3", YES)
    clock.now -= 3600  # set back
    bob.submit("3", YES)
    bob.withdraw(bob.item("3").review)
    ann.withdraw(ann.item("3").review)  # after bob's verdict had been shown
    ann.submit("3", UNSEEN)
    assert [review.informed for review in store.reviews(run, reviewer="ann")] == [False, True]
    clock.now -= 3600
    bob.claim("4")
    clock.now -= 3600  # a claim from the future does not hold for an hour
    assert store.stay(run, "4").state == "waiting"


def test_an_index_with_a_wrong_bit_is_found_before_it_hides_drafts(store, run, tmp_path):
    for episode in "01234567":
        store.reviewer(run, "ann").save_draft(episode, {"comment": "half a thought"})
    store.close()
    with sqlite3.connect(store.path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        root = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_draft_1'"
        ).fetchone()[0]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.close()
    content = bytearray(store.path.read_bytes())
    page = content[(root - 1) * size : root * size]
    content[(root - 1) * size + page.rindex(run.encode()) + 5] ^= 1
    store.path.write_bytes(content)
    assert "damaged" in verify_folder(tmp_path).problem
    with pytest.raises(StoreError, match="damaged"):
        Store(tmp_path)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW endless AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT i FROM n",
        "CREATE TRIGGER quiet AFTER INSERT ON event BEGIN DELETE FROM draft; END",
        "DROP TRIGGER event_no_update",
        "CREATE TABLE more (a)",
    ],
)
def test_tables_and_triggers_of_others_are_refused(store, run, tmp_path, statement):
    store.close()
    with sqlite3.connect(store.path) as connection:
        connection.execute(statement)
    connection.close()
    assert "that butfor did not make, or lacks some" in verify_folder(tmp_path).problem
    with pytest.raises(StoreError, match="that butfor did not make, or lacks some"):
        Store(tmp_path)


@pytest.mark.parametrize("left", [b"", None])
def test_verdicts_that_the_file_lacks_are_not_deleted(store, run, tmp_path, left):
    store.reviewer(run, "ann").submit("0", YES)
    name = store.path.name
    copy = tmp_path / "copy"
    copy.mkdir()
    newest = store.path.with_name(f"{name}-wal").read_bytes()
    (copy / f"{name}-wal").write_bytes(newest)
    if left is not None:
        (copy / name).write_bytes(left)
    with pytest.raises(DamagedError, match=f"{name} is empty or missing, but {name}-wal has"):
        Store(copy)
    assert (copy / f"{name}-wal").read_bytes() == newest


def test_a_cut_and_mended_end_is_found_by_a_head_noted_elsewhere(store, run):
    work(store, run)
    noted = store.verify().head
    assert store.verify(noted).ok
    change_file(
        store.path,
        "DELETE FROM event WHERE id > 9",
        "UPDATE head SET (id, hash) = (SELECT id, hash FROM event WHERE id = 9)",
    )
    assert store.verify().ok
    assert store.verify(noted).broken == 10
    assert "no event has the hash" in store.verify(noted).problem


def test_a_damaged_end_of_the_newest_events_is_found_by_a_head_noted_elsewhere(
    store, run, tmp_path
):
    store.reviewer(run, "ann").submit("0", YES)
    early = store.verify().head
    store.reviewer(run, "ann").submit("1", YES)
    noted, wal = store.verify().head, f"{store.path.name}-wal"
    for name in (store.path.name, wal):  # as a power failure leaves them
        (tmp_path / "copy").mkdir(exist_ok=True)
        (tmp_path / "copy" / name).write_bytes(store.path.with_name(name).read_bytes())
    assert verify_folder(tmp_path / "copy", noted).ok
    path = tmp_path / "copy" / wal
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1  # SQLite leaves out what does not have its checksum, without a word
    path.write_bytes(content)
    assert verify_folder(tmp_path / "copy", early).ok
    assert "no event has the hash" in verify_folder(tmp_path / "copy", noted).problem


def test_fifty_reviewers_at_once_lose_nothing_and_never_fork_the_chain(tmp_path):
    with Store(tmp_path) as store:
        run = store.open_run(fake_audit(8, 40), ReviewSettings(repeat_share=0, needed=50)).id
        together = threading.Barrier(50)

        def review(number):
            name = store.join(run, f"reviewer {number}").name
            together.wait()
            for item in store.reviewer(run, name).queue().items:
                store.reviewer(run, name).submit(
                    item.episode, Verdict(1 + 3 * (number % 2)), expected_version=0
                )
            return name

        with ThreadPoolExecutor(50) as pool:
            names = list(pool.map(review, range(50)))
        given = {(r.reviewer, r.episode) for r in store.reviews(run)}
        assert given == {(name, stay.episode) for name in names for stay in store.stays(run)}
        assert {stay.verdicts for stay in store.stays(run)} == {50}
        found = store.verify()
        assert found.ok, found.problem
        assert found.events == 1 + 50 + 500


def test_of_many_equal_submissions_exactly_one_is_taken(store, run):
    together = threading.Barrier(20)

    def submit(_):
        together.wait()
        try:
            return store.reviewer(run, "ann").submit("3", YES, expected_version=0).version
        except StaleError:
            return None

    with ThreadPoolExecutor(20) as pool:
        versions = [version for version in pool.map(submit, range(20)) if version]
    assert len(versions) == len(store.reviews(run)) == 1


WRITER = """
import sys
from types import SimpleNamespace
from butfor.review.store import Store
from butfor.review.verdicts import Verdict

folder, run, name = sys.argv[1:]
with Store(folder) as store:
    store.join(run, name)
    print("ready", flush=True)
    sys.stdin.readline()
    for item in store.reviewer(run, name).queue().items:
        done = store.reviewer(run, name).submit(item.episode, Verdict(2, comment=name))
        print(item.episode, done.review, flush=True)
"""


def start_writer(folder, run, name):
    return start(WRITER, folder, run, name)


KILLED = """
import sys
from itertools import cycle
from butfor.review.store import Store
from butfor.review.verdicts import Verdict

folder, run, name = sys.argv[1:]
store = Store(folder)
store.join(run, name)
for item in cycle(store.reviewer(run, name).queue().items):
    done = store.reviewer(run, name).submit(item.episode, Verdict(2, comment=name))
    print("submit", done.version, flush=True)
    print("withdraw", store.reviewer(run, name).withdraw(done.review).version, flush=True)
"""


def test_a_killed_writer_loses_nothing_that_it_was_told_is_kept(tmp_path):
    with Store(tmp_path) as store:
        run = store.open_run(fake_audit()).id
    for name in ("ann", "bob", "eve"):
        with start(KILLED, tmp_path, run, name) as writer:
            told = [writer.stdout.readline() for _ in range(20)]
            writer.kill()
            told += writer.stdout.readlines()
        assert writer.returncode == -signal.SIGKILL
        told = [line.split() for line in told if line.endswith("\n")]
        with Store(tmp_path) as store:
            found = store.verify()
            assert found.ok, found.problem
            there = [[event.action, str(event.id)] for event in store.events(reviewer=name)][1:]
            assert there[: len(told)] == told
            assert len(there) - len(told) <= 1  # done, and killed before it could tell


def test_two_processes_and_this_one_write_at_once(tmp_path):
    with Store(tmp_path) as store:
        chosen = ReviewSettings(control_share=0, repeat_share=0, needed=3)
        run = store.open_run(fake_audit(40, 0), chosen).id
        writers = [start_writer(tmp_path, run, name) for name in ("ann", "bob")]
        store.join(run, "eve")
        for writer in writers:
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            writer.stdin.write("go\n")
            writer.stdin.flush()
        for item in store.reviewer(run, "eve").queue().items:
            store.reviewer(run, "eve").submit(item.episode, YES)
        for writer in writers:
            with writer:
                assert len(writer.stdout.read().splitlines()) == 40
            assert writer.returncode == 0
        assert {stay.verdicts for stay in store.stays(run)} == {3}
        assert store.verify().ok


def test_many_open_a_new_file_at_once(tmp_path):
    together = threading.Barrier(12)

    def open_it(_):
        together.wait()
        with Store(tmp_path) as store:
            return store.open_run(fake_audit()).id

    with ThreadPoolExecutor(12) as pool:
        assert len(set(pool.map(open_it, range(12)))) == 1
    with Store(tmp_path) as store:
        assert len(store.events()) == 1


def test_a_verdict_is_on_the_disk_when_it_is_acknowledged(store):
    for durable, level in ((True, 2), (False, 1), (True, 2)):  # FULL, NORMAL
        with store.file.writing(durable=durable) as connection:
            assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_what_is_no_evidence_does_not_wait_for_the_disk(store, run, monkeypatch):
    asked = []
    writing = store.file.writing

    def watched(*, durable=True):
        asked.append(durable)
        return writing(durable=durable)

    monkeypatch.setattr(store.file, "writing", watched)
    store.reviewer(run, "ann").claim("3")
    store.reviewer(run, "ann").save_draft("3", {"verdict": 2})
    assert asked == [False, False]
    store.reviewer(run, "ann").submit("3", UNSEEN)
    assert asked == [False, False, True]


def test_a_claim_that_is_fresh_is_not_written_again(store, run, clock):
    def at():
        return tables(store)["claim"][0][-1]

    store.reviewer(run, "ann").claim("3")
    first = at()
    clock.now += 30
    store.reviewer(run, "ann").claim("3")
    assert at() == first
    clock.now += 31
    store.reviewer(run, "ann").claim("3")
    assert at() == clock.now


DRAFT = """
import os, signal, sys
from butfor.review.store import Store

folder, run = sys.argv[1:]
store = Store(folder)
store.join(run, "ann")
store.reviewer(run, "ann").save_draft("3", {"comment": "half a thought"})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_draft_survives_a_kill(tmp_path):
    with Store(tmp_path) as store:
        run = store.open_run(fake_audit()).id
    with start(DRAFT, tmp_path, run) as process:
        assert process.wait() == -signal.SIGKILL
    with Store(tmp_path) as store:
        assert store.reviewer(run, "ann").draft("3") == {"comment": "half a thought"}


def test_a_failure_in_the_middle_leaves_nothing(store, run, monkeypatch):
    def fail(*_):
        raise RuntimeError("power cut")

    before = tables(store)
    monkeypatch.setattr("butfor.review.state._read", fail)
    with pytest.raises(RuntimeError):
        store.reviewer(run, "ann").submit("3", YES)
    assert tables(store) == before
    assert store.reviews(run) == []


READ_ONLY = """
import os, sys
from butfor.review.store import Store
from butfor.review.verdicts import StoreError
if os.geteuid() == 0:
    os.setuid(65534)  # root may write everywhere
for line in sys.stdin:  # each time it is asked to
    try:
        Store(sys.argv[1])
    except StoreError as error:
        print(repr(str(error)), flush=True)
"""


def test_a_folder_that_cannot_be_written_to_is_named():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with start(READ_ONLY, name) as process:
            for mode in (0o555, 0o555, 0o000):  # without a file, with one, not even to look into
                folder.chmod(mode)
                process.stdin.write("open\n")
                process.stdin.flush()
                said = process.stdout.readline()
                folder.chmod(0o755)
                assert f"{folder / 'reviews.sqlite'}: " in said
                assert "you must be allowed to write to it" in said
                Store(folder).close()
            process.stdin.close()


VERIFY = """
import os, sys
from butfor.review.store import verify_folder
if os.geteuid() == 0:
    os.setuid(65534)  # root may write everywhere
found = verify_folder(sys.argv[1])
print(found.ok, found.events, found.head)
"""


@pytest.mark.parametrize("in_use", [False, True])
def test_verifying_writes_nothing_and_sees_the_latest(in_use):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = Store(folder)
        store.join(store.open_run(fake_audit()).id, "ann")
        expected = store.verify()
        if not in_use:
            store.close()
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert len(before) == (3 if in_use else 1)  # with -wal and -shm
        folder.chmod(0o555)
        with start(VERIFY, name) as process:
            said = process.stdout.read()
        folder.chmod(0o755)
        assert said.split() == ["True", "2", expected.head]
        after = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert after.keys() == before.keys()
        assert after["reviews.sqlite"] == before["reviews.sqlite"]
        store.close()


def test_an_empty_file_has_not_been_verified(tmp_path):
    (tmp_path / "reviews.sqlite").touch()
    with pytest.raises(StoreError, match="no reviews in it"):
        verify_folder(tmp_path)
    assert (tmp_path / "reviews.sqlite").stat().st_size == 0


def test_a_file_of_the_first_version_is_verified_as_it_is(store, early_run, tmp_path):
    run = early_run
    work(store, run)
    store.close()
    make_version(store.path, 1)
    before = store.path.read_bytes()
    assert verify_folder(tmp_path).ok
    assert store.path.read_bytes() == before


def test_what_is_no_file_of_reviews_is_named(tmp_path):
    with pytest.raises(StoreError, match="there is no folder"):
        Store(tmp_path / "nowhere")
    (tmp_path / "reviews.sqlite").write_bytes(b"verdicts" * 1000)
    with pytest.raises(StoreError, match="not a database; it is damaged"):
        Store(tmp_path)


def test_a_file_of_a_newer_butfor_is_left_alone(store, tmp_path):
    connection = raw(store)
    connection.execute(f"PRAGMA user_version = {len(SCHEMAS)}")
    connection.close()
    with pytest.raises(StoreError, match="use a newer butfor"):
        Store(tmp_path)


def test_a_file_of_the_first_version_is_brought_up_to_date(store, early_run, tmp_path):
    run = early_run
    work(store, run)
    store.close()
    make_version(store.path, 1)
    with Store(tmp_path) as again:
        assert again.verify().ok
        assert not any(review.informed for review in again.reviews(run))
        note_overview(again.reviewer(run, "bob"))
        assert again.verify().ok


def test_a_file_that_was_removed_is_not_written_to(store, run):
    store.path.rename(store.path.with_name("elsewhere"))
    with pytest.raises(StoreError, match="moved or replaced"):
        store.reviewer(run, "ann").submit("3", YES)


def test_all_errors_are_of_one_kind():
    for kind in (FieldError, StaleError, RunChangedError, RefusedError, UnknownError, StoreError):
        assert issubclass(kind, ReviewError)


@pytest.fixture(scope="module")
def audit():
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy("icml2019"), 120, version="icml2019", seed=4)
    log = log.hide("glucose", "diabetes")
    model = bf.fit_mdp(log)
    return run_audit(log, model, bf.policy_iteration(model).table, flags=12, draws=1, seed=1)


def test_an_audit_written_again_under_review_loses_no_verdict(audit, tmp_path):
    folder = audit.save(tmp_path / "audit")
    with Store(folder) as store:
        run = store.open_run(audit, ReviewSettings(verdicts_only=True)).id
        store.join(run, "ann")
        first, second, third = (
            item.episode for item in store.reviewer(run, "ann").queue().items[:3]
        )
        store.reviewer(run, "ann").submit(first, YES)
        audit.save(folder, overwrite=True)
        store.reviewer(run, "ann").submit(second, YES)  # the program that has it open goes on
        with Store(folder) as other:
            other.reviewer(run, "ann").submit(third, YES)
        assert len(store.reviews(run)) == 3
    with Store(folder) as again:
        assert {r.episode for r in again.reviews(run)} == {first, second, third}
        assert again.verify().ok
    assert not list(tmp_path.glob(".audit*"))


# ----------------------------------------------------------------------------- exports and results

HOSTILE = [
    '=HYPERLINK("http://evil","x")',
    "+1",
    "-1+2",
    "@SUM(A1)",
    "\tcmd",
    "\rcmd",
    "'=quoted",
    "''",
    "'plain",
    "＝1+1",
    "＋1",
    "－1",
    "＠SUM(A1)",
    "  =1+1",
    "\u00a0\u200b＝1+1",
    "' =quoted",
    '"; DROP TABLE event; --',
    "<script>alert(1)</script>",
    'a,b\r\nc;"d"',
    "\x00\x1b[31m \u202e 🩺 ä",
    "{{7*7}} ${x} %s",
]


def test_hostile_text_is_kept_as_it_is_and_no_spreadsheet_computes_it(store, tmp_path):
    audit = fake_audit(len(HOSTILE), 0)
    run = store.open_run(audit).id
    name = store.join(run, "=cmd|' /C calc'!A0").name
    for i, text in enumerate(HOSTILE):
        store.reviewer(run, name).submit(str(i), Verdict(2, variable=text, comment=text))
    assert [r.comment for r in store.reviews(run)] == HOSTILE
    text = export.reviews_text(store, audit, "csv", real_names=True)
    for row in csv.reader(io.StringIO(text, newline="")):
        for cell in row:
            try:
                float(cell)
            except ValueError:
                assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    file = tmp_path / "reviews.csv"
    file.write_text(text, encoding="utf-8", newline="")
    rows = export.read_reviews_csv(file)
    assert [row["comment"] for row in rows] == HOSTILE
    assert {row["reviewer"] for row in rows} == {name}
    lines = [json.loads(line) for line in export.reviews_text(store, audit, "jsonl").splitlines()]
    assert [line["comment"] for line in lines] == HOSTILE
    assert store.verify().ok


@given(st.text(max_size=20))
def test_any_text_comes_back_from_csv(text):
    cell = guarded(text)
    assert restored(cell) == text
    assert not FORMULA.match(cell) or cell.startswith("'")


def test_a_row_of_the_export_has_what_was_promised(store, clock):
    audit = fake_audit(high_died=float("nan"), thin_share=0.86)
    audit.episodes["low_died"] = -0.125
    run = store.open_run(audit).id
    store.join(run, "ann")
    first = store.reviewer(run, "ann").submit("3", UNSEEN, seconds=41.5)
    clock.now += 60
    store.reviewer(run, "ann").withdraw(first.review)
    store.reviewer(run, "ann").submit("3", YES)
    rows = list(csv.DictReader(io.StringIO(export.reviews_text(store, audit, "csv"))))
    assert list(rows[0]) == [
        *export.NAMES,
        *("p_died", "expected_return", "difference", "high_died", "low_died"),
        *("evidence_min", "thin_share", "butfor_version"),
    ]
    assert list(rows[0].values()) == [
        *(run, "3", "Reviewer 1", "2", "glucose", "7", "high", "low sugar", "41.5", ""),
        *("false", "false", "false", "in_review"),
        *("2027-01-15T08:00:00.000+00:00", "2027-01-15T08:01:00.000+00:00", "died"),
        *("0.25", "-0.5", "0.5", "", "-0.125", "", "0.86", bf.__version__),
    ]
    lines = [json.loads(line) for line in export.reviews_text(store, audit, "jsonl").splitlines()]
    assert [line["verdict"] for line in lines] == [2, 1]
    assert lines[0]["high_died"] is None
    assert [event["action"] for event in lines[0]["history"]] == ["submit", "withdraw", "submit"]
    assert set(lines[0]) == {*rows[0], "history"}


def test_agreement_can_be_recomputed_from_the_export(store, clock, tmp_path):
    audit = fake_audit(40, 40)
    run = store.open_run(audit, ReviewSettings(needed=3)).id
    for i, name in enumerate(("ann", "bob", "=eve")):
        store.join(run, name)
        for item in store.reviewer(run, name).queue().items:
            number = int(item.episode)
            store.reviewer(run, name).submit(item.episode, Verdict(1 if number % 7 != i else 4))
    store.reviewer(run, "bob").withdraw(store.reviewer(run, "bob").item("5").review)
    note_overview(store.reviewer(run, "bob"))
    store.reviewer(run, "bob").submit("5", Verdict(2, comment="now I know"))
    clock.now += 3600
    while (item := store.reviewer(run, "ann").queue().next_item) is not None and item.repeat:
        store.reviewer(run, "ann").submit(item.episode, Verdict(5), repeat=True)
    file = tmp_path / "reviews.csv"
    text = export.reviews_text(store, audit, "csv", real_names=True)
    file.write_text(text, encoding="utf-8", newline="")
    found = export.agreement_of_export(file, resamples=100)
    assert found == {run: summarize(store, run, resamples=100).agreement}
    assert found[run].stays == 50
    assert summarize(store, run, resamples=10).informed == 1
    with_it = [(r.episode, r.reviewer, r.verdict) for r in store.reviews(run) if not r.withdrawn_at]
    assert len(with_it) == 152  # three readings of fifty, two repeats
    assert sum(row["informed"] == "true" for row in export.read_reviews_csv(file)) == 1
    assert summarize(store, run, resamples=10).self_agreement.total == 2


def test_exports_call_a_reviewer_the_same_on_open_and_on_settled_stays(store, run):
    audit = fake_audit()
    for episode in ("3", "4"):
        store.reviewer(run, "ann").submit(episode, YES)
        store.reviewer(run, "bob").submit(episode, UNSEEN)
    settle(store.reviewer(run, "eve"), "4", 1, "so")

    def named(rows):
        return [(row["episode_id"], row["reviewer"]) for row in rows]

    assert named(export.review_rows(store, audit)) == [
        ("3", "Reviewer 1"),
        ("3", "Reviewer 2"),
        ("4", "Reviewer 1"),
        ("4", "Reviewer 2"),
    ]
    everybody = [("3", "ann"), ("3", "bob"), ("4", "ann"), ("4", "bob")]
    assert named(export.review_rows(store, audit, real_names=True)) == everybody
    text = export.reviews_text(store, audit, "jsonl")
    assert not any(name in text for name in ("ann", "bob", "eve"))
    history = json.loads(text.splitlines()[2])["history"]
    assert [event["reviewer"] for event in history] == ["Reviewer 1", "Reviewer 2", "Reviewer 3"]
    assert "hash" not in history[0]
    text = export.reviews_text(store, audit, "jsonl", real_names=True)
    history = json.loads(text.splitlines()[2])["history"]
    assert [event["reviewer"] for event in history] == ["ann", "bob", "eve"]
    assert history[0]["hash"] == store.events(run=run, episode="4")[0].hash


def test_a_pseudonym_stays_the_same_when_others_join_in_another_run(store, run):
    first = {"ann": "Reviewer 1", "bob": "Reviewer 2", "eve": "Reviewer 3"}
    assert store.pseudonyms() == first
    later = store.open_run(fake_audit(digest="b")).id
    for name in ("aaron", "EVE", "ann"):
        store.join(later, name)
    with Store(store.path.parent) as again:
        assert again.pseudonyms() == store.pseudonyms() == first | {"aaron": "Reviewer 4"}


def test_an_export_that_may_call_one_reviewer_by_two_names_is_refused(tmp_path):
    file = tmp_path / "reviews.csv"
    file.write_text("run_id,episode_id,reviewer,verdict\nr,1,ann,1\nr,2,Reviewer 1,1\n")
    with pytest.raises(ValueError, match=r"pseudonyms \(Reviewer 1\) and names \(ann\)"):
        export.agreement_of_export(file)


def test_verdicts_about_an_earlier_run_are_exported_without_the_models_numbers(store, run):
    store.reviewer(run, "ann").submit("3", UNSEEN)
    now = fake_audit(digest="b")
    store.open_run(now)
    assert export.review_rows(store, now) == []
    (row,) = export.review_rows(store, now, run=run)
    assert (row["run_id"], row["comment"]) == (run, "low sugar")
    assert row["p_died"] is row["observed"] is row["butfor_version"] is None


def test_a_file_that_is_no_export_is_named(tmp_path):
    file = tmp_path / "other.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="no column episode_id, reviewer, run_id, verdict"):
        export.agreement_of_export(file)
    file.write_text("run_id,episode_id,reviewer,verdict\nr,1,ann,good\n")
    with pytest.raises(ValueError, match="review 1: verdict 'good' is not a number"):
        export.agreement_of_export(file)


def test_rows_that_are_too_short_or_too_long_are_named_with_file_and_line(tmp_path):
    file = tmp_path / "reviews.csv"
    head = "run_id,episode_id,reviewer,verdict,comment\n"
    file.write_text(f'{head}r,1,ann,1,"two\nlines"\nr,2,ann\nr,3,ann,1,x,y\n')
    words = r"reviews\.csv: 2 rows without the 5 cells of the header \(line 4 has 3, line 5 has 6\)"
    with pytest.raises(ValueError, match=words):
        export.agreement_of_export(file)
    file.write_bytes(b"\xff\xfe" + head.encode("utf-16-le"))
    with pytest.raises(ValueError, match=r"reviews\.csv, line 1: not UTF-8"):
        export.agreement_of_export(file)


def test_the_export_of_a_real_audit_has_its_probabilities(audit, tmp_path):
    with Store(tmp_path) as store:
        run = store.open_run(audit, ReviewSettings(verdicts_only=True)).id
        store.join(run, "ann")
        for item in store.reviewer(run, "ann").queue().items:
            store.reviewer(run, "ann").submit(item.episode, YES)
        rows = {row["episode_id"]: row for row in export.review_rows(store, audit)}
    assert len(rows) == 52
    for _, episode in audit.flagged.iterrows():
        row = rows[str(episode["id"])]
        assert row["p_died"] == episode["p_died"]
        assert row["observed"] == episode["observed_outcome"]
        assert not row["control"]
    assert sum(row["control"] for row in rows.values()) == 40
    json.dumps(list(rows.values()))


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM event WHERE id = 3",
        """UPDATE event SET payload = replace(payload, '"verdict":1', '"verdict":2')""",
        "UPDATE head SET hash = 'x'",
    ],
)
def test_reviews_that_are_not_what_was_recorded_are_not_exported(audit, tmp_path, change):
    folder = audit.save(tmp_path / "audit")
    with Store(folder) as store:
        run = store.open_run(audit, ReviewSettings(verdicts_only=True)).id
        ann = store.join(run, "ann")
        ann.submit(ann.queue().next_item.episode, YES)
    export.export_reviews(folder, tmp_path / "before.csv")
    change_file(folder / "reviews.sqlite", change)
    with pytest.raises(DamagedError, match=r"reviews\.sqlite is damaged or was changed"):
        export.export_reviews(folder, tmp_path / "after.csv")
    assert not (tmp_path / "after.csv").exists()


def test_results_compare_flagged_stays_with_controls(store):
    run = store.open_run(fake_audit(8, 40), ReviewSettings(repeat_share=0)).id
    for name in ("ann", "bob", "eve"):
        store.join(run, name)
    flagged = [stay.episode for stay in store.stays(run) if not stay.control]
    controls = [stay.episode for stay in store.stays(run) if stay.control]
    empty = summarize(store, run)
    assert empty.flagged[1].share is empty.median_seconds is None
    for name, seconds in (("ann", 10), ("bob", 30)):
        for episode in flagged[:6]:
            verdict = UNSEEN if episode in flagged[:4] else YES
            store.reviewer(run, name).submit(episode, verdict, seconds=seconds)
        store.reviewer(run, name).submit(controls[0], Verdict(1), seconds=seconds)
    store.reviewer(run, "ann").submit(flagged[6], YES, seconds=20)
    store.reviewer(run, "bob").submit(flagged[6], Verdict(2, variable=" lactate "), seconds=20)
    settle(store.reviewer(run, "eve"), flagged[6], 2, "yes")
    store.reviewer(run, "eve").withdraw(
        store.reviewer(run, "eve").submit(flagged[7], YES, seconds=99).review
    )
    found = summarize(store, run, resamples=10)
    assert found.stays == {"reviewed": 7, "settled": 1, "waiting": 2}
    assert (found.flagged[2].count, found.flagged[2].total) == (5, 7)
    interval = (found.flagged[2].low, found.flagged[2].high)
    # Wilson for 5 of 7, worked: (5/7 + 1.9208/7 ± 1.96·sqrt(5·2/7³ + 0.9604/49)) / (1 + 3.8415/7)
    assert interval == pytest.approx((0.3589, 0.9178), abs=5e-5)
    assert (found.controls[1].count, found.controls[1].total) == (1, 1)
    assert found.median_seconds == 20
    assert (found.withdrawn.count, found.withdrawn.total) == (1, 17)
    assert found.variables == {"glucose": 8, "lactate": 1}
    assert found.agreement.percent.value == pytest.approx(7 / 8)
    assert found.agreement.percent.note.startswith("too few: 8 episodes")
