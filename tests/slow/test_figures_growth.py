"""The chart of what a larger log costs."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.growth_chart import growth_chart
from tests.slow.test_figures import HOSTILE, encodings_of, rows_of, words_of

COSTS = pd.DataFrame(
    {"episodes": [1000, 100, 10_000], "seconds": [3.0, 0.5, 30.0], "bytes": [2e8, 2e8, 4e9]}
)


def test_points_are_on_logarithmic_scales_and_have_their_numbers():
    chart = growth_chart(COSTS)
    rows = {(row["panel"], row["episodes"]): row for row in rows_of(chart, "value")}
    assert [rows["Time", size]["value"] for size in (100, 1000, 10_000)] == [0.5, 3.0, 30.0]
    words = [
        rows[panel, size]["words"] for panel in ("Time", "Peak memory") for size in (100, 10_000)
    ]
    assert words == ["0.5 s", "30 s", "200 MB", "4 GB"]
    for channel in ("x", "y"):
        assert {axis["scale"]["type"] for axis in encodings_of(chart, channel)} == {"log"}


def test_the_dashed_line_is_growth_in_proportion_through_the_largest_log():
    chart = growth_chart(COSTS)
    rows = {(row["panel"], row["episodes"]): row for row in rows_of(chart, "line")}
    for panel, column in (("Time", "seconds"), ("Peak memory", "bytes")):
        largest = float(COSTS.set_index("episodes")[column][10_000])
        assert [rows[panel, size]["line"] for size in (100, 1000, 10_000)] == pytest.approx(
            [largest / 100, largest / 10, largest]
        )
    # the line and the points of a panel are on one scale
    domains = [
        {tuple(layer["encoding"]["y"]["scale"]["domain"]) for layer in panel["layer"]}
        for panel in chart.to_dict()["hconcat"]
    ]
    assert [len(domain) for domain in domains] == [1, 1]
    assert "in proportion to the episodes" in words_of(chart)


def test_one_log_and_small_costs_can_be_drawn():
    chart = growth_chart(
        pd.DataFrame({"episodes": [10], "seconds": [0.004], "bytes": [500.0]}), title=HOSTILE
    )
    rows = rows_of(chart, "value")
    assert [row["words"] for row in rows] == ["0.004 s", "0.5 kB"]
    seconds = encodings_of(chart, "y")[0]
    assert seconds["axis"]["values"] == pytest.approx([0.001, 0.01])
    low, high = seconds["scale"]["domain"]
    assert 0 < low < 0.001
    assert 0.01 < high < 0.1


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (COSTS.drop(columns="bytes"), "no column 'bytes'"),
        (COSTS.assign(seconds=0.0), "table holds 0.0; a logarithmic scale begins above 0"),
        (COSTS.assign(bytes=np.nan), "table holds nan"),
    ],
)
def test_costs_without_a_logarithm_are_refused(table, message):
    with pytest.raises(ValueError, match=message):
        growth_chart(table)
