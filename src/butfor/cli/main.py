"""The command line: parse, call one function, print."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import pandas as pd
import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import butfor
from butfor.audit.audit import Audit
from butfor.audit.choices import MECHANISMS, Choices
from butfor.audit.folders import check_free
from butfor.audit.own_log import audit_into, compare_log
from butfor.audit.shards.parts import parts_folder
from butfor.audit.shards.workers import Cluster, Threads, Workers
from butfor.checks import check_choice
from butfor.cli.demo import MARKER as DEMO_MARKER
from butfor.cli.demo import SHOWN, run_demonstration, write_demonstration
from butfor.evaluate.wording import percent
from butfor.log.draft import draft_study
from butfor.present.report import write_report
from butfor.replay.labels import LabelComparison
from butfor.replay.steps import THIN
from butfor.review.export import agreement_of_export, export_reviews
from butfor.review.plan import ReviewSettings
from butfor.review.serve import Address, serve
from butfor.review.store import verify_folder
from butfor.review.verdicts import ReviewError
from butfor.studies import (
    factors,
    factors_article,
    hidden_state,
    hidden_state_article,
    mechanisms,
    mechanisms_article,
    oberst2019,
    oberst2019_article,
)

# by name: what can be chosen, and what runs the study and writes its article
STUDIES: dict[str, tuple[Any, Callable[..., Path]]] = {
    "oberst2019": (oberst2019.Settings, oberst2019_article.write_study),
    "factors": (factors.Settings, factors_article.write_study),
    "mechanisms": (mechanisms.Settings, mechanisms_article.write_study),
    "hidden-state": (hidden_state.Settings, hidden_state_article.write_study),
}

app = typer.Typer(
    help="But for what was done: what would have happened under another policy?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


def run() -> None:
    """Run the command line, and leave as soon as it is done.

    A short command can end while threads of Arrow are still winding down; if the interpreter takes
    its libraries apart then, about one run in forty aborted after all was written and said.
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
            "--version", help="Print the version and stop.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Take the options that stand before a command."""


@app.command()
def demo(
    episodes: Annotated[int, typer.Option(min=10, help="Patients to simulate.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulation.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the audit and the figures.")] = Path("demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Simulate a sepsis log, learn a policy from it, and ask what it would have changed."""
    console = Console(stderr=as_json)
    with _problems_in_words(), _progress(console, "Simulating, learning, planning") as show:
        check_free(out, marker=DEMO_MARKER, overwrite=True)
        audit = run_demonstration(episodes=episodes, seed=seed, progress=show)
        written = write_demonstration(audit, out)
    if as_json:
        typer.echo(json.dumps(_audit_as_json(audit, written), allow_nan=False))
        return
    _print_audit(console, audit)
    console.print(f"{_moral(audit)}\n")
    for path, what in zip(written, ("The audit folder", "The figures", "To read"), strict=True):
        console.print(f"{what}: {path}")
    open_review = shlex.join([sys.argv[0], "review", str(written[0])])
    console.print(f"To review: {open_review}", markup=False, soft_wrap=True)


@app.command()
def init(
    log: Annotated[list[Path], typer.Argument(help="CSV or Parquet file, several, or a folder.")],
    out: Annotated[Path, typer.Option(help="Where to write the draft.")] = Path("study.toml"),
    overwrite: Annotated[bool, typer.Option(help="Replace a study file that is there.")] = False,
) -> None:
    """Look at the columns of a log and draft its study file, for you to check and edit."""
    with _problems_in_words():
        if out.exists() and not overwrite:
            raise FileExistsError(f"{out} is there already; give another --out, or --overwrite")
        if not out.absolute().parent.is_dir():
            raise FileNotFoundError(f"there is no folder {out.parent}; make it, or change --out")
        text = draft_study(_source(log))
        out.write_text(text, encoding="utf-8")
    typer.echo(
        f"A draft of the study: {out}\nRead it, correct it, then: "
        + shlex.join(["butfor", "audit", *map(str, log), "--study", str(out), "--out", "audit"])
    )


@app.command()
def audit(
    log: Annotated[list[Path], typer.Argument(help="CSV or Parquet file, several, or a folder.")],
    study_file: Annotated[Path, typer.Option("--study", help="The study file of the log.")],
    out: Annotated[Path, typer.Option(help="Folder for the audit.")],
    target: Annotated[
        str, typer.Option(help="'learn', or a table of states, actions and probabilities.")
    ] = "learn",
    missing: Annotated[
        str, typer.Option(help="States that the table leaves out: error or uniform.")
    ] = "error",
    unseen: Annotated[
        str | None,
        typer.Option(help="Where pairs never seen lead: an outcome, uniform or self-loop."),
    ] = None,
    prior: Annotated[float, typer.Option(help="Added to counts of transitions.")] = 0.0,
    mechanism: Annotated[
        str, typer.Option(help=f"How transitions come about: {', '.join(MECHANISMS)}.")
    ] = "gumbel-max",
    smoothing: Annotated[
        float, typer.Option(help="Added to counts of actions when behaviour is estimated.")
    ] = 0.0,
    noise_on: Annotated[
        str | None, typer.Option(help="State variables that nature decides, with commas.")
    ] = None,
    flags: Annotated[int, typer.Option(min=0, help="Episodes to flag at most.")] = 60,
    models: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Models to draw for credible intervals, 0 for none; 200 where the log is in "
            "memory.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all that is drawn.")] = 0,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads for a log in shards; by default all cores.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask cluster that works on the shards.")
    ] = None,
    local_cluster: Annotated[
        int | None, typer.Option(min=1, help="Start a Dask cluster of so many processes here.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run in shards that was stopped.")
    ] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace an audit that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Judge a policy on your own log: estimates, every episode's outcome, flags.

    A folder of Parquet files is worked through file by file: see docs/operations.md.
    """
    console = Console(stderr=as_json)
    with _problems_in_words(parts_folder(out)):
        check_free(out, marker="meta.json", overwrite=overwrite)
        choices = Choices(
            target=target,
            missing=missing,
            unseen=unseen,
            prior=prior,
            mechanism=mechanism,
            smoothing=smoothing,
            noise_on=_names(noise_on),
            flags=flags,
            seed=seed,
        )
        with (
            _progress(console, "Reading, learning, judging") as show,
            _workers(threads, scheduler, local_cluster) as workers,
        ):
            found = audit_into(
                _source(log),
                study_file,
                out,
                choices,
                models=models,
                workers=workers,
                resume=resume,
                overwrite=overwrite,
                progress=show,
            )
    folder = out
    if as_json:
        typer.echo(json.dumps(_audit_as_json(found, [folder]), allow_nan=False))
        return
    _print_audit(console, found)
    console.print(f"Model estimates, not facts.\n\nThe audit folder: {folder}", markup=False)
    console.print(f"To read it: {shlex.join(['butfor', 'report', str(folder)])}", markup=False)


@app.command()
def report(
    audit: Annotated[Path, typer.Argument(help="Folder of an audit.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path(
        "report.html"
    ),
    stays: Annotated[
        int | None,
        typer.Option(min=0, help="Stays to show step by step; by default the flagged ones."),
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Leave out free text and side information.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file that is there.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Write an audit as one HTML file to read and print; it needs no network."""
    with _problems_in_words():
        path = write_report(audit, out, stays=stays, redact=redact, overwrite=overwrite)
    if as_json:
        typer.echo(json.dumps({"written": [str(path)], "bytes": path.stat().st_size}))
    else:
        typer.echo(f"To read: {path}")


@app.command()
def labels(
    log: Annotated[list[Path], typer.Argument(help="CSV or Parquet file, several, or a folder.")],
    study_file: Annotated[Path, typer.Option("--study", help="The study file of the log.")],
    noise_on: Annotated[
        str | None,
        typer.Option(
            help="State variables that nature decides, with commas; by default those of the "
            "study's [noise], or those not called like an action."
        ),
    ] = None,
    target: Annotated[
        str, typer.Option(help="'learn', or a table of states, actions and probabilities.")
    ] = "learn",
    missing: Annotated[
        str, typer.Option(help="States that the table leaves out: error or uniform.")
    ] = "error",
    unseen: Annotated[
        str | None,
        typer.Option(help="Where pairs never seen lead: an outcome, uniform or self-loop."),
    ] = None,
    prior: Annotated[float, typer.Option(help="Added to counts of transitions.")] = 0.0,
    smoothing: Annotated[
        float, typer.Option(help="Added to counts of actions when behaviour is estimated.")
    ] = 0.0,
    flags: Annotated[int, typer.Option(min=0, help="Episodes to flag at most.")] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Seed of clusters.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Compare counterfactuals with noise on states and on what nature decides."""
    console = Console(stderr=as_json)
    with _problems_in_words(), _progress(console, "Reading, learning, comparing") as show:
        compared, names = compare_log(
            _source(log),
            study_file,
            target=target,
            missing=missing,
            unseen=unseen,
            prior=prior,
            smoothing=smoothing,
            noise_on=_names(noise_on),
            flags=flags,
            seed=seed,
            progress=show,
        )
    if as_json:
        typer.echo(json.dumps(_comparison_as_json(compared, names), allow_nan=False))
    else:
        _print_comparison(console, compared, names)


def _names(text: str | None) -> list[str] | None:
    """Names in a list with commas."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError("--noise-on names nothing; leave it out for noise on the next state")
    return names


@contextmanager
def _workers(
    threads: int | None, scheduler: str | None, local_cluster: int | None
) -> Iterator[Workers]:
    """Give who works on shards, and let go of them at the end."""
    if scheduler is not None and local_cluster is not None:
        raise ValueError("--scheduler and --local-cluster: give one of the two")
    workers: Workers = Threads(threads)
    if scheduler is not None or local_cluster is not None:
        workers = Cluster(scheduler, workers=local_cluster)
    try:
        yield workers
    finally:
        workers.close()


def _source(log: list[Path]) -> Path | list[Path]:
    return log[0] if len(log) == 1 else log


@app.command()
def study(
    name: Annotated[str, typer.Argument(help=f"Which study: {', '.join(STUDIES)}.")],
    out: Annotated[Path, typer.Option(help="Folder for the article.")],
    repeats: Annotated[int | None, typer.Option(min=2, help="Fresh logs.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of everything.")] = None,
    simulator: Annotated[str | None, typer.Option(help="icml2019 or corrected.")] = None,
    terminal: Annotated[
        str | None, typer.Option(help="How ends count: icml2019 or visits.")
    ] = None,
    behavior: Annotated[
        str | None,
        typer.Option(help="oberst2019: physician planned on the estimated or the exact tensor."),
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace a study that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Run an experiment in the simulator and write it as an article.

    What is not given is as the study has it: see docs/studies.md.
    """
    console = Console(stderr=True)
    options = {"repeats": repeats, "seed": seed, "simulator": simulator}
    options |= {"terminal": terminal, "behavior": behavior}
    given = {option: value for option, value in options.items() if value is not None}
    with _problems_in_words():
        make_settings, write_study = STUDIES[check_choice(name, "study", tuple(STUDIES))]
        known = {field.name for field in fields(make_settings)}
        for option in (option for option in given if option not in known):
            has = ", ".join(f"--{other}" for other in options if other in known)
            raise ValueError(f"study {name!r} has no option --{option}; it has {has}")
        settings = make_settings(**given)
        with _progress(console, "Logs") as show:
            folder = write_study(settings, out, overwrite=overwrite, progress=show)
    if as_json:
        typer.echo((folder / "results.json").read_text())
    else:
        typer.echo(f"The article: {folder / 'index.html'}")


@app.command()
def review(
    folder: Annotated[Path, typer.Argument(metavar="AUDIT", help="The audit folder.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 0,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    needed: Annotated[int | None, typer.Option(min=1, help="Verdicts wanted for each.")] = None,
    first_impression: Annotated[
        bool, typer.Option("--first-impression", help="Ask before the model is shown.")
    ] = False,
    show_overview: Annotated[
        bool, typer.Option("--show-overview", help="Also to those whose queue is not done.")
    ] = False,
    token_file: Annotated[
        Path | None, typer.Option(help="Who may review: a line each, name and token.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="For TLS, with --key.")] = None,
    key: Annotated[Path | None, typer.Option(help="For TLS, with --certificate.")] = None,
    behind_tls: Annotated[
        bool, typer.Option("--behind-tls", help="Another program does TLS in front of it.")
    ] = False,
    name: Annotated[
        list[str] | None, typer.Option(help="Name under which reviewers open it; repeatable.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write the reviews to a .csv or .jsonl file and stop.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check that no verdict was changed, and stop.")
    ] = False,
    head: Annotated[
        str | None, typer.Option(help="With --verify: a head noted earlier, to be in the chain.")
    ] = None,
) -> None:
    """Let clinicians judge the flagged cases of an audit in their browser."""
    with _problems_in_words():
        if verify:
            found = verify_folder(folder, head)
            typer.echo(f"{found.events} events; head {found.head}")
            typer.echo("The chain holds." if found.ok else f"BROKEN: {found.problem}")
            raise typer.Exit(0 if found.ok else 1)
        if export is not None:
            typer.echo(f"The reviews: {export_reviews(folder, export)}")
            return
        settings = None
        if needed is not None or first_impression:
            settings = ReviewSettings(needed=needed or 2, first_impression=first_impression)
        address = Address(
            host=host,
            port=port,
            token_file=token_file,
            certificate=certificate,
            key=key,
            behind_tls=behind_tls,
            names=tuple(name or ()),
        )
        serve(folder, address, settings=settings, show_overview=show_overview, say=typer.echo)


@app.command()
def agreement(
    reviews: Annotated[Path, typer.Argument(help="An exported reviews.csv.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Measure how far reviewers agree, anew from an export."""
    with _problems_in_words():
        found = agreement_of_export(reviews)
    if as_json:
        typer.echo(json.dumps({run: asdict(told) for run, told in found.items()}, allow_nan=False))
        return
    console = Console()
    for run_of, told in found.items():
        table = _table("", ">Value", "95% interval", "")
        measures = {
            "Share of equal pairs": told.percent,
            "Krippendorff's alpha": told.alpha,
            "Gwet's AC1": told.ac1,
        }
        pairs = {f"Cohen's kappa: {p.first}, {p.second}": p.kappa for p in told.kappas}
        for words, measure in (measures | pairs).items():
            table.add_row(
                escape(words),
                "" if measure.value is None else f"{measure.value:.2f}",
                "" if measure.low is None else f"{measure.low:.2f} to {measure.high:.2f}",
                escape(measure.note),
            )
        console.print(
            f"Run {run_of[:8]}: {told.stays} read by at least two of {told.reviewers} reviewers",
            markup=False,
        )
        console.print(table)


@contextmanager
def _problems_in_words(unfinished: Path | None = None) -> Iterator[None]:
    """End with exit code 2 and one sentence where input is wrong or a folder is in the way.

    `unfinished` is a folder that keeps what was done, if it is there.
    """
    try:
        yield
    except (ValueError, OSError, ReviewError) as problem:
        notes = getattr(problem, "__notes__", [])
        left = [] if "--resume" in str(problem) else _left(unfinished)
        typer.echo("\n".join([f"Error: {problem}", *notes, *left]), err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("\n".join(["Stopped; no audit was written.", *_left(unfinished)]), err=True)
        raise typer.Exit(130) from None


def _left(unfinished: Path | None) -> list[str]:
    """Say that what was done is kept, if it is."""
    if unfinished is None or not unfinished.is_dir():
        return []
    return [f"What was worked out is kept in {unfinished}; go on with --resume."]


@contextmanager
def _progress(console: Console, words: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar while something long runs."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task(words, total=None)
        with _told_to_stop() as stopped:

            def show(done: int, total: int) -> None:
                if stopped():
                    raise KeyboardInterrupt
                bar.update(task, completed=done, total=total)

            yield show


@contextmanager
def _told_to_stop() -> Iterator[Callable[[], bool]]:
    """Remember Ctrl-C: where Python takes objects apart it is raised, ignored and lost."""
    told: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        told.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # only the main thread is told
        return
    before = signal.signal(signal.SIGINT, remember)
    try:
        yield lambda: bool(told)
    finally:
        signal.signal(signal.SIGINT, before)


def _audit_as_json(audit: Audit, written: list[Path]) -> dict[str, object]:
    return {
        "estimates": _records(audit.estimates),
        "diagnostics": _records(audit.diagnostics),
        "warnings": audit.meta.warnings,
        "problems": audit.meta.problems,
        "counts": audit.meta.counts.model_dump(),
        "target": audit.meta.target,
        "outcomes": audit.outcome_table().to_dict("index"),
        "flagged": _records(audit.flagged.head(10)),
        "written": [str(path) for path in written],
    }


def _comparison_as_json(compared: LabelComparison, names: Sequence[str]) -> dict[str, object]:
    frame = compared.frame()
    return {
        "noise_on": list(names),
        "summary": _records(compared.summary()),
        "outcomes": {
            "states": compared.states.counterfactuals.table().to_dict("index"),
            "labels": compared.labels.counterfactuals.table().to_dict("index"),
        },
        "flagged": int(compared.flagged.sum()),
        "flagged_changed": int((compared.flagged & compared.changed).sum()),
        "changed": int(compared.changed.sum()),
        "episodes": _records(frame),
    }


def _print_comparison(console: Console, compared: LabelComparison, names: Sequence[str]) -> None:
    console.print(
        "\n[bold]Which noise: on next states, or on what nature decides?[/bold] The labels are the "
        f"levels of {escape(', '.join(names))}."
    )
    table = _table("", ">Noise on states", ">Noise on labels")
    states, labelled = compared.summary().to_dict("records")
    for words, column, form in (
        ("Labels", "labels", str),
        ("Pairs of rows without a label in common: of those met", "apart_of_met", _share),
        ("… of all seen", "apart_of_all", _share),
        ("Steps at which the counterfactual is about the patient", "share_about", _share),
        ("Mean return under the policy", "mean_return", "{:+.3f}".format),
    ):
        table.add_row(words, form(states[column]), form(labelled[column]))
    console.print(table)
    for words, noise in (("states", compared.states), ("labels", compared.labels)):
        console.print(
            f"[bold]Noise on {words}[/bold]: what happened (rows) and likeliest outcome",
            _outcomes_table(noise.counterfactuals.table()),
        )
    frame = compared.frame()
    moved = frame.loc[(-frame["difference"].abs()).argsort(kind="stable")].head(10)
    per_episode = _table(">Id", "Happened", ">Noise on states", ">Noise on labels", ">Differs by")
    for _, row in moved.iterrows():
        per_episode.add_row(
            escape(str(row["id"])),
            escape(row["observed_outcome"]),
            f"{row['expected_return_states']:+.2f}",
            f"{row['expected_return_labels']:+.2f}",
            f"{row['difference']:+.2f}",
        )
    console.print(
        f"[bold]Expected return of the {len(moved)} that move most[/bold]",
        per_episode,
    )
    console.print(
        f"The likeliest outcome changes for {int(compared.changed.sum())} of {len(frame)}, and for "
        f"{int((compared.flagged & compared.changed).sum())} of the {int(compared.flagged.sum())} "
        "flagged with either noise. Model estimates, not facts: no data can tell which noise is "
        "right."
    )


def _outcomes_table(table: pd.DataFrame) -> Table:
    shown = _table("", *(f">{escape(name)}" for name in table.columns))
    for name, numbers in table.iterrows():
        shown.add_row(escape(str(name)), *(str(number) for number in numbers))
    return shown


def _share(share: float) -> str:
    """Write a share of what was counted; nan where there is nothing to count."""
    return "none met" if share != share else f"{100 * share:.0f}%"


def _records(frame: pd.DataFrame) -> list[dict[str, object]]:
    """Rows of a frame for JSON, which has no word for nan."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def _print_audit(console: Console, audit: Audit) -> None:
    counts, words = audit.meta.counts, audit.meta.words
    noun = words.get("episode", "episode")
    unseen = audit.meta.made_by.get("unseen") or "the worst outcome"
    made_up, pairs = counts.unseen_pairs, counts.states * counts.actions
    console.print(
        f"\n[bold]Would the policy have changed what happened?[/bold] {counts.episodes} "
        f"{escape(noun)}s, {counts.steps} decisions; the policy: "
        f"{escape(audit.meta.target)}."
        + (
            f" {made_up} of {pairs} pairs of state and action were never seen; "
            f"the model makes them up: {escape(unseen)}.\n"
            if made_up
            else "\n"
        )
    )
    for words_of, count in audit.meta.problems.items():
        console.print(f"Reading: {escape(words_of)}: {count}")
    for warning in audit.meta.warnings:
        console.print(escape(warning))
    known_model = audit.estimates["low_credible"].notna().any()
    heads = ["", ">Mean return", "95% interval*", *(["Model**"] if known_model else [])]
    estimates = _table(*heads, ">Cases")
    names = set(audit.estimates["estimator"])
    for _, row in audit.estimates[audit.estimates["estimator"].isin(SHOWN)].iterrows():
        estimates.add_row(
            row["estimator"],
            f"{row['value']:+.3f}" if row["value"] == row["value"] else "undefined",
            _span(row["low"], row["high"]),
            *([_span(row["low_credible"], row["high_credible"])] if known_model else []),
            str(row["episodes"]) if row["estimator"] in ("Observed", "WIS") else "",
        )
    console.print("[bold]How well would the policy do?[/bold]", estimates)
    console.print(
        "* Chance in the sample, with model and policy kept; not errors in the model, nor the luck "
        "in learning the policy."
        + (" True: known only because this is a simulator." if "True" in names else "")
    )
    if known_model:
        credible = audit.meta.parameters.credible
        assert credible is not None
        console.print(
            f"** What the log leaves open about the model, in {credible.models} models drawn "
            "from its posterior; not what the states leave out, nor how chance carries over."
        )
    for warning in audit.estimates.loc[
        audit.estimates["estimator"].isin(("WIS", "CF (cross-fitted)")), ["estimator", "warning"]
    ].itertuples():
        if warning.warning:
            console.print(f"{warning.estimator}: {warning.warning}.")

    lights = _table("", "", "")
    lights.show_header = False
    for check in audit.diagnostics.itertuples():
        color = {"green": "green", "amber": "yellow", "red": "red"}[check.light]
        lights.add_row(f"[{color}]{check.light}[/{color}]", check.check, escape(check.sentence))
    console.print("\n[bold]What to know before believing it[/bold]", lights)

    console.print(
        f"\n[bold]{escape(noun.capitalize())}s by what happened (rows) and likeliest outcome under "
        "the policy[/bold]",
        _outcomes_table(audit.outcome_table()),
    )
    flagged = audit.flagged
    if len(flagged):
        survives = flagged["survives"].value_counts()
        console.print(
            f"Of {len(flagged)} flagged, {survives.get('any', 0)} keep the sign of their "
            f"difference whatever the mechanism, {survives.get('stable', 0)} more over every "
            f"stable one, {survives.get('', 0)} hang on the choice; all of it only if the model is "
            "right, and bounds of each step by itself, so rather too wide than too narrow. "
            f"{(flagged['thin_share'] > 0.5).sum()} rest mostly on fewer than {THIN} similar past "
            "cases.\n"
        )
    frame = flagged.head(10)
    console.print(
        f"[bold]The {len(frame)} {escape(noun)}{'s' if len(frame) != 1 else ''} for which it would "
        "differ most[/bold]: what happened, the "
        "chance of each outcome under the policy, by how much the expected return differs, and the "
        "first step, counted from 0, at which the policy would have done something else. Sure: "
        "whether the sign survives any mechanism, or stable ones. Cases: the fewest similar past "
        "cases it rests on",
        _flagged_table(frame, list(audit.meta.outcomes), audit.meta.none),
    )


def _moral(audit: Audit) -> str:
    """Say what the estimates of the demonstration come to."""
    value = audit.estimates.set_index("estimator")["value"]
    better = value["MB"] > value["Observed"] and value["CF"] > value["Observed"]
    worse = value["True"] < value["Observed"]
    told = "Model estimates, not facts."
    if better and worse:
        told += (
            " To the model the policy looks better than the care given; in the simulator it is "
            "worse. The physician saw what the model did not, and the policy was picked on the "
            "same log that judges it."
        )
    return f"{told} Such cases are for experts to read."


def _flagged_table(frame: pd.DataFrame, outcomes: list[str], none: str) -> Table:
    table = _table(
        ">Id",
        "Happened",
        *(f">{escape(name)}" for name in [*outcomes, none]),
        ">Differs by",
        ">Step",
        "Sure",
        ">Cases",
    )
    columns = [f"p_{name}" for name in outcomes] + ["p_none"]
    for _, row in frame.iterrows():
        table.add_row(
            escape(str(row["id"])),
            escape(row["observed_outcome"]),
            *(_short_percent(row[column]) for column in columns),
            f"{row['difference']:+.2f}",
            "never" if row["first_change"] < 0 else str(row["first_change"]),
            row["survives"] or "no",
            f"{row['evidence_min']:.0f}",
        )
    return table


def _span(low: float, high: float) -> str:
    return f"{low:+.2f} to {high:+.2f}" if low == low else ""


def _table(*columns: str) -> Table:
    """Return an empty table; a column whose name starts with > holds numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name.removeprefix(">"), justify="right" if name[:1] == ">" else "left")
    return table


def _short_percent(probability: float) -> str:
    return percent(probability).replace("under ", "<").replace("over ", ">")
