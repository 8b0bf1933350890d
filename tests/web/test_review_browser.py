"""The review in a real browser, used by keyboard alone."""

import csv
import io
import time

import httpx
import pytest

from butfor.review.store import Store
from tests.browser import open_browser
from tests.grids import few
from tests.review_site import site, small_audit

READY = "document.documentElement?.dataset.ready == 'yes'"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_audit(flags=4).save(tmp_path_factory.mktemp("browser") / "audit")


@pytest.fixture(scope="module")
def base(folder):
    with site(folder, show_overview=True) as address:
        yield address


@pytest.fixture(scope="module")
def window():
    with open_browser() as browser:
        yield browser


@pytest.fixture
def browser(window, base):
    """A window that is new to the site, whose scripts it need not load and compile again."""
    window.resize(1280, 900)
    window.forget(base)
    return window


def wait_page(browser, path):
    browser.wait_for(f"location.pathname.startsWith('{path}') && {READY}")


def leave(browser, key, *, ctrl=False):
    """Press a key that leads to another page, and wait for that."""
    browser.evaluate("document.documentElement.dataset.old = 'yes'")
    browser.press(key, ctrl=ctrl)
    browser.wait_for(f"document.documentElement?.dataset.old != 'yes' && {READY}")


def sign_in(browser, base, name, goal="/about"):
    """Sign in and open the queue; with the goal / by the page that tells what is asked."""
    browser.goto(f"{base}/sign-in?next={goal}")
    browser.type(name)
    leave(browser, "Enter")
    assert browser.evaluate("location.pathname") == ("/start" if goal == "/" else goal)
    browser.goto(f"{base}/")
    wait_page(browser, "/")
    assert browser.text(".top strong") == name
    browser.wait_for("[null, document.activeElement].includes(document.querySelector('#continue'))")


def open_first(browser, base, name):
    """Sign in, open the first case of the queue, and return its address."""
    sign_in(browser, base, name)
    leave(browser, "Enter")
    return browser.evaluate("location.href")


def current(browser):
    return browser.evaluate("decodeURIComponent(location.pathname.split('/')[2])")


def test_waiting_goes_on_while_a_page_makes_room_for_another(browser):
    browser.goto("data:text/html,old")
    browser.evaluate("setTimeout(() => { location.href = 'about:blank'; }, 200) && 0")
    # the old page never answers
    browser.wait_for("location.href == 'about:blank' || new Promise(() => {})")
    with pytest.raises(RuntimeError, match="nonsense is not defined"):
        browser.wait_for("nonsense")


def test_three_reviewers_by_keyboard_alone(browser, base, folder):
    # ann reads three stays
    sign_in(browser, base, "ann", goal="/")
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
    assert browser.problems() == []
    browser.command("Network.clearBrowserCookies")  # the session ends while she writes
    leave(browser, "Enter", ctrl=True)
    browser.wait_for("document.activeElement.id == 'reviewer'")
    browser.type("eve")
    leave(browser, "Enter")
    reason = browser.evaluate("document.querySelector('[name=reason]').value")
    assert reason == "the chart says so"
    leave(browser, "Enter", ctrl=True)
    assert "settled" in browser.text("h1")
    with Store(folder) as store:
        run = store.runs()[0].id
        stay = store.stay(run, read[0])
        assert (stay.state, stay.final) == ("settled", 1)
        assert store.verify().ok


@pytest.mark.parametrize("size", few([[390, 844], [1400, 900]], 1))
def test_an_error_is_in_view_with_the_focus_in_its_field_and_a_save_is_confirmed(
    browser, base, size
):
    browser.resize(*size)
    sign_in(browser, base, f"ola {size[0]}")
    leave(browser, "Enter")
    name = current(browser)
    for key, field in (("x", "verdict"), ("2", "variable"), ("3", "step")):
        browser.press(key)  # x chooses nothing
        leave(browser, "Enter", ctrl=True)
        browser.wait_for("document.querySelector('#picture svg') !== null")
        assert browser.evaluate("document.activeElement.name") == field
        top, bottom, height = browser.evaluate(
            "(({top, bottom}) => [top, bottom, innerHeight])"
            "(document.querySelector('#wrong').getBoundingClientRect())"
        )
        assert 0 <= top < bottom <= height, (field, top, bottom)
        browser.press("Escape")
    browser.press("1")
    leave(browser, "Enter", ctrl=True)
    assert browser.text("[role=status]") == f"Saved: patient {name}, believable."
    leave(browser, "u")
    assert current(browser) == name
    assert all("422" in problem for problem in browser.problems())


def test_enter_sends_no_question_in_which_nothing_is_typed(browser, tmp_path):
    folder = small_audit(flags=4).save(tmp_path / "audit")
    with site(folder, show_overview=True, verdicts_only=False) as base:
        sign_in(browser, base, "ann", goal="/")
        for path in ("/start", "/"):
            browser.goto(base + path)
            wait_page(browser, path)
            if path == "/":
                leave(browser, "Enter")  # the first case
            assert browser.evaluate("document.activeElement.id") == "chance-0"
            address = browser.evaluate("location.href")
            browser.press("Enter")
            browser.press("Enter", ctrl=True)
            said = "document.querySelector('#question input:invalid').validationMessage"
            assert "Give a number for each outcome" in browser.evaluate(said)
            assert browser.count(".alert") == 0
            assert browser.evaluate("location.href") == address
            for key in "37":  # the last number follows
                browser.press(key)
            leave(browser, "Enter")
            assert browser.count("#question") == 0
        assert browser.problems() == []


def test_a_second_tab_never_says_that_something_is_there_which_is_gone(browser, tmp_path):
    folder = small_audit(flags=4).save(tmp_path / "audit")
    with site(folder, show_overview=True, verdicts_only=False) as base:
        sign_in(browser, base, "ann", goal="/")
        leave(browser, "Enter")
        place = browser.evaluate("new URLSearchParams(location.search).get('place')")
        for key in "37":
            browser.press(key)
        with httpx.Client(base_url=base) as other:  # the same reviewer in another tab
            session = other.post("/api/v1/session", json={"reviewer": "ann"}).json()
            chances = {"died": 10, "discharged": 0, "still in ICU": 0}
            other.post(
                f"/api/v1/episodes/{current(browser)}/answer",
                json={"chances": chances, "place": int(place)},
                headers={"x-csrf-token": session["csrf"]},
            ).raise_for_status()
        leave(browser, "Enter")
        said = browser.text("main")
        assert "You have already given the chances" in said.replace("you have", "You have")
        assert "still below" not in said
        assert "3, 7, 0" in browser.text("section.card dd")
        assert "Copy what you want to keep; it is not saved." in said
        assert all("409" in problem for problem in browser.problems())


def test_a_draft_is_there_again_after_leaving(browser, base):
    sign_in(browser, base, "dora")
    with browser.hurry(10):  # drafts are saved every five seconds
        leave(browser, "Enter")
    address = browser.evaluate("location.href")
    browser.press("3")
    browser.press("c")
    browser.type("half a thought")
    browser.wait_for("document.querySelector('#draft').innerText == 'Draft saved'")
    browser.goto(f"{base}/")
    browser.goto(address)
    assert browser.evaluate("document.querySelector('#comment').value") == "half a thought"
    assert browser.evaluate("document.querySelector('[name=verdict][value=\"3\"]').checked")


def test_what_was_written_in_the_last_seconds_is_kept_when_the_page_is_left(browser, base):
    address = open_first(browser, base, "hal")
    browser.press("c")
    browser.type("written and left")
    browser.goto(f"{base}/about")
    browser.goto(address)
    browser.wait_for(READY)
    assert browser.evaluate("document.querySelector('#comment').value") == "written and left"
    # another window comes before this one
    browser.press("c")
    browser.type(" again")
    browser.evaluate("Object.defineProperty(document, 'hidden', {get: () => true})")
    begun = time.monotonic()
    browser.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    browser.wait_for("document.querySelector('#draft').innerText == 'Draft saved'")
    assert time.monotonic() - begun < 4  # not by the clock of five seconds
    assert browser.problems() == []


def test_a_reload_in_the_middle_of_a_sentence_loses_nothing(browser, base):
    open_first(browser, base, "gus")
    for words in ("half a", " sentence"):
        browser.press("3")
        browser.press("c")
        browser.type(words)
        browser.evaluate("document.documentElement.dataset.old = 'yes'")
        browser.command("Page.reload")
        browser.wait_for(f"document.documentElement?.dataset.old != 'yes' && {READY}")
    assert browser.evaluate("document.querySelector('#comment').value") == "half a sentence"
    assert browser.evaluate("document.querySelector('[name=verdict][value=\"3\"]').checked")
    browser.goto(f"{base}/about")
    assert browser.evaluate("sessionStorage.getItem('left')") is None


def test_the_time_spent_goes_on_after_a_reload(browser, base):
    value = "Number(document.querySelector('[name=seconds]').value)"
    sign_in(browser, base, "ida")
    with browser.hurry(50):
        leave(browser, "Enter")
    browser.wait_for(f"{value} >= 20")
    address = browser.evaluate("location.href")
    browser.goto(f"{base}/")
    browser.goto(address)
    assert browser.evaluate(value) >= 20  # nothing written, same window
    browser.press("c")
    browser.type("x")
    browser.goto(f"{base}/")
    with open_browser() as other:
        sign_in(other, base, "ida")
        other.goto(address)
        assert other.evaluate(value) >= 20  # by the draft


def test_closing_the_list_of_keys_does_not_keep_forms_from_being_sent(browser, base):
    address = open_first(browser, base, "joe")
    browser.press("?")
    browser.click("#keys button")
    browser.wait_for("!document.querySelector('#keys').open")
    leave(browser, "s")
    assert browser.evaluate("location.href") != address


@pytest.mark.parametrize("flags", [4, 5], ids=["the same run", "another run"])
def test_a_restart_in_the_middle_of_a_sentence_loses_nothing(browser, tmp_path, flags):
    audit = small_audit(flags=4)
    flagged = audit.flagged["id"].iloc[0]  # in the queues of both runs
    folder = audit.save(tmp_path / "audit")
    with site(folder) as base:
        sign_in(browser, base, "kim")
        browser.goto(f"{base}/episodes/{flagged}")
        browser.wait_for(READY)
        address = browser.evaluate("location.href")
        browser.press("5")
        browser.press("c")
        browser.type("half a <b>sentence</b>")
    small_audit(flags=flags).save(folder, overwrite=True)
    with site(folder, port=int(base.rpartition(":")[2])) as again:
        assert again == base
        leave(browser, "Enter", ctrl=True)
        assert "half a <b>sentence</b>" in browser.text("#typed")
        assert "will return to the form" in browser.text("#typed")
        assert browser.evaluate("document.querySelector('#reviewer').value") == "kim"
        leave(browser, "Enter")
        came_back = browser.evaluate("location.href")
        assert came_back.split("?")[0] == address
        assert ("?place=" in came_back) == (flags == 4)  # places belong to a run
        comment = browser.evaluate("document.querySelector('#comment').value")
        assert comment == "half a <b>sentence</b>"
        assert browser.evaluate("document.querySelector('[name=verdict][value=\"5\"]').checked")
        assert browser.evaluate("sessionStorage.getItem('sent')") is None
        leave(browser, "Enter", ctrl=True)
        assert browser.evaluate("sessionStorage.length") == 0
    with Store(folder) as store:
        assert len(store.runs()) == flags - 3
        (review,) = store.reviews(store.runs()[-1].id)
        assert (review.reviewer, review.comment) == ("kim", "half a <b>sentence</b>")


def test_what_one_reviewer_wrote_is_not_given_to_another(browser, base):
    address = open_first(browser, base, "lea")
    browser.press("c")
    browser.type("only mine")
    browser.command("Network.clearBrowserCookies")
    leave(browser, "Enter", ctrl=True)
    assert "only mine" in browser.text("#typed")
    browser.type("mia")
    leave(browser, "Enter")
    browser.goto(address.split("?")[0])
    browser.wait_for(READY)
    assert "only mine" not in browser.evaluate("document.documentElement.innerHTML")
    assert "only mine" not in browser.evaluate("JSON.stringify({...sessionStorage})")


def test_no_label_turns_the_text_around_it(browser, tmp_path):
    folder = small_audit(hostile=True).save(tmp_path / "audit")
    turned = "document.documentElement.outerHTML.includes('\\u202e')"
    with site(folder, show_overview=True) as base:
        sign_in(browser, base, "nia")
        leave(browser, "Enter")
        browser.wait_for("document.querySelector('#picture svg') !== null")
        assert "normal" in browser.evaluate("document.querySelector('#picture svg').textContent")
        assert not browser.evaluate(turned)
        for page in ("/", "/overview", "/episodes"):
            browser.goto(base + page)
            browser.wait_for(READY)
            assert not browser.evaluate(turned), page
        assert browser.problems() == []


def test_no_page_is_wider_than_the_screen_at_twice_the_size_nor_has_errors(browser, base):
    browser.resize(640, 480)
    sign_in(browser, base, "max")
    first = browser.evaluate("document.querySelector('#continue').getAttribute('href')")
    pages = ("/", first, "/overview", "/episodes", "/results", "/about", "/audit", "/docs")
    for page in pages:
        browser.goto(base + page)
        browser.wait_for(READY)
        assert browser.overflow() <= 0, page
        assert browser.problems() == [], page
        assert all(url.startswith(base) for url in browser.requests())


SHIFT = """new Promise(done => {
    let sum = 0;
    new PerformanceObserver(list => list.getEntries().forEach(e => { sum += e.value; }))
        .observe({type: 'layout-shift', buffered: true});
    setTimeout(() => done(sum), 200);
})"""
BOX = "(({left, top, right, bottom}) => [left, top, right, bottom])"
NUMBERS = "[...document.querySelectorAll('#question input[type=number]')].map(f => f.value)"


def box(browser, selector):
    return browser.evaluate(f"{BOX}(document.querySelector('{selector}').getBoundingClientRect())")


def assert_side_by_side(browser, form):
    """The picture and the whole form are on the screen beside each other, and nothing moved."""
    browser.wait_for(f"{READY} && document.querySelector('#picture svg') !== null")
    left, top, right, bottom = box(browser, form)
    width, height = browser.evaluate("[innerWidth, innerHeight]")
    picture = box(browser, "#picture svg")
    assert picture[2] <= left < right <= width
    assert 0 <= top < bottom <= height
    assert picture[1] < height / 2
    assert browser.evaluate(SHIFT) < 0.01


def test_a_case_by_keyboard_alone_and_on_one_screen(browser, tmp_path):
    folder = small_audit(flags=5).save(tmp_path / "audit")
    browser.resize(1280, 800)
    with site(folder, verdicts_only=False) as base:
        sign_in(browser, base, "pia")
        leave(browser, "Enter")
        name = current(browser)
        assert_side_by_side(browser, "#question")
        assert browser.evaluate("document.activeElement.name") == "chances.0"
        browser.press("3")
        browser.press("6")  # the remainder is filled in
        assert browser.evaluate(NUMBERS) == ["3", "6", "1"]
        assert browser.text("#total") == "10 of 10"
        leave(browser, "Enter")
        assert current(browser) == name
        assert_side_by_side(browser, "#verdict")
        assert browser.text(".compared tbody tr").split("\t")[:2] == ["died", "3 of 10"]
        shown = "[...document.querySelectorAll('[data-for]')].map(e => e.checkVisibility())"
        assert browser.evaluate(shown) == [False, False]
        browser.press("3")
        assert browser.evaluate(shown) == [True, True]
        browser.press("1")
        assert browser.evaluate(shown) == [False, False]
        leave(browser, "Enter")
        assert browser.text("[role=status]") == f"Saved: patient {name}, believable."
        assert_side_by_side(browser, "#question")
        # ten, arrows, another digit after a one, and what cannot be told
        second = current(browser)
        for keys, numbers in (
            (("1", "0"), ["10", "0", "0"]),
            (("ArrowLeft", "ArrowLeft", "1", "2"), ["1", "2", "7"]),
            (("ArrowLeft", "ArrowUp", "ArrowUp"), ["1", "4", "5"]),
        ):
            for key in keys:
                browser.press(key)
            assert browser.evaluate(NUMBERS) == numbers
        browser.press("x")
        browser.wait_for("document.activeElement.id == 'reason'")
        browser.type("no weight")
        leave(browser, "Enter")
        assert "cannot tell: no weight" in browser.text(".answered")
        # a phone: the way to the question stays on the screen, and fingers count
        leave(browser, "s")
        browser.resize(390, 844)
        browser.goto(browser.evaluate("location.href"))
        browser.wait_for(f"{READY} && document.querySelector('#picture svg') !== null")
        assert browser.overflow() <= 0
        assert browser.evaluate("document.activeElement.tagName") == "BODY"
        assert 0 <= box(browser, ".to-question")[1] < box(browser, ".to-question")[3] <= 844
        assert browser.evaluate(SHIFT) < 0.01
        browser.click(".to-question")
        browser.wait_for(
            f"{BOX}(document.querySelector('#question').getBoundingClientRect())[1] < 844"
        )
        for _ in range(4):
            browser.click(".chance [data-add='1']")
        browser.click(".chance:nth-of-type(2) [data-add='1']")
        assert browser.evaluate(NUMBERS) == ["4", "1", "5"]
        assert browser.problems() == []
    with Store(folder) as store:
        given = store.answers(store.runs()[0].id)
        assert [(a.episode, a.out_of_ten) for a in given] == [(name, (3, 6, 1)), (second, None)]
        assert store.verify().ok
