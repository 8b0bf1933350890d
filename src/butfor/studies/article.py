"""What every study shares: settings, learning a target, and the folder with its article."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import butfor
from butfor import sepsis
from butfor.audit.folders import Kind, check_free, whole_folder
from butfor.checks import check_choice, check_whole
from butfor.log.episodes import Episodes
from butfor.models.fit import fit_mdp
from butfor.models.mdp import TabularMDP
from butfor.models.planning import policy_iteration
from butfor.models.policies import TERMINALS
from butfor.present.charts import save_figure
from butfor.present.ranges import enough_logs, range_name
from butfor.random import check_seed
from butfor.studies.page import PAPER, Source, render_page
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

    folder: str  # of the package, with a template article.html
    settings: type[StudySettings]
    run: Callable[..., Any]  # run(settings, advance=...)
    charts: Callable[[Any], Mapping[str, Any]]  # by file name, without its ending
    tables: Callable[[Any], Mapping[str, pd.DataFrame]]  # CSV files by name
    results: Callable[[Any], Mapping[str, Any]]  # numbers for machines and for the page
    content: Callable[[Any], Mapping[str, Any]]  # what the page shows besides the results
    short: Callable[[Any], Sequence[str]]  # two to four sentences: asked, found, and the caveat
    figures: int  # the largest number of charts
    sources: tuple[Source, ...] = (PAPER,)


def learn(log: Episodes, terminal: str) -> tuple[TabularMDP, Floats]:
    """Learn the model from a log and plan the target on it."""
    model = fit_mdp(log, terminal=terminal)
    return model, policy_iteration(model, discount=DISCOUNT).table


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
    charts, widths = study.charts(experiment), {}
    short = list(study.short(experiment))
    made_by = {**asdict(settings), "butfor": butfor.__version__}
    numbers = {**study.results(experiment), "in_short": short, "settings": made_by}
    with whole_folder(folder, STUDY, overwrite=overwrite) as new:
        for name, chart in charts.items():
            save_figure(chart, new / "figures" / name)
            widths[name] = _width(new / "figures" / f"{name}.svg")
            advance()
        # a chart of one patient is missing if no patient fits its rule
        for _ in range(study.figures - len(charts)):
            advance()
        for name, table in study.tables(experiment).items():
            table.to_csv(new / f"{name}.csv", index=False)
        text = json.dumps(_without_nan(numbers), indent=2, allow_nan=False)
        (new / RESULTS).write_text(f"{text}\n")
        page = study_page(study, settings, experiment, widths)
        (new / "index.html").write_text(page, encoding="utf-8")
    return Path(folder)


def study_page(
    study: Study, settings: StudySettings, experiment: Any, widths: Mapping[str, int]
) -> str:
    """Return the page of a study, from the widths of its drawings.

    In its template `clear` is the number of standard errors beyond which a mean over the study's
    logs is not chance, and `range_name` the range over them that there are enough logs for.
    """
    content = {
        "settings": settings,
        "made_by": asdict(settings),
        "version": butfor.__version__,
        "clear": clear(settings.repeats),
        "few": not enough_logs(settings.repeats),
        "range_name": range_name(settings.repeats),
        "short": study.short(experiment),
        "files": list(study.tables(experiment)),
        "sources": study.sources,
        **study.results(experiment),
        **study.content(experiment),
    }
    return render_page(f"{study.folder}/article.html", content, widths)


def _width(drawing: Path) -> int:
    """Return the width of an SVG file in pixels."""
    found = re.search(r'<svg[^>]* width="(\d+)', drawing.read_text(encoding="utf-8"))
    assert found is not None
    return int(found[1])


def _without_nan(value: Any) -> Any:
    """Replace non-finite numbers by null, since JSON cannot represent them."""
    if isinstance(value, Mapping):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
