"""Noise on states against noise on labels: the expected return of every episode with both."""

from __future__ import annotations

import math

import altair as alt
import numpy as np
import pandas as pd

from butfor.present.charts.rows import Domain, value_domain
from butfor.present.charts.style import (
    BLUE,
    ESTIMATE,
    GREY,
    VERMILLION,
    Row,
    data,
    finish,
    require_columns,
)

SIDE = 400
TOTAL = SIDE + 120
KINDS = ("The likeliest outcome is the same", "The likeliest outcome changes")
COLUMNS = ("id", "expected_return_states", "expected_return_labels", "changed")


def labels_chart(
    episodes: pd.DataFrame,
    *,
    apart: tuple[float, float] | None = None,
    title: str = "Does it matter whose noise decides?",
    subtitle: str | None = None,
    axis_titles: tuple[str, str] = (
        "Expected return, noise on states",
        "Expected return, noise on what nature decides",
    ),
    domain: Domain | None = None,
) -> alt.LayerChart:
    """Draw the expected return of each episode with noise on labels over that on states.

    Parameters
    ----------
    episodes
        A row an episode: `id, expected_return_states, expected_return_labels, changed`, as
        `LabelComparison.frame()` gives them.
    apart : (with noise on states, with noise on labels), optional
        Share of the pairs of rows met that have no label in common: `Noise.apart_of_met`.
    axis_titles
        Below and at the left.
    domain
        Ends of both axes, moved out where the data go beyond them; by default those of the data.
    """
    require_columns(episodes, COLUMNS, "episodes")
    values = episodes[list(COLUMNS[1:3])].to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"episodes hold {values[~np.isfinite(values)][0]}; give numbers")
    low, high = value_domain(values, domain)
    points: list[Row] = [
        {"id": str(name), "states": states, "labels": labels, "kind": KINDS[bool(changed)]}
        for name, (states, labels), changed in zip(
            episodes["id"], values.tolist(), episodes["changed"], strict=True
        )
    ]
    if subtitle is None:
        count = sum(point["kind"] == KINDS[1] for point in points)
        most = float(np.abs(values[:, 1] - values[:, 0]).max())
        subtitle = (
            f"On the line nothing differs. The expected return moves by {most:.2g} at most, the "
            f"likeliest outcome changes for {count} of {len(points)}. {_apart_words(apart)}"
            f"{ESTIMATE} No data can tell which noise is right."
        )
    axis = alt.Axis(tickCount=5, labelExpr="datum.value == 0 ? '0' : format(datum.value, '+~g')")
    scale = alt.Scale(domain=[low, high], nice=False, zero=False)
    x = alt.X("states:Q", scale=scale, axis=axis, title=axis_titles[0])
    y = alt.Y("labels:Q", scale=scale, axis=axis, title=axis_titles[1])
    kinds = list(KINDS)
    legend = None
    if len({point["kind"] for point in points}) > 1:
        legend = alt.Legend(title=None, orient="top", direction="vertical", symbolOpacity=1)
    color = alt.Color("kind:N", legend=legend).scale(domain=kinds, range=[BLUE, VERMILLION])
    shape = alt.Shape("kind:N", legend=legend).scale(domain=kinds, range=["circle", "diamond"])
    same = alt.Chart(data([{"states": end, "labels": end} for end in (low, high)]))
    base = alt.Chart(data(points)).encode(
        x=x, y=y, color=color, shape=shape, tooltip=["id:N", "states:Q", "labels:Q", "kind:N"]
    )
    layers = [
        same.mark_line(strokeDash=[5, 4], color=GREY).encode(x=x, y=y),
        base.mark_point(filled=True, size=45, opacity=0.45),
    ]
    return finish(layers, title, subtitle, width=SIDE, height=SIDE, total=TOTAL)


def _apart_words(apart: tuple[float, float] | None) -> str:
    if apart is None or any(math.isnan(share) for share in apart):
        return ""
    for share in apart:
        if not 0 <= share <= 1:
            raise ValueError(f"apart {share}: give shares, from 0 to 1")
    states, labels = (f"{100 * share:.0f}%" for share in apart)
    return (
        "Where the counterfactual has left what was observed, nothing can carry over at "
        f"{states} of its steps with noise on states, at {labels} with noise on labels. "
    )
