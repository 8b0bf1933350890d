"""`butfor init`: draft a study file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from butfor.cli.options import Log, Overwrite, source_of
from butfor.cli.output import Terminal, exit_on_error, say
from butfor.cli.tables import make_table
from butfor.log.draft import draft
from butfor.log.whole_files import check_new_file, whole_file


def init(
    log: Log,
    out: Annotated[Path, typer.Option(help="Where to write the draft.")] = Path("study.toml"),
    action: Annotated[
        list[str] | None, typer.Option(help="A column that is an action; may be repeated.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Draft a study file from the columns of a log, for you to check and edit."""
    with exit_on_error():
        check_new_file(out, overwrite=overwrite)
        drafted = draft(source_of(log), action or ())
        with whole_file(out, overwrite=overwrite) as new:
            new.write_text(drafted.text, encoding="utf-8")
    rows = [(found.column, found.role, found.why) for found in drafted.findings]
    Terminal().print(make_table(["column", "taken for", "because"], rows))
    if drafted.undecided:
        say(f"Still to be decided in the draft: {drafted.undecided}\n")
    command = ["butfor", "audit", *map(str, log), "--study", str(out), "--out", "audit"]
    if any(found.role == "target_action" for found in drafted.findings):
        command += ["--target", "log"]
    say(f"Draft of the study file: {out}\nCheck and edit it, then run: {shlex.join(command)}")
