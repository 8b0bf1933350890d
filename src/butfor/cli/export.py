"""`butfor export`: write an audit's results as CSV files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from butfor.audit.export import export_audit
from butfor.cli import options
from butfor.cli.output import Terminal, exit_on_error, print_json, progress_bar, say


def export(
    audit: Annotated[Path, typer.Argument(help="Audit folder.")],
    to: Annotated[Path, typer.Option(help="Folder to write; it must not exist yet.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the folder of an earlier export.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Write an audit's results as CSV files: estimates, checks, outcomes, policy, episodes, steps.

    README.txt in the folder says what each file holds. Nothing is written over unasked. The files
    contain the log, decision by decision: keep them as safe as the log itself.

    For the answers of reviewers use `butfor review AUDIT --export reviews.csv`.
    """
    console = Terminal(stderr=True)
    with exit_on_error(), progress_bar(console, "Writing tables") as show:
        written = export_audit(audit, to, overwrite=overwrite, progress=show)
    if as_json:
        print_json({"written": [str(path) for path in written]})
    else:
        say("\n".join(map(str, written)))
