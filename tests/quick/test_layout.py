"""The package as a whole: who imports whom, and the public names."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import butfor as bf
from butfor.loading import GONE

SOURCE = Path(__file__).parents[2] / "src" / "butfor"

# who may import whom: a package may use its own line and earlier ones
LAYERS = [
    ["loading", "types", "printed", "checks", "random", "threads", "kernels"],
    ["log"],
    ["models", "hidden", "mechanisms", "sepsis", "graph"],
    ["replay", "interop"],
    ["evaluate"],
    ["audit"],
    ["present"],
    ["review", "paper", "studies", "cli"],
    ["__main__"],
]
HOMES = {
    "numba": {"kernels"},
    "gymnasium": {"sepsis", "interop", "__init__"},
    "typer": {"cli"},
    "rich": {"cli"},
    "altair": {"present"},
    "vl_convert": {"present"},
    "jinja2": {"studies", "present", "review"},
    "pydantic": {"log", "audit", "review"},
    "markupsafe": {"present"},
    "sklearn": {"log", "models"},
    "networkx": {"graph"},
    "distributed": {"audit"},
    "sqlite3": {"review"},
    "fastapi": {"review"},
    "starlette": {"review"},
    "uvicorn": {"review"},
}


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).with_suffix("").parts[0]
        yield name, path


@cache
def imported(path):
    """Names that a file imports, as written, whether at its top or not."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names.append(node.module if node.module != "butfor" else f"butfor.{node.names[0].name}")
        elif isinstance(node, ast.Import):
            names.extend(alias.name for alias in node.names)
    return names


def test_every_module_has_a_place_in_the_order_of_imports():
    placed = {name for layer in LAYERS for name in layer}
    assert {name for name, _ in modules()} == placed | {"__init__"}


def test_imports_go_one_way():
    level = {name: i for i, layer in enumerate(LAYERS) for name in layer}
    for name, path in modules():
        if name == "__init__":
            continue
        for target in imported(path):
            parts = target.split(".")
            if parts[0] == "butfor" and len(parts) > 1:
                assert level[parts[1]] <= level[name], f"{path.name} imports {target}"


def test_heavy_libraries_stay_at_home():
    for name, path in modules():
        for target in imported(path):
            library = target.split(".")[0]
            assert name in HOMES.get(library, {name}), f"{path.name} imports {target}"
            # a third of the start of a command; scipy.special has the functions themselves
            assert not target.startswith("scipy.stats"), path


def test_importing_butfor_loads_nothing_heavy():
    code = (
        "import sys, butfor; "
        "heavy = 'numba', 'scipy', 'pandas', 'altair', 'typer', 'rich', 'networkx'; "
        "print([name for name in heavy if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_public_names_exist_and_are_documented():
    for name in bf.__all__:
        assert getattr(bf, name).__doc__, name
    assert set(bf.__all__) <= set(dir(bf))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = bf.nonsense


@pytest.mark.parametrize("name", GONE)
def test_names_that_are_gone_say_what_to_write_instead(name):
    assert name not in bf.__all__
    words = re.escape(f"bf.{name} is gone; write {GONE[name]}")
    with pytest.raises(ImportError, match=words):
        getattr(bf, name)
    with pytest.raises(ImportError, match=words):
        exec(f"from butfor import {name}")
    for package, found in re.findall(r"bf\.(?:(\w+)\.)?(\w+)", GONE[name]):
        assert found in dir(getattr(bf, package) if package else bf)  # the new way exists


def test_no_module_lies_loose_at_the_top_level():
    loose = {path.stem for path in SOURCE.glob("*.py")}
    known = {"__init__", "__main__", "loading", "types", "printed", "checks", "random", "threads"}
    assert loose == known


def test_the_walk_through_an_audit_names_files_that_exist():
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text()
    table = page.split("## From `butfor audit")[1].split("## Decisions")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert len(rows) > 20
    for row in rows:
        folder = None
        for name in re.findall(r"`([^`]+)`", row):
            place = name if "/" in name else f"{folder}/{name}"
            assert list(SOURCE.glob(place)), place
            folder = Path(place).parent
