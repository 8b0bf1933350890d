"""Figures of the article."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from butfor.present.charts import errors_chart, pieces_chart
from butfor.studies.factors.effects import (
    FACTORS,
    PIECES,
    decompose,
    in_cell,
    mean_pieces,
    one_at_a_time,
    reference_cell,
)
from butfor.studies.factors.experiment import Experiment

FIGURES = 3
DRAWN = ("WIS", "WDR", "CF", "MB")
PANELS = {"hidden": "Glucose and diabetes hidden", "full": "Nothing hidden"}
JUDGED_FULL = "Judged on, nothing hidden"  # a panel that changes two factors


def charts(experiment: Experiment) -> dict[str, Any]:
    """Return the figures by file name."""
    settings, size = experiment.settings, experiment.settings.reference_episodes
    reference = reference_cell(settings)
    strong = {factor: level_name(reference[column]) for factor, column in FACTORS.items()}
    pieces = all_pieces(experiment)
    pieces["panel"] = pieces["state"].map(PANELS)
    by_size = pieces[pieces["prevalence"] == settings.reference_prevalence]
    by_prevalence = pieces[pieces["episodes"] == size]
    return {
        "factors": errors_chart(
            drawn_errors(experiment),
            reference={**strong, "Patients in the other log": level_name(size)},
            title="How does each factor change the error?",
            domain=(-1.5, 2.0),
        ),
        "pieces_size": pieces_chart(
            by_size.assign(level=by_size["episodes"].map(in_thousands)),
            title="What does a longer log cure?",
            subtitle=(
                "Pieces of the error of MB by thousands of patients in the log; ∞: in the limit. "
                "Diamond: the error."
            ),
        ),
        "pieces_prevalence": pieces_chart(
            by_prevalence.assign(level=by_prevalence["prevalence"].map(level_name)),
            title="What does diabetes have to do with it?",
            subtitle=(
                f"Pieces of the error of MB on logs of {size} patients by prevalence. Diamond: "
                "the error."
            ),
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


def in_thousands(episodes: float) -> str:
    """Write the size of a log in thousands."""
    return f"{episodes / 1000:g}" if np.isfinite(episodes) else "∞"
