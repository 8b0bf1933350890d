"""Influence: how long a counterfactual remains about the individual, one panel per episode."""

from __future__ import annotations

import altair as alt
import pandas as pd

from butfor.evaluate.wording import percent
from butfor.present.charts import style
from butfor.present.text import ESTIMATE
from butfor.replay.steps import NEGLIGIBLE

PLOT, HEIGHT = 380, 104  # of a panel
WORDS = 206  # room for words at its right
MOST = 8
COLUMNS = ("id", "step", "influence", "mass", "dies_at", "share_after")
GOING = "#D5DAE1"


@style.unchecked
def influence_chart(
    influence: pd.DataFrame,
    *,
    word: str = "Patient",
    title: str = "How long is the counterfactual about this patient?",
    subtitle: str | None = None,
) -> alt.FacetChart:
    """Draw the influence of each observed step, and the step from which there is none.

    Parameters
    ----------
    influence
        One row per episode and step: `id, step, influence, mass, dies_at, share_after`, as
        `Steps.influence_frame` returns them; up to eight episodes, in the order to be drawn.
    word
        What an episode is called.
    """
    style.require_columns(influence, COLUMNS, "influence")
    style.require_shares(influence, ("influence", "mass", "share_after"), "influence")
    count = influence["id"].nunique()
    if count > MOST:
        raise ValueError(f"{count} episodes, {MOST} at most; select those to look at")
    if subtitle is None:
        subtitle = (
            "Grey: probability that the counterfactual has not ended. Blue: by how much at most, "
            "if it has not, the observed step changes what could happen next. Dashed: from here "
            f"on under {NEGLIGIBLE:g}; what follows is simulation by the model, whoever the "
            f"patient was. {ESTIMATE}"
        )
    rows: list[style.Row] = []
    for identifier, group in influence.groupby("id", sort=False):
        name = f"{word} {identifier}"
        shared = {"name": name, "panel": style.broken(name, PLOT, bold=True, lines=1)}
        rows += [row | shared for row in _rows(identifier, group)]
    last = int(influence["step"].max())
    scale = alt.Scale(domain=[-0.5, last + 0.5], nice=False)

    def x(field: str) -> alt.X:
        axis = alt.Axis(tickMinStep=1, grid=False)
        return alt.X(f"{field}:Q", scale=scale, title="Step", axis=axis)

    def y(field: str) -> alt.Y:
        axis = alt.Axis(values=[0, 0.5, 1], format="~g", grid=False)
        return alt.Y(f"{field}:Q", scale=alt.Scale(domain=[0, 1]), axis=axis, title=None)

    base = alt.Chart()
    words = base.mark_text(
        align="left",
        x=PLOT + 14,
        y=HEIGHT / 2,
        fontSize=style.SMALL,
        color=style.GREY,
        lineHeight=style.LINE_HEIGHT,
    )
    chart = style.layered(
        base.mark_rect(color=GOING).encode(x=x("left"), x2=alt.X2("right:Q"), y=y("mass")),
        base.mark_rect(color=style.BLUE).encode(
            x=x("inner_left"),
            x2=alt.X2("inner_right:Q"),
            y=y("influence"),
            tooltip=[alt.Tooltip("step:Q"), alt.Tooltip("number:N")],
        ),
        base.transform_filter("isValid(datum.fades)")
        .mark_rule(strokeDash=style.DASHES, strokeWidth=2, color=style.VERMILLION)
        .encode(x=x("fades")),
        words.transform_filter("isValid(datum.words)").encode(text=alt.Text("words:N")),
    )
    names = list(dict.fromkeys(row["panel"] for row in rows))
    panels = style.in_panels(style.framed(chart, PLOT, HEIGHT), rows, names, 1)
    return style.finish(panels, title, subtitle, total=PLOT + WORDS + 44)


def _rows(name: object, group: pd.DataFrame) -> list[style.Row]:
    """Return one row per step; the first one carries what is said of the whole episode."""
    rows: list[style.Row] = [
        {
            "id": str(name),
            "step": int(step),
            "left": step - 0.5,
            "right": step + 0.5,
            "inner_left": step - 0.32,
            "inner_right": step + 0.32,
            "mass": mass,
            "influence": influence,
            "number": percent(influence),
        }
        for step, influence, mass in style.tuples(group, "step", "influence", "mass")
    ]
    last, dies = int(group["step"].max()), int(group["dies_at"].iloc[0])
    if dies == 0:
        words = "Never about the patient: all of it is simulation."
    elif dies > last:
        words = "About the patient to the end."
    else:
        later = percent(float(group["share_after"].iloc[0]))
        words = f"Fades out at step {dies}. Of the return, {later} comes later."
    rows[0]["words"] = style.wrap(words, WORDS - 16, style.SMALL, lines=5)
    if dies <= last:
        rows[0]["fades"] = dies - 0.5
    return rows
