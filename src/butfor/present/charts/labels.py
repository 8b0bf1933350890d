"""Noise on states against noise on labels: the expected return of every episode with both."""

from __future__ import annotations

import math

import altair as alt
import numpy as np
import pandas as pd

from butfor.present.charts import style
from butfor.present.text import ESTIMATE

SIDE = 400
KINDS = ("The likeliest outcome is the same", "The likeliest outcome changes")
COLUMNS = ("id", "expected_return_states", "expected_return_labels", "changed")


@style.unchecked
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
    domain: style.Domain | None = None,
) -> alt.LayerChart:
    """Draw the expected return of each episode with noise on labels against that on states.

    Parameters
    ----------
    episodes
        One row per episode: `id, expected_return_states, expected_return_labels, changed`, as
        `LabelComparison.frame()` returns them.
    apart : (with noise on states, with noise on labels), optional
        Share of the pairs of rows met that have no label in common: `Noise.apart_of_met`.
    axis_titles
        Of the horizontal and the vertical axis.
    domain
        Ends of both axes, moved out if the data exceed them; by default those of the data.
    """
    style.require_columns(episodes, COLUMNS, "episodes")
    values = episodes[list(COLUMNS[1:3])].to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        wrong = values[~np.isfinite(values)][0]
        raise ValueError(f"episodes has the value {wrong}; give finite numbers")
    ends = style.value_domain(values, domain)
    points: list[style.Row] = [
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
    x = style.value_axis(alt.X, "states", axis_titles[0], ends)
    y = style.value_axis(alt.Y, "labels", axis_titles[1], ends)
    look = style.series_look(
        "kind", KINDS, (style.BLUE, style.VERMILLION), ("circle", "diamond"), columns=1
    )
    if len({point["kind"] for point in points}) == 1:
        look = {channel: encoding.legend(None) for channel, encoding in look.items()}
    same = alt.Chart(style.data([{"states": end, "labels": end} for end in ends]))
    marks = alt.Chart(style.data(points)).mark_point(filled=True, size=45, opacity=0.45)
    chart = style.layered(
        same.mark_line(strokeDash=style.DASHES, color=style.GREY).encode(x=x, y=y),
        marks.encode(
            x=x,
            y=y,
            tooltip=[
                alt.Tooltip("id:N"),
                alt.Tooltip("states:Q"),
                alt.Tooltip("labels:Q"),
                alt.Tooltip("kind:N"),
            ],
            **look,
        ),
    )
    return style.finish(style.framed(chart, SIDE, SIDE), title, subtitle, total=SIDE + 120)


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
