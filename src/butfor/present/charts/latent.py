"""What is known of the hidden state of one episode, step by step."""

from __future__ import annotations

import altair as alt
import pandas as pd

from butfor.present.charts.panels import Panels
from butfor.present.charts.style import (
    ESTIMATE,
    VERMILLION,
    Row,
    data,
    finish,
    pixels,
    require_columns,
)

SHADES = ["#F4F6F9", "#7FB2D6", "#004C79"]
CELL, LEVEL = 26, 22  # pixels of a step at most, and of a level
COLUMNS = ("panel", "step", "level", "probability", "truth")


def latent_chart(
    table: pd.DataFrame,
    *,
    columns: int = 2,
    title: str = "What is known of what is hidden?",
    subtitle: str = "Darker: more probable, given all that was seen of the episode. Ring: what it "
    f"was in truth, known only because this is a simulator. {ESTIMATE}",
) -> alt.LayerChart:
    """Draw the probability of each level at each step: a panel a variable and kind of evidence.

    Parameters
    ----------
    table
        A row a step and level: `panel, step, level, probability, truth`; levels from the lowest
        up, `truth` says whether the level is the true one.
    """
    require_columns(table, COLUMNS, "table")
    titles = tuple(str(name) for name in table["panel"].unique())
    levels = {
        name: [str(level) for level in table.loc[table["panel"] == name, "level"].unique()]
        for name in titles
    }
    steps = int(table["step"].max()) + 1
    tallest = max(len(names) for names in levels.values())
    size = min(CELL * steps, 270), LEVEL * tallest
    panels = Panels(titles, columns, size, (86, 44))
    cells: list[Row] = []
    for row in table.itertuples():
        name, level = str(row.panel), str(row.level)
        count = len(levels[name])
        place = levels[name].index(level)
        low = panels.place(name, row.step / steps, place / count)
        high = panels.place(name, (row.step + 1) / steps, (place + 1) / count)
        middle = panels.place(name, (row.step + 0.5) / steps, (place + 0.5) / count)
        cells.append(
            {
                "left": low["x"] + 1,
                "right": high["x"] - 1,
                "bottom": low["y"] - 1,
                "top": high["y"] + 1,
                **middle,
                "step": int(row.step),
                "level": level,
                "probability": float(row.probability),
                "truth": bool(row.truth),
            }
        )
    x_ticks = {(step + 0.5) / steps: str(step) for step in range(0, steps, 1 if steps <= 12 else 5)}
    y_ticks = {
        name: {(place + 0.5) / len(names): level for place, level in enumerate(names)}
        for name, names in levels.items()
    }
    base = alt.Chart(data(cells))
    shade = alt.Color("probability:Q", legend=None).scale(domain=[0, 0.5, 1], range=SHADES)
    tip = ["step:Q", "level:N", "probability:Q"]
    layers = [
        *panels.frames(x_ticks, y_ticks, x_title="step", y_grid=False),
        base.mark_rect(cornerRadius=2).encode(
            x=pixels("left", panels.width),
            x2="right:Q",
            y=pixels("top", panels.height, down=True),
            y2="bottom:Q",
            color=shade,
            tooltip=tip,
        ),
        base.transform_filter("datum.truth")
        .mark_point(size=80, strokeWidth=2.5, stroke=VERMILLION, fill=None, opacity=1)
        .encode(**panels.encode(), tooltip=tip),
    ]
    return finish(
        layers, title, subtitle, width=panels.width, height=panels.height, total=panels.width
    )
