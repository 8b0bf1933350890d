"""What every study shares: settings, learning a target, the folder with its article, its page."""

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
from jinja2 import Environment, PackageLoader, StrictUndefined

import butfor
from butfor import sepsis
from butfor.audit.folders import Kind, check_free, whole_folder
from butfor.checks import check_choice, check_whole
from butfor.evaluate.wording import MINUS, percent
from butfor.log.episodes import Episodes
from butfor.models.fit import fit_mdp
from butfor.models.mdp import TabularMDP
from butfor.models.planning import policy_iteration
from butfor.models.policies import TERMINALS
from butfor.present import STATIC
from butfor.present.charts import save_figure
from butfor.present.text import FULL_NAMES, enough_logs, range_name
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
LEGIBLE = 11 / 13  # of its size: letters of 13 pixels, the smallest, still have 11
HEADING = re.compile(r'<h2 id="([^"]+)">(.*?)</h2>')
STYLES = (STATIC / "style.css", Path(__file__).parent / "templates" / "article.css")


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
class Source:
    """A paper that a study follows."""

    authors: str
    title: str
    where: str
    doi: str


PAPER = Source(
    "M. Oberst and D. Sontag",
    "Counterfactual Off-Policy Evaluation with Gumbel-Max Structural Causal Models",
    "ICML 2019, Proceedings of Machine Learning Research 97",
    "10.48550/arXiv.1905.05824",
)


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


def headings(text: str) -> list[tuple[str, str]]:
    """Return the places of a text and their headings, as HTML, for its contents."""
    return HEADING.findall(text)


def spelled(name: str) -> str:
    """Spell an abbreviation out: "weighted importance sampling (WIS)"; other names stay."""
    return f"{FULL_NAMES[name]} ({name})" if name in FULL_NAMES else name


def share(value: float, digits: int = 0) -> str:
    """Return a share in percent, with as many decimals as given."""
    return f"{100 * value:.{digits}f}%"


def with_error(mean: float, se: float) -> str:
    """Return a mean and its standard error."""
    return f"{signed(mean)} ± {plain(se)}"


def listed(values: Sequence[Any]) -> str:
    """Return "250, 1,000 and 4,000"."""
    *first, last = map(count, values)
    return f"{', '.join(first)} and {last}" if first else last


def count(value: int) -> str:
    """Return a whole number, by thousands."""
    return f"{value:,}"


def plain(value: float, digits: int = 3) -> str:
    """Return a number without a plus sign; 0 has no sign."""
    return f"{round(float(value), digits) + 0.0:.{digits}f}".replace("-", MINUS)


def signed(value: float, digits: int = 3) -> str:
    """Return a number with a sign that its digits justify."""
    shown = plain(value, digits)
    return f"+{shown}" if round(float(value), digits) > 0 else shown


FILTERS = {
    **{"signed": signed, "plain": plain, "share": share, "chance": percent},
    **{"count": count, "listed": listed, "spelled": spelled, "headings": headings},
}


def render_page(template: str, content: Mapping[str, Any], widths: Mapping[str, int]) -> str:
    """Return a page from a template that extends studies/templates/article.html.

    It may use FILTERS. `widths` are those of its drawings, in pixels: a narrow screen shrinks them
    only as far as their letters can be read.
    """
    environment = Environment(
        loader=PackageLoader("butfor", ""), autoescape=True, undefined=StrictUndefined
    )
    environment.filters |= FILTERS
    environment.globals |= {"widths": widths, "legible": LEGIBLE}
    styles = "\n".join(path.read_text(encoding="utf-8") for path in STYLES)
    page = environment.get_template(template).render(style=styles, **content)
    return page.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")
