"""What study articles share: ranges over logs, numbers in words, and a page that can be read."""

import re

import pandas as pd
import pytest

from butfor.present.ranges import enough_logs, range_name, range_percentiles
from butfor.studies.article import study_page
from butfor.studies.caution.article import STUDY, results, short, too_much
from butfor.studies.caution.experiment import CAUTIONS, FACTORED, LIKELY, TABULAR, USUAL, Experiment
from butfor.studies.hidden_state.article import _blame
from butfor.studies.page import listed, plain, share, signed, spelled
from tests.articles import (
    SMALL,
    check_found,
    check_links,
    check_names,
    check_numbers,
    check_ranges,
    check_short,
    check_structure,
    text_of,
)


def caution(promised=0.5, true=-0.25):
    """The study of caution with the same numbers for every plan."""
    rows = [
        {"repeat": repeat, "model": model, "caution": name, "promised": promised, "true": true}
        for repeat in (0, 1)
        for model, names in ((TABULAR, (USUAL, *CAUTIONS, LIKELY)), (FACTORED, CAUTIONS))
        for name in names
    ]
    return Experiment(SMALL["caution"], pd.DataFrame(rows), 0.433)


@pytest.fixture(scope="module")
def page():
    return study_page(STUDY, SMALL["caution"], caution(), {})


def test_a_range_of_95_percent_needs_forty_logs():
    assert [enough_logs(logs) for logs in (2, 10, 39, 40, 100)] == [False] * 3 + [True] * 2
    assert range_percentiles(10) == (0, 100)
    assert range_percentiles(40) == (2.5, 97.5)
    assert range_name(10) == "lowest to highest of 10 logs"
    assert range_name(1000) == "middle 95% of 1,000 logs"
    check_ranges("middle 95% of 100 logs", 100)
    check_ranges("below it the published mean (95% range)", 10)
    for words in ("mean (95% range)", "middle 95% of 10 logs", "Whiskers: 2.5 to 97.5%"):
        with pytest.raises(AssertionError):
            check_ranges(words, 10)


def test_numbers_are_written_in_one_way():
    assert [signed(value) for value in (0.1234, -0.1234, -0.0001, 0.0)] == [
        *("+0.123", "−0.123", "0.000", "0.000"),
    ]
    assert (plain(-1.26, 1), plain(-0.01, 1), plain(2, 0)) == ("−1.3", "0.0", "2")
    assert (share(0.126), share(0.126, 1)) == ("13%", "12.6%")
    assert listed([250, 1000, 4000]) == "250, 1,000 and 4,000"
    assert listed([250]) == "250"
    assert spelled("WIS") == "weighted importance sampling (WIS)"
    assert spelled("Observed") == "Observed"
    check_numbers("from −0.5 to +1 in 12% (of 1-2)")
    for words in ("12 %", "it is -0.5", "probability .95"):
        with pytest.raises(AssertionError):
            check_numbers(words)


def test_estimators_are_spelled_out_at_first_use():
    check_names("model-based simulation (MB) and then MB")
    with pytest.raises(AssertionError, match="MB"):
        check_names("MB, which is model-based simulation (MB)")


def test_the_page_has_every_line(page):
    found = caution()
    check_short(page, short(found))
    check_found(short(found), results(found))
    check_structure(page)
    check_links(page)
    check_names(text_of(page))
    check_numbers(text_of(page))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<main", "<div"),
        ("</h1>", "</h1><h1>Again</h1>"),
        ("<h2 id=", "<h4>Deep</h4><h2 id="),
        ('scope="col">caution', 'scope="col">'),
        ('tabindex="0"', ""),
        ("<caption><span>", "<caption><span></span></caption><caption><span>"),
        ('<h2 id="forms">', "<h2>"),
    ],
)
def test_a_page_without_structure_is_found(page, old, new):
    broken = page.replace(old, new, 1)
    assert broken != page
    with pytest.raises((AssertionError, KeyError)):
        check_structure(broken)


def test_links_elsewhere_are_sources_with_their_titles(page):
    address = "https://doi.org/10.48550/arXiv.1905.05824"
    for broken in (
        page.replace(address, "https://example.org/paper"),
        re.sub(rf'(<a href="{address}">).*?</a>', r"\1here</a>", page),
        page.replace("<main", '<main data-style="http://example.org"'),
    ):
        with pytest.raises((AssertionError, KeyError)):
            check_links(broken)


def test_what_is_said_in_short_follows_the_numbers(page):
    good, bad = short(caution(0.5, -0.25)), short(caution(0.1, 0.3))
    assert "promises +0.50 and is worth −0.25" in good[1]
    assert "promises +0.10 and is worth +0.30" in bad[1]
    count = len(caution().values) // 2
    assert too_much(caution()) == f"all {count}"
    assert f"0 of {count} kinds of plan promise more" in bad[-1]
    with pytest.raises(AssertionError):
        check_found(good, results(caution(0.6, 0.1)))
    with pytest.raises(AssertionError):
        check_short(page.replace(good[-1], f"{good[-1]} A fifth."), [*good, "A fifth."])


def test_who_is_to_blame_follows_the_errors():
    wrong = {"error": 1.3, "beyond_chance": True}
    assert "remove 99.5% of the error: it was the model" in _blame(
        wrong, {"error": 0.0065, "beyond_chance": False}
    )
    assert "more than chance" in _blame(wrong, {"error": 0.5, "beyond_chance": True})
    assert "do not make" in _blame(wrong, {"error": -1.4, "beyond_chance": True})
    assert "may be chance" in _blame({**wrong, "beyond_chance": False}, wrong)
