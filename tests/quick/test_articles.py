"""What study articles share: ranges over logs, numbers in words, and a page that can be read."""

import re
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from butfor import charts
from butfor.cli.main import app
from butfor.present.text import enough_logs, range_name, range_percentiles
from butfor.studies.article import listed, plain, share, signed, spelled, study_page
from butfor.studies.factors.article import STUDY, results, short
from butfor.studies.factors.experiment import HALF, NAMES, OTHER, SAME, STATES, Experiment
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

MADE = SMALL["factors"]
ROOT = Path(__file__).parents[2]


def factors(value=0.5, true=-0.25):
    """The study of factors with the same numbers in every cell."""
    columns = ["state", "episodes", "prevalence", "judged", "held_out", "repeat", "estimator"]
    places = product(STATES, (*MADE.episodes, *MADE.long), MADE.prevalences, range(MADE.repeats))
    rows = [
        (state, size, prevalence, judged, held_out, repeat, name)
        for state, size, prevalence, repeat in places
        for judged, held_out in {(SAME, 0), (HALF, 0), (OTHER, size), (OTHER, MADE.episodes[0])}
        for name in NAMES
    ]
    table = pd.DataFrame(rows, columns=columns).assign(value=value, true=true, endless=value)
    limit = pd.DataFrame(product(STATES, MADE.prevalences), columns=["state", "prevalence"])
    limit = limit.assign(value=value, true=true)
    return Experiment(
        MADE, *(one.assign(error=one["value"] - one["true"]) for one in (table, limit))
    )


@pytest.fixture(scope="module")
def page():
    return study_page(STUDY, MADE, factors(), {})


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
    found = factors()
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
        ('scope="col">estimate', 'scope="col">'),
        ('tabindex="0"', ""),
        ("<caption><span>", "<caption><span></span></caption><caption><span>"),
        ('<h2 id="start">', "<h2>"),
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
    good, bad = short(factors(0.5, -0.25)), short(factors(0.1, 0.3))
    assert "is off by +0.750 ± 0.000" in good[1]
    assert "is off by −0.200 ± 0.000" in bad[1]
    assert "with the two variables hidden −0.200" in bad[2]
    with pytest.raises(AssertionError):
        check_found(good, results(factors(0.6, 0.1)))
    with pytest.raises(AssertionError):
        check_short(page.replace(good[-1], f"{good[-1]} A fifth."), [*good, "A fifth."])


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("hidden-state", "docs/hidden-state.md"),
        ("models", "docs/which-model.md"),
        ("caution", "docs/learned-targets.md"),
    ],
)
@pytest.mark.parametrize("rest", [[], ["--out", "there"]])
def test_a_study_that_is_gone_says_what_to_read_instead(name, page, rest, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["study", name, *rest])
    assert result.exit_code == 2
    assert f"study {name!r} is gone since version 0.2.0" in result.stderr
    assert page in result.stderr
    assert (ROOT / page).exists()
    assert list(tmp_path.iterdir()) == []


def test_a_chart_that_is_gone_is_named():
    with pytest.raises(AttributeError, match=r"latent_chart is gone since version 0\.2\.0; draw"):
        _ = charts.latent_chart
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = charts.nonsense
