"""`butfor audit`: evaluate a policy on a log."""

from __future__ import annotations

import shlex
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from butfor.audit.audit import AUDIT
from butfor.audit.folders import check_free
from butfor.audit.sampling import FLAGS
from butfor.audit.settings import CAUTION, MECHANISMS, AuditSettings
from butfor.audit.shards.parts import parts_folder
from butfor.audit.shards.workers import Cluster, Threads, Workers
from butfor.audit.source import audit_into
from butfor.checks import MOST_EPISODES
from butfor.cli import options
from butfor.cli.compare import check_comparison, compare_written, policy_names, print_comparison
from butfor.cli.output import Terminal, exit_on_error, print_json, progress_bar, records
from butfor.cli.summary import audit_as_json, print_audit
from butfor.models.caution import Caution


def audit(
    log: options.Log,
    study_file: options.StudyFile,
    out: Annotated[Path, typer.Option(help="Audit folder to write.")],
    target: options.Targets = None,
    model: Annotated[
        str,
        typer.Option(
            help="factored: one distribution per variable. tabular: one per state and action. "
            "auto: factored if there are two or more state variables."
        ),
    ] = "auto",
    bad_cases: options.BadCases = CAUTION.bad_cases,
    least_cases: options.LeastCases = CAUTION.least_cases,
    risk: options.Risk = CAUTION.risk,
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
        typer.Option(
            help="State variables that nature decides, separated by commas; by default those of "
            "[noise] in the study file."
        ),
    ] = None,
    flags: options.Flags = FLAGS,
    review_size: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Episodes to review: at most half of them flagged (but at least one), the others "
            "drawn at random. By default as many drawn as flagged, and at least 40.",
        ),
    ] = None,
    models: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Models to draw for credible intervals; 0 for none. By default 200 tabular or "
            "50 factored ones in full detail (fewer with many states and steps), none in summary.",
        ),
    ] = None,
    intervals: Annotated[
        str | None,
        typer.Option(
            help="Episodes drawn at random whose bounds and credible intervals are computed, "
            "besides those to review; 'all' for every episode. By default all of up to 1000, and "
            "500 of a larger log."
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
    rehearsal: Annotated[
        bool,
        typer.Option(
            help="Hide each state variable in turn, and see what the method would have promised."
        ),
    ] = True,
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
    time_step: Annotated[
        str | None,
        typer.Option(
            help="Put rows on a grid of this time step, such as 4h (4 if times are numbers)."
        ),
    ] = None,
    checksums: Annotated[
        Path | None,
        typer.Option(
            help="Refuse the log unless the SHA-256 of each of its files is the one in this list, "
            "as sha256sum writes it."
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    verbose: options.Verbose = False,
    as_json: options.Json = False,
) -> None:
    """Evaluate a policy on your own log: estimates, the outcome of every episode, flags.

    For logs that do not fit in memory see docs/operations.md.
    """
    console = Terminal(stderr=as_json)
    with exit_on_error(parts_folder(out)):
        names, targets = [""], target or ["learn"]
        if len(targets) > 1:
            names = policy_names([Path(one) for one in targets])
        folders = {name: out / name.replace("/", "_") for name in names}
        for folder in folders.values():
            check_free(folder, AUDIT, overwrite=overwrite)
        if len(targets) > 1:
            check_comparison(out, overwrite=overwrite)
        settings = AuditSettings(
            target=targets[0],
            model=model,
            missing=missing,
            unseen=unseen,
            prior=prior,
            mechanism=mechanism,
            smoothing=smoothing,
            noise_on=options.split_names(noise_on),
            flags=flags,
            review_size=review_size,
            models=models,
            intervals=_count_intervals(intervals),
            seed=seed,
            action_noise=action_noise,
            detail=detail,
            rehearsal=rehearsal,
            caution=Caution(bad_cases, least_cases, risk),
            time_step=_time_step(time_step),
            checksums=checksums,
        )
        every = [replace(settings, target=one) for one in targets]
        for one in every:
            one.check_target()
        found = {}
        for one, (name, folder) in zip(every, folders.items(), strict=True):
            with (
                progress_bar(console, "Reading the log") as show,
                closing(_workers(threads, scheduler, local_cluster)) as workers,
            ):
                found[name] = audit_into(
                    options.source_of(log),
                    study_file,
                    folder,
                    one,
                    workers=workers,
                    resume=resume,
                    overwrite=overwrite,
                    progress=show,
                )
        compared = compare_written(folders, out, overwrite)[0] if len(folders) > 1 else None
    if as_json:
        each = {name: audit_as_json(found[name], [folder]) for name, folder in folders.items()}
        several = compared is not None and {"audits": each, "policies": records(compared)}
        print_json(several or each[names[0]])
        return
    for name, folder in folders.items():
        print_audit(console, found[name], verbose=verbose)
        console.print(f"Model estimates, not facts.\n\nAudit folder: {folder}", markup=False)
        console.print(f"To read it: {shlex.join(['butfor', 'report', str(folder)])}", markup=False)
    if compared is not None:
        print_comparison(console, compared, found[names[0]])
        console.print(f"\nComparison: {out / 'comparison.csv'}", markup=False)


def _count_intervals(given: str | None) -> int | None:
    """Return the number of an option that may also be 'all'."""
    if given is None:
        return None
    if given.isdecimal() and len(given) <= len(str(MOST_EPISODES)):
        return int(given)
    if given != "all" and not given.isdecimal():
        raise ValueError(f"--intervals {given}: give a number of episodes, or 'all'")
    return sys.maxsize


def _time_step(given: str | None) -> float | str | None:
    """Return the time step of an option as written: a number, or with a unit; None if none."""
    if given is None:
        return None
    if "," in given:
        raise ValueError(
            f"--time-step {given}: an audit has one time step; audit each into a folder of its "
            "own, and compare them with the loop of docs/your-own-log.md"
        )
    return float(given) if given.replace(".", "", 1).isdigit() else given


def _workers(threads: int | None, scheduler: str | None, local_cluster: int | None) -> Workers:
    if scheduler is not None and local_cluster is not None:
        raise ValueError("--scheduler and --local-cluster exclude each other; give one of them")
    if scheduler is not None or local_cluster is not None:
        return Cluster(scheduler, workers=local_cluster)
    return Threads(threads)
