"""What every study article shares: a page from a template, and a folder written whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

import butfor
from butfor.audit.folders import whole_folder
from butfor.evaluate.wording import percent
from butfor.present.charts import save_figure
from butfor.types import Progress

MARKER = "results.json"


def write_article(
    folder: str | Path,
    *,
    settings: Any,
    charts: Mapping[str, Any],
    tables: Mapping[str, pd.DataFrame],
    results: Mapping[str, Any],
    page: str,
    overwrite: bool = False,
    one_more: Callable[[], None] | None = None,
) -> Path:
    """Write the folder of an article, whole or not at all, and return it.

    Parameters
    ----------
    settings : dataclass
        What was chosen; `results.json` has it, with butfor's version, as "settings".
    charts, tables
        By file name: figures/NAME.png, .svg, .pdf and .html; NAME.csv.
    results
        Numbers for machines; what is undefined becomes null.
    page
        The text of index.html.
    one_more : optional
        Called after each chart.
    """
    with whole_folder(folder, marker=MARKER, overwrite=overwrite) as new:
        for name, chart in charts.items():
            save_figure(chart, new / "figures" / name)
            if one_more is not None:
                one_more()
        for name, table in tables.items():
            table.to_csv(new / f"{name}.csv", index=False)
        made_by = {**asdict(settings), "butfor": butfor.__version__}
        numbers = _without_nan({**results, "settings": made_by})
        (new / MARKER).write_text(json.dumps(numbers, indent=2, allow_nan=False) + "\n")
        (new / "index.html").write_text(page, encoding="utf-8")
    return Path(folder)


def render_page(template: str, settings: Any, content: Mapping[str, Any]) -> str:
    """Return the page of a template that extends article.html; settings is a dataclass.

    Filters: `signed` and `signed1` (three digits and one, with the sign unless they are 0), `share`
    (whole per cent), `chance` (a probability in words).
    """
    environment = Environment(
        loader=PackageLoader("butfor.studies"), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["signed"] = lambda value: _signed(value, 3)
    environment.filters["signed1"] = lambda value: _signed(value, 1)
    environment.filters["share"] = lambda value: f"{100 * value:.0f} %"
    environment.filters["chance"] = percent
    return environment.get_template(template).render(
        settings=settings, made_by=asdict(settings), version=butfor.__version__, **content
    )


def report_progress(progress: Progress | None, total: int) -> Callable[[], None]:
    """Return a function that counts one more log, or figure, as done."""
    done = 0

    def one_more() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    return one_more


def _signed(value: float, digits: int) -> str:
    shown = round(value, digits)
    if shown == 0:  # no sign that the digits do not show
        return f"{0:.{digits}f}"
    return f"{shown:+.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _without_nan(value: Any) -> Any:
    """Write null for what is undefined: JSON has no word for nan."""
    if isinstance(value, Mapping):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
