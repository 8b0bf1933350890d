"""Charts of hidden states: cells, entropies, two ways of asking."""

import numpy as np
import pandas as pd
import pytest

from butfor import charts
from tests.slow.test_figures import HOSTILE, encodings_of, rows_of, words_of

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


def test_cells_have_their_probability_and_higher_levels_are_above_lower_ones():
    rows = rows_of(charts.latent_chart(STORY), "probability", "truth")
    assert {(row["step"], row["level"]): row["probability"] for row in rows} == {
        **{(0, "low"): 0.9, (0, "high"): 0.1, (1, "low"): 0.25, (1, "high"): 0.75}
    }
    levels = encodings_of(charts.latent_chart(STORY), "y")
    assert all(y["sort"] == ["high", "low"] for y in levels)  # from the top down
    true = [(row["step"], row["level"]) for row in rows if row["truth"]]
    assert true == [(0, "low"), (1, "high")]


def test_each_variable_and_kind_of_evidence_has_a_panel_with_its_own_levels():
    other = STORY.assign(panel="kind", level=STORY["level"].map({"low": "no", "high": "yes"}))
    chart = charts.latent_chart(pd.concat([STORY, other]))
    spec = chart.to_dict()
    assert spec["facet"]["sort"] == ["sugar", "kind"]
    assert spec["resolve"]["scale"]["y"] == "independent"
    levels = {row["panel"]: set() for row in rows_of(chart, "panel")}
    for row in rows_of(chart, "panel"):
        levels[row["panel"]].add(row["level"])
    assert levels == {"sugar": {"low", "high"}, "kind": {"no", "yes"}}


def test_entropy_is_drawn_on_one_scale_from_zero():
    chart = charts.entropy_chart(BITS)
    shown = {(row["series"], row["step"]): row["bits"] for row in rows_of(chart, "bits")}
    assert shown == {("a", 0): 0.5, ("a", 1): 0.2, ("b", 0): 1.5}
    for y in encodings_of(chart, "y"):
        assert y["field"] == "bits"
        assert y["scale"]["domain"] == pytest.approx([0, 1.65])


def test_a_known_state_can_be_drawn():
    chart = charts.entropy_chart(BITS.assign(bits=0.0))
    assert {row["bits"] for row in rows_of(chart, "bits")} == {0.0}
    assert encodings_of(chart, "y")[0]["scale"]["domain"] == [0, 0.1]


def test_marks_are_at_their_two_probabilities():
    chart = charts.agreement_chart(POINTS)
    rows = {row["id"]: row for row in rows_of(chart, "id")}
    assert [(rows[name]["x"], rows[name]["y"]) for name in "12"] == [(0.0, 1.0), (0.5, 0.25)]
    assert [rows[name]["series"] for name in ("1", "2")] == ["died", "home"]
    assert {(row["x"], row["y"]) for row in rows_of(chart, "end")} == {(0.0, 0.0), (1.0, 1.0)}
    for channel in ("x", "y"):  # both from 0 to 1
        axis = encodings_of(chart, channel)[-1]
        assert (axis["field"], axis["scale"]["domain"]) == (channel, [0, 1])


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
            "4 series, 3 at most",
        ),
        (
            lambda: charts.agreement_chart(POINTS.assign(x=1.5)),
            "table has x 1.5; give probabilities",
        ),
        (lambda: charts.agreement_chart(POINTS.assign(y=np.nan)), "table has y nan"),
        (
            lambda: charts.agreement_chart(pd.concat([POINTS.assign(series=n) for n in "abcd"])),
            "4 series",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
