"""`butfor report`: write an audit as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from butfor.audit.audit import REVIEWS
from butfor.cli.options import Json
from butfor.cli.output import exit_on_error, print_json, say
from butfor.present.report import write_report
from butfor.review.experts import view_experts


def report(
    audit: Annotated[Path, typer.Argument(help="Audit folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.")] = Path("report.html"),
    stays: Annotated[
        int | None,
        typer.Option(min=0, help="Episodes to show step by step; by default the flagged ones."),
    ] = None,
    redact: Annotated[
        bool,
        typer.Option(
            "--redact", help="Omit free text, side information, dates and numbers of the log."
        ),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing file.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write an audit as one HTML file to read and print; it works offline.

    If the folder has reviews, the report says what the reviewers expect of the policy.
    """
    with exit_on_error():
        experts = view_experts(audit) if (audit / REVIEWS).is_file() else None
        path = write_report(
            audit, out, stays=stays, redact=redact, overwrite=overwrite, experts=experts
        )
    if as_json:
        print_json({"written": [str(path)], "bytes": path.stat().st_size})
    else:
        say(f"Report: {path}")
