"""Every page under axe-core, in light and dark colors: no violations.

`make test` checks each kind of page once; `make verify` each of its states, and both colors.
"""

from functools import partial

import pytest

import butfor as bf
from butfor.audit.source import audit_log
from butfor.review.reviewer import settle
from butfor.review.store import Store
from butfor.review.verdicts import Chances, Verdict
from tests.audits import hidden_audit, sepsis_audit
from tests.browser import open_browser, read_axe
from tests.grids import few
from tests.review_site import site, small_audit
from tests.ward import write_ward

READY = "document.documentElement?.dataset.ready == 'yes'"
OF_COLORS = ("color-contrast", "link-in-text-block")
SCHEMES = {"light": (), "dark": OF_COLORS}  # rules, if not all: the rest is the same
by_day = pytest.mark.parametrize("scheme", few(SCHEMES, 1))
KINDS, STATES = "each kind", "each state"  # which pages are checked
by_kind = pytest.mark.parametrize(
    ("scheme", "pages"), few([("light", KINDS), ("light", STATES), ("dark", STATES)], 1)
)


@pytest.fixture(scope="module")
def browser():
    read_axe()
    with open_browser(390, 844) as browser:  # narrow: what can scroll does
        yield browser


@pytest.fixture
def review(tmp_path_factory):
    """A review in which cat and dan read two stays and differ about one."""
    read_axe()
    audit = small_audit(flags=4)
    folder = audit.save(tmp_path_factory.mktemp("accessibility") / "audit")
    chosen = {"coordinators": ["zoe"], "verdicts_only": False}
    with Store(folder) as store, site(folder, **chosen) as base:
        one, two, *_ = store.stays(store.runs()[0].id)
        for name, episode, verdict in (
            ("cat", one.episode, 1),
            ("dan", one.episode, 4),
            ("cat", two.episode, 1),
            ("dan", two.episode, 1),
        ):
            read(store, name, episode, verdict)
        yield store, base


def read(store, name, episode, verdict):
    """Answer what the run asks for, and give a verdict."""
    run = store.runs()[0]
    reviewer = store.join(run.id, name)
    if run.outcomes:
        reviewer.answer(episode, Chances((10, *[0] * (len(run.outcomes) - 1)), "low"))
    if verdict:
        reviewer.submit(episode, Verdict(verdict, "glucose", 1, "low", "so"), seconds=12.0)


def open_page(browser, address):
    browser.goto(address)
    browser.wait_for(READY)


def check_page(browser, what, found, scheme):
    """Add what is wrong with a page to what was found."""
    browser.prefer(scheme)
    if wrong := browser.violations(*SCHEMES[scheme]):
        found[what] = wrong


def sign_in(browser, base, name, goal="/about"):
    open_page(browser, f"{base}/sign-in?next={goal}")
    browser.evaluate(f"document.querySelector('#reviewer').value = '{name}'")
    browser.click("button.main")
    browser.wait_for(f"{READY} && location.pathname != '/sign-in'")


def test_the_rules_can_be_broken(browser, review):
    open_page(browser, f"{review[1]}/sign-in")
    browser.evaluate("document.querySelector('label').remove()")
    assert ("label", [["#reviewer"]]) in browser.violations()
    browser.prefer("dark")
    browser.evaluate("document.querySelector('h1').style.color = '#444'")
    assert [rule for rule, _ in browser.violations(*OF_COLORS)] == ["color-contrast"]


@by_kind
def test_no_page_of_a_reviewer_breaks_a_rule(browser, review, scheme, pages):
    (store, base), found = review, {}
    check = partial(check_page, scheme=scheme)
    open_page(browser, f"{base}/sign-in")
    check(browser, "sign-in", found)
    sign_in(browser, base, "ann", goal="/")
    assert "What you are asked" in browser.text("h1")
    check(browser, "start", found)
    if pages == STATES:
        browser.press("3")
        browser.press("7")
        browser.press("Enter")
        browser.wait_for(f"{READY} && document.querySelector('#solution') !== null")
        check(browser, "solution", found)
    open_page(browser, f"{base}/")
    if pages == STATES:
        check(browser, "empty queue", found)
    first = browser.evaluate("document.querySelector('#continue').href")
    open_page(browser, first)
    if pages == STATES:
        check(browser, "stay before answering", found)
    browser.press("Enter", ctrl=True)
    browser.wait_for(f"{READY} && document.querySelector('.alert, :invalid') !== null")
    check(browser, "stay with an error", found)
    run = store.runs()[0].id
    queue = store.join(run, "ann").queue()
    one, two, three, *_ = (item.episode for item in queue.items if item.stay_state == "waiting")
    read(store, "ann", one, 0)
    open_page(browser, f"{base}/episodes/{one}")
    check(browser, "stay after answering", found)
    browser.press("?")
    check(browser, "keys", found)
    for name, episode, verdict in (
        ("ann", two, 1),
        ("bob", two, 1),
        ("ann", three, 1),
        ("bob", three, 4),
    ):
        read(store, name, episode, verdict)
    store.join(run, "ann").skip(one)
    open_page(browser, f"{base}/episodes/{two}")
    check(browser, "stay after the verdict", found)
    states = ["/", "/?text=nowhere", "/audit?text=nowhere"]
    for path in ["/audit", "/about", "/docs"] + states * (pages == STATES):
        open_page(browser, base + path)
        check(browser, path, found)
    open_page(browser, f"{base}/results")
    assert "Not available" in browser.text("h1")
    check(browser, "problem", found)
    sign_in(browser, base, "eve")
    open_page(browser, f"{base}/")
    check(browser, "queue with something to settle", found)
    open_page(browser, f"{base}/disagreements/{three}")
    check(browser, "disagreement", found)
    if pages == STATES:
        settle(store.reviewer(run, "eve"), three, 1, "so")
        open_page(browser, f"{base}/disagreements/{three}")
        check(browser, "settled", found)
    assert found == {}


@by_kind
def test_no_page_of_a_coordinator_breaks_a_rule(browser, review, scheme, pages):
    (store, base), found = review, {}
    sign_in(browser, base, "zoe")
    episode = store.stays(store.runs()[0].id)[0].episode
    kinds = ["/coordinator", "/overview", "/results", "/episodes"]
    states = [  # or kinds that reviewers have, too
        "/episodes?status=none&obs=nothing",
        "/audit?who=Reviewer+1",
        f"/episodes/{episode}",
        f"/disagreements/{episode}",
    ]
    for path in kinds + states * (pages == STATES):
        open_page(browser, base + path)
        browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        check_page(browser, path, found, scheme)
    assert found == {}


@pytest.mark.parametrize("made", few([hidden_audit, sepsis_audit], 1))
@by_day
def test_no_report_breaks_a_rule(browser, tmp_path, made, scheme):
    found = {}
    open_page(browser, bf.write_report(made(), tmp_path / "report.html").as_uri())
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    check_page(browser, "report", found, scheme)
    assert found == {}


@by_day
def test_the_record_behind_levels_breaks_no_rule(browser, tmp_path, scheme):
    audit = audit_log(*write_ward(tmp_path), models=0, rehearsal=False, flags=4)
    folder, found = audit.save(tmp_path / "audit"), {}
    open_page(browser, bf.write_report(audit, tmp_path / "report.html").as_uri())
    assert "2024-" in browser.text("#stay .values")
    check_page(browser, "report", found, scheme)
    with site(folder) as base:
        sign_in(browser, base, "ann")
        open_page(browser, f"{base}/")
        open_page(browser, browser.evaluate("document.querySelector('#continue').href"))
        assert "2024-" in browser.text("#recorded")
        check_page(browser, "stay", found, scheme)
    assert found == {}
