"""What commands print: help texts with everything in them, and audits within 80 columns."""

import dataclasses
import html
import inspect
import io
import re
import sys
import typing
from importlib import import_module
from pathlib import Path
from pydoc import locate

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import butfor as bf
from butfor.audit.settings import AuditSettings
from butfor.cli.main import COMMANDS, app, replace_in_output
from butfor.cli.output import Terminal, say
from butfor.cli.summary import print_audit
from butfor.cli.tables import make_table
from butfor.printed import Printed
from tests.audits import sepsis_audit, trade_audit
from tests.hidden import random_pomdp

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"

WIDTH = 80


def printed(audit, **options):
    file = io.StringIO()
    print_audit(Console(width=WIDTH, file=file), audit, **options)
    return file.getvalue()


def help_texts(command):
    """Return the help texts of a command's options, as they are written."""
    function = getattr(import_module(f"butfor.cli.{command}"), command)
    hints = typing.get_type_hints(function, include_extras=True)
    options = [hints[name] for name in inspect.signature(function).parameters]
    return [one.help for hint in options for one in getattr(hint, "__metadata__", ()) if one.help]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_keeps_what_is_in_brackets(command):
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": str(WIDTH)}).output
    assert max(map(len, shown.splitlines())) <= WIDTH
    for text in help_texts(command):
        for part in re.findall(r"\[[^\]]*\]", text):
            assert part in shown


def test_some_help_has_brackets():
    assert any("[noise]" in text for text in help_texts("audit"))


@pytest.mark.parametrize("make", [sepsis_audit, trade_audit])
def test_an_audit_fits_eighty_columns_and_nothing_is_cut_off(make):
    audit = make()
    for verbose in (False, True):
        text = printed(audit, verbose=verbose)
        assert max(map(len, text.splitlines())) <= WIDTH
        assert not re.search(r"\w…", text)


def test_it_begins_with_the_verdict_and_says_less_unless_asked():
    audit = sepsis_audit()
    short, long = printed(audit), printed(audit, verbose=True)
    said = audit.conclusion.sentence.replace("episode", "stay").split()
    assert short.split()[: len(said)] == long.split()[: len(said)] == said
    assert len(short) < len(long) / 2
    for name in audit.diagnostics.loc[audit.diagnostics["light"] == "red", "sentence"]:
        assert name.split()[0] in short
    assert "Checks that fail" in short
    assert "--verbose" in short
    assert "--verbose" not in long
    assert short.count("died  ") <= 7  # five episodes, and headings


def public_objects():
    """One of each kind of object that a user holds, by name."""
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), episodes=60, seed=0)
    log = log.hide("glucose", "diabetes")
    tabular, factored = bf.fit_mdp(log), bf.fit_factored(log)
    target = np.asarray(bf.policy_iteration(factored, discount=0.99))
    replay = bf.Replay(log, tabular, target)
    pomdp = random_pomdp(np.random.default_rng(0))
    return {
        "log": log,
        "variable": log.state_variables[0],
        "outcome": log.outcomes[0],
        "tabular": tabular,
        "factored": factored,
        "factor": factored.factors[0],
        "rewards": factored.rewards,
        "pomdp": pomdp,
        "replay": replay,
        "question of a plan": bf.Replay(log, tabular, bf.policy_iteration(tabular, discount=0.99)),
        "outcomes": replay.outcomes(),
        "steps": replay.steps(),
        "draws": replay.draws(2, seed=0),
        "bounds": replay.bounds(),
        "changes": replay.fewest_changes(),
        "credible": bf.credible_intervals(replay, models=20),
        "audit": sepsis_audit(),
        "conclusion": sepsis_audit().conclusion,
        "settings": AuditSettings(),
        "mechanism": bf.InverseCDF(order=(1, 0)),
        "caution": bf.Caution(),
        "plan": bf.policy_iteration(bf.fit_mdp(replay.log), discount=0.99),
        "rules": bf.Rules(),
        "row bounds": bf.mechanisms.row_bounds([0.5, 0.5], [0.2, 0.8], 0, [0.0, 1.0]),
    }


def test_every_object_prints_in_at_most_ten_lines():
    for name, one in public_objects().items():
        lines = repr(one).splitlines()
        assert 1 <= len(lines) <= 10, name
        assert type(one).__name__ in lines[0] or name == "factor"
        assert "[[" not in repr(one), name  # no numbers of an array
        assert " at 0x" not in repr(one), name
        if isinstance(one, Printed) or name == "plan":
            table = one._repr_html_()
            assert table.count("<tr>") == len(lines) - 1
            assert all(html.escape(word) in table for word in lines[0].split())


def test_a_question_says_that_its_target_is_a_plan():
    assert "target        Plan: 144 states, 8 actions" in repr(
        public_objects()["question of a plan"]
    )


def test_dataclasses_with_arrays_print_their_size_only():
    """Of all results named in the reference, none prints the numbers in its arrays."""
    pages = "\n".join(path.read_text() for path in REFERENCE.glob("*.md"))
    named = re.findall(r"autoclass:: (butfor\.[\w.]+)", pages)
    assert len(named) > 15
    for name in named:
        found = locate(name)
        if dataclasses.is_dataclass(found) and any(
            re.search(r"Floats|Integers|NDArray|DataFrame", str(field.type))
            for field in dataclasses.fields(found)
        ):
            assert issubclass(found, Printed), name


def test_printing_computes_nothing():
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), episodes=20, seed=0)
    replay = bf.Replay(log, bf.fit_mdp(log), bf.sepsis.behavior_policy())
    before = {name: dict(vars(one)) for name, one in (("log", log), ("replay", replay))}
    assert repr(log)
    assert repr(replay)
    assert replay._kept == {}
    assert {name: set(vars(one)) for name, one in (("log", log), ("replay", replay))} == {
        name: set(there) for name, there in before.items()
    }


def test_long_names_and_many_levels_are_listed_as_far_as_there_is_room():
    many = bf.Variable("ward", tuple(f"ward {i}" for i in range(500)))
    assert repr(many).startswith("Variable ward: ward 0, ward 1")
    assert repr(many).endswith("… (500)")
    assert len(repr(many)) < 110


@pytest.mark.parametrize("width", [80, 100])
def test_a_table_that_is_too_wide_leaves_out_its_last_columns(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    shown = repr(sepsis_audit().estimates)
    assert max(map(len, shown.splitlines()[:-1])) <= width
    assert shown.split()[:4] == ["estimator", "value", "low", "high"]
    assert "..." not in shown
    assert shown.splitlines()[-1].startswith("and ")
    checks = repr(sepsis_audit().diagnostics)
    assert checks.split()[:3] == ["check", "value", "light"]


@pytest.mark.parametrize("width", [30, 60, 80, 120])
def test_a_table_in_the_terminal_breaks_no_word(width):
    columns = (">Id", "Happened", ">died", ">discharged", ">still in ICU", ">Change", ">Cases")
    rows = [
        ("patient-000642", "died", "1%", "97%", "1%", "+1.958", "682"),
        ("x", "discharged alive", "1%", "97%", "1%", "+1.958", "12"),
    ]
    file = io.StringIO()
    Console(width=width, file=file).print(make_table(columns, rows))
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    words = {word for text in (*columns, *rows[0], *rows[1]) for word in text.strip(">").split()}
    told = file.getvalue().partition("(no room for")[0].replace("─", " ").split()
    for word in told:
        assert word in words or (word.endswith(".") and any(w.startswith(word[:-1]) for w in words))
    numbers = [word for word in told if word[-1].isdigit() or word.endswith("%")]
    assert set(numbers) <= words
    assert ("no room for" in file.getvalue()) == (width < 80)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_output_that_cannot_be_written_is_replaced(encoding, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding=encoding))
    monkeypatch.setattr("sys.stderr", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    replace_in_output()
    print_audit(Terminal(), sepsis_audit(), verbose=True)
    say("−0.5 → “good” 脈")
    sys.stdout.flush()
    told = written.getvalue().decode(encoding)
    assert "Mean return" in told
    assert ("−0.5 → “good” 脈" if encoding == "utf-8" else "-0.5 -> ") in told
    assert ("?" in told.splitlines()[-1]) == (encoding != "utf-8")
