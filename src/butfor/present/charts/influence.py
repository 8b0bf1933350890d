"""Influence: how long a counterfactual stays about the patient, a panel an episode."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from butfor.evaluate.wording import percent
from butfor.present.charts.level_panels import round_ticks
from butfor.present.charts.style import (
    BLACK,
    BLUE,
    ESTIMATE,
    GREY,
    LINE,
    LINE_HEIGHT,
    SMALL,
    TEXT,
    VERMILLION,
    Row,
    data,
    finish,
    pixels,
    require_columns,
    wrap,
)
from butfor.replay.steps import NEGLIGIBLE

PLOT = 380  # width of the part with the steps
AXIS = 44  # room for the scale at its left
WORDS = 206  # room for words at its right
HIGH = 104  # height of a panel
HEAD = 30  # room for its name
GAP = 20
TOTAL = AXIS + PLOT + WORDS
MOST = 8
COLUMNS = ("id", "step", "influence", "mass", "dies_at", "share_after")
GOING = "#D5DAE1"


def influence_chart(
    influence: pd.DataFrame,
    *,
    word: str = "Patient",
    title: str = "How long is the counterfactual about this patient?",
    subtitle: str | None = None,
) -> alt.LayerChart:
    """Draw the influence of each observed step, and from where on there is none.

    Parameters
    ----------
    influence
        A row an episode and step: `id, step, influence, mass, dies_at, share_after`, as
        `Steps.influence_frame` gives them; up to eight episodes, in the order to be drawn.
    word
        What an episode is called.
    """
    require_columns(influence, COLUMNS, "influence")
    for column in ("influence", "mass", "share_after"):
        values = influence[column].to_numpy(dtype=np.float64)
        wrong = ~((values >= -1e-9) & (values <= 1 + 1e-9))
        if wrong.any():
            raise ValueError(f"{column} {values[wrong][0]}: give probabilities, from 0 to 1")
    groups = [(str(name), group) for name, group in influence.groupby("id", sort=False)]
    if len(groups) > MOST:
        raise ValueError(f"{len(groups)} episodes, {MOST} at most; give those to look at")
    last = int(influence["step"].max())
    bars: list[Row] = []
    lines: list[Row] = []
    texts: list[Row] = []
    frames: list[Row] = []
    for place, (name, group) in enumerate(groups):
        top = HEAD + place * (HEAD + HIGH + GAP)
        frames.append({"x": 0, "x2": PLOT, "y": top, "y2": top + HIGH})
        dies, share = int(group["dies_at"].iloc[0]), float(group["share_after"].iloc[0])
        bars += _bars(group, top, last)
        if dies <= last:
            lines.append({"x": _x(dies, last), "y": top, "y2": top + HIGH})
        texts += _texts(f"{word} {name}", dies, share, top, last)
    height = len(groups) * (HEAD + HIGH + GAP) - GAP
    texts += _steps(last, height)
    if subtitle is None:
        subtitle = (
            "Grey: chance that the counterfactual is still going. Blue: by how much at most, where "
            "it is, the observed step changes what could happen next. Dashed: from here on under "
            f"{NEGLIGIBLE:g}, and what follows is simulation by the model, whoever the patient "
            f"was. {ESTIMATE}"
        )
    x, y = pixels("x", PLOT), pixels("y", height, down=True)
    base = alt.Chart(data(bars)).encode(x=x, x2="x2:Q", y=y, y2="y2:Q")
    layers = [
        base.transform_filter("datum.kind == 'mass'").mark_rect(color=GOING),
        base.transform_filter("datum.kind == 'influence'")
        .mark_rect(color=BLUE)
        .encode(tooltip=["step:Q", "number:N"]),
        alt.Chart(data(frames))
        .mark_rect(stroke=LINE, fill=None)
        .encode(x=x, x2="x2:Q", y=y, y2="y2:Q"),
        alt.Chart(data(lines))
        .mark_rule(strokeDash=[5, 4], strokeWidth=2, color=VERMILLION)
        .encode(x=x, y=y, y2="y2:Q"),
        *_text_layers(texts, height),
    ]
    return finish(layers, title, subtitle, width=PLOT, height=height, total=TOTAL)


def _x(step: float, last: int) -> float:
    return PLOT * step / (last + 1)


def _bars(group: pd.DataFrame, top: float, last: int) -> list[Row]:
    """Chance of still going and, in front of it, the influence, a pair a step."""
    bars = []
    columns = (group[name].tolist() for name in ("step", "influence", "mass"))
    for step, influence, mass in zip(*columns, strict=True):
        for kind, value, room in (("mass", mass, 0.0), ("influence", influence, 0.18)):
            bars.append(
                {"kind": kind, "step": int(step), "number": percent(float(value))}
                | {"x": _x(step + room, last), "x2": _x(step + 1 - room, last)}
                | {"y": top + HIGH * (1 - float(value)), "y2": top + HIGH}
            )
    return bars


def _texts(name: str, dies: int, share: float, top: float, last: int) -> list[Row]:
    if dies == 0:
        words = "Never about the patient: all of it is simulation."
    elif dies > last:
        words = "About the patient to the end."
    else:
        words = f"Fades out at step {dies}. Of the return, {percent(share)} comes later."
    lines = wrap(words, WORDS - 16, SMALL, lines=5)
    middle = top + HIGH / 2 - (len(lines) - 1) * LINE_HEIGHT / 2
    shown = wrap(name, PLOT, TEXT, bold=True, lines=1)
    texts: list[Row] = [
        {"text": shown, "name": name, "x": 0, "y": top - 14, "look": "name"},
        {"text": lines, "x": PLOT + 14, "y": middle, "look": "words"},
    ]
    for value, label in ((0.0, "0"), (0.5, "0.5"), (1.0, "1")):
        texts.append({"text": label, "x": -8, "y": top + HIGH * (1 - value), "look": "scale"})
    return texts


def _steps(last: int, height: float) -> list[Row]:
    """Numbers below the last panel, and what they are."""
    ticks = [int(tick) for tick in round_ticks(0, max(last, 1)) if tick == int(tick) <= last]
    rows: list[Row] = [
        {"text": str(t), "x": _x(t + 0.5, last), "y": height + 15, "look": "step"} for t in ticks
    ]
    return [*rows, {"text": "Step", "x": PLOT / 2, "y": height + 37, "look": "step"}]


LOOKS: dict[str, Row] = {
    "name": {"align": "left", "fontWeight": "bold", "color": BLACK},
    "words": {"align": "left", "fontSize": SMALL, "color": GREY, "lineHeight": LINE_HEIGHT},
    "scale": {"align": "right", "color": BLACK},
    "step": {"align": "center", "color": BLACK},
}


def _text_layers(texts: list[Row], height: int) -> list[alt.Chart]:
    return [
        alt.Chart(data([row for row in texts if row["look"] == look]))
        .mark_text(**style)
        .encode(text="text:N", x=pixels("x", PLOT), y=pixels("y", height, down=True))
        for look, style in LOOKS.items()
    ]
