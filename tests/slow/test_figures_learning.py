"""The chart of what a larger log brings."""

import pandas as pd
import pytest

from butfor import charts
from tests.slow.test_figures import HOSTILE, encodings_of, rows_of, words_of

POINTS = pd.DataFrame(
    {
        "panel": ["all seen", "all seen", "hidden"],
        "series": ["table", "factors", "table"],
        "size": [250, 1000, 250],
        "value": [0.1, 0.5, -0.2],
        "se": [0.02, 0.01, float("nan")],
    }
)


def test_marks_have_their_mean_and_two_standard_errors():
    chart = charts.learning_chart(POINTS)
    rows = {(r["panel"], r["series"]): r for r in rows_of(chart, "series")}
    first = rows["all seen", "table"]
    assert (first["value"], first["low"], first["high"]) == pytest.approx((0.1, 0.06, 0.14))
    alone = rows["hidden", "table"]  # one log has no standard error
    assert alone["low"] == alone["high"] == -0.2
    x = [axis for axis in encodings_of(chart, "x") if "field" in axis]
    assert {axis["scale"]["type"] for axis in x} == {"log"}
    assert all(axis["axis"]["values"] == [250, 1000] for axis in x)


def test_lines_are_drawn_in_every_panel_within_the_scale():
    chart = charts.learning_chart(POINTS, lines={"physicians": 0.9})
    lines = [(row["panel"], row["words"], row["level"]) for row in rows_of(chart, "level")]
    assert lines == [("all seen", "physicians", 0.9), ("hidden", "physicians", 0.9)]
    for axis in encodings_of(chart, "y"):
        low, high = axis["scale"]["domain"]
        assert low < -0.2
        assert high > 0.9


def test_scores_have_no_sign():
    def words(chart):
        return {axis["axis"]["labelExpr"] for axis in encodings_of(chart, "y") if "axis" in axis}

    assert words(charts.learning_chart(POINTS, signed=False)) == {"format(datum.value, '~g')"}
    assert all("+" in text for text in words(charts.learning_chart(POINTS)))


def test_hostile_texts_are_drawn_as_text(tmp_path):
    chart = charts.learning_chart(
        POINTS.assign(panel=HOSTILE, series=HOSTILE), lines={HOSTILE: 0.3}, title=HOSTILE
    )
    assert "alert" in words_of(chart)
    charts.save_figure(chart, tmp_path / "figure")
    assert "<script>alert" not in (tmp_path / "figure.svg").read_text()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (POINTS.drop(columns="se"), "no column 'se'"),
        (POINTS.iloc[:0], "table has 0 rows"),
        (pd.concat([POINTS.assign(series=n) for n in "abcdefg"]), "7 series, 6 at most"),
    ],
)
def test_bad_input_is_named(table, message):
    with pytest.raises(ValueError, match=message):
        charts.learning_chart(table)
