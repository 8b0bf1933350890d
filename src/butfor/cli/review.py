"""`butfor review`: serve the review app, or export or verify its verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from butfor.cli.output import exit_on_error, say
from butfor.review.export import export_reviews
from butfor.review.plan import ReviewSettings
from butfor.review.serve import Address, serve
from butfor.review.store import verify_folder


def review(
    folder: Annotated[Path, typer.Argument(metavar="AUDIT", help="Audit folder.")],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    needed: Annotated[
        int | None, typer.Option(min=1, help="Verdicts wanted for each episode.")
    ] = None,
    first_impression: Annotated[
        bool,
        typer.Option("--first-impression", help="Ask for an opinion before the model is shown."),
    ] = False,
    verdicts_only: Annotated[
        bool,
        typer.Option(
            "--verdicts-only",
            help="Do not ask for the chances of each outcome; there is no experts' estimate then.",
        ),
    ] = False,
    show_overview: Annotated[
        bool,
        typer.Option(
            "--show-overview", help="Show the overview before a reviewer has finished the queue."
        ),
    ] = False,
    coordinator: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Who follows the progress of all reviewers, without reviewing; repeatable.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File that lists who may review: one name and token per line."),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="TLS certificate; requires --key.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="TLS key; requires --certificate.")] = None,
    behind_tls: Annotated[
        bool, typer.Option("--behind-tls", help="A proxy in front of the app handles TLS.")
    ] = False,
    name: Annotated[
        list[str] | None, typer.Option(help="Host name that reviewers use; repeatable.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write the reviews to a .csv or .jsonl file and exit.")
    ] = None,
    real_names: Annotated[
        bool,
        typer.Option("--real-names", help="With --export: give names instead of pseudonyms."),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="With --export: replace an existing file.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check that no verdict was altered, and exit.")
    ] = False,
    head: Annotated[
        str | None,
        typer.Option(help="With --verify: a head noted earlier, which the chain must contain."),
    ] = None,
) -> None:
    """Let clinicians judge the flagged cases of an audit in their browser."""
    with exit_on_error():
        if verify:
            found = verify_folder(folder, head)
            say(f"{found.events} events; head {found.head}")
            say("The chain is intact." if found.ok else f"BROKEN: {found.problem}")
            raise typer.Exit(0 if found.ok else 1)
        if export is not None:
            written = export_reviews(folder, export, real_names=real_names, overwrite=overwrite)
            say(f"Reviews: {written}")
            return
        settings = None
        if needed is not None or first_impression or verdicts_only:
            settings = ReviewSettings(
                needed=needed or 2, first_impression=first_impression, verdicts_only=verdicts_only
            )
        address = Address(
            host=host,
            port=port,
            token_file=token_file,
            certificate=certificate,
            key=key,
            behind_tls=behind_tls,
            names=tuple(name or ()),
        )
        whole = serve(
            folder,
            address,
            settings=settings,
            show_overview=show_overview,
            coordinators=tuple(coordinator or ()),
            say=say,
        )
        raise typer.Exit(0 if whole else 1)
