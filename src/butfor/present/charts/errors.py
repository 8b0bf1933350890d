"""Errors of estimators by the level of a factor, a panel a factor."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import numpy as np
import pandas as pd

from butfor.present.charts.level_panels import TOTAL, Panel, inner_width, lay_out, panel_layers
from butfor.present.charts.rows import Domain, value_domain
from butfor.present.charts.style import (
    BLACK,
    BLUE,
    GREEN,
    VERMILLION,
    Row,
    data,
    finish,
    pixels,
    require_columns,
)

COLORS = [BLACK, VERMILLION, GREEN, BLUE]  # of the estimators, in their order
SHAPES = ["square", "diamond", "triangle-up", "circle"]
SPREAD = 0.62  # share of a level's room over which its estimators stand side by side


def errors_chart(
    errors: pd.DataFrame,
    *,
    reference: Mapping[str, str] | None = None,
    title: str = "What moves the error of each estimate?",
    subtitle: str | None = None,
    axis_title: str = "Estimate less true value",
    domain: Domain | None = None,
) -> alt.LayerChart:
    """Draw the mean error of up to four estimators at each level of each factor.

    Parameters
    ----------
    errors
        A row a log: `factor, level, estimator, error`, in the order to be drawn. Missing errors
        are left out. Small dots: logs; marks: means; bars: mean ± 2 standard errors.
    reference
        The level of each factor at which the other panels stand, written bold.
    domain
        Ends of the scale; dots beyond them lie on its edge.
    """
    require_columns(errors, ("factor", "level", "estimator", "error"), "errors")
    names = [str(name) for name in errors["estimator"].unique()]
    if len(names) > len(COLORS):
        raise ValueError(f"{len(names)} estimators, {len(COLORS)} at most: {', '.join(names)}")
    known = errors[np.isfinite(errors["error"])]
    ends = domain or value_domain(known["error"].to_numpy(dtype=np.float64), (0.0, 1e-9))
    levels = {
        str(factor): [str(level) for level in group["level"].unique()]
        for factor, group in errors.groupby("factor", sort=False)
    }
    panels, height = lay_out(levels, *ends)
    place = {panel.name: panel for panel in panels}
    dots: list[Row] = []
    means: list[Row] = []
    for (factor, level, name), group in known.groupby(["factor", "level", "estimator"], sort=False):
        values = group["error"].to_numpy(dtype=np.float64)
        shift = SPREAD * ((names.index(str(name)) + 0.5) / len(names) - 0.5)
        mine, cloud = _marks(place[str(factor)], str(level), shift, values)
        means.append({"name": str(name), "level": str(level), **mine})
        dots += [{"name": str(name), **dot} for dot in cloud]
    if subtitle is None:
        subtitle = (
            "Means over logs, ± 2 standard errors; small dots: the logs. Bold: the level of the "
            "other panels."
        )
    strong = dict(reference or {})
    layers = [
        *panel_layers(panels, height, axis_title=axis_title, strong=strong),
        *_mark_layers(dots, means, names, height),
    ]
    return finish(layers, title, subtitle, width=inner_width(), height=height, total=TOTAL)


def _marks(
    panel: Panel, level: str, shift: float, values: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> tuple[Row, list[Row]]:
    """The mean with its bar, and a dot a log."""
    x, mean = panel.x(level, shift), float(values.mean())
    margin = 2 * float(values.std(ddof=1)) / len(values) ** 0.5 if len(values) > 1 else 0.0
    number = (
        f"{mean:+.3f} ± {margin / 2:.3f} ({len(values)} log{'s' * (len(values) != 1)})".replace(
            "-", "\N{MINUS SIGN}"
        )
    )
    mark: Row = {"x": x, "y": panel.y(mean), "mean": mean, "number": number}
    mark |= {"low": panel.y(mean - margin), "high": panel.y(mean + margin)}
    return mark, [{"x": x, "y": panel.y(value)} for value in values.tolist()]


def _mark_layers(
    dots: list[Row], means: list[Row], names: list[str], height: int
) -> list[alt.Chart]:
    legend = alt.Legend(title=None, orient="top", symbolSize=110, symbolOpacity=1)
    count = len(names)
    color = alt.Color("name:N", legend=legend).scale(domain=names, range=COLORS[-count:])
    shape = alt.Shape("name:N", legend=legend).scale(domain=names, range=SHAPES[-count:])
    x, y = pixels("x", inner_width()), pixels("y", height, down=True)
    marks = alt.Chart(data(means)).encode(x=x, color=color, tooltip=["name:N", "number:N"])
    return [
        alt.Chart(data(dots)).mark_circle(size=14, opacity=0.35).encode(x=x, y=y, color=color),
        marks.mark_rule(strokeWidth=3).encode(y=pixels("low", height, down=True), y2="high:Q"),
        marks.mark_point(filled=True, size=90, opacity=1, stroke="white", strokeWidth=1).encode(
            y=y, shape=shape
        ),
    ]
