"""The article: figures, tables, numbers for machines, and the content of its page."""

from __future__ import annotations

from typing import Any

import pandas as pd

from butfor.present.charts import containment_chart, reliability_chart, scores_chart
from butfor.studies.article import Study, plain
from butfor.studies.mechanisms.experiment import (
    ALONE,
    BOUNDED,
    CASES,
    CLASSES,
    ENDS,
    EVERYONE,
    GROUPS,
    GUMBEL,
    MECHANISMS,
    OWN,
    OWN_DRAWS,
    RATE,
    REFERENCES,
    SIGNS,
    Experiment,
    MechanismsSettings,
    run_experiment,
)
from butfor.studies.scoring import clear

SMALLEST = 0.001  # differences of Brier scores below this are ignored
DRAWN = (*MECHANISMS, ALONE, OWN)
LEAST = 0.001  # smallest share of the patients that a point must represent to be drawn
RELIABILITY = ("true-withheld", "learned-hidden")  # cases whose curves are drawn


def case_title(key: str) -> str:
    """Name a case: which model, which policy."""
    return ": ".join(CASES[key])


def charts(experiment: Experiment) -> dict[str, Any]:
    """Return the figures by file name."""
    scores, bounds, curves = experiment.scores, experiment.bounds, experiment.reliability
    grouped = scores[scores["group"].isin(GROUPS) & scores["mechanism"].isin(DRAWN)]
    everyone = bounds[bounds["group"] == EVERYONE]
    marks = grouped.rename(columns={"brier": "value", "brier_se": "se"}).assign(
        panel=pd.Categorical(grouped["case"].map(case_title), [case_title(key) for key in CASES]),
        series=pd.Categorical(grouped["mechanism"], DRAWN),
    )
    marks = marks.sort_values(["panel", "series"]).astype({"panel": object})
    drawn = {
        "scores": scores_chart(marks, groups=GROUPS),
        "bounds": containment_chart(
            everyone.assign(panel=everyone["case"].map(case_title), kind=everyone["class"]),
            kinds=CLASSES,
        ),
    }
    least = LEAST * experiment.settings.repeats * experiment.settings.episodes
    for key in RELIABILITY:
        shown = curves[(curves["case"] == key) & (curves["episodes"] >= least)]
        drawn[f"reliability_{key}"] = reliability_chart(
            shown.assign(panel=shown["mechanism"], series=shown["outcome"]),
            title=f"Does it happen as often as predicted? {case_title(key)}",
            subtitle="Predicted probability in bins of 10%, without those that hold under 0.1% of "
            "the patients; larger marks: more patients. Dashed: a calibrated prediction.",
        )
    return drawn


def tables(experiment: Experiment) -> dict[str, pd.DataFrame]:
    """Return the CSV files by name."""
    return {
        "cases": experiment.cases,
        "scores": experiment.scores,
        "bounds": experiment.bounds,
        "reliability": experiment.reliability,
    }


def results(experiment: Experiment) -> dict[str, Any]:
    """Return the numbers for machines: scores and bounds over all episodes, by case."""
    return {
        "cases": experiment.cases.set_index("case").to_dict("index"),
        "scores": {
            key: {row.pop("mechanism"): row for row in _overall(experiment.scores, key)}
            for key in CASES
        },
        "bounds": {key: _overall(experiment.bounds, key) for key in CASES},
        "findings": {key: finding(experiment, key) for key in CASES},
        "model_effect": model_effect(experiment),
    }


def finding(experiment: Experiment, key: str) -> dict[str, Any]:
    """Summarize the scores of a case: the closest mechanism, and which differ from Gumbel-Max.

    Two mechanisms differ if the paired difference of their Brier scores is at least SMALLEST and
    more than `clear` standard errors.
    """
    scores = {name: experiment.score(key, name) for name in experiment.mechanisms(key)}
    brier = {name: float(row["brier"]) for name, row in scores.items()}
    beyond = clear(experiment.settings.repeats)
    differ = {
        name: float(row["difference"])
        for name, row in scores.items()
        if abs(row["difference"]) >= max(SMALLEST, beyond * row["difference_se"])
    }
    alone, own, rate = (float(experiment.score(key, name)["brier"]) for name in (ALONE, OWN, RATE))
    best, worst = (pick(brier, key=brier.__getitem__) for pick in (min, max))
    return {
        "best": best,
        "best_brier": brier[best],
        "worst": worst,
        "spread": brier[worst] - brier[best],
        "closer": [name for name, gap in differ.items() if gap < 0],
        "further": [name for name, gap in differ.items() if gap > 0],
        "not_told_apart": [name for name in scores if name not in differ and name != GUMBEL],
        "gumbel": brier[GUMBEL],
        "alone": alone,
        "own": own,
        "rate": rate,
        "gained": {name: (alone - value) / (alone - own) for name, value in brier.items()}
        if alone > own
        else {},
    }


def bounds_finding(
    experiment: Experiment, key: str, kind: str, group: str = EVERYONE
) -> dict[str, Any] | None:
    """Summarize the bounds of a class of mechanisms in a case; None if the group is empty."""
    bounds = experiment.bounds
    mine = bounds[(bounds["case"] == key) & (bounds["class"] == kind) & (bounds["group"] == group)]
    if mine.empty:
        return None
    allowed, episodes = float(mine["allowed"].iloc[0]), int(mine["episodes"].iloc[0])
    return {
        "case": case_title(key),
        "class": kind,
        "width": float(mine["width"].mean()),
        "inside": int(mine["inside"].sum()),
        "outside": mine.loc[~mine["inside"], "outcome"].tolist(),
        "logs_inside": float(mine["logs_inside"].mean()),
        "allowed": allowed,
        "ruled_out": round((1 - allowed) * episodes),
        "episodes": episodes,
    }


def content(experiment: Experiment) -> dict[str, Any]:
    """Return what the page shows besides the results."""
    settings = experiment.settings
    return {
        "cases": experiment.cases.to_dict("records"),
        "smallest": SMALLEST,
        "titles": {key: case_title(key) for key in CASES},
        "scores": {key: _shown_scores(experiment, key) for key in CASES},
        "groups": GROUPS,
        "by_group": {key: _by_group(experiment, key) for key in CASES},
        "bounds": [bounds_finding(experiment, key, kind) for key in CASES for kind in CLASSES],
        "held": {key: bounds_finding(experiment, key, CLASSES[0]) for key in CASES},
        "held_by_group": {
            case_title(key): [bounds_finding(experiment, key, CLASSES[0], g) for g in GROUPS]
            for key in CASES
        },
        "stable": {key: bounds_finding(experiment, key, CLASSES[2]) for key in CASES},
        "gumbel": GUMBEL,
        "own": OWN,
        "alone": ALONE,
        "signs_ends": GUMBEL + SIGNS + ENDS,
        "draws": OWN_DRAWS,
        "bounded": min(BOUNDED, settings.episodes),
        "reliability": RELIABILITY,
        "calibration": {key: _calibration(experiment, key) for key in RELIABILITY},
        "harder": sum(_gets_harder(experiment, key) for key in CASES),
    }


def short(experiment: Experiment) -> list[str]:
    """Return what was asked, what was found, and the main caveat."""
    settings = experiment.settings
    right, learned = finding(experiment, "true-withheld"), finding(experiment, "learned-hidden")
    cost = model_effect(experiment)
    weight = "more than" if cost > learned["spread"] else "no more than"
    rival = ""
    if right["best"] != GUMBEL:
        rival = f" (plain Gumbel-Max: {plain(right['gumbel'])})"
        if right["best"] not in right["closer"]:
            rival = f"{rival[:-1]}, not told apart by {settings.repeats} logs)"
    return [
        "Which assumption about a patient's luck comes closest to what would truly have happened "
        "under another policy, which a simulator can tell by treating each of "
        f"{settings.repeats * settings.episodes:,} patients again with the same luck?",
        f"With the right model and vasopressors withheld, the closest is “{right['best']}” "
        f"with a Brier score of {plain(right['best_brier'])}{rival}, where 0 is best and 2 worst; "
        f"the model without the patient's course scores {plain(right['alone'])}.",
        f"With a learned model that lacks two variables, the scores of all mechanisms lie within "
        f"{plain(learned['spread'])} of each other, and the wrong model costs {plain(cost)}: "
        f"{weight} the choice of mechanism.",
        "This ranking holds for one simulator, whose own mechanism is one of many; no log of real "
        "patients can confirm it.",
    ]


def model_effect(experiment: Experiment) -> float:
    """Return what the learned model costs: its Brier score minus the true model's, Gumbel-Max."""
    hidden, true = (
        experiment.score(key, GUMBEL)["brier"] for key in ("learned-hidden", "true-learned")
    )
    return float(hidden - true)


def _shown_scores(experiment: Experiment, key: str) -> list[dict[str, Any]]:
    """Return the rows of the main table: mechanisms, then references."""
    return [
        {"name": name, "reference": name in REFERENCES, **experiment.score(key, name)}
        for name in [*experiment.mechanisms(key), *REFERENCES]
    ]


def _calibration(experiment: Experiment, key: str) -> dict[str, Any]:
    """Return the smallest and largest calibration error of the mechanisms of a case."""
    names = experiment.mechanisms(key)
    error = pd.Series({name: experiment.score(key, name)["calibration_error"] for name in names})
    ends = {"low": error.min(), "high": error.max()}
    return {**ends, "lowest": error.idxmin(), "highest": error.idxmax()}


def _gets_harder(experiment: Experiment, key: str) -> bool:
    """Return whether Gumbel-Max scores worse where most decisions change than where few do."""
    scores = experiment.scores
    mine = scores[(scores["case"] == key) & (scores["mechanism"] == GUMBEL)]
    value = mine.set_index("group")["brier"]
    changed = [value[group] for group in GROUPS[1:] if group in value]
    return len(changed) > 1 and bool(changed[-1] > changed[0])


def _by_group(experiment: Experiment, key: str) -> list[dict[str, Any]]:
    """Return Brier scores by mechanism (rows) and share of changed decisions (columns)."""
    mine = experiment.scores[experiment.scores["case"] == key].set_index(["mechanism", "group"])
    count = mine.loc[GUMBEL, "episodes"]
    rows: list[dict[str, Any]] = [
        {"name": None, "cells": [int(count.get(group, 0)) for group in GROUPS]}
    ]
    for name in [*experiment.mechanisms(key), *REFERENCES]:
        cells = [
            tuple(mine.loc[(name, group), ["brier", "brier_se"]]) if group in count else None
            for group in GROUPS
        ]
        rows.append({"name": name, "cells": cells})
    return rows


def _overall(frame: pd.DataFrame, key: str) -> list[dict[str, Any]]:
    """Return the rows of a case that cover all episodes."""
    mine = frame[(frame["case"] == key) & (frame["group"] == EVERYONE)]
    return mine.drop(columns=["case", "group"]).to_dict("records")


STUDY = Study(
    "studies/mechanisms",
    MechanismsSettings,
    run_experiment,
    charts,
    tables,
    results,
    content,
    short,
    figures=4,
)
