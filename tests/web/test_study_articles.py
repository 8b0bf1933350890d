"""Every study article, small, line by line and in a real browser."""

import pytest

from tests.articles import SMALL, check_lines, small_study
from tests.browser import open_browser
from tests.grids import few

NAMES = tuple(SMALL)
TRIED = 2  # the other takes longest
# letters below 11 pixels, of the page itself and of drawings, whose smallest have 13
SMALL_LETTERS = """[...document.querySelectorAll('body *')].filter(e =>
  [...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim())
  && parseFloat(getComputedStyle(e).fontSize) < 11).map(e => e.outerHTML.slice(0, 80))"""
SMALL_DRAWINGS = """[...document.querySelectorAll('.drawing img')].filter(e =>
  13 * e.getBoundingClientRect().width / e.getAttribute('width') < 10.9).map(e => e.src)"""
NOT_SCROLLED = """[...document.querySelectorAll('.wide, .drawing')].filter(e =>
  e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX != 'auto').length"""
UNLOADED = "[...document.images].filter(e => !e.naturalWidth).map(e => e.src)"


@pytest.fixture(scope="module")
def browser():
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module", params=few(NAMES, TRIED))
def folder(request, tmp_path_factory):
    return small_study(tmp_path_factory, request.param)[0]


@pytest.fixture
def page(folder, browser):
    browser.prefer()
    browser.resize(1280, 900)
    browser.goto((folder / "index.html").as_uri())
    return browser


def test_every_line_is_as_readers_need_it(folder):
    check_lines(folder)


SCREENS = (("light", 1280), ("dark", 390), ("light", 390), ("dark", 1280))


# one screen for each article that is tried, the next one in turn
@pytest.mark.parametrize(
    ("folder", "scheme", "width"),
    few(
        (
            (name, *SCREENS[(place + turn) % 4])
            for turn in range(4)
            for place, name in enumerate(NAMES)
        ),
        TRIED,
    ),
    indirect=["folder"],
)
def test_no_article_breaks_a_rule_by_day_or_night_on_a_screen_or_a_phone(page, scheme, width):
    assert page.problems() == []
    assert page.evaluate(UNLOADED) == []
    page.prefer(scheme)
    page.resize(width, 900)
    assert page.violations() == []


@pytest.mark.parametrize("width", [1400, 1000, 390])
def test_only_tables_and_drawings_scroll_sideways_and_all_letters_are_legible(page, width):
    page.resize(width, 900)
    assert page.overflow() == 0
    assert page.evaluate(SMALL_LETTERS) == []
    assert page.evaluate(SMALL_DRAWINGS) == []
    assert page.evaluate(NOT_SCROLLED) == 0


def test_nothing_is_cut_off_in_print(page):
    page.prefer("dark", media="print")
    page.resize(703, 900)  # of a sheet of A4, within its margins
    assert page.overflow() == 0
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == (
        "rgb(255, 255, 255)"
    )
    assert page.evaluate(
        "[...document.querySelectorAll('.wide, .drawing')]"
        ".every(e => e.scrollWidth <= e.clientWidth + 1)"
    )


def test_by_night_the_page_and_its_drawings_are_dark(page):
    page.prefer("dark")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == (
        "rgb(20, 20, 20)"
    )
    assert page.evaluate(
        "[...document.querySelectorAll('.drawing img')]"
        ".every(e => getComputedStyle(e).filter.startsWith('invert'))"
    )


@pytest.mark.parametrize("folder", few(NAMES, 1), indirect=True)
def test_the_rules_can_be_broken(page):
    page.evaluate("document.querySelector('main').outerHTML = '<p>Words outside.</p>'")
    assert {"landmark-one-main", "region"} <= {rule for rule, _ in page.violations()}
