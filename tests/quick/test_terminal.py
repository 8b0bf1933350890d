"""What commands print: texts of a log are shown, and never steer the terminal."""

import ast
from pathlib import Path

import numpy as np
import pytest

import butfor as bf
from butfor.cli.output import Terminal, exit_on_error, say
from butfor.cli.summary import print_audit
from butfor.cli.tables import make_table
from butfor.evaluate.wording import visible
from tests.builders import ward_log

CLI = Path(bf.__file__).parent / "cli"
# clear the screen, set the title of the window, a second way to begin such a sequence, write
# from right to left, and go back to the start of the line
HOSTILE = "a\x1b[2J\x1b]0;title\x07\x9b31m\u202e\rb"
SEEN = "a␛[2J␛]0;title␇�31m�␍b"


def obeyed(text):
    return [character for character in "\x1b\x07\x9b\u202e\r" if character in text]


def test_texts_of_the_log_are_shown_wherever_an_audit_is_printed(capsys):
    log = ward_log(id=[HOSTILE, "b", "c", "d"])
    target = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    audit = bf.run_audit(
        log,
        bf.fit_mdp(log),
        target,
        flags=4,
        draws=0,
        estimators=["Observed", "MB"],
        resamples=20,
        record={"words": {"episode": f"stay{HOSTILE}"}, "target": HOSTILE},
    )
    assert HOSTILE in audit.flagged["id"].tolist()
    assert not obeyed(repr(audit))
    assert SEEN in repr(audit)
    print_audit(Terminal(width=400), audit)
    told = capsys.readouterr().out
    assert not obeyed(told)
    assert told.count(SEEN) > 3


def test_tables_messages_and_errors_are_printed_by_the_same_rule(capsys):
    Terminal(width=100).print(HOSTILE, make_table((HOSTILE,), [(HOSTILE,), (":cat:",)]))
    say(HOSTILE)
    say(HOSTILE, error=True)
    with pytest.raises(Exception, match="2"), exit_on_error():
        raise ValueError(HOSTILE)
    told = capsys.readouterr()
    assert not obeyed(told.out + told.err)
    assert told.out.count(SEEN) == 4
    assert told.err.count(SEEN) == 2
    assert ":cat:" in told.out
    assert visible("two\nlines\tand ä 🩺") == "two\nlines\tand ä 🩺"


def test_commands_print_in_no_other_way():
    for path in CLI.glob("*.py"):
        tree = ast.parse(path.read_text())
        used = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        if path.name not in ("output.py", "main.py"):
            assert not used & {"typer.echo", "typer.secho", "Console", "print"}, path.name
