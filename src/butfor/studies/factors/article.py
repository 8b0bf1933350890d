"""The article: figures, tables, numbers for machines, and the content of its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from butfor.present.charts import errors_chart, pieces_chart
from butfor.present.text import FULL_NAMES
from butfor.studies.article import Study, signed, spelled, with_error
from butfor.studies.factors.experiment import (
    CELL,
    HALF,
    JUDGED,
    NAMES,
    OTHER,
    PATIENTS,
    SAME,
    STATES,
    Experiment,
    FactorsSettings,
    Row,
    run_experiment,
)
from butfor.studies.scoring import clear

DRAWN = ("WIS", "WDR", "CF", "MB")
PANELS = {"hidden": "Glucose and diabetes hidden", "full": "Nothing hidden"}
JUDGED_FULL = "Judged on, nothing hidden"  # a panel that changes two factors
ABBREVIATIONS = "; ".join(f"{name}: {FULL_NAMES[name]}" for name in DRAWN) + "."
Summary = dict[str, dict[str, Any]]  # numbers by estimator or piece
PIECES = ("selection", "thin support", "confounding")
MEAN = ["mean", "se", "logs"]
LOG = ["state", "episodes", "prevalence", "repeat"]
# factors that are changed one at a time, and the column of each
FACTORS = {
    "State in the log": "state",
    "Patients in the log": "episodes",
    "Prevalence of diabetes": "prevalence",
    "Judged on": "judged",
    "Patients in the other log": "held_out",
}


def charts(experiment: Experiment) -> dict[str, Any]:
    """Return the figures by file name."""
    settings, size = experiment.settings, experiment.settings.reference_episodes
    reference = reference_cell(settings)
    strong = {factor: level_name(reference[column]) for factor, column in FACTORS.items()}
    pieces = all_pieces(experiment)
    pieces["panel"] = pieces["state"].map(PANELS)
    by_size = pieces[pieces["prevalence"] == settings.reference_prevalence]
    thousands = by_size["episodes"].map(lambda patients: f"{patients / 1000:g}")
    by_prevalence = pieces[pieces["episodes"] == size]
    return {
        "factors": errors_chart(
            drawn_errors(experiment),
            reference={**strong, "Patients in the other log": level_name(size)},
            title="How does each factor change the error?",
            subtitle="Means over logs ± 2 standard errors; small dots: the logs. Bold: the level "
            f"that the other panels use. {ABBREVIATIONS}",
            domain=(-1.5, 2.0),
        ),
        "pieces_size": pieces_chart(
            by_size.assign(level=thousands.replace("inf", "∞")),
            title="What does a longer log cure?",
            subtitle=f"Pieces of the error of {spelled('MB')} by thousands of patients in the log; "
            "∞: in the limit. Diamond: the error.",
        ),
        "pieces_prevalence": pieces_chart(
            by_prevalence.assign(level=by_prevalence["prevalence"].map(level_name)),
            title="What does diabetes have to do with it?",
            subtitle=f"Pieces of the error of {spelled('MB')} on logs of {size:,} patients by "
            "prevalence. Diamond: the error.",
        ),
    }


def drawn_errors(experiment: Experiment) -> pd.DataFrame:
    """Return the errors to draw: factor, level, estimator, error."""
    cells = one_at_a_time(experiment.settings)
    shown = [(factor, FACTORS[factor], cell) for factor in cells for cell in cells[factor]]
    shown += [(JUDGED_FULL, "judged", {**cell, "state": "full"}) for cell in cells["Judged on"]]
    drawn = pd.concat(
        in_cell(experiment.estimates, cell).assign(factor=factor, level=level_name(cell[column]))
        for factor, column, cell in shown
    )
    drawn = drawn.loc[drawn["estimator"].isin(DRAWN), ["factor", "level", "estimator", "error"]]
    return drawn.sort_values("estimator", key=lambda names: names.map(DRAWN.index), kind="stable")


def all_pieces(experiment: Experiment) -> pd.DataFrame:
    """Return the mean pieces of every cell, including the limit of an infinitely long log."""
    table = mean_pieces(decompose(experiment.estimates)).rename(columns={"mean": "value"})
    # in the limit only confounding is left
    limit = experiment.endless.merge(pd.Series(PIECES, name="piece"), how="cross")
    value = limit["error"].where(limit["piece"] == "confounding", 0.0)
    limit = limit.assign(episodes=np.inf, value=value, se=0.0, logs=0)
    both = pd.concat([table[table["piece"].isin(PIECES)], limit[table.columns]])
    order = {"state": list(PANELS), "piece": list(PIECES)}
    return both.sort_values(
        ["state", "prevalence", "episodes", "piece"],
        key=lambda column: column.map(order[column.name].index) if column.name in order else column,
    ).reset_index(drop=True)


def level_name(level: Any) -> str:
    """Write a level as figures and tables show it."""
    if isinstance(level, str):
        return level
    return f"{level:,.0f}" if level > 1 else f"{level:.0%}"


def tables(experiment: Experiment) -> dict[str, pd.DataFrame]:
    """Return the CSV files by name."""
    return {
        "cells": summarize(experiment.estimates),
        "logs": experiment.estimates,
        "pieces": mean_pieces(decompose(experiment.estimates)),
        "endless": experiment.endless,
        "changes": changes(experiment, NAMES),
        "main_effects": main_effects(experiment, NAMES),
    }


def results(experiment: Experiment) -> dict[str, Any]:
    """Return the numbers for machines."""
    return {
        "reference": _reference(experiment),
        "decomposition": {state: _pieces(experiment, state) for state in PANELS},
        "changes": changes(experiment, DRAWN).to_dict("records"),
        "main_effects": main_effects(experiment, DRAWN).to_dict("records"),
        "endless": experiment.endless.to_dict("records"),
        "cells": summarize(experiment.estimates).to_dict("records"),
    }


def content(experiment: Experiment) -> dict[str, Any]:
    """Return what the page shows besides the results."""
    settings, pieces = experiment.settings, all_pieces(experiment)
    by_size = pieces[pieces["prevalence"] == settings.reference_prevalence]
    reference = _reference(experiment)
    made_of = {state: _pieces(experiment, state) for state in PANELS}
    effects = main_effects(experiment, ("MB", "WIS"))
    names = effects["estimator"] + ", " + effects["judged"]
    other_full = {**one_at_a_time(settings)["Judged on"][-1], "state": "full"}
    return {
        "names": NAMES,
        "judged": JUDGED,
        "cancels": _cancels(reference[OTHER]["MB"], made_of["hidden"]),
        "same": SAME,
        "half": HALF,
        "other": OTHER,
        "drawn": DRAWN,
        "pieces": PIECES,
        "panels": PANELS,
        "patients": PATIENTS,
        "changes": _by_level(changes(experiment, DRAWN).rename(columns={"change": "mean"})),
        "effects": _by_level(effects.assign(estimator=names)),
        "longest": (settings.long or settings.episodes)[-1],
        "trend": {state: _trends(by_size[by_size["state"] == state]) for state in PANELS},
        "by_prevalence": [
            {**row, "confounding": _pieces(experiment, "hidden", row["prevalence"])["confounding"]}
            for row in in_cell(experiment.endless, {"state": "hidden"}).to_dict("records")
        ],
        "held_out": [
            {"level": level_name(cell["held_out"]), "cells": _summary(experiment, cell)}
            for cell in one_at_a_time(settings)["Patients in the other log"]
        ],
        "truth": _truth(experiment),
        "largest": max(PIECES, key=lambda piece: abs(made_of["hidden"][piece]["mean"])),
        "other_full": _summary(experiment, other_full)["MB"],
        "still_wrong": _beyond_chance(made_of["full"]["error"]) > 0,
    }


def short(experiment: Experiment) -> list[str]:
    """Return what was asked, what was found, and the main caveat."""
    settings = experiment.settings
    hidden, full = (_pieces(experiment, state) for state in PANELS)
    reference = {"state": "hidden", "prevalence": settings.reference_prevalence}
    limit = float(in_cell(experiment.endless, reference)["error"].iloc[0])

    def mean(cell: Mapping[str, Any]) -> str:
        return with_error(cell["mean"], cell["se"])

    return [
        "A policy can look far better than it is: how much of that comes from hidden variables, "
        "from few patients, and from judging the policy on the log that taught it?",
        f"With two variables hidden and {level_name(settings.reference_episodes)} patients, the "
        f"value of the policy in the learned model is off by {mean(hidden['error'])}: "
        f"{mean(hidden['selection'])} from choosing it on the same log, "
        f"{mean(hidden['thin support'])} from thin support, and {mean(hidden['confounding'])} "
        "from what is hidden.",
        f"With nothing hidden the error is {mean(full['error'])}; in the limit of an infinitely "
        f"long log it is 0, and with the two variables hidden {signed(limit)}.",
        f"These are means ± one standard error over {settings.repeats} pairs of logs from one "
        "simulator; in another world the pieces may differ in size.",
    ]


def _summary(experiment: Experiment, cell: Row) -> Summary:
    """Return the numbers of one cell by estimator."""
    columns = ["value", "true", "error", "se", "logs", "undefined"]
    table = summarize(in_cell(experiment.estimates, cell)).set_index("estimator")
    return table[columns].to_dict("index")


def _reference(experiment: Experiment) -> dict[str, Summary]:
    """Return the reference cell by place of judgment."""
    cells = one_at_a_time(experiment.settings)["Judged on"]
    return {str(cell["judged"]): _summary(experiment, cell) for cell in cells}


def _pieces(experiment: Experiment, state: str, prevalence: float | None = None) -> Summary:
    """Return the mean and standard error of each piece, and of the error, at the reference size."""
    settings = experiment.settings
    level = settings.reference_prevalence if prevalence is None else prevalence
    cell = {"state": state, "episodes": settings.reference_episodes, "prevalence": level}
    rows = in_cell(mean_pieces(decompose(experiment.estimates)), cell)
    return rows.set_index("piece")[MEAN].to_dict("index")


def _cancels(other: Mapping[str, Any], pieces: Summary) -> bool:
    """Return whether judging on other patients looks right only because two errors cancel."""
    looks_right = abs(other["error"]) < clear(int(other["logs"])) * other["se"]
    up, down = pieces["confounding"], pieces["thin support"]
    return looks_right and _beyond_chance(up) > 0 and _beyond_chance(down) < 0


def _beyond_chance(cell: Mapping[str, Any]) -> int:
    """Return the sign of a mean over logs, 0 if it may be due to chance."""
    beyond = abs(cell["mean"]) > clear(int(cell["logs"])) * cell["se"]
    return int(np.sign(cell["mean"])) if beyond else 0


def _by_level(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return one row per factor and level, with the number of each estimator."""
    rows = []
    for (factor, level), group in table.groupby(["factor", "level"], sort=False):
        cells = group.set_index("estimator")[MEAN].to_dict("index")
        for cell in cells.values():
            cell["beyond_chance"] = _beyond_chance(cell) != 0
        rows.append({"factor": factor, "level": level_name(level), "cells": cells})
    return rows


def _trends(pieces: pd.DataFrame) -> Summary:
    """Return how each piece changes from the shortest log to the longest simulated one."""
    found = {}
    simulated = pieces[np.isfinite(pieces["episodes"])]
    for piece, group in simulated.groupby("piece", sort=False):
        first, last = group.iloc[0], group.iloc[-1]
        gap, se = abs(last["value"]) - abs(first["value"]), np.hypot(first["se"], last["se"])
        change = _beyond_chance({"mean": gap, "se": se, "logs": min(first["logs"], last["logs"])})
        word = {-1: "shrinks", 0: "does not clearly change", 1: "grows"}[change]
        found[str(piece)] = {"first": first["value"], "last": last["value"], "word": word}
    return found


def _truth(experiment: Experiment) -> list[dict[str, Any]]:
    """Return what the learned policies are worth, by MB and in truth, by size of the log."""
    settings = experiment.settings
    cell = {"judged": SAME, "estimator": "MB", "prevalence": settings.reference_prevalence}
    groups = in_cell(experiment.estimates, cell).groupby(["episodes", "state"])
    means = groups[["value", "true"]].mean().to_dict("index")
    return [
        {"level": level_name(size), **{state: means[size, state] for state in PANELS}}
        for size in (*settings.episodes, *settings.long)
    ]


def summarize(estimates: pd.DataFrame) -> pd.DataFrame:
    """Return the mean and standard error over repeats of each cell and estimator.

    Undefined estimates are left out and counted.
    """
    groups = estimates.groupby([*CELL, "estimator"], sort=False)
    table = groups[["value", "true", "error"]].mean()
    table["logs"] = groups["error"].count()
    table["undefined"] = groups["error"].size() - table["logs"]
    table["se"] = groups["error"].sem()
    return table.reset_index()


def decompose(estimates: pd.DataFrame) -> pd.DataFrame:
    """Split the error of MB on the log that taught the policy into three pieces, one row per log.

    Selection is MB on that log minus MB on another log of the same size: the policy was chosen for
    that log's luck. Thin support is MB on the other log minus the value in the model of an
    infinitely long log: what few episodes do to a model even without selection, mainly through
    pairs never seen, which count as death. Confounding is that value minus the true one: what is
    hidden, which stays wrong however long the log. The pieces add up to the error.
    """
    model_based = estimates[estimates["estimator"] == "MB"]
    same = model_based[model_based["judged"] == SAME].set_index(LOG)
    other = model_based[
        (model_based["judged"] == OTHER) & (model_based["held_out"] == model_based["episodes"])
    ].set_index(LOG)
    held_out = other["value"].reindex(same.index)
    pieces = pd.DataFrame(
        {
            "selection": same["value"] - held_out,
            "thin support": held_out - same["endless"],
            "confounding": same["endless"] - same["true"],
            "error": same["error"],
        }
    )
    return pieces.reset_index()


def mean_pieces(pieces: pd.DataFrame) -> pd.DataFrame:
    """Return the mean and standard error over repeats of each piece of each cell."""
    long = pieces.melt(id_vars=LOG, var_name="piece")
    groups = long.groupby([*LOG[:-1], "piece"], sort=False)["value"]
    return groups.agg(mean="mean", se="sem", logs="count").reset_index()


def reference_cell(settings: FactorsSettings) -> Row:
    """Return the paper's setting: hidden state, judged on the log that taught the policy."""
    return {
        "state": "hidden",
        "episodes": settings.reference_episodes,
        "prevalence": settings.reference_prevalence,
        "judged": SAME,
        "held_out": 0,
    }


def one_at_a_time(settings: FactorsSettings) -> dict[str, list[Row]]:
    """Return, by factor, the cells that differ from the reference in that factor, and itself."""
    reference, size = reference_cell(settings), settings.reference_episodes
    other = {**reference, "judged": OTHER}
    return {
        "State in the log": [{**reference, "state": state} for state in STATES],
        "Patients in the log": [{**reference, "episodes": n} for n in settings.episodes],
        "Prevalence of diabetes": [{**reference, "prevalence": p} for p in settings.prevalences],
        "Judged on": [reference, {**reference, "judged": HALF}, {**other, "held_out": size}],
        "Patients in the other log": [{**other, "held_out": n} for n in settings.episodes],
    }


def in_cell(estimates: pd.DataFrame, cell: Row) -> pd.DataFrame:
    """Return the rows of one cell."""
    return estimates[np.all([estimates[name] == level for name, level in cell.items()], axis=0)]


def changes(experiment: Experiment, names: Sequence[str]) -> pd.DataFrame:
    """Return how each estimator's error changes when one factor leaves its reference level.

    Mean and standard error of the differences log by log; both cells have the same patients.
    """
    settings, frames = experiment.settings, []
    for factor, cells in one_at_a_time(settings).items():
        start = reference_cell(settings)
        if start not in cells:
            start = {**cells[0], "held_out": settings.reference_episodes}
        before = _errors_by_repeat(experiment.estimates, start)
        for cell in cells:
            if cell != start:
                gap = (_errors_by_repeat(experiment.estimates, cell) - before)[list(names)]
                columns = {"change": gap.mean(), "se": gap.sem(), "logs": gap.count()}
                place = {"factor": factor, "level": cell[FACTORS[factor]], "estimator": names}
                frames.append(pd.DataFrame(place | columns))
    return pd.concat(frames, ignore_index=True)


def _errors_by_repeat(estimates: pd.DataFrame, cell: Row) -> pd.DataFrame:
    """Return the errors in one cell: one row per repeat, one column per estimator."""
    return in_cell(estimates, cell).pivot(index="repeat", columns="estimator", values="error")


def main_effects(experiment: Experiment, names: Sequence[str]) -> pd.DataFrame:
    """Return the mean error at each level of a factor over all levels of two others.

    By place of judgment; the other log is as long as the first. Undefined errors are left out. The
    standard error is over repeats of the mean over cells, which share their patients.
    """
    settings, table = experiment.settings, experiment.estimates
    crossed = table["episodes"].isin(settings.episodes) & table["estimator"].isin(names)
    crossed &= (table["held_out"] == 0) | (table["held_out"] == table["episodes"])
    frames = []
    for factor in ("State in the log", "Patients in the log", "Prevalence of diabetes"):
        by = [FACTORS[factor], "judged", "estimator"]
        means = table[crossed].groupby(["repeat", *by], sort=False)["error"].mean()
        effect = means.groupby(level=by, sort=False).agg(mean="mean", se="sem", logs="count")
        effect = effect.reset_index().rename(columns={FACTORS[factor]: "level"})
        effect.insert(0, "factor", factor)
        frames.append(effect.astype({"level": object}))
    return pd.concat(frames, ignore_index=True)


STUDY = Study(
    "studies/factors",
    FactorsSettings,
    run_experiment,
    charts,
    tables,
    results,
    content,
    short,
    figures=3,
)
