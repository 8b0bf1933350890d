"""What commands print: help texts with everything in them, and audits within 80 columns."""

import inspect
import io
import re
import typing
from importlib import import_module

import pytest
from rich.console import Console
from typer.testing import CliRunner

from butfor.cli.main import COMMANDS, app
from butfor.cli.summary import print_audit
from tests.audits import sepsis_audit, trade_audit

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
