"""The picture of what a larger log costs."""

import numpy as np
import pandas as pd
import pytest

from butfor import charts
from tests.slow.test_figures import HOSTILE, rows_of, words_of

COSTS = pd.DataFrame(
    {"episodes": [1000, 100, 10_000], "seconds": [3.0, 0.5, 30.0], "bytes": [2e8, 2e8, 4e9]}
)


def test_points_lie_on_logarithmic_scales_and_have_their_numbers():
    rows = {
        (row["panel"], row["episodes"]): row for row in rows_of(charts.growth_chart(COSTS), "value")
    }
    across = [rows["Time", size]["x"] for size in (100, 1000, 10_000)]
    assert across[1] - across[0] == pytest.approx(across[2] - across[1])  # a tenfold is a tenfold
    time = [rows["Time", size]["y"] for size in (100, 1000, 10_000)]
    # 0.5 to 3 s and 3 to 30 s: log10 of 6 and of 10
    assert (time[0] - time[1]) / (time[1] - time[2]) == pytest.approx(np.log10(6))
    memory = [rows["Peak memory", size]["y"] for size in (100, 1000, 10_000)]
    assert memory[0] == memory[1] > memory[2]
    words = [
        rows[panel, size]["words"] for panel in ("Time", "Peak memory") for size in (100, 10_000)
    ]
    assert words == ["0.5 s", "30 s", "200 MB", "4 GB"]


def test_the_dashed_line_is_growth_in_proportion_through_the_largest_log():
    chart = charts.growth_chart(COSTS)
    lines = {(row["panel"], row["episodes"]): row for row in rows_of(chart, "line")}
    points = {(row["panel"], row["episodes"]): row for row in rows_of(chart, "value")}
    for panel, column in (("Time", "seconds"), ("Peak memory", "bytes")):
        largest = float(COSTS.set_index("episodes")[column][10_000])
        assert [lines[panel, size]["line"] for size in (100, 1000, 10_000)] == pytest.approx(
            [largest / 100, largest / 10, largest]
        )
        assert lines[panel, 10_000]["y"] == pytest.approx(points[panel, 10_000]["y"])
    assert lines["Time", 1000]["y"] == pytest.approx(points["Time", 1000]["y"])  # 3 s are a tenth
    assert lines["Time", 100]["y"] > points["Time", 100]["y"]  # 0.3 s lie below 0.5 s
    assert "in proportion to the episodes" in words_of(chart)


def test_one_log_and_small_costs_can_be_drawn():
    chart = charts.growth_chart(
        pd.DataFrame({"episodes": [10], "seconds": [0.004], "bytes": [500.0]}), title=HOSTILE
    )
    rows = rows_of(chart, "value")
    assert [row["words"] for row in rows] == ["0.004 s", "0.5 kB"]
    assert np.isfinite([row[name] for row in rows for name in ("x", "y")]).all()
    ticks = {row["words"] for row in rows_of(chart, "words") if isinstance(row["words"], str)}
    assert {"0.001 s", "0.01 s"} <= ticks
    assert "0.1 s" not in ticks


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (COSTS.drop(columns="bytes"), "no column 'bytes'"),
        (COSTS.assign(seconds=0.0), "table holds 0.0; a logarithmic scale begins above 0"),
        (COSTS.assign(bytes=np.nan), "table holds nan"),
    ],
)
def test_costs_that_no_logarithm_has_are_refused(table, message):
    with pytest.raises(ValueError, match=message):
        charts.growth_chart(table)
