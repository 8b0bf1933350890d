"""The documentation as a site: every public name, chart and command has its place there."""

import re
from pathlib import Path

import pytest

import butfor as bf
from butfor.cli.main import COMMANDS

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = {page.stem: page.read_text() for page in (DOCS / "reference").glob("*.md")}
MODULES = {"charts", "graph", "hidden", "interop", "mechanisms", "sepsis"}


def cells(text):
    """The code that runs when the page is built."""
    return "\n".join(re.findall(r"```\{code-cell\} python\n(.*?)```", text, re.DOTALL))


@pytest.mark.parametrize("name", sorted(set(bf.__all__) - MODULES))
def test_every_public_name_has_a_description_and_an_example_in_a_section_of_its_own(name):
    (section,) = (
        section
        for text in REFERENCE.values()
        for section in re.split(r"^## ", text, flags=re.MULTILINE)
        if section.startswith(f"{name}\n")
    )
    assert re.search(rf"auto(function|class):: butfor\.{name}\n", section)
    assert cells(section)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_name_of_a_module_is_described(module):
    names = getattr(getattr(bf, module), "__all__", None) or chart_names()
    described = re.findall(rf"auto\w+:: butfor\.{module}\.(\w+)", REFERENCE[module])
    assert sorted(described) == sorted(names)


def chart_names():
    """Names that the charts' `__init__` gives out."""
    source = Path(bf.charts.__file__).read_text()
    return re.findall(r" as (\w+)$", source, re.MULTILINE)


def test_the_gallery_draws_every_chart():
    code = cells((DOCS / "gallery.md").read_text())
    drawn = {name for name in chart_names() if name.endswith(("_chart", "_diagrams"))}
    assert {name for name in drawn if f"bf.charts.{name}(" not in code} == set()


def test_every_command_has_a_section():
    found = re.findall(r"^## butfor (\w+)$", REFERENCE["command-line"], re.MULTILINE)
    assert found == list(COMMANDS)


def test_every_page_is_in_the_table_of_contents():
    listed = set()
    for index in (DOCS / "index.md", DOCS / "reference" / "index.md"):
        for block in re.findall(r"```\{toctree\}\n(.*?)```", index.read_text(), re.DOTALL):
            lines = [line for line in block.splitlines() if line and not line.startswith(":")]
            listed |= {index.parent / f"{line}.md" for line in lines}
    assert listed | {DOCS / "index.md"} == set(DOCS.rglob("*.md"))


def test_pages_ask_nobody_else_for_anything():
    # what Sphinx and its theme add is checked in verification/test_site.py, in a browser
    for page in DOCS.rglob("*.md"):
        assert not re.search(r"!\[[^\]]*\]\(https?:|<(script|img|link)\b", page.read_text()), page


def test_every_example_names_the_version_of_the_simulator():
    root = DOCS.parent
    pages = [root / "README.md", *DOCS.rglob("*.md"), *(root / "examples").rglob("*.py")]
    calls = (
        r"bf\.sepsis\.(?:simulate|behavior_policy|model|pomdp|factored|factored_model)\(|Sepsis-v0"
    )
    named = 0
    for page in pages:
        text = page.read_text()
        for call in re.finditer(calls, text):
            asked = arguments(text, call.start())
            assert "version=" in asked, f"{page.name}: {asked}"
            named += 1
    assert named > 50


def arguments(text, start):
    """What stands between the brackets around, or after, a place."""
    opened = text.rindex("(", 0, start) if text[start] == "S" else text.index("(", start)
    depth, end = 1, opened + 1
    while depth:
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    return text[opened:end]


def test_the_versions_of_the_simulator_and_what_is_wrong_are_told():
    readme = (DOCS.parent / "README.md").read_text()
    assert "`icml2019`" in readme
    assert "can never rise above" in " ".join(readme.split())
    assert "can never rise above" in " ".join(bf.sepsis.__doc__.split())
