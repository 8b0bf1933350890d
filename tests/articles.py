"""What the tests of all studies share: small versions, and checks of the folders they write."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

from butfor.cli.study import STUDIES
from butfor.paper import published
from butfor.paper.experiment import Oberst2019Settings
from butfor.present.text import FULL_NAMES, LEAST
from butfor.studies.article import PAPER, write_study
from butfor.studies.factors.experiment import FactorsSettings
from butfor.studies.mechanisms.experiment import MechanismsSettings
from tests.shared import once

SMALL = {
    "factors": FactorsSettings(
        repeats=2,
        seed=3,
        episodes=(40, 120),
        long=(400,),
        prevalences=(0.0, 0.5),
        reference_episodes=120,
        reference_prevalence=0.5,
    ),
    "oberst2019": Oberst2019Settings(repeats=3, episodes=200, seed=5),
    # this takes longest, and is left to make verify
    "mechanisms": MechanismsSettings(repeats=2, episodes=60, seed=5),
}


def small_study(factory, name):
    """Return the folder of the small version of a study, and the experiment behind it."""
    return once(
        factory,
        f"study-{name}",
        lambda folder: write_and_keep(STUDIES[name], SMALL[name], folder),
    )


def write_and_keep(study, settings, folder):
    """Write a study's article, check that its progress counts up, and return its experiment."""
    seen, kept = [], []

    def run(*arguments, **options):
        kept.append(study.run(*arguments, **options))
        return kept[0]

    def progress(done, total):
        seen.append((done, total))

    write_study(replace(study, run=run), settings, folder, progress=progress)
    total = seen[0][1]
    assert seen == [(done, total) for done in range(1, total + 1)]
    return kept[0]


def check_article(folder, figures):
    """Check that an article has its files and figures, loads nothing, and shows no NaN."""
    page = (folder / "index.html").read_text()
    here = [name for name in re.findall(r'(?:src|href)="([^"#]+)"', page) if "//" not in name]
    for name in here:
        assert (folder / name).exists(), name
    assert {f"{path.stem}.csv" for path in folder.glob("*.csv")} <= set(here)
    check_links(page)
    assert not {"nan", "None", "inf"} & set(text_of(page).split())
    assert {path.stem for path in folder.glob("figures/*")} == set(figures)
    for name in figures:
        for ending in ("png", "svg", "pdf", "html"):
            assert (folder / "figures" / f"{name}.{ending}").stat().st_size > 1000


# ------------------------------------------------------------------------------- lines of a page


class Elements(HTMLParser):
    """The elements of a page in their order: name, attributes, names of parents, words."""

    def __init__(self, page):
        super().__init__()
        self.found, self.open = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        element = (tag, dict(attrs), [name for name, *_ in self.open], [])
        self.found.append(element)
        if tag not in ("meta", "img", "br", "link"):
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag, f"{tag} is closed and not open"

    def handle_data(self, data):
        for *_, words in self.open:
            words.append(data)

    def named(self, *names):
        """Return elements by name, each with its attributes, parents and text."""
        return [
            (attributes, parents, " ".join("".join(words).split()))
            for tag, attributes, parents, words in self.found
            if tag in names
        ]


def text_of(page):
    """Return the words of a page, with those of its pictures, without styles."""
    page = re.sub(r"<(style|title)>.*?</\1>", "", page, flags=re.S)
    page = re.sub(r'<img [^>]*alt="([^"]*)"[^>]*>', r" \1 ", page)
    words = re.sub(r"</?(?:em|strong|b|a|code|span|cite)\b[^>]*>", "", page)
    return " ".join(re.sub(r"<[^>]+>", " ", words).replace("&#39;", "'").split())


def check_short(page, sentences):
    """Check that the page starts with two to four plain sentences, without abbreviations."""
    (section,) = [
        words for given, _, words in Elements(page).named("section") if "short" in given["class"]
    ]
    text = " ".join(sentences)
    assert section == f"In short {text}"
    assert page.index("In short") < page.index("<nav") < page.index("<h2 id=", page.index("<nav"))
    assert 2 <= len(re.findall(r"[.?](?= [A-Z“]|$)", text)) <= 4
    assert not set(FULL_NAMES) & set(re.findall(r"\w+", text))
    assert re.search(r"\d", text)


def check_found(sentences, results):
    """Check that every decimal number said in short is among the results, or published."""
    known = [value for value in numbers_in(results) if value is not None]
    known += [value for row in published.FIGURE_3.values() for value in row]
    for sign, digits, decimals in re.findall(r"([+−]?)(\d+\.(\d+))(?![\d%])", " ".join(sentences)):
        said = float(f"{'-' if sign == '−' else ''}{digits}")
        assert any(abs(value - said) <= 0.5001 * 10 ** -len(decimals) for value in known), said


def numbers_in(value):
    """Yield the numbers of what was read from JSON."""
    if isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from numbers_in(entry)
    elif isinstance(value, float):
        yield value


def check_structure(page):
    """Check landmarks, headings, and that every table and drawing can be read and scrolled."""
    found = Elements(page)
    for landmark in ("header", "main", "nav", "footer", "h1"):
        assert len(found.named(landmark)) == 1, landmark
    levels = [int(tag[1]) for tag, *_ in found.found if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    places = [given["id"] for _, given, *_ in found.found if "id" in given]
    assert len(set(places)) == len(places)
    contents = re.findall(r'href="#([^"]+)"', page[page.index("<nav") : page.index("</nav>")])
    assert contents == re.findall(r'<h2 id="([^"]+)"', page[page.index("</nav>") :])
    regions = [given for given, *_ in found.named("div") if given.get("class") == "wide"]
    tables = found.named("table")
    assert len(regions) == len(tables) == len(found.named("caption")) > 0
    assert all(given["role"] == "region" and given["tabindex"] == "0" for given in regions)
    assert len({given["aria-label"] for given in regions}) == len(regions)
    assert all(words for _, _, words in found.named("th", "caption"))
    assert all(given["scope"] in ("col", "row", "rowgroup") for given, *_ in found.named("th"))
    rows = re.findall(r"<tbody>(.*?)</tbody>", page, flags=re.S)
    assert all(
        row.startswith("<th") for body in rows for row in re.findall(r"<tr[^>]*>(.*?)</tr>", body)
    )
    for given, parents, _ in found.named("img"):
        assert given["alt"]
        assert parents[-2:] == ["figure", "div"]


def check_numbers(text):
    """Check that percentages and minus signs are written in one way."""
    assert not re.search(r"\d\s+%", text), re.findall(r".{20}\d\s+%", text)
    assert not re.search(r"(?<![\w.)-])-\d", text), re.findall(r".{20}(?<![\w.)-])-\d", text)
    assert not re.search(r"(?<![\w.])\.\d", text), re.findall(r".{20}(?<![\w.])\.\d", text)


def check_names(text):
    """Check that estimators are spelled out where their abbreviations first appear."""
    for name, words in FULL_NAMES.items():
        first = re.search(rf"\b{name}\b", text)
        if first:
            before = text[: first.end() + 1]
            assert before.endswith(f"{words} ({name})"), f"{name}: …{before[-80:]}"


def check_ranges(text, logs):
    """Check that a range of 95% of logs is never shown of few of them, except published ones."""
    ours = re.sub(r"published (mean \()?95% range", "", text)
    claimed = re.search(r"95% (range|of (the |fresh )?(logs|\d))|whiskers: 2\.5", ours, flags=re.I)
    assert bool(claimed) <= (logs >= LEAST), claimed


def check_links(page):
    """Check that a page asks for nothing, and that links elsewhere are titles of sources."""
    found = Elements(page).named("a")
    there = {given["href"]: words for given, _, words in found if "//" in given["href"]}
    assert there[f"https://doi.org/{PAPER.doi}"] == PAPER.title
    for address, words in there.items():
        assert re.fullmatch(r"https://doi\.org/10\.\d+/\S+", address), address
        assert len(words.split()) > 4
        page = page.replace(address, "")
    assert "http" not in page.replace("http-equiv", "")


def check_lines(folder):
    """Check everything above on an article as it was written."""
    page, results = (
        (folder / "index.html").read_text(),
        json.loads((folder / "results.json").read_text()),
    )
    drawn = [
        re.sub(r"<style>.*?</style>", "", path.read_text()) for path in folder.glob("figures/*.svg")
    ]
    check_short(page, results["in_short"])
    check_found(results["in_short"], results)
    check_structure(page)
    check_names(text_of(page))
    for text in map(text_of, [page, *drawn]):
        check_numbers(text)
        check_ranges(text, results["settings"]["repeats"])
