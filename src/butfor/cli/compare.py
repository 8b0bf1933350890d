"""`butfor compare`: audits of several policies on one log, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console
from rich.markup import escape

from butfor.audit.audit import Audit
from butfor.audit.compare import compare_audits
from butfor.cli import options
from butfor.cli.output import exit_on_error, make_table, print_json, records
from butfor.cli.summary import as_interval
from butfor.present.charts.rows import estimates_chart
from butfor.present.charts.save import save_figure


def compare(
    audits: Annotated[
        list[Path],
        typer.Argument(help="Audit folders of the same log; the first is compared with."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the table (comparison.csv) and the chart (comparison.svg)."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Compare policies that were audited on the same log: estimates and paired differences."""
    with exit_on_error():
        names = policy_names(audits)
        table = compare_audits(
            {name: Audit.load(path) for name, path in zip(names, audits, strict=True)}
        )
        written = [] if out is None else write_comparison(table, out)
    if as_json:
        print_json({"policies": records(table), "written": [str(path) for path in written]})
        return
    print_comparison(Console(), table)
    for path in written:
        typer.echo(path)


def policy_names(paths: list[Path]) -> list[str]:
    """Name policies by their files or folders; by the whole path where names are the same."""
    short = [path.stem if path.suffix in (".csv", ".parquet") else path.name for path in paths]
    names = short if len(set(short)) == len(short) else [str(path) for path in paths]
    if len(set(names)) < len(names):
        raise ValueError(f"{max(names, key=names.count)} is given twice; give each policy once")
    return names


def write_comparison(table: pd.DataFrame, folder: Path) -> list[Path]:
    """Write the table and the chart of differences."""
    folder.mkdir(parents=True, exist_ok=True)
    table.to_csv(folder / "comparison.csv", index=False)
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
    chart = estimates_chart(
        rows,
        reference=None,
        title=f"How much better than {first}?",
        axis_title="Difference in average return per episode",
    )
    return [folder / "comparison.csv", *save_figure(chart, folder / "comparison", ("svg",))]


def print_comparison(console: Console, table: pd.DataFrame) -> None:
    """Print one row per estimator and policy, and why a difference has no interval."""
    first = table["against"].iloc[0]
    rows = [
        (
            row.estimator,
            row.policy,
            f"{row.value:+.3f}",
            as_interval(row.low, row.high),
            "" if row.policy == first else f"{row.difference:+.3f}",
            "" if row.policy == first else as_interval(row.low_difference, row.high_difference),
        )
        for row in table.itertuples()
    ]
    columns = ("", "Policy", ">Mean return", "95% interval", ">Difference", "95% interval*")
    console.print(
        f"\n[bold]How much better than {escape(first)}?[/bold]", make_table(columns, rows)
    )
    for reason in dict.fromkeys(table["warning"][table["warning"] != ""]):
        names = table["policy"] + ", " + table["estimator"]
        console.print(f"{escape('; '.join(names[table['warning'] == reason]))}: {escape(reason)}.")
    console.print(
        "* Paired: both policies are judged on the same episodes. Intervals cover chance, not what "
        "the states leave out.",
        markup=False,
    )


def compare_written(folders: Mapping[str, Path], out: Path) -> pd.DataFrame:
    """Compare audits that were just written, and write the comparison beside them."""
    table = compare_audits({name: Audit.load(path) for name, path in folders.items()})
    write_comparison(table, out)
    return table
