"""Charts of what is uncertain: influence, fewest changes, two uncertainties, noise on labels."""

import numpy as np
import pandas as pd
import pytest

import butfor as bf
from butfor import charts
from tests.builders import ward_log
from tests.slow.test_figures import HOSTILE, encodings_of, rows_of, words_of


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


def words_beside(chart):
    """Words at the right of each panel, each as one line."""
    return [" ".join(row["words"]) for row in rows_of(chart, "words")]


# ------------------------------------------------------------------------------------- influence


def test_bars_are_as_high_as_influence_and_mass():
    chart = charts.influence_chart(influence_of())
    bars = sorted(rows_of(chart, "mass"), key=lambda row: row["step"])
    assert [row["mass"] for row in bars] == [1.0, 0.5, 0.25]
    assert [row["influence"] for row in bars] == [0.4, 0.2, 0.0]
    heights = encodings_of(chart, "y")
    assert [y["field"] for y in heights] == ["mass", "influence"]
    assert all(y["scale"]["domain"] == [0, 1] for y in heights)


def test_the_line_is_where_influence_fades_and_words_say_what_comes_later():
    chart = charts.influence_chart(influence_of(), word="Stay")
    (line,) = rows_of(chart, "fades")
    (bar,) = [row for row in rows_of(chart, "mass") if row["step"] == 2]
    assert line["fades"] == bar["left"]
    assert words_beside(chart) == ["Fades out at step 2. Of the return, 62% comes later."]
    assert {row["panel"] for row in rows_of(chart, "panel")} == {"Stay w"}
    assert "whoever the patient was. A model estimate, not a fact." in words_of(chart)
    assert chart.to_dict()["description"] == words_of(chart)


@pytest.mark.parametrize(
    ("dies", "words"), [(0, "Never about the patient"), (3, "About the patient to the end.")]
)
def test_influence_that_never_begins_or_never_fades_is_described_in_words(dies, words):
    chart = charts.influence_chart(influence_of(dies=dies))
    (beside,) = words_beside(chart)
    assert beside.startswith(words)
    assert len(rows_of(chart, "fades")) == (dies == 0)


def test_influence_of_several_episodes_is_drawn_from_the_frame_of_the_library():
    log = ward_log()
    carried = bf.Replay(log, bf.fit_mdp(log), bf.estimate_behavior(log)).steps()
    chart = charts.influence_chart(carried.influence_frame(log.id))
    assert chart.to_dict()["facet"]["sort"] == [f"Patient {name}" for name in log.id.tolist()]
    assert len(rows_of(chart, "influence")) == carried.influence.size
    with pytest.raises(ValueError, match=r"ids has shape \(2,\), expected \(4,\)"):
        carried.influence_frame(["a", "b"])


def test_one_step_and_many_steps_are_drawn_within_the_panel():
    for steps in (1, 300):
        frame = influence_of(values=[0.5] * steps, mass=[1.0] * steps, dies=steps)
        chart = charts.influence_chart(frame)
        low, high = encodings_of(chart, "x")[0]["scale"]["domain"]
        bars = rows_of(chart, "mass")
        assert all(low <= row["left"] < row["right"] <= high for row in bars)
        assert len(bars) == steps


# --------------------------------------------------------------------------------------- changes


def test_changes_show_value_gain_and_the_first_change_in_words():
    chart = charts.changes_chart(changes_of())
    rows = rows_of(chart, "name", "value")
    assert [r["name"] for r in rows] == ["No change", "At most 1 change", "At most 2 changes"]
    assert [" ".join(r["note"]) for r in rows] == [
        "as it was done",
        "step 3: a instead of b",
        "no change would help",
    ]
    assert [r["number"] for r in rows] == ["−1.00", "+0.00", "+0.00"]
    assert [r.get("gain") for r in rows] == [None, "gain +1.00", "gain +1.00"]
    assert "a model estimate, not a fact." in words_of(chart)


def test_changes_are_drawn_from_the_frame_of_the_library():
    log = ward_log()
    frame = (
        bf.Replay(log, bf.fit_mdp(log, unseen="home"), bf.estimate_behavior(log))
        .fewest_changes(1)
        .frame()
    )
    mine = frame[frame["id"] == log.id[0]]
    # stay 0 died after 0 -a0-> 1 -a1-> 2; action 0 in state 1 was never observed, and leads home
    assert mine["first_change"].tolist() == ["", "step 1: action 0 instead of action 1"]
    rows = rows_of(charts.changes_chart(mine), "name", "value")
    assert [r["value"] for r in rows] == mine["value"].tolist()


# ----------------------------------------------------------------------------- two uncertainties


def test_bounds_and_credible_intervals_have_their_own_panels_on_one_scale():
    chart = charts.uncertainty_chart(UNCERTAIN, domain=(-1, 2))
    rows = rows_of(chart, "difference")
    assert [row["id"] for row in rows] == ["y", "x"]  # differences 1.5 and .25
    kinds = ("any", "stable", "credible")
    found = [[row[f"{end}_{kind}"] for kind in kinds for end in ("low", "high")] for row in rows]
    assert found == [[0.0, 2.0, 1.0, 1.75, 1.25, 1.625], [-0.5, 1.0, 0.0, 0.5, 0.125, 0.375]]
    panels = chart.to_dict()["hconcat"]
    fields = [{layer["encoding"]["x"]["field"] for layer in panel["layer"]} for panel in panels]
    left = {"zero", "difference", "low_any", "high_any", "low_stable"}
    assert fields == [left, {"zero", "difference", "low_credible"}]
    domains = [x["scale"]["domain"] for x in encodings_of(chart, "x")]
    assert all(domain == [-1, 2] for domain in domains)
    assert all(y["sort"] == ["y", "x"] for y in encodings_of(chart, "y"))


def test_each_panel_says_what_it_takes_for_granted():
    chart = charts.uncertainty_chart(UNCERTAIN)
    titles = [panel["title"] for panel in chart.to_dict()["hconcat"]]
    assert [" ".join(title["subtitle"]) for title in titles] == [
        "Holds only if the model is right.",
        "Covers what the log leaves open about the model, not its causal assumptions.",
    ]
    assert "A model estimate, not a fact." in words_of(chart)


def test_frames_of_the_library_side_by_side_can_be_drawn():
    log = ward_log()
    model, target = bf.fit_mdp(log), bf.estimate_behavior(log)
    exact = bf.Replay(log, model, target).outcomes().frame()
    bounds = bf.Replay(log, model, target).bounds().frame()
    credible = bf.credible_intervals(log, target, models=20).frame()
    chart = charts.uncertainty_chart(pd.concat([exact, bounds, credible], axis=1))
    assert len(rows_of(chart, "difference")) == len(log)


# --------------------------------------------------------------------------- texts and bad input


def hostile_charts():
    """Each chart with texts that would break out of a page or an expression."""
    yield charts.influence_chart(influence_of(HOSTILE), word=HOSTILE, title=HOSTILE)
    hostile = changes_of(first_change=[HOSTILE] * 3)
    yield charts.changes_chart(hostile, title=HOSTILE, axis_title=HOSTILE)
    yield charts.uncertainty_chart(UNCERTAIN.assign(id=[HOSTILE, "y"]), axis_title=HOSTILE)


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
        (
            lambda: charts.influence_chart(influence_of(values=(2.0, 0, 0))),
            "influence has influence 2.0; give",
        ),
        (
            lambda: charts.influence_chart(influence_of(mass=(np.nan, 0, 0))),
            "mass nan; give probabilities",
        ),
        (
            lambda: charts.influence_chart(pd.concat([influence_of(str(i)) for i in range(9)])),
            "9 episodes, 8 at most; select",
        ),
        (
            lambda: charts.changes_chart(pd.concat([changes_of(), changes_of()])),
            "2 rows with 0 changes; give those of one episode",
        ),
        (
            lambda: charts.changes_chart(changes_of(value=[0.0, np.inf, 1.0])),
            "the value inf; give finite numbers",
        ),
        (lambda: charts.changes_chart(changes_of()[["changes"]]), "no column 'value'"),
        (
            lambda: charts.uncertainty_chart(UNCERTAIN.drop(columns="low_credible")),
            "no column 'low_credible'",
        ),
        (
            lambda: charts.uncertainty_chart(UNCERTAIN.assign(high_any=[1.0, np.nan])),
            "episode y: high_any is nan; give a finite number",
        ),
        (
            lambda: charts.uncertainty_chart(pd.concat([UNCERTAIN] * 21)),
            "42 episodes, 40 at most",
        ),
        (lambda: charts.uncertainty_chart(UNCERTAIN, domain=(1, 0)), r"domain \(1, 0\)"),
    ],
)
def test_bad_input_is_named_with_a_remedy(call, message):
    with pytest.raises(ValueError, match=message):
        call()
