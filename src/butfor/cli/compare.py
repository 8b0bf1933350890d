"""`butfor compare`: audits of several policies on one log, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console
from rich.markup import escape

import butfor
from butfor.audit.audit import Audit
from butfor.audit.compare import compare_audits
from butfor.audit.spreadsheet import write_csv
from butfor.cli import options
from butfor.cli.output import Terminal, exit_on_error, print_json, records, say
from butfor.cli.tables import make_table
from butfor.evaluate.wording import digits_for, in_words, plural
from butfor.log.whole_files import check_new_file, whole_file

COMPARISON = ("comparison.csv", "comparison.svg")


def compare(
    audits: Annotated[
        list[Path],
        typer.Argument(help="Audit folders of the same log; the first is compared with."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the table (comparison.csv) and the chart (comparison.svg)."),
    ] = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Compare policies that were audited on the same log: estimates and paired differences."""
    with exit_on_error():
        names = policy_names(audits)
        if out is not None:
            check_comparison(out, overwrite=overwrite)
        folders = dict(zip(names, audits, strict=True))
        table, first, written = compare_written(folders, out, overwrite)
    if as_json:
        print_json({"policies": records(table), "written": [str(path) for path in written]})
        return
    print_comparison(Terminal(), table, first)
    for path in written:
        say(path)


def policy_names(paths: list[Path]) -> list[str]:
    """Name policies by their files or folders; by the whole path where names are the same."""
    short = [path.stem if path.suffix in (".csv", ".parquet") else path.name for path in paths]
    names = short if len(set(short)) == len(short) else [str(path) for path in paths]
    if len(set(names)) < len(names):
        raise ValueError(f"{max(names, key=names.count)} is given twice; give each policy once")
    return names


def check_comparison(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder with an earlier comparison, unless that may be replaced."""
    for name in COMPARISON:
        if (folder / name).exists():
            check_new_file(folder / name, overwrite=overwrite)


def write_comparison(
    table: pd.DataFrame, audit: Audit, folder: Path, overwrite: bool
) -> list[Path]:
    """Write the table and the chart of differences, in the words of one of the audits."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in COMPARISON]
    write_csv(paths[0], [table], overwrite=overwrite)
    first = table["against"].iloc[0]
    gaps = table[table["policy"] != first]
    rows = pd.DataFrame(
        {
            "estimator": gaps["policy"] + ", " + gaps["estimator"],
            "value": gaps["difference"],
            "low": gaps["low_difference"],
            "high": gaps["high_difference"],
        }
    )
    chart = butfor.charts.estimates_chart(
        rows,
        reference=None,
        title=f"How much better than {first}?",
        axis_title=f"Difference in average return per {audit.noun}",
        rate=audit.is_rate,
    )
    with whole_file(paths[1], overwrite=overwrite) as new:
        butfor.charts.save_figure(chart, new.with_suffix(""), ("svg",))
    return paths


def print_comparison(console: Console, table: pd.DataFrame, audit: Audit) -> None:
    """Print one row per estimator and policy, and why a difference has no interval.

    Words are those of `audit`, one of those compared.
    """
    rate = audit.is_rate
    first = table["against"].iloc[0]
    digits = digits_for(table["value"], rate=rate)
    gaps = digits_for(table["difference"][table["policy"] != first], rate=rate)
    rows = [
        (
            row.estimator,
            row.policy,
            digits.value(row.value),
            digits.span(row.low, row.high),
            "" if row.policy == first else gaps.gap(row.difference),
            "" if row.policy == first else gaps.gap_span(row.low_difference, row.high_difference),
        )
        for row in table.itertuples()
    ]
    columns = ("", "Policy", ">Mean return", "95% interval", ">Difference", "95% interval*")
    console.print(
        f"\n[bold]How much better than {escape(first)}?[/bold]", make_table(columns, rows)
    )
    for reason in dict.fromkeys(table["warning"][table["warning"] != ""]):
        names = table["policy"] + ", " + table["estimator"]
        said = f"{'; '.join(names[table['warning'] == reason])}: {reason}."
        console.print(escape(in_words(said, audit.noun)))
    console.print(
        f"* Paired: both policies are judged on the same {plural(audit.noun)}. Intervals cover "
        "chance, not what the states leave out.",
        markup=False,
    )


def compare_written(
    folders: Mapping[str, Path], out: Path | None, overwrite: bool
) -> tuple[pd.DataFrame, Audit, list[Path]]:
    """Compare audits and write the comparison; return it, the first audit and what was written."""
    audits = {name: Audit.load(path) for name, path in folders.items()}
    table = compare_audits(audits)
    first = next(iter(audits.values()))
    return table, first, [] if out is None else write_comparison(table, first, out, overwrite)
