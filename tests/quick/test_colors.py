"""Colors of pages and charts: named once, and legible on light and on dark screens."""

import re
from itertools import product

import pytest

import butfor.review
from butfor.present import STATIC
from butfor.present.charts import style
from butfor.present.charts.trajectory import layout, template

STYLE = (STATIC / "style.css").read_text()
HEX = r"#[0-9a-fA-F]{3,8}\b"
LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+): (#\w+);", block))
    for block in re.findall(r":root \{ (.*?) \}", STYLE)
)
# text of these colors is written on backgrounds of those
WRITTEN = [
    *product(("ink", "grey", "blue"), ("paper", "soft", "chosen")),
    *product(("ink", "blue"), ("note", "alert", "hover")),
    *(("ink", fill) for fill in ("amber", "green", "middle", "yellow")),
    *(("brown", "yellow"), ("purple", "violet"), ("red", "paper"), ("red", "alert")),
    *(("on-blue", "blue"), ("on-blue", "deep")),
    *(("on-strong", fill) for fill in ("strong", "strongest", "rust")),
]
OUTCOME_COLORS = (*layout.BAD, *layout.GOOD)
CHART_TEXT = [
    *((ink, "#ffffff") for ink in (style.BLACK, style.GREY, template.PURPLE, *OUTCOME_COLORS)),
    *(("#ffffff", fill) for fill in OUTCOME_COLORS),
    *((style.BLACK, fill) for fill in (template.AMBER, template.ENOUGH, style.GRID)),
    *((template.BROWN, template.YELLOW), (template.PURPLE, template.VIOLET)),
]


def channels(color):
    digits = color[1:] if len(color) == 7 else "".join(2 * digit for digit in color[1:4])
    return [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]


def contrast(first, second):
    """Contrast of two colors by WCAG 2, from 1 to 21."""

    def luminance(color):
        linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in color]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def inverted(color):
    """The color after invert(92%) and hue-rotate(180deg), as the filter standard defines them."""
    red, green, blue = (0.92 - 0.84 * value for value in color)
    twice = 2 * (0.213 * red + 0.715 * green + 0.072 * blue)
    return [min(1.0, max(0.0, twice - value)) for value in (red, green, blue)]


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_is_legible(scheme):
    for ink, fill in WRITTEN:
        assert contrast(channels(scheme[ink]), channels(scheme[fill])) >= 4.5, (ink, fill)
    assert contrast(channels(scheme["edge"]), channels(scheme["paper"])) >= 3  # of buttons


def test_text_of_charts_is_legible_as_drawn_and_inverted():
    assert "invert(92%) hue-rotate(180deg)" in STYLE
    for ink, fill in CHART_TEXT:
        assert contrast(channels(ink), channels(fill)) >= 4.5, (ink, fill)
        assert contrast(inverted(channels(ink)), inverted(channels(fill))) >= 4.5, (ink, fill)
    paper = [round(255 * value) for value in inverted([1.0, 1.0, 1.0])]
    assert paper == [round(255 * value) for value in channels(DARK["paper"])]


def test_both_schemes_name_the_same_colors_and_nothing_else_does():
    assert set(LIGHT) == set(DARK)
    review = STATIC.parents[1] / "review" / "static" / "review.css"
    assert butfor.review.__file__.startswith(str(review.parents[1]))
    rules = re.sub(r":root \{ .*? \}", "", STYLE) + review.read_text()
    assert re.findall(rf"(?<![\w\"]){HEX}(?=[;\s}}])", rules) == []
