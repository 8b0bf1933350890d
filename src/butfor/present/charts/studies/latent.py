"""The probability of each level of a hidden variable of one episode, step by step."""

from __future__ import annotations

import altair as alt
import pandas as pd

from butfor.present.charts import style
from butfor.present.text import ESTIMATE, SIMULATOR

SHADES = ["#F4F6F9", "#7FB2D6", "#004C79"]
CELL, LEVEL, WIDEST = 26, 22, 270  # pixels: of a step at most, of a level, of a panel
COLUMNS = ("panel", "step", "level", "probability", "truth")


def latent_chart(
    table: pd.DataFrame,
    *,
    columns: int = 2,
    title: str = "What is known about the hidden state?",
    subtitle: str = "Darker: more probable, given all that was observed of the episode. Ring: the "
    f"true level, {SIMULATOR}. {ESTIMATE}",
) -> alt.FacetChart:
    """Draw the probability of each level at each step, a panel per variable and kind of evidence.

    Parameters
    ----------
    table
        One row per step and level: `panel, step, level, probability, truth`; levels from the lowest
        up, and `truth` says whether the level is the true one.
    """
    style.require_columns(table, COLUMNS, "table")
    steps = int(table["step"].max()) + 1
    width = min(CELL * steps, WIDEST)
    cells = table.assign(
        panel=[style.broken(name, width, bold=True) for name in table["panel"]],
        level=table["level"].map(str),
        truth=table["truth"].astype(bool),
    )
    axis = alt.Axis(
        values=list(range(0, steps, 1 if steps <= 12 else 5)),
        labelAngle=0,
        labelFontSize=style.SMALL,
    )
    # the first level of each panel at the bottom
    levels = alt.Y("level:N", sort=style.distinct(cells["level"])[::-1], title=None)
    base = alt.Chart().encode(
        x=alt.X("step:O", title="step", axis=axis),
        y=levels,
        tooltip=["step:Q", "level:N", "probability:Q"],
    )
    shade = alt.Color("probability:Q", legend=None).scale(domain=[0, 0.5, 1], range=SHADES)
    chart = style.layered(
        base.mark_rect(cornerRadius=2, stroke="white", strokeWidth=2).encode(color=shade),
        base.transform_filter("datum.truth").mark_point(
            size=80, strokeWidth=2.5, stroke=style.VERMILLION, fill=None, opacity=1
        ),
    )
    rows = cells[list(COLUMNS)].to_dict("records")
    names = style.distinct(cells["panel"])
    panels = style.in_panels(style.framed(chart, width, alt.Step(LEVEL)), rows, names, columns)
    total = min(columns, len(names)) * (width + 86)
    return style.finish(
        panels.resolve_scale(y="independent", x="independent"), title, subtitle, total=total
    )
