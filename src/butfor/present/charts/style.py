"""What all pictures share: colours, letters, words for numbers, and a plane measured in pixels.

Colours are Okabe and Ito's, some darkened so that letters and lines keep a contrast of 4.5 : 1;
they differ in lightness, and shapes and words repeat what they say. Texts are never field names
or expressions, only data: whatever they contain is drawn as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

BLACK = "#111111"
BLUE = "#0072B2"
VERMILLION = "#D55E00"
GREEN = "#007A5A"
GREY = "#555555"
LINE = "#C4C9D0"  # frames and grids

FONT = "Liberation Sans, Arial, Helvetica, sans-serif"  # the first comes with vl-convert
TEXT = 14  # pixels; a figure 600 pixels wide, printed 85 mm wide, has letters of 2 mm
SMALL = 13
TITLE = 16
LINE_HEIGHT = 16

ESTIMATE = "A model estimate, not a fact."
CHANCE = "Covers chance in the sample, not errors in the model."
SIMULATOR = "known only because this is a simulator"
TRUE = "True"

Row = dict[str, Any]


def data(rows: Sequence[Mapping[str, Any]]) -> alt.InlineData:
    """Wrap rows of plain values, whatever their number."""
    return alt.InlineData(values=[dict(row) for row in rows])


def pixels(field: str, length: float, *, down: bool = False) -> Any:
    """Place marks by a field that holds pixels: from the left, or `down` from the top."""
    domain = [length, 0] if down else [0, length]
    scale = alt.Scale(domain=domain, nice=False, zero=False)
    channel = alt.Y if down else alt.X
    return channel(f"{field}:Q", scale=scale, axis=None)


def finish(
    layers: Iterable[alt.Chart], title: str, subtitle: str, *, width: int, height: int, total: int
) -> alt.LayerChart:
    """Layer the marks on a plane and put the title over all of it, `total` pixels wide."""
    axis = alt.AxisConfig(
        labelFontSize=TEXT,
        titleFontSize=TEXT,
        titleFontWeight="normal",
        labelColor=BLACK,
        titleColor=BLACK,
        gridColor="#E3E6EA",
        domainColor=LINE,
        tickColor=LINE,
        titlePadding=8,
    )
    config = alt.Config(
        background="white",
        font=FONT,
        padding=8,
        axis=axis,
        legend=alt.LegendConfig(labelFontSize=TEXT, labelLimit=260, labelColor=BLACK),
        text=alt.MarkConfig(fontSize=TEXT, color=BLACK, baseline="middle"),
        view=alt.ViewConfig(stroke=None),
    )
    words = f"{title} {subtitle}".strip()
    return alt.LayerChart(
        layer=list(layers),
        width=width,
        height=height,
        title=heading(title, subtitle, total),
        description=words,
        config=config,
    )


def heading(title: str, subtitle: str, total: int) -> alt.TitleParams:
    """Return the title of a picture `total` pixels wide."""
    return alt.TitleParams(
        text=wrap(title, total, TITLE, bold=True),
        subtitle=wrap(subtitle, total, SMALL),
        anchor="start",
        frame="bounds",
        offset=14,
        fontSize=TITLE,
        subtitleFontSize=SMALL,
        subtitlePadding=5,
        lineHeight=20,
        subtitleLineHeight=LINE_HEIGHT + 1,
        color=BLACK,
        subtitleColor=GREY,
    )


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Estimate how many pixels wide a text is, from Helvetica's widths by kind of letter."""
    kinds = ((" .,:;'|!ijlftI[]", 0.27), ("()-r", 0.33), ("cksvxyz", 0.5), ("mwMW%@…", 0.88))
    widths = {letter: width for letters, width in kinds for letter in letters}
    total = 0.0
    for letter in text:
        other = 1.0 if ord(letter) > 0x2E7F else 0.69 if letter.isupper() else 0.56
        total += widths.get(letter, other)
    return size * total * (1.07 if bold else 1.0)


def wrap(text: str, width: float, size: float, *, bold: bool = False, lines: int = 9) -> list[str]:
    """Break a text into at most so many lines of `width` pixels; an ellipsis stands for a rest."""
    broken = [""]
    for word in text.split():
        longer = f"{broken[-1]} {word}".strip()
        if text_width(longer, size, bold=bold) <= width:
            broken[-1] = longer
            continue
        broken += [""] * (broken[-1] != "")
        for letter in word:  # a word longer than a line is cut
            if broken[-1] and text_width(broken[-1] + letter, size, bold=bold) > width:
                broken.append("")
            broken[-1] += letter
    broken = [line for line in broken if line]
    return broken if len(broken) <= lines else [*broken[: lines - 1], broken[lines - 1] + " …"]


def require_columns(frame: pd.DataFrame, columns: Sequence[str], name: str) -> None:
    """Refuse a frame that lacks a column or has no rows."""
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise ValueError(
            f"{name} has no column {missing[0]!r}, only {', '.join(map(str, frame.columns))}; "
            f"give {', '.join(columns)}"
        )
    if len(frame) == 0:
        raise ValueError(f"{name} has 0 rows; give at least one")
