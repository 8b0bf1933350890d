"""`butfor init`, `audit` and `report`: from a log to its study file, its audit and a report."""

from __future__ import annotations

import shlex
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from butfor.audit.folders import check_free
from butfor.audit.settings import MECHANISMS, AuditSettings
from butfor.audit.shards.parts import parts_folder
from butfor.audit.shards.workers import Cluster, Threads, Workers
from butfor.audit.source import audit_into
from butfor.cli import options
from butfor.cli.output import exit_on_error, print_json, progress_bar
from butfor.cli.summary import audit_as_json, print_audit
from butfor.log.draft import draft_study
from butfor.present.report import write_report


def init(
    log: options.Log,
    out: Annotated[Path, typer.Option(help="Where to write the draft.")] = Path("study.toml"),
    overwrite: options.Overwrite = False,
) -> None:
    """Draft a study file from the columns of a log, for you to check and edit."""
    with exit_on_error():
        if out.exists() and not overwrite:
            raise FileExistsError(f"{out} already exists; choose another --out, or --overwrite")
        if not out.absolute().parent.is_dir():
            raise FileNotFoundError(
                f"the folder {out.parent} does not exist; create it, or choose another --out"
            )
        out.write_text(draft_study(options.source_of(log)), encoding="utf-8")
    typer.echo(
        f"Draft of the study file: {out}\nCheck and edit it, then run: "
        + shlex.join(["butfor", "audit", *map(str, log), "--study", str(out), "--out", "audit"])
    )


def audit(
    log: options.Log,
    study_file: options.StudyFile,
    out: Annotated[Path, typer.Option(help="Audit folder to write.")],
    target: options.Target = "learn",
    missing: options.Missing = "error",
    unseen: options.Unseen = None,
    prior: options.Prior = 0.0,
    mechanism: Annotated[
        str, typer.Option(help=f"Mechanism of the transitions: {', '.join(MECHANISMS)}.")
    ] = "gumbel-max",
    action_noise: Annotated[
        str,
        typer.Option(
            help="Noise of the actions: shared (part of the patient) or fresh (drawn anew)."
        ),
    ] = "shared",
    smoothing: options.Smoothing = 0.0,
    noise_on: Annotated[
        str | None,
        typer.Option(help="State variables that nature decides, separated by commas."),
    ] = None,
    flags: options.Flags = 60,
    models: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Models to draw for credible intervals; 0 for none. 200 by default in full "
            "detail, none in summary.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything that is random.")] = 0,
    detail: Annotated[
        str,
        typer.Option(
            help="full: all there is, with the log in memory. summary: file by file, for logs of "
            "any size. auto: full for up to a million decisions."
        ),
    ] = "auto",
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads in summary detail; by default one per core."),
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask cluster to process the files.")
    ] = None,
    local_cluster: Annotated[
        int | None,
        typer.Option(min=1, help="Start a Dask cluster with this many processes here."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted run in summary detail.")
    ] = False,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Evaluate a policy on your own log: estimates, the outcome of every episode, flags.

    For logs that do not fit in memory see docs/operations.md.
    """
    console = Console(stderr=as_json)
    with exit_on_error(parts_folder(out)):
        check_free(out, marker="meta.json", overwrite=overwrite)
        settings = AuditSettings(
            target=target,
            missing=missing,
            unseen=unseen,
            prior=prior,
            mechanism=mechanism,
            smoothing=smoothing,
            noise_on=options.split_names(noise_on),
            flags=flags,
            models=models,
            seed=seed,
            action_noise=action_noise,
            detail=detail,
        )
        with (
            progress_bar(console, "Reading, learning, replaying") as show,
            closing(_workers(threads, scheduler, local_cluster)) as workers,
        ):
            found = audit_into(
                options.source_of(log),
                study_file,
                out,
                settings,
                workers=workers,
                resume=resume,
                overwrite=overwrite,
                progress=show,
            )
    if as_json:
        print_json(audit_as_json(found, [out]))
        return
    print_audit(console, found)
    console.print(f"Model estimates, not facts.\n\nAudit folder: {out}", markup=False)
    console.print(f"To read it: {shlex.join(['butfor', 'report', str(out)])}", markup=False)


def _workers(threads: int | None, scheduler: str | None, local_cluster: int | None) -> Workers:
    if scheduler is not None and local_cluster is not None:
        raise ValueError("--scheduler and --local-cluster exclude each other; give one of them")
    if scheduler is not None or local_cluster is not None:
        return Cluster(scheduler, workers=local_cluster)
    return Threads(threads)


def report(
    audit: Annotated[Path, typer.Argument(help="Audit folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.")] = Path("report.html"),
    stays: Annotated[
        int | None,
        typer.Option(min=0, help="Episodes to show step by step; by default the flagged ones."),
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Omit free text and side information.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing file.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Write an audit as one HTML file to read and print; it works offline."""
    with exit_on_error():
        path = write_report(audit, out, stays=stays, redact=redact, overwrite=overwrite)
    if as_json:
        print_json({"written": [str(path)], "bytes": path.stat().st_size})
    else:
        typer.echo(f"Report: {path}")
