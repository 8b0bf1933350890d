"""The review in a real browser: three reviewers, by keyboard alone."""

import csv
import io

import httpx
import pytest

from butfor.review.store import Store
from tests.browser import open_browser
from tests.review_site import server, small_audit

READY = "document.documentElement?.dataset.ready == 'yes'"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_audit(flags=4).save(tmp_path_factory.mktemp("browser") / "audit")


@pytest.fixture(scope="module")
def base(folder):
    with server(folder, "--show-overview") as (_, address):
        yield address


def wait_page(browser, path):
    browser.wait_for(f"location.pathname.startsWith('{path}') && {READY}")


def leave(browser, key, *, ctrl=False):
    """Press a key that leads to another page, and wait for that."""
    browser.evaluate("document.documentElement.dataset.old = 'yes'")
    browser.press(key, ctrl=ctrl)
    browser.wait_for(f"document.documentElement?.dataset.old != 'yes' && {READY}")


def sign_in(browser, base, name):
    browser.goto(f"{base}/sign-in")
    browser.wait_for("document.activeElement.id == 'reviewer'")
    browser.type(name)
    leave(browser, "Enter")
    wait_page(browser, "/")


def current(browser):
    return browser.evaluate("decodeURIComponent(location.pathname.split('/')[2])")


def test_three_reviewers_by_keyboard_alone(base, folder):
    with open_browser() as browser:
        # ann reads three stays
        sign_in(browser, base, "ann")
        browser.wait_for("document.activeElement.id == 'continue'")
        leave(browser, "Enter")
        read = []
        for verdict in ("1", "2", "5"):
            wait_page(browser, "/episodes/")
            browser.wait_for("document.querySelector('#picture svg') !== null")
            read.append(current(browser))
            browser.press("d")
            browser.wait_for("document.querySelector('#paths').ariaPressed == 'true'")
            browser.press("n")
            assert browser.evaluate("document.querySelector('#numbers').open")
            browser.press(verdict)
            assert browser.evaluate(
                f"document.querySelector('[name=verdict][value=\"{verdict}\"]').checked"
            )
            browser.press("c")
            browser.wait_for("document.activeElement.id == 'comment'")
            browser.type(f"12345 jku about {read[-1]}")  # letters that are keys, typed
            browser.press("Escape")
            leave(browser, "Enter", ctrl=True)
            assert browser.problems() == []
        assert len(set(read)) == 3
        # the last one is undone, and the form still has what was written
        leave(browser, "u")
        assert current(browser) == read[-1]
        assert "jku about" in browser.evaluate("document.querySelector('#comment').value")
        # keys: help, next, previous, skip, queue
        browser.press("?")
        assert browser.evaluate("document.querySelector('#keys').open")
        browser.press("Escape")
        browser.wait_for("!document.querySelector('#keys').open")
        if browser.count("#next"):
            leave(browser, "j")
            leave(browser, "k")
            assert current(browser) == read[-1]
        browser.press("g")
        leave(browser, "q")
        assert browser.evaluate("location.pathname") == "/"
        assert browser.problems() == []

        with httpx.Client(base_url=base) as other:
            other.post("/api/v1/session", json={"reviewer": "looks"})
            rows = list(csv.DictReader(io.StringIO(other.get("/export/reviews.csv").text)))
        assert [row["episode_id"] for row in rows] == read
        assert [bool(row["withdrawn_at"]) for row in rows] == [False, False, True]

        # bob differs about the first one, eve settles it
        sign_in(browser, base, "bob")
        browser.goto(f"{base}/episodes/{read[0]}")
        browser.wait_for(READY)
        browser.press("4")
        leave(browser, "Enter", ctrl=True)
        sign_in(browser, base, "eve")
        browser.goto(f"{base}/disagreements/{read[0]}")
        browser.wait_for(f"{READY} && document.querySelector('#picture svg') !== null")
        browser.press("1")
        browser.press("c")
        browser.type("the chart says so")
        leave(browser, "Enter", ctrl=True)
        assert "settled" in browser.text("h1")
        assert browser.problems() == []
    with Store(folder) as store:
        run = store.runs()[0].id
        stay = store.stay(run, read[0])
        assert (stay.state, stay.final) == ("settled", 1)
        assert store.verify().ok


def test_a_draft_is_there_again_after_leaving(base):
    with open_browser() as browser:
        sign_in(browser, base, "dora")
        leave(browser, "Enter")
        address = browser.evaluate("location.href")
        browser.press("3")
        browser.press("c")
        browser.type("half a thought")
        browser.wait_for("document.querySelector('#draft').innerText == 'Draft kept'")
        browser.goto(f"{base}/")
        browser.goto(address)
        assert browser.evaluate("document.querySelector('#comment').value") == "half a thought"
        assert browser.evaluate("document.querySelector('[name=verdict][value=\"3\"]').checked")


def test_no_page_is_wider_than_the_screen_at_twice_the_size_nor_has_errors(base):
    with open_browser(640, 480) as browser:
        sign_in(browser, base, "max")
        first = browser.evaluate("document.querySelector('#continue').getAttribute('href')")
        pages = ("/", first, "/overview", "/episodes", "/results", "/about", "/audit", "/docs")
        for page in pages:
            browser.goto(base + page)
            browser.wait_for(READY)
            assert browser.overflow() <= 0, page
            assert browser.problems() == [], page
            assert all(url.startswith(base) for url in browser.requests())
