"""Errors of estimators by the level of a factor, one panel per factor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from butfor.present.charts import style
from butfor.present.charts.studies.panels import TOTAL, level_panels

# of the estimators, in their order
COLORS = (style.BLACK, style.VERMILLION, style.GREEN, style.BLUE)
SHAPES = ("square", "diamond", "triangle-up", "circle")


def errors_chart(
    errors: pd.DataFrame,
    *,
    reference: Mapping[str, str] | None = None,
    title: str = "What moves the error of each estimate?",
    subtitle: str | None = None,
    axis_title: str = "Estimate less true value",
    domain: style.Domain | None = None,
) -> alt.ConcatChart:
    """Draw the mean error of up to four estimators at each level of each factor.

    Parameters
    ----------
    errors
        One row per log: `factor, level, estimator, error`, in the order to be drawn. Missing errors
        are left out. Small dots: logs; marks: means; bars: mean ± 2 standard errors.
    reference
        The level of each factor that the other panels use, written in bold.
    domain
        Ends of the scale; marks beyond them are drawn at its edge.
    """
    style.require_columns(errors, ("factor", "level", "estimator", "error"), "errors")
    names = style.distinct(errors["estimator"])
    start = len(COLORS) - len(names) if len(names) < len(COLORS) else 0
    look = style.series_look("name", names, COLORS[start:], SHAPES[start:])
    known = errors[np.isfinite(errors["error"])]
    ends = domain or style.value_domain(known["error"].to_numpy(dtype=np.float64), (0.0, 1e-9))
    if subtitle is None:
        subtitle = (
            "Means over logs, ± 2 standard errors; small dots: the logs. Bold: the level that the "
            "other panels use."
        )

    def marks(mine: pd.DataFrame, x: Any, y: Any) -> list[alt.Chart]:
        offset = alt.XOffset("name:N", scale=alt.Scale(domain=names, paddingOuter=0.6))
        place = {"x": x, "xOffset": offset, "color": look["color"]}
        shown = mine[np.isfinite(mine["error"])]
        dots = [
            {"name": str(row.estimator), "level": str(row.level), "error": row.error}
            for row in shown.itertuples()
        ]
        groups = shown.groupby(["level", "estimator"], sort=False)["error"]
        means = [_mean(str(level), str(name), values) for (level, name), values in groups]
        mean = alt.Chart(style.data(means)).encode(**place, tooltip=["name:N", "number:N"])
        mark = mean.mark_point(filled=True, size=90, opacity=1, stroke="white", strokeWidth=1)
        dot = alt.Chart(style.data(dots)).mark_circle(size=14, opacity=0.35)
        return [
            dot.encode(**place, y=y("error")),
            mean.mark_rule(strokeWidth=3).encode(y=y("low"), y2="high:Q"),
            mark.encode(y=y("mean"), shape=look["shape"]),
        ]

    panels = level_panels(
        errors,
        "factor",
        marks,
        height=170,
        axis_title=axis_title,
        domain=ends,
        bold=reference or {},
    )
    return style.finish(panels, title, subtitle, total=TOTAL)


def _mean(level: str, name: str, errors: pd.Series) -> style.Row:
    """Return the mean with the ends of its bar, and both in words."""
    mean = float(errors.mean())
    margin = 2 * float(errors.std(ddof=1)) / len(errors) ** 0.5 if len(errors) > 1 else 0.0
    logs = f"{len(errors)} log{'s' * (len(errors) != 1)}"
    return {
        "name": name,
        "level": level,
        "mean": mean,
        "low": mean - margin,
        "high": mean + margin,
        "number": f"{style.signed(mean, 3)} ± {margin / 2:.3f} ({logs})",
    }
