"""What every study shares: settings, learning a target, and the folder with its article."""

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
from butfor import sepsis
from butfor.audit.folders import Kind, check_free, whole_folder
from butfor.checks import check_choice, check_whole
from butfor.evaluate.wording import percent
from butfor.log.episodes import Episodes
from butfor.models.fit import fit_mdp
from butfor.models.mdp import TabularMDP
from butfor.models.planning import policy_iteration
from butfor.models.policies import TERMINALS
from butfor.present.charts import save_figure
from butfor.random import check_seed
from butfor.studies.scoring import clear
from butfor.types import Floats, Progress

RESULTS = "results.json"
STUDY = Kind(RESULTS, rb'"butfor": "\d', (RESULTS, "index.html", "*.csv", "figures/*"))
HIDDEN = ("glucose", "diabetes")  # the physician sees them, the log does not show them
HORIZON = 20
DISCOUNT = 0.99  # for planning
LEAST_EPISODES = 10
Advance = Callable[[], None]  # called after each log or figure


@dataclass(frozen=True)
class StudySettings:
    """The options of every study; each study has its own defaults and may add options."""

    repeats: int = 10  # fresh logs
    seed: int = 0
    simulator: str = "corrected"
    terminal: str = "visits"  # how episode ends are counted

    def __post_init__(self) -> None:
        check_whole(self.repeats, "repeats", 2, "a whole number")
        check_seed(self.seed)
        check_choice(self.simulator, "simulator", sepsis.VERSIONS)
        check_choice(self.terminal, "terminal", TERMINALS)

    @property
    def steps(self) -> int:
        """Number of times that a run reports progress."""
        return self.repeats

    def base_seed(self, repeat: int, parts: int = 1) -> int:
        """First of `parts` seeds of one repeat; repeats and studies with other seeds share none."""
        return (self.seed * 1_000_003 + repeat) * parts


@dataclass(frozen=True)
class LogSettings(StudySettings):
    """The options of a study whose logs all have one size."""

    episodes: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self.episodes, "episodes", LEAST_EPISODES, "a whole number")

    def simulate(self, policy: Floats, seed: int) -> Episodes:
        """Simulate the patients of one log under a policy, on full states."""
        return sepsis.simulate(policy, self.episodes, seed=seed, version=self.simulator)


@dataclass(frozen=True)
class Study:
    """How an experiment is run and written up; the functions take what `run` returns."""

    folder: str  # of this package, with a template article.html
    settings: type[StudySettings]
    run: Callable[..., Any]  # run(settings, advance=...)
    charts: Callable[[Any], Mapping[str, Any]]  # by file name, without its ending
    tables: Callable[[Any], Mapping[str, pd.DataFrame]]  # CSV files by name
    results: Callable[[Any], Mapping[str, Any]]  # numbers for machines and for the page
    content: Callable[[Any], Mapping[str, Any]]  # what the page shows besides the results
    figures: int  # the largest number of charts


def learn(log: Episodes, terminal: str) -> tuple[TabularMDP, Floats]:
    """Learn the model from a log and plan the target on it."""
    model = fit_mdp(log, terminal=terminal)
    return model, policy_iteration(model, discount=DISCOUNT)


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
    check_free(folder, STUDY, overwrite=overwrite)
    total, done = settings.steps + study.figures, itertools.count(1)

    def advance() -> None:
        if progress is not None:
            progress(next(done), total)

    experiment = study.run(settings, advance=advance)
    charts, results = study.charts(experiment), study.results(experiment)
    page = render_page(study, settings, {**results, **study.content(experiment)})
    made_by = {**asdict(settings), "butfor": butfor.__version__}
    numbers = _without_nan({**results, "settings": made_by})
    with whole_folder(folder, STUDY, overwrite=overwrite) as new:
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


def render_page(study: Study, settings: StudySettings, content: Mapping[str, Any]) -> str:
    """Return the page of a study, whose template extends templates/article.html.

    Filters: `signed` (three decimals or as many as given, with a sign unless it rounds to 0),
    `share` (whole percent) and `chance` (a probability in words). `clear` is the number of standard
    errors beyond which a mean over the study's logs is not chance.
    """
    environment = Environment(
        loader=PackageLoader("butfor.studies", ""), autoescape=True, undefined=StrictUndefined
    )
    environment.filters |= {"signed": signed, "chance": percent}
    environment.filters["share"] = lambda value: f"{100 * value:.0f} %"
    return environment.get_template(f"{study.folder}/article.html").render(
        settings=settings,
        made_by=asdict(settings),
        version=butfor.__version__,
        clear=clear(settings.repeats),
        **content,
    )


def in_paper_order(table: pd.DataFrame) -> pd.DataFrame:
    """Order the outcomes of a table as the paper does, whose "no change" is "still in ICU" here."""
    order = ["died", "still in ICU", "discharged"]
    return table.loc[order, order]


def signed(value: float, digits: int = 3) -> str:
    """Return a number with a sign that its digits justify."""
    shown = round(float(value), digits)
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
