"""The chart of a policy's value against the strength of hidden causes."""

import numpy as np
import pandas as pd
import pytest

from butfor import charts
from tests.slow.test_figures import HOSTILE, encodings_of, rows_of, words_of

TABLE = pd.DataFrame(
    {
        "gamma": [2.0, 1.0, 5.0],
        "low": [0.4, 0.6, 0.1],
        "high": [0.8, 0.6, 0.9],
        "observed": 0.45,
    }
)


def test_bounds_are_drawn_by_gamma_with_what_was_observed():
    chart = charts.confounding_chart(TABLE)
    rows = rows_of(chart, "gamma")
    assert [(r["gamma"], r["low"], r["high"]) for r in rows[:3]] == [
        (1.0, 0.6, 0.6),
        (2.0, 0.4, 0.8),
        (5.0, 0.1, 0.9),
    ]
    assert {row["level"] for row in rows_of(chart, "level")} == {0.45}
    for axis in encodings_of(chart, "y"):
        low, high = axis["scale"]["domain"]
        assert low < 0.1
        assert high > 0.9


def test_what_the_bounds_do_not_cover_is_on_the_chart():
    assert "persist" in words_of(charts.confounding_chart(TABLE))


def test_hostile_texts_are_drawn_as_text(tmp_path):
    chart = charts.confounding_chart(TABLE, title=HOSTILE, axis_title=HOSTILE)
    charts.save_figure(chart, tmp_path / "figure")
    assert "<script>alert" not in (tmp_path / "figure.svg").read_text()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (TABLE.drop(columns="low"), "no column 'low'"),
        (TABLE.assign(gamma=np.inf), "leave out infinity"),
        (TABLE.assign(gamma=0.5), "at least 1"),
    ],
)
def test_bad_input_is_named(table, message):
    with pytest.raises(ValueError, match=message):
        charts.confounding_chart(table)
