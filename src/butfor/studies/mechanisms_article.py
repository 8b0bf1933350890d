"""The article of the mechanisms study: page, figures, tables and numbers in one folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from butfor.audit.folders import check_free
from butfor.present.charts import containment_chart, reliability_chart, scores_chart
from butfor.studies.article import (
    MARKER,
    render_page,
    report_progress,
    write_article,
)
from butfor.studies.mechanisms import (
    ALONE,
    BOUNDED,
    CASES,
    CLASSES,
    ENDS,
    EVERYONE,
    GROUPS,
    GUMBEL,
    MECHANISMS,
    OUTCOMES,
    OWN,
    OWN_DRAWS,
    RATE,
    REFERENCES,
    SIGNS,
    Scored,
    Settings,
    run_mechanisms,
)
from butfor.studies.mechanisms_tables import (
    bounds_table,
    case_table,
    reliability_table,
    score_table,
)
from butfor.studies.scoring import clear
from butfor.types import Progress

FIGURES = 4
DRAWN = (*MECHANISMS, ALONE, OWN)
SMALLEST = 0.001  # difference of Brier scores that is called one
LEAST = 0.001  # share of the patients that a drawn point must stand for
RELIABILITY = ("true-withheld", "learned-hidden")  # the cases whose curves are drawn


@dataclass(frozen=True, eq=False)
class Study:
    """The tables of a run, ready to be shown."""

    settings: Settings
    cases: pd.DataFrame
    scores: pd.DataFrame
    bounds: pd.DataFrame
    reliability: pd.DataFrame

    def score(self, case: str, mechanism: str, group: str = EVERYONE) -> pd.Series:
        """Scores of one mechanism; KeyError where there are none."""
        return self._indexed.loc[(case, mechanism, group)]

    @property
    def _indexed(self) -> pd.DataFrame:
        return self.scores.set_index(["case", "mechanism", "group"]).sort_index()

    def mechanisms(self, case: str) -> list[str]:
        """Mechanisms that were asked in a case, references left out."""
        present = set(self.scores.loc[self.scores["case"] == case, "mechanism"])
        return [name for name in MECHANISMS if name in present]


def run_study(settings: Settings, *, one_more: Callable[[], None] | None = None) -> Study:
    """Run the experiment and make its tables."""
    return make_study(settings, run_mechanisms(settings, progress=one_more))


def make_study(settings: Settings, cases: Mapping[str, Scored]) -> Study:
    """Make the tables of an experiment that has been run."""
    return Study(
        settings=settings,
        cases=case_table(cases),
        scores=score_table(cases),
        bounds=bounds_table(cases),
        reliability=reliability_table(cases),
    )


def write_study(
    settings: Settings,
    folder: str | Path,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Run the study and write its article: index.html, results.json, CSV and every figure."""
    check_free(folder, marker=MARKER, overwrite=overwrite)
    one_more = report_progress(progress, settings.repeats + FIGURES)
    study = run_study(settings, one_more=one_more)
    return write_article(
        folder,
        settings=settings,
        charts=charts(study),
        tables=tables(study),
        results=results(study),
        page=article(study),
        overwrite=overwrite,
        one_more=one_more,
    )


def case_title(key: str) -> str:
    """Name a case: which model, which policy."""
    return ": ".join(CASES[key])


def charts(study: Study) -> dict[str, Any]:
    """Return the figures by file name."""
    grouped = study.scores[
        study.scores["group"].isin(GROUPS) & study.scores["mechanism"].isin(DRAWN)
    ]
    everyone = study.bounds[study.bounds["group"] == EVERYONE]
    drawn: dict[str, Any] = {
        "scores": scores_chart(
            pd.DataFrame(
                {
                    "panel": grouped["case"].map(case_title),
                    "series": pd.Categorical(grouped["mechanism"], DRAWN),
                    "group": grouped["group"],
                    "value": grouped["brier"],
                    "se": grouped["brier_se"],
                }
            ).sort_values(["panel", "series"], key=_in_order),
            groups=GROUPS,
        ),
        "bounds": containment_chart(
            everyone.assign(panel=everyone["case"].map(case_title), kind=everyone["class"]),
            kinds=CLASSES,
        ),
    }
    least = LEAST * study.settings.repeats * study.settings.episodes
    for key in RELIABILITY:
        curves = study.reliability[
            (study.reliability["case"] == key) & (study.reliability["episodes"] >= least)
        ]
        drawn[f"reliability_{key}"] = reliability_chart(
            curves.assign(panel=curves["mechanism"], series=curves["outcome"]),
            title=f"Does it happen as often as predicted? {case_title(key)}",
            subtitle="Predicted probability in bins of 10%, those with under 0.1% of the patients "
            "left out; larger marks: more patients. Dashed: what a prediction that holds would "
            "give.",
        )
    return drawn


def tables(study: Study) -> dict[str, pd.DataFrame]:
    """Return what is written as CSV, by file name."""
    return {
        "cases": study.cases,
        "scores": study.scores,
        "bounds": study.bounds,
        "reliability": study.reliability,
    }


def results(study: Study) -> dict[str, Any]:
    """Return the numbers for machines: scores and bounds of all episodes, by case."""
    return {
        "cases": study.cases.set_index("case").to_dict("index"),
        "scores": {
            key: {row.pop("mechanism"): row for row in _rows(study.scores, key)} for key in CASES
        },
        "bounds": {key: _rows(study.bounds, key) for key in CASES},
        "findings": {key: finding(study, key) for key in CASES},
    }


def finding(study: Study, key: str) -> dict[str, Any]:
    """Say what the scores of a case come to: who is closest, who can be told from Gumbel-Max.

    Two mechanisms are told apart if the paired difference of their Brier scores is at least
    SMALLEST and more than `clear` standard errors.
    """
    beyond = clear(study.settings.repeats)
    scores = {name: study.score(key, name) for name in study.mechanisms(key)}
    brier = {name: float(row["brier"]) for name, row in scores.items()}
    told = {
        name: float(row["difference"])
        for name, row in scores.items()
        if abs(row["difference"]) >= SMALLEST
        and abs(row["difference"]) > beyond * row["difference_se"]
    }
    alone, own = (float(study.score(key, name)["brier"]) for name in (ALONE, OWN))
    best = min(brier, key=brier.__getitem__)
    return {
        "best": best,
        "best_brier": brier[best],
        "worst": max(brier, key=brier.__getitem__),
        "spread": max(brier.values()) - min(brier.values()),
        "closer": [name for name, gap in told.items() if gap < 0],
        "further": [name for name, gap in told.items() if gap > 0],
        "not_told_apart": [name for name in scores if name not in told and name != GUMBEL],
        "gumbel": brier[GUMBEL],
        "alone": alone,
        "own": own,
        "rate": float(study.score(key, RATE)["brier"]),
        "gained": {name: (alone - value) / (alone - own) for name, value in brier.items()}
        if alone > own
        else {},
    }


def bounds_finding(
    study: Study, key: str, kind: str, group: str = EVERYONE
) -> dict[str, Any] | None:
    """Say what the bounds of a class of mechanisms come to in a case; None: no such episodes."""
    mine = study.bounds[
        (study.bounds["case"] == key)
        & (study.bounds["class"] == kind)
        & (study.bounds["group"] == group)
    ]
    if mine.empty:
        return None
    outside = mine[~mine["inside"]]
    allowed, episodes = float(mine["allowed"].iloc[0]), int(mine["episodes"].iloc[0])
    return {
        "case": case_title(key),
        "class": kind,
        "width": float(mine["width"].mean()),
        "inside": int(mine["inside"].sum()),
        "outside": outside["outcome"].tolist(),
        "logs_inside": float(mine["logs_inside"].mean()),
        "allowed": allowed,
        "ruled_out": round((1 - allowed) * episodes),
        "episodes": episodes,
    }


def article(study: Study) -> str:
    """Return the article as one HTML page; its figures lie beside it."""
    hidden, true = (study.score(key, GUMBEL)["brier"] for key in ("learned-hidden", "true-learned"))
    content = {
        "cases": study.cases.to_dict("records"),
        "clear": clear(study.settings.repeats),
        "smallest": SMALLEST,
        "titles": {key: case_title(key) for key in CASES},
        "findings": {key: finding(study, key) for key in CASES},
        "scores": {key: _shown_scores(study, key) for key in CASES},
        "groups": GROUPS,
        "by_group": {key: _by_group(study, key) for key in CASES},
        "bounds": [bounds_finding(study, key, kind) for key in CASES for kind in CLASSES],
        "held": {key: bounds_finding(study, key, CLASSES[0]) for key in CASES},
        "held_by_group": {
            case_title(key): [bounds_finding(study, key, CLASSES[0], group) for group in GROUPS]
            for key in CASES
        },
        "stable": {key: bounds_finding(study, key, CLASSES[2]) for key in CASES},
        "model_effect": float(hidden - true),
        "gumbel": GUMBEL,
        "own": OWN,
        "alone": ALONE,
        "signs": GUMBEL + SIGNS,
        "signs_ends": GUMBEL + SIGNS + ENDS,
        "draws": OWN_DRAWS,
        "bounded": min(BOUNDED, study.settings.episodes),
        "outcomes": OUTCOMES,
        "reliability": RELIABILITY,
        "calibration": {key: _calibration(study, key) for key in RELIABILITY},
        "harder": sum(_gets_harder(study, key) for key in CASES),
    }
    return render_page("mechanisms.html", study.settings, content)


def _shown_scores(study: Study, key: str) -> list[dict[str, Any]]:
    """Rows of the main table: mechanisms, then references."""
    names = [*study.mechanisms(key), *REFERENCES]
    return [
        {"name": name, "reference": name in REFERENCES, **study.score(key, name).to_dict()}
        for name in names
    ]


def _calibration(study: Study, key: str) -> dict[str, Any]:
    """Least and largest calibration error of the mechanisms of a case."""
    errors = {
        name: float(study.score(key, name)["calibration_error"]) for name in study.mechanisms(key)
    }
    lowest, highest = (pick(errors, key=errors.__getitem__) for pick in (min, max))
    return {
        "low": errors[lowest],
        "lowest": lowest,
        "high": errors[highest],
        "highest": highest,
    }


def _gets_harder(study: Study, key: str) -> bool:
    """Whether Gumbel-Max scores worse where most decisions are changed than where few are."""
    mine = study.scores[(study.scores["case"] == key) & (study.scores["mechanism"] == GUMBEL)]
    value = mine.set_index("group")["brier"]
    changed = [value[group] for group in GROUPS[1:] if group in value]
    return len(changed) > 1 and bool(changed[-1] > changed[0])


def _by_group(study: Study, key: str) -> list[dict[str, Any]]:
    """Brier scores by mechanism (rows) and share of changed decisions (columns)."""
    mine = study.scores[study.scores["case"] == key]
    value = mine.pivot(index="mechanism", columns="group", values="brier")
    error = mine.pivot(index="mechanism", columns="group", values="brier_se")
    count = mine[mine["mechanism"] == GUMBEL].set_index("group")["episodes"]
    rows = [
        {
            "name": name,
            "cells": [
                None
                if group not in value.columns
                else (float(value.loc[name, group]), float(error.loc[name, group]))
                for group in GROUPS
            ],
        }
        for name in [*study.mechanisms(key), *REFERENCES]
    ]
    return [{"name": None, "cells": [int(count.get(group, 0)) for group in GROUPS]}, *rows]


def _rows(frame: pd.DataFrame, key: str) -> list[dict[str, Any]]:
    mine = frame[(frame["case"] == key) & (frame["group"] == EVERYONE)]
    return [dict(row) for row in mine.drop(columns=["case", "group"]).to_dict("records")]


def _in_order(column: pd.Series) -> pd.Series:
    """Sort panels as cases are listed, and series as they are drawn."""
    if column.name == "panel":
        order = {case_title(key): place for place, key in enumerate(CASES)}
        return column.map(order)
    return pd.Series(column.cat.codes, index=column.index)
