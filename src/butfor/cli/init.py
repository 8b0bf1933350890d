"""`butfor init`: draft a study file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from butfor.cli.options import Log, Overwrite, source_of
from butfor.cli.output import exit_on_error, make_table
from butfor.log.draft import draft


def init(
    log: Log,
    out: Annotated[Path, typer.Option(help="Where to write the draft.")] = Path("study.toml"),
    overwrite: Overwrite = False,
) -> None:
    """Draft a study file from the columns of a log, for you to check and edit."""
    with exit_on_error():
        if out.exists() and not overwrite:
            raise FileExistsError(f"{out} already exists; choose another --out, or --overwrite")
        if not out.absolute().parent.is_dir():
            raise FileNotFoundError(
                f"the folder {out.parent} does not exist; create it, or choose another --out"
            )
        drafted = draft(source_of(log))
        out.write_text(drafted.text, encoding="utf-8")
    rows = [(found.column, found.role, found.why) for found in drafted.findings]
    Console().print(make_table(["column", "taken for", "because"], rows))
    if drafted.undecided:
        typer.echo(f"Still to be decided in the draft: {drafted.undecided}\n")
    command = ["butfor", "audit", *map(str, log), "--study", str(out), "--out", "audit"]
    if any(found.role == "target_action" for found in drafted.findings):
        command += ["--target", "log"]
    typer.echo(
        f"Draft of the study file: {out}\nCheck and edit it, then run: {shlex.join(command)}"
    )
