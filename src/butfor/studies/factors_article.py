"""The factorial experiment as an article: figures, tables, numbers, one page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from butfor.audit.folders import check_free
from butfor.present.charts import errors_chart, pieces_chart
from butfor.studies.article import MARKER, render_page, report_progress, write_article
from butfor.studies.factors import (
    FACTORS,
    HALF,
    JUDGED,
    NAMES,
    OTHER,
    PATIENTS,
    PIECES,
    SAME,
    Experiment,
    Settings,
    changes,
    decompose,
    in_cell,
    main_effects,
    mean_pieces,
    one_at_a_time,
    reference_cell,
    run_experiment,
    summarize,
)
from butfor.studies.scoring import clear
from butfor.types import Progress

FIGURES = 3
MEAN = ["mean", "se", "logs"]
DRAWN = ("WIS", "WDR", "CF", "MB")
PANELS = {"hidden": "Glucose and diabetes hidden", "full": "Nothing hidden"}
JUDGED_FULL = "Judged on, nothing hidden"  # a panel: state and place of judgement together


def write_study(
    settings: Settings,
    folder: str | Path,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Run the experiment and write its article: index.html, results.json, CSV and figures."""
    check_free(folder, marker=MARKER, overwrite=overwrite)
    one_more = report_progress(progress, settings.steps + FIGURES)
    experiment = run_experiment(settings, one_more=one_more)
    return write_article(
        folder,
        settings=settings,
        charts=charts(experiment),
        tables=tables(experiment),
        results=results(experiment),
        page=article(experiment),
        overwrite=overwrite,
        one_more=one_more,
    )


def charts(experiment: Experiment) -> dict[str, Any]:
    """Return the figures by file name."""
    settings, size = experiment.settings, experiment.settings.reference_episodes
    reference = reference_cell(settings)
    strong = {factor: level_name(reference[column]) for factor, column in FACTORS.items()}
    pieces = all_pieces(experiment)
    by_size = pieces[pieces["prevalence"] == settings.reference_prevalence]
    by_prevalence = pieces[pieces["episodes"] == size]
    return {
        "factors": errors_chart(
            drawn_errors(experiment),
            reference={**strong, "Patients in the other log": level_name(size)},
            title="Which factor does what to the error?",
            domain=(-1.5, 2.0),
        ),
        "pieces_size": pieces_chart(
            by_size.assign(
                panel=by_size["state"].map(PANELS),
                level=by_size["episodes"].map(in_thousands),
            ),
            title="What does a longer log cure?",
            subtitle=(
                "Pieces of the error of MB by thousands of patients in the log; ∞: without end. "
                "Diamond: the error."
            ),
        ),
        "pieces_prevalence": pieces_chart(
            by_prevalence.assign(
                panel=by_prevalence["state"].map(PANELS),
                level=by_prevalence["prevalence"].map(level_name),
            ),
            title="What does diabetes have to do with it?",
            subtitle=(
                f"Pieces of the error of MB on logs of {size} patients by prevalence. Diamond: "
                "the error."
            ),
        ),
    }


def drawn_errors(experiment: Experiment) -> pd.DataFrame:
    """Errors to be drawn: factor, level, estimator, error."""
    frames = []
    cells = one_at_a_time(experiment.settings)
    shown = [(factor, FACTORS[factor], cell) for factor in cells for cell in cells[factor]]
    shown += [(JUDGED_FULL, "judged", {**cell, "state": "full"}) for cell in cells["Judged on"]]
    for factor, column, cell in shown:
        rows = in_cell(experiment.estimates, cell)
        rows = rows[rows["estimator"].isin(DRAWN)]
        frames.append(rows.assign(factor=factor, level=level_name(cell[column])))
    drawn = pd.concat(frames)[["factor", "level", "estimator", "error"]]
    return drawn.sort_values("estimator", key=lambda names: names.map(DRAWN.index), kind="stable")


def all_pieces(experiment: Experiment) -> pd.DataFrame:
    """Mean pieces of every cell, log without end included: state, episodes, prevalence, piece."""
    table = mean_pieces(decompose(experiment.estimates)).rename(columns={"mean": "value"})
    endless = [
        {"state": row.state, "episodes": np.inf, "prevalence": row.prevalence}
        | {
            "piece": piece,
            "value": row.error if piece == "confounding" else 0.0,
            "se": 0.0,
            "logs": 0,
        }
        for row in experiment.endless.itertuples()
        for piece in PIECES
    ]
    both = pd.concat([table[table["piece"].isin(PIECES)], pd.DataFrame(endless)])
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


def in_thousands(episodes: float) -> str:
    """Write the size of a log in thousands."""
    return f"{episodes / 1000:g}" if np.isfinite(episodes) else "∞"


def tables(experiment: Experiment) -> dict[str, pd.DataFrame]:
    """Return what is written as CSV, by file name."""
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
        "decomposition": {
            state: _pieces_at(experiment, state, experiment.settings.reference_episodes)
            for state in PANELS
        },
        "changes": changes(experiment, DRAWN).to_dict("records"),
        "main_effects": main_effects(experiment, DRAWN).to_dict("records"),
        "endless": experiment.endless.to_dict("records"),
        "cells": summarize(experiment.estimates).to_dict("records"),
    }


def _reference(experiment: Experiment) -> dict[str, Any]:
    """The reference cell judged in three ways: by place, by estimator."""
    settings = experiment.settings
    found: dict[str, Any] = {}
    for cell in one_at_a_time(settings)["Judged on"]:
        rows = summarize(in_cell(experiment.estimates, cell)).set_index("estimator")
        columns = ["value", "true", "error", "se", "logs", "undefined"]
        found[str(cell["judged"])] = rows[columns].to_dict("index")
    return found


def _pieces_at(
    experiment: Experiment, state: str, episodes: float, prevalence: float | None = None
) -> dict[str, dict[str, float]]:
    """Mean and standard error of each piece, and of their sum, in one cell."""
    usual = experiment.settings.reference_prevalence
    level = usual if prevalence is None else prevalence
    table = mean_pieces(decompose(experiment.estimates))
    rows = in_cell(table, {"state": state, "episodes": episodes, "prevalence": level})
    return {str(row.pop("piece")): row for row in rows[["piece", *MEAN]].to_dict("records")}


def article(experiment: Experiment) -> str:
    """Return the article as one HTML page; its figures lie beside it."""
    settings, pieces = experiment.settings, all_pieces(experiment)
    usual, size = settings.reference_prevalence, settings.reference_episodes
    sizes = pieces[pieces["prevalence"] == usual]
    reference = _reference(experiment)
    made_of = {state: _pieces_at(experiment, state, size) for state in PANELS}
    content = {
        "reference": reference,
        "names": NAMES,
        "judged": JUDGED,
        "made_of": made_of,
        "cancels": _cancels(reference[OTHER]["MB"], made_of["hidden"]),
        "same": SAME,
        "half": HALF,
        "other": OTHER,
        "drawn": DRAWN,
        "pieces": PIECES,
        "panels": PANELS,
        "patients": PATIENTS,
        "changes": _by_level(changes(experiment, DRAWN).rename(columns={"change": "mean"})),
        "effects": _by_level(_two_names(main_effects(experiment, ("MB", "WIS")))),
        "longest": (settings.long or settings.episodes)[-1],
        "trend": {state: _trends(sizes[sizes["state"] == state]) for state in PANELS},
        "by_prevalence": _by_prevalence(experiment),
        "endless": experiment.endless.to_dict("records"),
        "held_out": _held_out(experiment),
        "truth": _truth(experiment),
        "largest": max(PIECES, key=lambda piece: abs(made_of["hidden"][piece]["mean"])),
        "other_full": _other_full(experiment),
        "clear": clear(settings.repeats),
        "still_wrong": _beyond_chance(made_of["full"]["error"]) > 0,
    }
    return render_page("factors.html", settings, content)


def _cancels(other: dict[str, float], pieces: dict[str, dict[str, float]]) -> bool:
    """Whether judging on other patients looks right only because two errors cancel."""
    up, down = pieces["confounding"], pieces["thin support"]
    looks_right = abs(other["error"]) < clear(int(other["logs"])) * other["se"]
    return looks_right and _beyond_chance(up) > 0 and _beyond_chance(down) < 0


def _beyond_chance(cell: Mapping[str, float]) -> int:
    """Sign of a mean over logs, 0 if it may be chance."""
    beyond = abs(cell["mean"]) > clear(int(cell["logs"])) * cell["se"]
    return int(np.sign(cell["mean"])) if beyond else 0


def _two_names(effects: pd.DataFrame) -> pd.DataFrame:
    """Write the place of judgement into the estimator's name."""
    names = effects["estimator"] + ", " + effects["judged"]
    return effects.drop(columns="judged").assign(estimator=names)


def _by_level(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows for the page: factor, level, and by estimator the number and whether it is clear."""
    rows = []
    for (factor, level), group in table.groupby(["factor", "level"], sort=False):
        cells = {
            row["estimator"]: {
                "mean": row["mean"],
                "se": row["se"],
                "beyond_chance": _beyond_chance(row) != 0,
            }
            for row in group.to_dict("records")
        }
        rows.append({"factor": factor, "level": level_name(level), "cells": cells})
    return rows


def _trends(pieces: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """How each piece moves from the shortest log to the longest simulated one."""
    found = {}
    simulated = pieces[np.isfinite(pieces["episodes"])]
    for piece, group in simulated.groupby("piece", sort=False):
        first, last = group.iloc[0], group.iloc[-1]
        gap, se = abs(last["value"]) - abs(first["value"]), np.hypot(first["se"], last["se"])
        word = "does not clearly change"
        logs = min(first["logs"], last["logs"])
        if _beyond_chance({"mean": gap, "se": se, "logs": logs}):
            word = "shrinks" if gap < 0 else "grows"
        found[str(piece)] = {"first": first["value"], "last": last["value"], "word": word}
    return found


def _by_prevalence(experiment: Experiment) -> list[dict[str, Any]]:
    """Confounding of the policies of the reference size and of a log without end, hidden state."""
    rows = []
    for row in in_cell(experiment.endless, {"state": "hidden"}).to_dict("records"):
        size, level = experiment.settings.reference_episodes, row["prevalence"]
        pieces = _pieces_at(experiment, "hidden", size, level)
        rows.append({**row, "confounding": pieces["confounding"]})
    return rows


def _other_full(experiment: Experiment) -> dict[str, Any]:
    """MB of policies learned with nothing hidden, judged on another log of the same size."""
    cell = {**one_at_a_time(experiment.settings)["Judged on"][-1], "state": "full"}
    table = summarize(in_cell(experiment.estimates, cell)).set_index("estimator")
    return dict(table.loc["MB"])


def _held_out(experiment: Experiment) -> list[dict[str, Any]]:
    """Errors on other logs of each size, reference policy."""
    rows = []
    for cell in one_at_a_time(experiment.settings)["Patients in the other log"]:
        table = summarize(in_cell(experiment.estimates, cell)).set_index("estimator")
        rows.append({"level": level_name(cell["held_out"]), "cells": table.to_dict("index")})
    return rows


def _truth(experiment: Experiment) -> list[dict[str, Any]]:
    """What the learned policies are worth in truth, and the physician, by size of the log."""
    settings = experiment.settings
    rows = []
    for size in (*settings.episodes, *settings.long):
        row: dict[str, Any] = {"level": level_name(size)}
        for state in PANELS:
            cell = {"state": state, "episodes": size}
            cell |= {"prevalence": settings.reference_prevalence, "judged": SAME}
            mine = in_cell(experiment.estimates, {**cell, "estimator": "MB"})
            row[state] = {"mb": mine["value"].mean(), "true": mine["true"].mean()}
        rows.append(row)
    return rows
