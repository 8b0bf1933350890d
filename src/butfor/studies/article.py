"""What every study shares: a folder with an article, its figures, tables and numbers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

import butfor
from butfor.audit.folders import check_free, whole_folder
from butfor.evaluate.wording import percent
from butfor.present.charts import save_figure
from butfor.studies.scoring import clear
from butfor.studies.settings import StudySettings
from butfor.types import Progress

RESULTS = "results.json"
Advance = Callable[[], None]  # called after each log or figure


@dataclass(frozen=True)
class Study:
    """How an experiment is run and written up; the functions take what `run` returns."""

    settings: type[StudySettings]
    run: Callable[..., Any]  # run(settings, advance=...)
    charts: Callable[[Any], Mapping[str, Any]]  # by file name, without its ending
    figures: int  # the largest number of charts
    tables: Callable[[Any], Mapping[str, pd.DataFrame]]  # CSV files by name
    results: Callable[[Any], Mapping[str, Any]]  # numbers for machines and for the page
    template: str  # extends templates/article.html
    content: Callable[[Any], Mapping[str, Any]]  # what the page shows besides the results


def no_progress() -> None:
    """Report no progress."""


def write_study(
    study: Study,
    settings: StudySettings,
    folder: str | Path,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Run a study and write its folder, whole or not at all.

    The folder holds index.html, results.json with the settings and the version of butfor, CSV
    files, and each figure as figures/NAME.png, .svg, .pdf and .html.
    """
    check_free(folder, marker=RESULTS, overwrite=overwrite)
    total, done = settings.steps + study.figures, itertools.count(1)

    def advance() -> None:
        if progress is not None:
            progress(next(done), total)

    experiment = study.run(settings, advance=advance)
    charts, results = study.charts(experiment), study.results(experiment)
    page = render_page(study.template, settings, {**results, **study.content(experiment)})
    made_by = {**asdict(settings), "butfor": butfor.__version__}
    numbers = _without_nan({**results, "settings": made_by})
    with whole_folder(folder, marker=RESULTS, overwrite=overwrite) as new:
        for name, chart in charts.items():
            save_figure(chart, new / "figures" / name)
            advance()
        # a chart of one patient is missing if no patient fits its rule
        for _ in range(study.figures - len(charts)):
            advance()
        for name, table in study.tables(experiment).items():
            table.to_csv(new / f"{name}.csv", index=False)
        (new / RESULTS).write_text(json.dumps(numbers, indent=2, allow_nan=False) + "\n")
        (new / "index.html").write_text(page, encoding="utf-8")
    return Path(folder)


def render_page(template: str, settings: StudySettings, content: Mapping[str, Any]) -> str:
    """Return the page of a template that extends templates/article.html.

    Filters: `signed` (three decimals or as many as given, with a sign unless it rounds to 0),
    `share` (whole percent) and `chance` (a probability in words). `clear` is the number of standard
    errors beyond which a mean over the study's logs is not chance.
    """
    environment = Environment(
        loader=PackageLoader("butfor.studies", ""), autoescape=True, undefined=StrictUndefined
    )
    environment.filters |= {"signed": _signed, "chance": percent}
    environment.filters["share"] = lambda value: f"{100 * value:.0f} %"
    return environment.get_template(template).render(
        settings=settings,
        made_by=asdict(settings),
        version=butfor.__version__,
        clear=clear(settings.repeats),
        **content,
    )


def in_paper_order(table: pd.DataFrame) -> pd.DataFrame:
    """Order the outcomes of a table as the paper does: died, no change, discharged."""
    order = ["died", "no change", "discharged"]
    return table.loc[order, order]


def _signed(value: float, digits: int = 3) -> str:
    shown = round(float(value), digits)
    # no sign that the digits do not justify
    if shown == 0:
        return f"{0:.{digits}f}"
    return f"{shown:+.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _without_nan(value: Any) -> Any:
    """Replace non-finite numbers by null, since JSON cannot represent them."""
    if isinstance(value, Mapping):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
