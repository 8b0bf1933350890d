"""The package as a whole: imports, public names, the documentation's code, the commands."""

import ast
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import typer
from distributed.cli import dask_scheduler, dask_worker
from typer.testing import CliRunner

import butfor as bf
from butfor.audit.audit import Audit
from butfor.cli.demo import make_demonstration
from butfor.cli.main import app
from tests.audits import trade_audit
from tests.less_demo import do_less

ROOT = Path(__file__).parents[2]
PAGES = [
    *(
        ROOT / name
        for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")
    ),
    *sorted((ROOT / "docs").rglob("*.md")),
]
LONG = {  # left to make verify; your-own-log.md is long too, but runs in make test
    *("audit.md", "data.md", "hidden-state.md", "how-sure.md", "icu-sepsis.md"),
    *("operations.md", "report.md", "which-model.md", str(ROOT / "README.md")),
}


def is_long(page):
    return bool(LONG & {page.name, str(page)})


@pytest.mark.parametrize(
    ("page", "most"),
    [
        pytest.param(ROOT / "README.md", 200, id="README.md, fewer patients"),
        *(
            pytest.param(
                page, None, id=page.name, marks=pytest.mark.exhaustive if is_long(page) else ()
            )
            for page in PAGES
        ),
    ],
)
def test_code_in_the_documentation_runs(page, most, capsys, monkeypatch):
    monkeypatch.setattr("butfor.audit.intervals.MODELS", (5,))  # not 200: that takes long
    if most is not None:
        simulate = bf.sepsis.simulate

        def simulate_fewer(policy, episodes, **options):
            return simulate(policy, min(episodes, most), **options)

        monkeypatch.setattr(bf.sepsis, "simulate", simulate_fewer)
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(code, page.name, "exec"), {})  # its own fresh names, as a reader would have
    capsys.readouterr()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_in_the_documentation_are_public(page):
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "bf":
                assert hasattr(bf, node.attr), node.attr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_the_documentation_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def commands_of(page):
    """Lines of the page's shell code that call butfor or Dask, as words."""
    for code in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL):
        for line in code.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and Path(words[0]).name in ("butfor", "dask"):
                yield Path(words[0]).name, words[1:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_documentation_parse(page):
    known = {
        "butfor": typer.main.get_command(app).commands,
        "dask": {"scheduler": dask_scheduler.main, "worker": dask_worker.main},
    }
    for program, (name, *rest) in commands_of(page):
        known[program][name].make_context(name, rest)  # exits where an option is not known


def test_the_commands_of_operations_are_found():
    found = [(program, words[0]) for program, words in commands_of(ROOT / "docs" / "operations.md")]
    assert {("butfor", "audit"), ("dask", "scheduler"), ("dask", "worker")} <= set(found)


def test_commands_in_the_readme_are_targets_of_make():
    makefile = (ROOT / "Makefile").read_text()
    commands = set(re.findall(r"make (\w+)", (ROOT / "README.md").read_text()))
    assert {"demo", "test"} <= commands
    for command in commands:
        assert re.search(rf"^{command}:", makefile, re.MULTILINE), command


def test_constraints_name_versions_only():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", line), line


def test_every_file_that_names_the_version_or_the_requirements_agrees():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    recipe = (ROOT / "conda" / "meta.yaml").read_text()
    citation = (ROOT / "CITATION.cff").read_text()
    assert project["version"] == bf.__version__
    assert f'version = "{bf.__version__}"' in recipe
    assert f"\nversion: {bf.__version__}\n" in citation
    run = recipe.split("  run:\n")[1].split("  run_constrained:")[0]
    needed = [line.replace(" ", "") for line in re.findall(r"- (.*)", run)]
    assert needed == [f"python{project['requires-python']}", *project["dependencies"]]


# ------------------------------------------------------------------------------- the command line


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory):
    """What the demonstration prints as JSON, its folder and its audits.

    In the folder there was an earlier one, about which somebody wrote verdicts.
    """
    out = tmp_path_factory.mktemp("demo") / "demo"
    trade_audit(episodes=12, horizon=10).save(out / "audit")
    (out / "audit" / "reviews.sqlite").write_bytes(b"verdicts")
    made = {}

    def make(*arguments, **options):
        made.update(make_demonstration(*arguments, **options))
        return made

    with pytest.MonkeyPatch.context() as patch:
        do_less(patch)
        patch.setattr("butfor.cli.demo.make_demonstration", make)
        result = CliRunner().invoke(
            app, ["demo", "--episodes", "60", "--seed", "1", "--json", "--out", str(out)]
        )
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), out, made


def test_demo_prints_estimates_outcomes_and_patients_and_says_where_files_are(
    demonstration, monkeypatch
):
    _, out, made = demonstration
    monkeypatch.setattr("butfor.cli.demo.make_demonstration", lambda *_, **__: made)
    result = CliRunner().invoke(app, ["demo", "--out", str(out), "--verbose"])
    assert result.exit_code == 0, result.output
    for words in ("Observed", "WIS", "MB", "CF", "True", "discharged", "still in"):
        assert words in result.output
    assert "The 10 patients with the largest change" in " ".join(result.output.split())
    assert "Audit folder:" in result.output
    assert "Figures:" in result.output
    assert "The same log, two models" in result.output
    assert isinstance(Audit.load(out / "audit-tabular").model, bf.TabularMDP)
    assert {path.name for path in (out / "figures").iterdir()} >= {"estimates.png", "outcomes.svg"}


def test_a_folder_that_cannot_be_written_is_found_at_once(tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "file" / "demo")])
    assert result.exit_code == 2
    assert "cannot write to" in result.stderr


def test_demo_over_an_earlier_one_as_json_agrees_with_the_library(demonstration):
    printed, out, _ = demonstration
    assert len(Audit.load(out / "audit").episodes) == 60
    assert (out / "audit" / "reviews.sqlite").read_bytes() == b"verdicts"
    log = bf.sepsis.simulate(
        bf.sepsis.behavior_policy("icml2019"), 60, seed=1, version="icml2019"
    ).hide("glucose", "diabetes")
    model = bf.fit_factored(log)
    target = bf.policy_iteration(model, caution=bf.Caution())
    exact = bf.Replay(log, model, target).outcomes()
    value = {row["estimator"]: row["value"] for row in printed["estimates"]}
    assert value["Observed"] == pytest.approx(log.returns().mean())
    assert value["CF"] == pytest.approx(exact.expected_return.mean())
    assert printed["outcomes"]["died"]["discharged"] == exact.table().loc["died", "discharged"]
    tabular = bf.fit_mdp(log)
    promised = bf.policy_value(tabular, bf.policy_iteration(tabular), horizon=log.horizon)
    models = {row["model"]: row for row in printed["models"]}
    assert models["tabular"]["MB"] == pytest.approx(promised)
    assert models["factored"]["CF"] == value["CF"]
    first = printed["flagged"][0]
    row = log.offsets[first["id"]] + first["first_change"]
    assert target[log.state[row], log.action[row]] == 0


def test_demo_does_not_replace_a_folder_of_somebody_else(tmp_path):
    (tmp_path / "letters.txt").write_text("dear all")
    result = CliRunner().invoke(app, ["demo", "--episodes", "50", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "will not be replaced" in result.stderr
    assert (tmp_path / "letters.txt").exists()


@pytest.mark.parametrize(
    "arguments",
    [["demo", "--episodes", "0"], ["demo", "--seed", "-1"], ["nonsense"], ["demo", "-x"]],
)
def test_bad_commands_end_with_exit_code_2(arguments):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--version"], 0, f"butfor {bf.__version__}"),
        (["init", "no.csv"], 2, "Error: there is no file no.csv"),
    ],
)
def test_the_installed_command_ends_with_its_code_and_says_all(arguments, code, words, tmp_path):
    command = [Path(sys.executable).parent / "butfor", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == code
    assert words in done.stdout + done.stderr


def test_version_and_help():
    first, *others = CliRunner().invoke(app, ["--version"]).output.splitlines()
    assert first == f"butfor {bf.__version__}"
    assert f"  numpy {np.__version__}" in others
    assert "demo" in CliRunner().invoke(app, ["--help"]).output
