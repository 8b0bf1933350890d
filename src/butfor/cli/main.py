"""The command line application, assembled from its commands."""

from __future__ import annotations

import codecs
import io
import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

import butfor
from butfor.cli.versions import versions
from butfor.loading import quiet_ctrl_c

COMMANDS = {
    "demo": "Simulate a sepsis log, learn a policy from it, and ask what it would have changed.",
    "init": "Draft a study file from the columns of a log, for you to check and edit.",
    "audit": "Evaluate a policy on your own log: estimates, the outcome of every episode, flags.",
    "compare": "Compare policies that were audited on the same log: estimates and paired "
    "differences.",
    "report": "Write an audit as one HTML file to read and print; it works offline.",
    "export": "Write an audit's results as CSV files: estimates, checks, outcomes, policy, "
    "episodes, steps.",
    "study": "Run an experiment in the simulator and write it up as an article.",
    "review": "Let clinicians judge the flagged cases of an audit in their browser.",
    "agreement": "Measure how well reviewers agree, and estimate the policy's value from their "
    "answers.",
    "doctor": "Check that everything works here: packages, kernels, folders, figures, browser, "
    "extras.",
}


# commands of the version before, and what to do instead
GONE = {
    "labels": "compare both noises with the loop of docs/labels.md; butfor audit has --noise-on",
}

# how to write what an older encoding of a terminal or a file does not have; all else becomes "?"
SPELLED = {
    "\N{MINUS SIGN}": "-",
    "\N{EN DASH}": "-",
    "…": "...",
    "“": '"',
    "”": '"',
    "’": "'",
    "→": "->",
    "×": "x",
    "≤": "<=",
    "±": "+/-",
    "\N{NO-BREAK SPACE}": " ",
}


class Command(TyperCommand):
    """A command whose file is imported when it is run: `butfor --help` needs none of them."""

    def load(self) -> Any:
        """Return the command itself, of which this one knows the name and the first line."""
        one = typer.Typer(add_completion=False)
        one.command(self.name)(getattr(import_module(f"butfor.cli.{self.name}"), str(self.name)))
        command: Any = typer.main.get_command(one)
        for text in (command, *command.params):  # "[noise]" is a section, not markup
            text.help = escape(getattr(text, "help", None) or "")
        return command

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Parse the arguments of the command itself."""
        with quiet_ctrl_c():
            command = self.load()
        return command.make_context(*arguments, **options)


class Commands(TyperGroup):
    """All commands, in the order in which one meets them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {name: Command(name, help=line) for name, line in COMMANDS.items()}

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return a command; one that is gone says what to do instead."""
        if name in GONE:
            ctx.fail(f"butfor {name} is gone; {GONE[name]}")
        return super().get_command(ctx, name)


app = typer.Typer(
    cls=Commands,
    help="What would have happened, but for the decisions that were made?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


def run() -> None:
    """Run the command line and exit as soon as it is done.

    A short command can finish while Arrow's threads are still shutting down. When the interpreter
    then unloads its libraries, about one run in forty aborts although everything was written and
    printed; `os._exit` skips that.
    """
    # for what Arrow allocates internally, which `reused_memory` does not reach
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    replace_in_output()
    try:
        app()
    except SystemExit as leaving:
        _leave(leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None))
    except KeyboardInterrupt:  # before the command itself handles it
        _leave(130)


def replace_in_output() -> None:
    """Replace what the encoding of the output lacks: a finished audit must not fail over it."""
    codecs.register_error("spelled", _spell)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="spelled")


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(SPELLED.get(character, "?") for character in missing), error.end


def _leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"butfor {butfor.__version__}")
        for name, version in versions().items():
            typer.echo(f"  {name} {version}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version, and those of what matters, and exit.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Accept the options that precede a command."""
