"""The report in a real browser, opened as a file without a network."""

import re
import time
from dataclasses import replace

import pandas as pd
import pytest

import butfor as bf
from butfor.evaluate.wording import digits_for, share
from butfor.present import Stays
from tests.audits import hidden_audit, hostile_audit, sepsis_audit, trade_audit
from tests.browser import find_chromium, open_browser
from tests.grids import few

READY = "document.documentElement.dataset.ready == 'yes'"


@pytest.fixture(scope="module")
def browser():
    find_chromium()
    with open_browser() as browser:
        browser.offline()
        yield browser


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    find_chromium()
    audit = sepsis_audit()
    path = bf.write_report(audit, tmp_path_factory.mktemp("report") / "report.html")
    return audit, path.as_uri()


@pytest.fixture(scope="module")
def trade(tmp_path_factory):
    """A report on deliveries, of which only those that are read have bounds."""
    audit = trade_audit()
    others = (audit.episodes["rank"] == 0) & ~audit.episodes["control"]
    audit.episodes.loc[others, ["low_any", "high_any"]] = float("nan")
    path = bf.write_report(audit, tmp_path_factory.mktemp("trade") / "report.html")
    return audit, path.as_uri()


@pytest.fixture(scope="module")
def without_stays(tmp_path_factory):
    """A report that shows no stay step by step; the name of one is a formula."""
    audit = sepsis_audit()
    ids = audit.episodes["id"].astype(object)
    named = replace(audit, episodes=audit.episodes.assign(id=ids.replace({87: "=1+1"})))
    path = tmp_path_factory.mktemp("without") / "report.html"
    return audit, bf.write_report(named, path, episodes=0).as_uri()


def open_report(browser, address, *, used=False):
    """Open a report anew; if it may have been used, only unless it is open."""
    browser.resize(1280, 900)
    if used and browser.evaluate("location.href").split("#")[0] == address:
        return
    browser.goto("about:blank")
    browser.goto(address)
    browser.wait_for(READY)


def drawn(browser):
    """Id of the stay whose chart is drawn."""
    return browser.evaluate("document.querySelector('#stay .chart').dataset.drawn")


def test_every_chart_is_drawn_without_any_request_or_complaint(browser, report):
    audit, address = report
    open_report(browser, address)
    assert browser.count(".chart svg, .chart canvas") == 3
    assert browser.evaluate("document.querySelectorAll('#chart-glance svg path').length") > 300
    assert drawn(browser) == str(audit.flagged["id"].iloc[0])
    assert "A model estimate, not a fact." in browser.text("#stay .note")
    browser.press("d")  # sampled paths
    named = "document.querySelector('#stay .chart').textContent.includes('3 sampled paths')"
    browser.wait_for(named)
    browser.press("d")
    browser.wait_for(f"!{named}")
    assert browser.requests() == [address]
    assert browser.problems() == []


def test_a_cell_lists_as_many_stays_as_it_says(browser, report):
    audit, address = report
    open_report(browser, address)
    assert browser.count("#list tbody tr") == len(audit.flagged)
    names = browser.evaluate(
        "[...document.querySelectorAll('.cells thead th')].map(e => e.innerText)"
    )
    for observed in range(len(names)):
        for model in range(len(names)):
            cell = f".cell[data-observed='{observed}'][data-model='{model}']"
            browser.click(cell)
            count = int(browser.text(f"{cell} b"))
            assert count == audit.outcome_table().loc[names[observed], names[model]]
            assert browser.count("#list tbody tr") == count
            assert browser.text("#list-words").startswith(f"{count} stay")
            assert browser.count(".cell[aria-pressed=true]") == 1
    browser.click("[data-filter=all]")
    assert browser.count("#list tbody tr") == len(audit.episodes)
    browser.click("[data-sort='2']")
    steps = browser.evaluate(
        "[...document.querySelectorAll('#list tbody tr')].map(r => Number(r.cells[3].innerText))"
    )
    assert steps == sorted(steps, reverse=True)
    assert browser.problems() == []


def test_the_list_writes_numbers_by_the_same_rule_as_everything_else(browser, report, tmp_path):
    audit, _ = report
    values = [0.125, -0.125, -0.0, 0.004, -0.0049, 0.13496, 100.5, -1234.5]
    shares = [0.0, 0.0004, 0.005, 0.125, 0.13496, 0.9985, 0.9996, 1.0]
    table = audit.episodes.copy()
    for column, numbers in (
        ("difference", values),
        ("low_any", values),
        ("high_any", values[::-1]),
    ):
        table.loc[: len(values) - 1, column] = numbers
    table.loc[: len(shares) - 1, "thin_share"] = shares
    changed = bf.write_report(replace(audit, episodes=table), tmp_path / "report.html", episodes=1)
    open_report(browser, changed.as_uri())
    browser.click("[data-filter=all]")
    shown = browser.evaluate(
        "Object.fromEntries([...document.querySelectorAll('#list tbody tr')]"
        ".map(row => [row.dataset.id, [1, 5, 6].map(cell => row.cells[cell].innerText)]))"
    )
    digits, gaps = (digits_for(table[name]) for name in ("expected_return", "difference"))
    for row in table.head(len(values)).itertuples():
        ends = digits.span(row.low_any, row.high_any)
        assert shown[str(row.id)] == [share(row.thin_share), gaps.gap(row.difference), ends]
    assert browser.problems() == []


def test_a_large_audit_lists_the_stays_that_were_read(browser, tmp_path):
    folder = sepsis_audit().save(tmp_path / "audit")
    part = bf.Audit.load(folder, shown=True)
    open_report(browser, bf.write_report(part, tmp_path / "part.html").as_uri())
    assert browser.count(".chart svg, .chart canvas") == 3
    browser.click('[data-filter="all"]')
    assert browser.text("#list-words") == (
        "52 stays: all; the list has the 52 stays that are flagged or controls, of 300 in all"
    )
    assert browser.count("#list tbody tr") == 52
    assert browser.problems() == []


def test_bounds_that_were_not_computed_come_first_or_last(browser, trade):
    audit, address = trade
    others = audit.episodes["low_any"].isna()
    assert 0 < others.sum() < len(others)
    open_report(browser, address)
    browser.click('[data-filter="all"]')
    cells = (
        "[...document.querySelectorAll('#list tbody tr td:nth-child(7)')].map(c => c.textContent)"
    )
    known = int((~others).sum())
    for first in (True, False):  # the largest first, then the smallest
        browser.click('[data-sort="6"]')
        told = [text != "" for text in browser.evaluate(cells)]
        assert told == ([True] * known + [False] * int(others.sum()))[:: 1 if first else -1]
    assert browser.problems() == []


def test_side_information_after_the_first_difference_is_dimmed(browser, trade):
    audit, address = trade
    first = audit.flagged.iloc[0]
    open_report(browser, address, used=True)
    entries = browser.evaluate(
        "[...document.querySelectorAll('#stay [data-field=notes] dt')].map(term => "
        "[Number(term.textContent.replace('Step ', '')), term.classList.contains('after'), "
        "term.nextElementSibling.classList.contains('after'), getComputedStyle(term).color])"
    )
    dimmed = [step > first["first_change"] >= 0 for step, *_ in entries]
    assert set(dimmed) == {False, True}
    assert [entry[1] for entry in entries] == [entry[2] for entry in entries] == dimmed
    colors = dict(zip(dimmed, (entry[3] for entry in entries), strict=True))
    assert colors == {False: "rgb(17, 17, 17)", True: "rgb(85, 85, 85)"}


def test_links_open_a_stay_and_keys_move_on(browser, report):
    audit, address = report
    ids = [str(identifier) for identifier in audit.flagged["id"]]
    open_report(browser, f"{address}#stay-{ids[4]}")
    assert drawn(browser) == ids[4]
    for key, place in (("j", 5), ("j", 6), ("k", 5)):
        browser.press(key)
        browser.wait_for(f"document.querySelector('#stay .chart').dataset.drawn == {ids[place]!r}")
        assert browser.text("#stay-title").startswith(f"Stay {ids[place]}:")
        assert browser.evaluate("location.hash") == f"#stay-{ids[place]}"
    browser.click("#list tbody tr:first-child a")
    browser.wait_for(f"document.querySelector('#stay .chart').dataset.drawn == {ids[0]!r}")
    browser.press("n")
    assert browser.evaluate("document.querySelector('#stay [data-field=numbers]').open")
    assert browser.count("#stay table.numbers tbody tr") == 21
    assert browser.problems() == []


def test_an_address_of_a_stay_without_a_page_says_how_to_include_it(browser, report, tmp_path):
    audit, address = report
    order = Stays(audit).order()
    count = len(audit.flagged) + 3
    absent = order[count - 1]
    open_report(browser, f"{address}#stay-{absent}")
    assert browser.text("#stay-title") == f"Stay {absent}"
    words = browser.text("#stay [data-field=body]")
    assert f"which has only those of the {len(audit.flagged)} flagged stays." in words
    assert f"--episodes {count}" in words
    assert "A model estimate, not a fact." in words
    for key in "dzn":  # there is no picture that could change
        browser.press(key)
    browser.press("j")
    browser.wait_for(
        f"document.querySelector('#stay .chart')?.dataset.drawn == '{audit.flagged['id'].iloc[0]}'"
    )
    browser.goto(f"{address}#stay-nobody")
    browser.wait_for("document.querySelector('#stay-title').innerText == 'Stay nobody'")
    assert browser.text("#stay [data-field=body]") == "This report has no stay nobody."
    assert browser.problems() == []
    more = bf.write_report(audit, tmp_path / "more.html", episodes=count)
    open_report(browser, f"{more.as_uri()}#stay-{absent}")
    assert drawn(browser) == str(absent)


def test_keys_move_within_the_chosen_cell(browser, tmp_path):
    audit = sepsis_audit(60)
    address = bf.write_report(audit, tmp_path / "all.html", episodes=1000).as_uri()
    open_report(browser, address)
    mine = audit.episodes.query("observed_outcome == 'died' and most_likely == 'died'")
    browser.click(".cell[data-observed='0'][data-model='0']")
    listed = browser.evaluate(
        "[...document.querySelectorAll('#list tbody tr')].map(row => row.dataset.id)"
    )
    assert set(listed) == set(mine["id"].astype(str))
    assert len(listed) == 3
    for id_ in listed:
        browser.press("j")
        browser.wait_for(f"document.querySelector('#stay .chart').dataset.drawn == {id_!r}")
    assert browser.evaluate("document.querySelector('#next').disabled")
    browser.press("j")
    browser.press("k")
    browser.wait_for(f"document.querySelector('#stay .chart').dataset.drawn == {listed[-2]!r}")
    assert browser.problems() == []


def test_a_click_on_a_mark_opens_its_stay(browser, report):
    audit, address = report
    open_report(browser, address)
    browser.click("#chart-glance .mark-symbol path")
    browser.wait_for("location.hash.startsWith('#stay-')")
    opened = browser.evaluate("location.hash").removeprefix("#stay-")
    assert opened in set(audit.episodes["id"].astype(str))
    browser.wait_for(f"document.querySelector('#stay-title').innerText.includes('Stay {opened}')")
    assert browser.problems() == []


def test_a_dark_screen_has_dark_pages_and_charts_and_paper_stays_light(browser, report):
    _, address = report
    colors = (
        "(() => { const page = getComputedStyle(document.documentElement);"
        "const chart = getComputedStyle(document.querySelector('#stay .chart svg'));"
        "return [page.backgroundColor, page.color, chart.filter]; })()"
    )
    light = ["rgb(255, 255, 255)", "rgb(17, 17, 17)", "none"]
    open_report(browser, address)
    assert browser.evaluate(colors) == light
    try:
        browser.prefer("dark")  # while the page is open
        dark = ["rgb(20, 20, 20)", "rgb(230, 230, 230)", "invert(0.92) hue-rotate(180deg)"]
        assert browser.evaluate(colors) == dark
        browser.prefer("dark", media="print")
        assert browser.evaluate(colors) == light
    finally:
        browser.prefer()


def test_nothing_is_wider_than_the_screen_at_a_zoom_of_200_percent(browser, report):
    _, address = report
    open_report(browser, address, used=True)
    browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    for width in (640, 320):
        browser.resize(width, 700)
        assert browser.overflow() <= 0
    assert browser.problems() == []


@pytest.mark.parametrize("width", few([390, 1400, 1000], 1))
def test_thin_evidence_is_never_cut_off(browser, report, width):
    _, address = report
    open_report(browser, address, used=True)
    browser.resize(width, 900)
    browser.click("[data-filter=all]")
    inside = browser.evaluate(
        "(() => { const frame = document.querySelector('.scroll').getBoundingClientRect();"
        "return [...document.querySelectorAll('#list tr > :nth-child(2)')].every(cell =>"
        "cell.getBoundingClientRect().right <= frame.right); })()"
    )
    assert inside
    assert browser.text("#list th:nth-child(2)").split() == ["Thin", "evidence"]


def test_every_table_can_be_saved_as_a_file_without_formulas(browser, without_stays, tmp_path):
    audit, address = without_stays
    open_report(browser, address, used=True)
    saved = tmp_path / "saved"
    browser.command(
        "Browser.setDownloadBehavior",
        behavior="allow",
        downloadPath=str(saved),
        **browser.profile,
    )
    tables = browser.evaluate(
        "[...document.querySelectorAll('main table')].filter(table => table.rows.length).length"
    )
    assert browser.count("main button.csv") == tables
    browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    for label, name in (
        ("list of stays", "list-of-stays"),
        ("Estimates", "estimates"),
        ("what happened and", "what-happened-and-what-the-model-says"),
    ):
        browser.click(f"button.csv[aria-label^='Download as CSV: {label}']")
        wait_for_file(saved / f"{name}.csv")
    listed = pd.read_csv(saved / "list-of-stays.csv", dtype=str)
    assert listed["Stay"].tolist() == ["'=1+1", *audit.flagged["id"].astype(str)[1:]]
    differs = audit.flagged["difference"].tolist()
    assert listed["Differs by"].astype(float).tolist() == pytest.approx(differs, abs=0.005)
    assert (listed["Thin evidence"] == audit.flagged["thin_share"].map(share).tolist()).all()
    estimates = pd.read_csv(saved / "estimates.csv")
    assert len(estimates) == len(audit.estimates)
    cells = pd.read_csv(saved / "what-happened-and-what-the-model-says.csv")
    assert cells["stays"].sum() == len(audit.episodes)
    assert browser.problems() == []


def wait_for_file(path):
    end = time.monotonic() + 10
    while not path.is_file():
        assert time.monotonic() < end, path
        time.sleep(0.05)


def test_a_report_without_stays_says_so(browser, without_stays):
    open_report(browser, without_stays[1], used=True)
    assert "None is shown step by step" in browser.text("#stay")
    assert browser.problems() == []


def test_all_stays_can_be_printed_each_on_its_page(browser, tmp_path):
    pages = {}
    for count in (4, 1):
        path = bf.write_report(sepsis_audit(60), tmp_path / f"{count}.html", episodes=count)
        open_report(browser, f"{path.as_uri()}#print")
        assert browser.count("#all-stays .copy svg") == count
        pages[count] = print_pages(browser, tmp_path)
    assert pages[4] - pages[1] == 3
    assert browser.problems() == []


def print_pages(browser, folder):
    """Print the page, and return how many sheets that takes."""
    browser.pdf(folder / "report.pdf")
    return len(re.findall(rb"/Type\s*/Page\b", (folder / "report.pdf").read_bytes()))


def test_letters_on_a_phone_have_11_pixels_also_in_charts(browser, report):
    _, address = report
    browser.resize(390, 844)
    browser.goto("about:blank")
    browser.goto(address)
    browser.wait_for(READY)
    browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    sizes = browser.evaluate(SIZES)
    assert len(sizes) > 300
    assert min(sizes) >= 11
    for chart in ("estimates", "glance"):  # and what they show is not cut off
        assert browser.evaluate(
            f"(e => e.scrollWidth <= e.clientWidth)(document.querySelector('#chart-{chart}'))"
        )
    assert browser.overflow() <= 0


# the size of letters of each text that is seen, as it is drawn
SIZES = """(() => {
  const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  const sizes = [];
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    const svg = element.ownerSVGElement;
    if (!texts.currentNode.textContent.trim() || element.closest(".sr")) continue;
    if (!svg && !element.offsetParent) continue;
    const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    sizes.push(scale * parseFloat(getComputedStyle(element).fontSize));
  }
  return sizes;
})()"""


def test_without_scripts_sections_can_be_read_and_stays_are_told_in_words(browser, report):
    audit, address = report
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.goto("about:blank")
        browser.goto(address)
        text = browser.text("main")
        assert "Charts and the list of stays need JavaScript" in text
        for identifier in audit.flagged["id"]:
            assert Stays(audit).one(identifier)["story"] in text
        assert "Above what happened" in text
        assert not browser.evaluate("document.querySelector('.list').checkVisibility()")
    finally:
        browser.command("Emulation.setScriptExecutionDisabled", value=False)


def test_what_the_model_inferred_is_drawn_in_grey_and_listed(browser, tmp_path):
    audit = hidden_audit()
    path = bf.write_report(audit, tmp_path / "report.html")
    open_report(browser, path.as_uri())
    rows = Stays(audit).datasets(audit.flagged["id"].iloc[0])["inferred"]
    assert len(rows) > 0
    assert browser.count("#stay .chart .mark-rect path[fill='#111111']") == len(rows)
    words = browser.text("#stay aside")
    assert words.index("Inferred by the model") < words.index("Never given to the model")
    browser.press("n")
    assert "Inferred: glucose" in browser.text("#stay table.numbers")
    for width in (640, 320):
        browser.resize(width, 700)
        assert browser.overflow() <= 0
    assert browser.problems() == []


def test_hostile_texts_are_drawn_as_texts(browser, tmp_path):
    audit = hostile_audit()
    address = bf.write_report(audit, tmp_path / "report.html").as_uri()
    open_report(browser, address)
    assert browser.count("img, iframe") == 0
    assert "<script>alert" in browser.text("#stay-title")
    second = str(audit.flagged["id"].iloc[1]).replace("\u202e", "")
    browser.press("j")
    browser.wait_for("document.querySelector('#stay .chart').dataset.drawn.endsWith('#')")
    browser.wait_for(f"document.querySelector('#stay-title').innerText.includes({second[-8:]!r})")
    assert browser.overflow() <= 0
    browser.resize(640, 700)
    assert browser.overflow() <= 0
    assert browser.requests() == [address]
    assert browser.problems() == []


def test_the_chart_ends_with_the_stay_until_the_whole_horizon_is_asked_for(browser, report):
    audit, address = report
    open_report(browser, address)
    stay = Stays(audit).one(audit.flagged["id"].iloc[0])
    near, horizon = stay["near"]["rows"]["frame"][0]["high"], audit.meta.parameters.horizon
    labels = (
        "Math.max(...[...document.querySelectorAll('#stay svg .role-axis-label text')]"
        ".map(text => Number(text.textContent)))"
    )
    assert browser.evaluate(labels) <= near < horizon
    assert browser.text("[data-field=whole]") == f"Show up to step {horizon} z"
    browser.press("z")
    browser.wait_for(f"{labels} == {horizon}")
    browser.press("d")  # sampled paths are drawn on whichever axis is shown
    browser.press("z")
    browser.wait_for(f"{labels} <= {near}")
    assert browser.problems() == []
