"""The command line application, assembled from its commands."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

import butfor
from butfor.cli.agreement import agreement
from butfor.cli.audit import audit
from butfor.cli.compare import compare
from butfor.cli.demo import demo
from butfor.cli.export import export
from butfor.cli.init import init
from butfor.cli.labels import labels
from butfor.cli.report import report
from butfor.cli.review import review
from butfor.cli.study import study

app = typer.Typer(
    help="What would have happened, but for the decisions that were made?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
for command in (demo, init, audit, compare, report, export, labels, study, review, agreement):
    app.command()(command)


def run() -> None:
    """Run the command line and exit as soon as it is done.

    A short command can finish while Arrow's threads are still shutting down. When the interpreter
    then unloads its libraries, about one run in forty aborts although everything was written and
    printed; `os._exit` skips that.
    """
    try:
        app()
    except SystemExit as leaving:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"butfor {butfor.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Accept the options that precede a command."""
