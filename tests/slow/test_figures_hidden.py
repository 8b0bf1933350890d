"""Pictures of hidden states: cells, entropies, two ways of asking."""

import numpy as np
import pandas as pd
import pytest

from butfor import charts
from tests.slow.test_figures import HOSTILE, rows_of, words_of

STORY = pd.DataFrame(
    [
        ("sugar", step, level, probability, truth)
        for step, level, probability, truth in [
            *((0, "low", 0.9, True), (0, "high", 0.1, False)),
            *((1, "low", 0.25, False), (1, "high", 0.75, True)),
        ]
    ],
    columns=["panel", "step", "level", "probability", "truth"],
)
BITS = pd.DataFrame(
    {"series": ["a", "a", "b"], "step": [0, 1, 0], "bits": [0.5, 0.2, 1.5], "episodes": [9, 8, 9]}
)
POINTS = pd.DataFrame({"id": [1, 2], "series": ["died", "home"], "x": [0.0, 0.5], "y": [1.0, 0.25]})


def test_cells_have_their_probability_and_higher_levels_lie_higher():
    rows = rows_of(charts.latent_chart(STORY), "probability", "truth")
    assert {(row["step"], row["level"]): row["probability"] for row in rows} == {
        **{(0, "low"): 0.9, (0, "high"): 0.1, (1, "low"): 0.25, (1, "high"): 0.75}
    }
    place = {(row["step"], row["level"]): row for row in rows}
    assert place[0, "high"]["y"] < place[0, "low"]["y"]  # y runs down
    assert place[0, "high"]["bottom"] <= place[0, "low"]["top"]
    assert place[0, "low"]["right"] <= place[1, "low"]["left"]
    assert [key for key, row in place.items() if row["truth"]] == [(0, "low"), (1, "high")]


def test_each_variable_and_kind_of_evidence_has_a_panel_with_its_own_levels():
    other = STORY.assign(panel="kind", level=STORY["level"].map({"low": "no", "high": "yes"}))
    chart = charts.latent_chart(pd.concat([STORY, other]))
    words = [row["words"] for row in rows_of(chart, "words")]
    assert ["sugar"] in words
    assert ["kind"] in words
    assert {"low", "high", "no", "yes"} <= {word for word in words if isinstance(word, str)}


def test_entropy_lies_on_one_scale_from_zero():
    chart = charts.entropy_chart(BITS)
    rows = {(row["series"], row["step"]): row for row in rows_of(chart, "bits")}
    heights = [rows[key]["y"] for key in (("b", 0), ("a", 0), ("a", 1))]
    assert heights == sorted(heights)
    # 1.5 - 0.5 and 0.5 - 0.2 bits are as far apart as they are large
    assert (heights[1] - heights[0]) / (heights[2] - heights[1]) == pytest.approx(1.0 / 0.3)
    assert rows["b", 0]["x"] == rows["a", 0]["x"] < rows["a", 1]["x"]
    assert {row["words"] for row in rows_of(chart, "words") if row["words"] == "0"} == {"0"}


def test_nothing_unknown_can_be_drawn():
    rows = rows_of(charts.entropy_chart(BITS.assign(bits=0.0)), "bits")
    assert np.isfinite([row["y"] for row in rows]).all()


def test_marks_lie_at_their_two_probabilities():
    rows = {row["id"]: row for row in rows_of(charts.agreement_chart(POINTS), "one")}
    left, right = (row for row in rows_of(charts.agreement_chart(POINTS), "order"))
    assert (rows["1"]["x"], rows["1"]["y"]) == (left["x"], right["y"])  # 0 across, 1 up
    assert rows["2"]["x"] == pytest.approx((left["x"] + right["x"]) / 2)
    assert rows["2"]["y"] == pytest.approx(0.75 * left["y"] + 0.25 * right["y"])
    assert [rows[name]["series"] for name in ("1", "2")] == ["died", "home"]


@pytest.mark.parametrize(
    "chart",
    [
        lambda: charts.latent_chart(STORY.assign(panel=HOSTILE, level=HOSTILE), title=HOSTILE),
        lambda: charts.entropy_chart(BITS.assign(series=HOSTILE), title=HOSTILE),
        lambda: charts.agreement_chart(POINTS.assign(series=HOSTILE, id=HOSTILE), title=HOSTILE),
    ],
)
def test_hostile_texts_are_drawn_as_text(chart, tmp_path):
    made = chart()
    assert "alert" in words_of(made)
    charts.save_figure(made, tmp_path / "figure")
    assert "<script>alert" not in (tmp_path / "figure.svg").read_text()
    assert "<script>alert" not in (tmp_path / "figure.html").read_text()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: charts.latent_chart(STORY.drop(columns="truth")), "no column 'truth'"),
        (lambda: charts.entropy_chart(BITS.drop(columns="bits")), "no column 'bits'"),
        (
            lambda: charts.entropy_chart(pd.concat([BITS.assign(series=n) for n in "abcd"])),
            "4 series; there are colours for 3",
        ),
        (lambda: charts.agreement_chart(POINTS.assign(x=1.5)), "table holds 1.5"),
        (lambda: charts.agreement_chart(POINTS.assign(y=np.nan)), "table holds nan"),
        (
            lambda: charts.agreement_chart(pd.concat([POINTS.assign(series=n) for n in "abcd"])),
            "4 series",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
