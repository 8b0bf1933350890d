"""What all charts share: colors, type sizes, titles, axes of numbers, legends, and checks.

Colors are Okabe and Ito's, some darkened so that text and lines keep a contrast of 4.5 : 1. They
differ in lightness, and shapes and words repeat what they say. Texts of a log are never field names
or expressions, only data: whatever they contain is drawn as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import altair as alt
import numpy as np
import pandas as pd
from altair.utils.schemapi import debug_mode
from numpy.typing import NDArray

from butfor.evaluate.wording import visible

BLACK = "#111111"
BLUE = "#0072B2"
VERMILLION = "#D55E00"
GREEN = "#007A5A"
GREY = "#555555"
LINE = "#C4C9D0"  # frames
GRID = "#E3E6EA"
DARK_BLUE, DARK_VERMILLION = "#005A8C", "#A84300"  # for text

FONT = "Liberation Sans, Arial, Helvetica, sans-serif"  # the first comes with vl-convert
TEXT = 14  # pixels; a figure 600 pixels wide, printed 85 mm wide, has letters of 2 mm
SMALL = 13
TITLE = 16
LINE_HEIGHT = 16
DASHES = [5, 4]
SIGNED = "datum.value == 0 ? '0' : format(datum.value, '+~g')"
RATE = "format(datum.value, '~%')"
LINES = "split(datum.label, '\\n')"  # breaks labels as `broken` asks

Row = dict[str, Any]
Domain = tuple[float, float]
AnyChart = TypeVar("AnyChart", bound=alt.TopLevelMixin)

# altair checks each part of a chart when it is made and again when it is used, which takes longer
# than all else; tests check the specifications of ours
unchecked = debug_mode(False)

CONFIG = alt.Config(
    background="white",
    font=FONT,
    padding=8,
    axis=alt.AxisConfig(
        labelFontSize=TEXT,
        titleFontSize=TEXT,
        titleFontWeight="normal",
        labelColor=BLACK,
        titleColor=BLACK,
        gridColor=GRID,
        domainColor=LINE,
        tickColor=LINE,
        titlePadding=8,
    ),
    header=alt.HeaderConfig(
        labelExpr=LINES,
        labelAnchor="start",
        labelFontSize=SMALL,
        labelFontWeight="bold",
        labelColor=BLACK,
        labelLineHeight=LINE_HEIGHT,
        labelLimit=0,
        title=None,
    ),
    legend=alt.LegendConfig(
        orient="top",
        title=None,
        labelFontSize=TEXT,
        labelLimit=330,
        labelColor=BLACK,
        symbolSize=110,
        symbolOpacity=1,
        offset=12,
    ),
    text=alt.MarkConfig(fontSize=TEXT, color=BLACK, baseline="middle"),
    view=alt.ViewConfig(stroke=None),
)


def data(rows: Sequence[Mapping[str, Any]]) -> alt.InlineData:
    """Return rows of plain values as data of a chart, however many they are."""
    return alt.InlineData(values=[dict(row) for row in rows])


def tuples(frame: pd.DataFrame, *columns: str) -> Iterator[Any]:
    """Yield these columns of a frame row by row, as plain values."""
    return zip(*(frame[column].tolist() for column in columns), strict=True)


def named(name: str) -> alt.Chart:
    """Return a chart of rows that a template is given later."""
    return alt.Chart(alt.NamedData(name=name))


def template(
    chart: alt.LayerChart, description: str, datasets: Mapping[str, Any], *, total: int
) -> dict[str, Any]:
    """Return the Vega-Lite specification of a chart, without a title, with these rows as well."""
    spec = specification(finish(chart, "", "", total=total))
    spec.pop("title")
    found = {**spec.get("datasets", {}), **datasets}
    return spec | {"description": description, "datasets": found}


def specification(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """Return the Vega-Lite specification of a chart, unchecked."""
    found: dict[str, Any] = _drawable(chart.to_dict(validate=False))
    return found


def _drawable(part: Any, *, titles: bool = False) -> Any:
    """Return a part of a specification without characters that end in an error when it is drawn.

    SVG has no control characters, and Vega-Lite writes titles into expressions, on one line.
    """
    if isinstance(part, dict):
        return {key: _drawable(value, titles=key == "title") for key, value in part.items()}
    if isinstance(part, list):
        return [_drawable(value, titles=titles) for value in part]
    if not isinstance(part, str):
        return part
    return " ".join(visible(part).splitlines()) if titles else visible(part)


def pixels(field: str, length: float, *, down: bool = False) -> Any:
    """Place marks by a field in pixels: from the left, or `down` from the top."""
    domain = [length, 0] if down else [0, length]
    scale = alt.Scale(domain=domain, nice=False, zero=False)
    channel = alt.Y if down else alt.X
    return channel(f"{field}:Q", scale=scale, axis=None)


def fixed(channel: type[Any], value: float) -> Any:
    """Place marks at this pixel: `alt.value`, which altair would have to look up."""
    return channel(value)


def finish(chart: AnyChart, title: str, subtitle: str, *, total: int) -> AnyChart:
    """Return the chart with its style and its title, which is `total` pixels wide."""
    return chart.properties(
        title=heading(title, subtitle, total),
        description=f"{title} {subtitle}".strip(),
        config=CONFIG,
    )


class Layers(alt.LayerChart):
    """Marks on top of each other: what altair makes of them, without its copies and checks.

    The methods of a chart call its constructor again, and altair's copies every layer twice. What
    it does with parameters, sizes and rows that layers share is of no use here.
    """

    def __init__(self, *, layer: Sequence[alt.Chart], **properties: Any) -> None:
        alt.TopLevelLayerSpec.__init__(self, layer=list(layer), **properties)


def layered(*layers: alt.Chart) -> alt.LayerChart:
    """Return marks on top of each other, from back to front."""
    return Layers(layer=layers)


def framed(chart: alt.LayerChart, width: int, height: int | alt.Step) -> alt.LayerChart:
    """Return the chart in this size, with a frame around it."""
    return chart.properties(width=width, height=height, view=alt.ViewBackground(stroke=LINE))


def heading(title: str, subtitle: str, total: int) -> alt.TitleParams:
    """Return the title of a chart `total` pixels wide."""
    return alt.TitleParams(
        text=wrap(title, total, TITLE, bold=True),
        subtitle=wrap(subtitle, total, SMALL, lines=20),  # caveats are not cut off
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


def panel_title(name: str, width: int, subtitle: str = "") -> alt.TitleParams:
    """Return the title of one panel."""
    return alt.TitleParams(
        text=wrap(name, width, SMALL, bold=True),
        subtitle=wrap(subtitle, width, SMALL) if subtitle else alt.Undefined,
        anchor="start",
        frame="group",
        fontSize=SMALL,
        subtitleFontSize=SMALL,
        subtitleColor=GREY,
        lineHeight=LINE_HEIGHT,
        subtitleLineHeight=LINE_HEIGHT,
    )


# -------------------------------------------------------------------------------------------- text


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Estimate the width of a text in pixels, from Helvetica's widths by kind of letter."""
    kinds = ((" .,:;'|!ijlftI[]", 0.27), ("()-r", 0.33), ("cksvxyz", 0.5), ("mwMW%@…", 0.88))
    widths = {letter: width for letters, width in kinds for letter in letters}
    total = 0.0
    for letter in text:
        other = 1.0 if ord(letter) > 0x2E7F else 0.69 if letter.isupper() else 0.56
        total += widths.get(letter, other)
    return size * total * (1.07 if bold else 1.0)


def wrap(text: str, width: float, size: float, *, bold: bool = False, lines: int = 9) -> list[str]:
    """Break a text into lines of `width` pixels; an ellipsis replaces what exceeds `lines`."""
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


def broken(text: object, width: float, *, lines: int = 3, bold: bool = False) -> str:
    """Return a label with line breaks that keep it within `width` pixels."""
    return "\n".join(wrap(str(text), width, SMALL if bold else TEXT, bold=bold, lines=lines))


def signed(value: float, decimals: int) -> str:
    """Return a number with its sign, which is a real minus sign, and this many decimals."""
    return f"{value:+.{decimals}f}".replace("-", "\N{MINUS SIGN}")


# ---------------------------------------------------------------------------------- axes and colors


def value_axis(
    channel: type[Any],
    field: str,
    title: str,
    domain: Domain,
    *,
    clamp: bool = False,
    rate: bool = False,
    named: bool = False,
) -> Any:
    """Place marks by a value on an axis of signed numbers, or of percentages.

    If it is `named`, there is room for what `axis_names` writes below its numbers.
    """
    axis = value_ticks(rate=rate, named=named)
    scale = alt.Scale(domain=list(domain), nice=False, zero=False, clamp=clamp)
    return channel(f"{field}:Q", scale=scale, title=title, axis=axis)


def value_ticks(*, rate: bool, named: bool = False) -> alt.Axis:
    """Return an axis of signed numbers, or of percentages, with room for names below if needed."""
    room = alt.Undefined if not named else 8 + LINE_HEIGHT
    return alt.Axis(tickCount=5, labelExpr=RATE if rate else SIGNED, grid=True, titlePadding=room)


def axis_names(names: Mapping[float, str], x: Any, height: float) -> alt.Chart:
    """Write what values on the axis below mean, such as "all died", below its numbers."""
    words = alt.Chart(data([{"end": value, "text": text} for value, text in names.items()]))
    text = words.mark_text(fontSize=SMALL, color=GREY, y=height + 31)
    return text.encode(x=x, text=alt.Text("text:N"))


def value_domain(values: NDArray[np.float64], given: Domain | None) -> Domain:
    """Return the ends of an axis: those given, moved out as far as the values need."""
    known = values[np.isfinite(values)]
    low, high = float(known.min(initial=np.inf)), float(known.max(initial=-np.inf))
    if given is not None:
        if not given[0] < given[1]:
            raise ValueError(f"domain {given}: give the lower end first")
        return min(low, given[0]), max(high, given[1])
    if len(known) == 0:
        return -1.0, 1.0
    room = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    return low - room, high + room


def percent_axis(channel: type[Any], field: str, title: str | None, *, ticks: int = 5) -> Any:
    """Place marks by a probability on an axis from 0 to 100%."""
    axis = alt.Axis(
        values=np.linspace(0, 1, ticks).tolist(),
        labelExpr="datum.value == 0 ? '0' : format(datum.value, '.0%')",
    )
    return channel(f"{field}:Q", scale=alt.Scale(domain=[0, 1]), title=title, axis=axis)


def diagonal(x: str, y: str) -> alt.Chart:
    """Draw the dashed line on which two probabilities are equal."""
    ends = alt.Chart(data([{x: end, y: end, "end": end} for end in (0.0, 1.0)]))
    line = ends.mark_line(strokeDash=[4, 4], color=GREY, strokeWidth=1)
    return line.encode(x=alt.X(f"{x}:Q"), y=alt.Y(f"{y}:Q"))


def in_panels(chart: Any, rows: Sequence[Row], panels: Sequence[str], columns: int) -> Any:
    """Return the chart once for each value of the field `panel`, side by side."""
    by = alt.Facet("panel:N", sort=list(panels))
    grid = chart.facet(facet=by, data=data(rows), columns=columns)
    # one axis below each column, unless the last row has fewer panels
    return grid.resolve_axis(x="independent") if len(panels) % columns else grid


def series_look(
    field: str,
    names: Sequence[str],
    colors: Sequence[str] = (VERMILLION, BLUE, GREEN),
    shapes: Sequence[str] | None = ("diamond", "circle", "triangle-up"),
    **legend: Any,
) -> dict[str, Any]:
    """Return the color and shape of each series, by name, with one legend for both."""
    if len(names) > len(colors):
        raise ValueError(
            f"{len(names)} series, {len(colors)} at most: {', '.join(names)}; leave some out"
        )
    scales = {"color": (alt.Color, colors), "shape": (alt.Shape, shapes)}
    return {
        channel: make(f"{field}:N", legend=alt.Legend(**legend)).scale(
            domain=list(names), range=list(looks[: len(names)])
        )
        for channel, (make, looks) in scales.items()
        if looks is not None
    }


# ------------------------------------------------------------------------------------------ checks


def require_columns(frame: pd.DataFrame, columns: Sequence[str], name: str) -> None:
    """Raise an error if a frame lacks a column or has no rows."""
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise ValueError(
            f"{name} has no column {missing[0]!r}, only {', '.join(map(str, frame.columns))}; "
            f"give {', '.join(columns)}"
        )
    if len(frame) == 0:
        raise ValueError(f"{name} has 0 rows; give at least one")


def require_shares(frame: pd.DataFrame, columns: Sequence[str], name: str) -> None:
    """Raise an error if a column holds anything but probabilities."""
    for column in columns:
        values = frame[column].to_numpy(dtype=np.float64)
        wrong = ~((values >= -1e-9) & (values <= 1 + 1e-9))
        if wrong.any():
            raise ValueError(
                f"{name} has {column} {values[wrong][0]}; give probabilities, from 0 to 1"
            )


def distinct(column: pd.Series) -> list[str]:
    """Return the values of a column as texts, each once, in their order."""
    return [str(value) for value in column.unique()]
