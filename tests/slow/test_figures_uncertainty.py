"""Pictures of what is open: influence, fewest changes, two uncertainties, whose noise decides."""

import numpy as np
import pandas as pd
import pytest

import butfor as bf
from butfor import charts
from tests.builders import ward_log
from tests.slow.test_figures import HOSTILE, rows_of, words_of


def influence_of(identifier="w", *, values=(0.4, 0.2, 0.0), mass=(1.0, 0.5, 0.25), dies=2):
    return pd.DataFrame(
        {
            "id": identifier,
            "step": range(len(values)),
            "influence": values,
            "mass": mass,
            "dies_at": dies,
            "share_after": 0.62,
        }
    )


def changes_of(**changes):
    given = {
        "changes": [0, 1, 2],
        "value": [-1.0, 0.0, 0.0],
        "first_change": ["", "step 3: a instead of b", ""],
    }
    return pd.DataFrame(given | changes)


UNCERTAIN = pd.DataFrame(
    {
        "id": ["x", "y"],
        "observed_return": [0.0, -1.0],
        "expected_return": [0.25, 0.5],
        "low_any": [-0.5, -1.0],
        "high_any": [1.0, 1.0],
        "low_stable": [0.0, 0.0],
        "high_stable": [0.5, 0.75],
        "low_credible": [0.125, 0.25],
        "high_credible": [0.375, 0.625],
    }
)
LABELLED = pd.DataFrame(
    {
        "id": ["x", "y", "z"],
        "expected_return_states": [0.5, -1.0, 0.0],
        "expected_return_labels": [0.75, -1.0, -0.5],
        "changed": [False, False, True],
    }
)


def texts_of(chart, *fields):
    """Texts of the chart, each as one line."""
    rows = rows_of(chart, "text", *fields)
    return [r["text"] if isinstance(r["text"], str) else " ".join(r["text"]) for r in rows]


# ------------------------------------------------------------------------------------- influence


def test_bars_are_as_high_as_influence_and_mass():
    bars = rows_of(charts.influence_chart(influence_of()), "kind")
    height = {(r["kind"], r["step"]): r["y2"] - r["y"] for r in bars}
    unit = height["mass", 0]
    assert [height["mass", t] / unit for t in range(3)] == pytest.approx([1.0, 0.5, 0.25])
    assert [height["influence", t] / unit for t in range(3)] == pytest.approx([0.4, 0.2, 0.0])


def test_the_line_stands_where_it_fades_and_words_say_what_comes_later():
    chart = charts.influence_chart(influence_of(), word="Stay")
    bars = [r for r in rows_of(chart, "kind") if (r["kind"], r["step"]) == ("mass", 2)]
    (line,) = [r for r in rows_of(chart, "x", "y", "y2") if "x2" not in r]
    assert line["x"] == bars[0]["x"]
    texts = texts_of(chart)
    assert "Fades out at step 2. Of the return, 62% comes later." in texts
    assert "Stay w" in texts
    assert "whoever the patient was. A model estimate, not a fact." in words_of(chart)
    assert chart.to_dict()["description"] == words_of(chart)


@pytest.mark.parametrize(
    ("dies", "words"), [(0, "Never about the patient"), (3, "About the patient to the end.")]
)
def test_influence_that_never_lives_or_never_fades_is_said_in_words(dies, words):
    chart = charts.influence_chart(influence_of(dies=dies))
    assert any(text.startswith(words) for text in texts_of(chart))
    lines = [r for r in rows_of(chart, "x", "y", "y2") if "x2" not in r]
    assert len(lines) == (dies == 0)


def test_influence_of_several_episodes_comes_as_the_library_gives_it():
    log = ward_log()
    carried = bf.walk_through(log, bf.fit_mdp(log), bf.estimate_behavior(log))
    chart = charts.influence_chart(carried.influence_frame(log.id))
    shown = [r["name"] for r in rows_of(chart, "name")]
    assert shown == [f"Patient {name}" for name in log.id.tolist()]
    bars = [r for r in rows_of(chart, "kind") if r["kind"] == "influence"]
    assert len(bars) == carried.influence.size
    with pytest.raises(ValueError, match=r"ids has shape \(2,\), expected \(4,\)"):
        carried.influence_frame(["a", "b"])


def test_one_step_and_many_steps_are_drawn_within_the_panel():
    for steps in (1, 300):
        frame = influence_of(values=[0.5] * steps, mass=[1.0] * steps, dies=steps)
        chart = charts.influence_chart(frame)
        width = chart.to_dict()["width"]
        assert all(0 <= r["x"] <= r["x2"] <= width + 1e-9 for r in rows_of(chart, "kind"))
        assert "0" in texts_of(chart, "look")


# --------------------------------------------------------------------------------------- changes


def test_changes_show_value_gain_and_the_first_change_in_words():
    chart = charts.changes_chart(changes_of())
    rows = rows_of(chart, "name", "value")
    assert [r["name"] for r in rows] == ["No change", "At most 1 change", "At most 2 changes"]
    assert [" ".join(r["note"]) for r in rows] == [
        "as it was done",
        "step 3: a instead of b",
        "nothing to be gained",
    ]
    assert [r["number"] for r in rows] == ["−1.00", "+0.00", "+0.00"]
    assert [r.get("gain") for r in rows] == [None, "gain +1.00", "gain +1.00"]
    assert "a model estimate, not a fact." in words_of(chart)


def test_changes_come_as_the_library_gives_them():
    log = ward_log()
    frame = bf.fewest_changes(log, bf.fit_mdp(log, unseen="home"), changes=1).frame()
    mine = frame[frame["id"] == log.id[0]]
    # stay 0 died after 0 -a0-> 1 -a1-> 2; action 0 in state 1 was never seen, and leads home
    assert mine["first_change"].tolist() == ["", "step 1: action 0 instead of action 1"]
    rows = rows_of(charts.changes_chart(mine), "name", "value")
    assert [r["value"] for r in rows] == mine["value"].tolist()


# ----------------------------------------------------------------------------- two uncertainties


def test_bounds_and_credible_intervals_stand_in_panels_of_their_own_on_one_scale():
    chart = charts.uncertainty_chart(UNCERTAIN, domain=(-1, 2))
    rows = rows_of(chart, "dot")
    assert [r["id"] for r in rows] == ["y", "x"]  # differences 1.5 and .25
    (left, right) = sorted(r["x"] for r in rows_of(chart, "x", "x2", "y2"))
    scale = (rows[0]["dot"] - rows[1]["dot"]) / 1.25
    zero = rows[1]["dot"] - 0.25 * scale
    for row, (low_any, high_any), (low, high), (least, most) in (
        (rows[0], (0.0, 2.0), (1.0, 1.75), (1.25, 1.625)),
        (rows[1], (-0.5, 1.0), (0.0, 0.5), (0.125, 0.375)),
    ):
        found = [row[f"{end}_{kind}"] for kind in ("any", "stable") for end in ("low", "high")]
        expected = [zero + scale * value for value in (low_any, high_any, low, high)]
        assert found == pytest.approx(expected)
        beside = [row["low_credible"] - right + left, row["high_credible"] - right + left]
        assert beside == pytest.approx([zero + scale * value for value in (least, most)])
        assert row["ring"] - right == pytest.approx(row["dot"] - left)


def test_each_panel_says_what_it_takes_for_granted():
    texts = texts_of(charts.uncertainty_chart(UNCERTAIN), "look")
    assert "Holds only if the model is right." in texts
    assert "Covers what the log leaves open about the model, not its causal assumptions." in texts
    assert "A model estimate, not a fact." in words_of(charts.uncertainty_chart(UNCERTAIN))


def test_frames_of_the_library_side_by_side_make_the_picture():
    log = ward_log()
    model, target = bf.fit_mdp(log), bf.estimate_behavior(log)
    exact = bf.counterfactual_outcomes(log, model, target).frame()
    bounds = bf.counterfactual_bounds(log, model, target).frame()
    credible = bf.credible_intervals(log, target, models=20).frame()
    chart = charts.uncertainty_chart(pd.concat([exact, bounds, credible], axis=1))
    assert len(rows_of(chart, "dot")) == len(log)


# ---------------------------------------------------------------------------------------- labels


def test_points_are_the_two_returns_and_words_say_what_cannot_carry_over():
    chart = charts.labels_chart(LABELLED, apart=(0.91, 0.34))
    points = [(r["id"], r["states"], r["labels"]) for r in rows_of(chart, "kind")]
    assert points == [("x", 0.5, 0.75), ("y", -1.0, -1.0), ("z", 0.0, -0.5)]
    kinds = [r["kind"] for r in rows_of(chart, "kind")]
    assert [kind.endswith("changes") for kind in kinds] == [False, False, True]
    words = words_of(chart)
    assert "moves by 0.5 at most, the likeliest outcome changes for 1 of 3." in words
    assert "at 91% of its steps with noise on states, at 34% with noise on labels." in words
    for nothing in (None, (float("nan"), 0.5)):
        assert "carry over" not in words_of(charts.labels_chart(LABELLED, apart=nothing))


# --------------------------------------------------------------------------- texts and bad input


def hostile_charts():
    """Each chart with texts that would break out of a page or an expression."""
    yield charts.influence_chart(influence_of(HOSTILE), word=HOSTILE, title=HOSTILE)
    hostile = changes_of(first_change=[HOSTILE] * 3)
    yield charts.changes_chart(hostile, title=HOSTILE, axis_title=HOSTILE)
    yield charts.uncertainty_chart(UNCERTAIN.assign(id=[HOSTILE, "y"]), axis_title=HOSTILE)
    yield charts.labels_chart(LABELLED.assign(id=HOSTILE), axis_titles=(HOSTILE, HOSTILE))


def test_hostile_texts_are_drawn_as_text_and_end_no_script(tmp_path):
    for number, chart in enumerate(hostile_charts()):
        svg, page = charts.save_figure(chart, tmp_path / str(number), ["svg", "html"])
        assert "<script" not in svg.read_text(encoding="utf-8")
        assert "&lt;/script&gt;" in svg.read_text(encoding="utf-8")
        html = page.read_text(encoding="utf-8")
        assert html.count("</script") == 1
        assert html.count("<script") == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: charts.influence_chart(influence_of().drop(columns="mass")), "no column 'mass'"),
        (lambda: charts.influence_chart(influence_of()[:0]), "influence has 0 rows"),
        (lambda: charts.influence_chart(influence_of(values=(2.0, 0, 0))), "influence 2.0: give"),
        (
            lambda: charts.influence_chart(influence_of(mass=(np.nan, 0, 0))),
            "mass nan: give probabilities",
        ),
        (
            lambda: charts.influence_chart(pd.concat([influence_of(str(i)) for i in range(9)])),
            "9 episodes, 8 at most; give",
        ),
        (
            lambda: charts.changes_chart(pd.concat([changes_of(), changes_of()])),
            "2 rows with 0 changes; give those of one episode",
        ),
        (
            lambda: charts.changes_chart(changes_of(value=[0.0, np.inf, 1.0])),
            "the value inf; give numbers",
        ),
        (lambda: charts.changes_chart(changes_of()[["changes"]]), "no column 'value'"),
        (
            lambda: charts.uncertainty_chart(UNCERTAIN.drop(columns="low_credible")),
            "no column 'low_credible'",
        ),
        (
            lambda: charts.uncertainty_chart(UNCERTAIN.assign(high_any=[1.0, np.nan])),
            "episode y: high_any is nan; give a number",
        ),
        (
            lambda: charts.uncertainty_chart(pd.concat([UNCERTAIN] * 21)),
            "42 episodes, 40 at most",
        ),
        (lambda: charts.uncertainty_chart(UNCERTAIN, domain=(1, 0)), r"domain \(1, 0\)"),
        (lambda: charts.labels_chart(LABELLED, apart=(1.5, 0.5)), "apart 1.5: give shares"),
        (lambda: charts.labels_chart(LABELLED.drop(columns="changed")), "no column 'changed'"),
        (
            lambda: charts.labels_chart(LABELLED.assign(expected_return_labels=np.nan)),
            "episodes hold nan; give numbers",
        ),
    ],
)
def test_bad_input_is_named_with_a_remedy(call, message):
    with pytest.raises(ValueError, match=message):
        call()
