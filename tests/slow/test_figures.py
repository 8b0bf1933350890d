import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import butfor as bf
from butfor import charts
from butfor.evaluate.wording import percent
from butfor.log.variables import Outcome, Variable
from butfor.present.charts import save
from butfor.present.charts.style import text_width, wrap
from butfor.present.charts.trajectory.layout import CROSS
from butfor.replay.draws import Draws
from tests.builders import DEATH, HOME, patient_log

HOSTILE = '</script><script>alert("x")</script> \'&amp; {{datum}} \\ 日本語 ' + "ä" * 60
ESTIMATES = pd.DataFrame(
    {
        "estimator": ["Observed", "WIS", "MB", "True"],
        "value": [0.324, np.nan, 0.9, -0.491],
        "low": [0.289, np.nan, np.nan, -0.541],
        "high": [0.369, np.nan, np.nan, -0.445],
    }
)
TABLE = pd.DataFrame([[4, 119], [0, 877]], index=["died", "home"], columns=["died", "home"])


def rows_of(chart, *fields):
    """Rows of the chart's data that have these fields, each once, from a valid specification."""
    spec = chart.to_dict()  # checked against the schema of Vega-Lite
    found = [row for rows in spec["datasets"].values() for row in rows if set(fields) <= row.keys()]
    return list({json.dumps(row, sort_keys=True): row for row in found}.values())


def encodings_of(chart, channel):
    """Encodings of a channel, of all marks of the chart."""

    def walk(part):
        if isinstance(part, dict):
            if channel in part.get("encoding", {}):
                yield part["encoding"][channel]
            for entry in part.values():
                yield from walk(entry)
        elif isinstance(part, list):
            for entry in part:
                yield from walk(entry)

    return list(walk({name: part for name, part in chart.to_dict().items() if name != "datasets"}))


def words_of(chart):
    """Title and subtitle as one text."""
    title = chart.to_dict()["title"]
    return " ".join(title["text"] + title["subtitle"])


def hidden_log():
    """The patients of builders.py, of whom the model knows only the pulse: states 0, 1, 2."""
    return patient_log().hide("sugar", "sex")


def draws_of(log, state, action):
    """Draws of the log's only episode, rows padded with -1."""
    states = np.array([state], dtype=np.int32)
    return Draws(log, states, np.array([action], dtype=np.int32), np.zeros((1, *np.shape(action))))


def lines_of(chart, *names):
    """Points of the lines of a trajectory, with the place and name of their level; 0: observed."""
    datasets = chart.to_dict()["datasets"]
    levels = {row["k"]: row for row in datasets["levels"]}
    rows = [row for name in names or ("happened", "draws") for row in datasets[name]]
    return [levels[row["k"]] | row | {"draw": row.get("draw", -1) + 1} for row in rows]


def path(lines, variable, draw=0):
    """Steps and levels of one line."""
    return [
        (row["step"], row["level"])
        for row in lines
        if (row["variable"], row["draw"]) == (variable, draw)
    ]


def first_of(chart):
    """Where the line at the first difference is drawn, half a step after the decision."""
    return [row["at"] for row in chart.to_dict()["datasets"]["first"]]


# ---------------------------------------------------------------------------- estimates, repeats


def test_estimates_show_the_numbers_given():
    rows = rows_of(charts.estimates_chart(ESTIMATES), "value", "number")
    assert [row["name"] for row in rows] == ["Observed", "WIS", "MB", "True"]
    assert [row["value"] for row in rows] == [0.324, None, 0.9, -0.491]
    assert [row["low"] for row in rows] == [0.289, None, None, -0.541]
    assert [row["high"] for row in rows] == [0.369, None, None, -0.445]
    assert [row["number"] for row in rows] == [
        "+0.32 (+0.29 to +0.37)",
        "no estimate",
        "+0.90",
        "−0.49 (−0.54 to −0.45)",
    ]
    assert [row["kind"] for row in rows] == ["reference", "estimate", "estimate", "true"]


def test_estimates_say_what_the_interval_leaves_out_and_why_the_truth_is_known():
    chart = charts.estimates_chart(ESTIMATES)
    assert (
        "Covers chance, also in what the model learned; not what the records leave out."
        in words_of(chart)
    )
    notes = {row["name"]: " ".join(row["note"]) for row in rows_of(chart, "note")}
    assert notes["True"] == "known only because this is a simulator"
    noted = ESTIMATES.assign(note=["what happened", None, None, None])
    notes = {r["name"]: " ".join(r["note"]) for r in rows_of(charts.estimates_chart(noted), "note")}
    assert notes["Observed"] == "what happened"
    assert notes["True"] == "known only because this is a simulator"


def test_the_axis_reaches_as_far_as_the_data():
    spec = charts.estimates_chart(ESTIMATES, domain=(-0.2, 1)).to_dict()
    assert '"domain": [-0.541, 1]' in json.dumps(spec)


@pytest.mark.parametrize(
    ("value", "text"), [(0.01234, "+0.012"), (5.0, "+5.00"), (-4e4, "−40,000")]
)
def test_numbers_have_the_digits_they_need(value, text):
    frame = pd.DataFrame({"estimator": ["a"], "value": [value], "low": [np.nan], "high": [np.nan]})
    (row,) = rows_of(charts.estimates_chart(frame, reference=None), "number")
    assert row["number"] == text


REHEARSALS = pd.DataFrame(
    {
        "hidden": ["age", "heart rate"],
        "promised": [0.3, 0.7],
        "judged": [0.35, 0.2],
        "error": [-0.05, 0.5],
    }
)


def test_rehearsals_have_the_largest_error_first_and_the_gain_as_a_line():
    chart = charts.rehearsal_chart(REHEARSALS, 0.25)
    rows = rows_of(chart, "number")
    assert [(row["name"], row["value"], row["number"]) for row in rows] == [
        ("Without heart rate", 0.5, "+0.50"),
        ("Without age", -0.05, "−0.05"),
    ]
    assert {row["gain"] for row in rows} == {0.25}
    assert " ".join(rows[0]["note"]) == "promised +0.70, judged +0.20"


@pytest.mark.parametrize(
    ("logs", "ends", "words"), [(40, (2.5, 97.5), "95% range"), (39, (0, 100), "lowest to highest")]
)
def test_boxes_are_percentiles_and_leave_out_what_is_missing(logs, ends, words):
    values = np.random.default_rng(0).normal(size=101)
    repeats = pd.DataFrame(
        {
            "estimator": ["Observed"] * 102 + ["WIS (train)"] * logs,
            "value": [*values, np.nan, *values[:logs]],
        }
    )
    chart = charts.boxplot_chart(repeats)
    rows = {row["name"]: row for row in rows_of(chart, "note")}
    box = [rows["Observed"][name] for name in ("low", "first", "median", "third", "high")]
    assert box == pytest.approx(np.percentile(values, [ends[0], 25, 50, 75, ends[1]]))
    assert rows["Observed"]["mean"] == pytest.approx(values.mean())
    assert rows["Observed"]["note"] == ["101 logs, 1 without value"]
    assert " ".join(rows["WIS (train)"]["note"]) == f"weighted importance sampling; {logs} logs"
    assert f"mean ({words})" in words_of(chart)


def test_published_values_are_drawn_beside_the_boxes():
    repeats = pd.DataFrame({"estimator": ["MB", "MB", "True"], "value": [0.7, 0.9, -0.2]})
    published = pd.DataFrame({"estimator": ["MB"], "mean": [0.81], "low": [0.57], "high": [0.96]})
    chart = charts.boxplot_chart(repeats, published=published)
    (row,) = rows_of(chart, "published", "y")
    assert (row["published_low"], row["published"], row["published_high"]) == (0.57, 0.81, 0.96)
    assert row["y_ours"] != row["y_theirs"]
    assert "True: known only because this is a simulator." in words_of(chart)


def test_published_values_are_drawn_below_the_estimates():
    published = pd.DataFrame({"estimator": ["WIS"], "mean": [0.6], "low": [-2.0], "high": [0.9]})
    chart = charts.estimates_chart(ESTIMATES, published=published)
    (row,) = rows_of(chart, "published", "y")
    assert (row["name"], row["published"], row["y_theirs"] > row["y_ours"]) == ("WIS", 0.6, True)
    assert row["published_number"] == "+0.60 (−2.00 to +0.90)"
    spec = chart.to_dict()
    scales = [
        layer["encoding"]["x"]["scale"] for layer in spec["layer"] if "x" in layer["encoding"]
    ]
    assert all(scale["domain"][0] <= -2 for scale in scales if "domain" in scale)
    # else published marks would take the colors of ours
    assert spec["resolve"]["scale"] == {"color": "independent", "shape": "independent"}
    with pytest.raises(ValueError, match="no room for published"):
        charts.estimates_chart(ESTIMATES, published=published, narrow=True)


def test_an_estimator_without_any_value_keeps_its_row():
    repeats = pd.DataFrame({"estimator": ["WIS", "MB"], "value": [np.nan, 0.5]})
    rows = {row["name"]: row for row in rows_of(charts.boxplot_chart(repeats), "note")}
    assert " ".join(rows["WIS"]["note"]).endswith("; 0 logs, 1 without value")
    assert "median" not in rows["WIS"]


# ------------------------------------------------------------------------------ errors, pieces


def errors_of(*rows):
    return pd.DataFrame(rows, columns=["factor", "level", "estimator", "error"])


def test_errors_have_means_with_bars_of_two_standard_errors_and_one_dot_per_log():
    chart = charts.errors_chart(
        errors_of(
            ("size", "10", "WIS", 0.0),
            ("size", "10", "WIS", 1.0),
            ("size", "10", "WIS", np.nan),
            ("size", "20", "MB", -0.5),
        ),
        reference={"size": "20"},
        domain=(-1, 1),
    )
    marks = {row["name"]: row for row in rows_of(chart, "mean")}
    # standard error .5: the bar of 2 reaches from -0.5 to 1.5, cut at 1
    assert [marks["WIS"][end] for end in ("low", "mean", "high")] == [-0.5, 0.5, 1.5]
    for y in encodings_of(chart, "y"):
        assert (y["scale"]["domain"], y["scale"]["clamp"]) == ([-1, 1], True)
    assert marks["WIS"]["number"] == "+0.500 ± 0.500 (2 logs)"
    assert marks["MB"]["number"] == "−0.500 ± 0.000 (1 log)"
    x = encodings_of(chart, "x")[0]
    assert x["sort"] == ["10", "20"]
    bold = x["axis"]["labelFontWeight"]["condition"]
    assert (bold["test"], bold["value"]) == ("round(datum.index * 1) == 1", "bold")  # the second
    assert len(rows_of(chart, "error")) == 3
    assert "± 2 standard errors" in words_of(chart)


def test_errors_of_too_many_estimators_are_refused():
    with pytest.raises(ValueError, match="5 series, 4 at most"):
        charts.errors_chart(errors_of(*(("f", "l", str(i), 0.0) for i in range(5))))


def test_pieces_stack_above_and_below_zero_and_add_up():
    pieces = pd.DataFrame(
        {
            "panel": "hidden",
            "level": "10",
            "piece": ["luck", "thin", "bias"],
            "value": [1.0, -0.5, 0.25],
        }
    )
    chart = charts.pieces_chart(pieces)
    bars = {row["piece"]: row for row in rows_of(chart, "value")}
    assert [bars[name]["value"] for name in ("luck", "thin", "bias")] == [1.0, -0.5, 0.25]
    assert [bars[name]["order"] for name in ("luck", "thin", "bias")] == [0, 1, 2]
    (stacked,) = [y for y in encodings_of(chart, "y") if y["field"] == "value"]
    assert stacked["stack"] == "zero"
    low, high = stacked["scale"]["domain"]
    assert low < -0.5  # from zero down
    assert high > 1.25  # the third on top of the first
    (total,) = rows_of(chart, "sum")
    assert total["sum"] == 0.75
    with pytest.raises(ValueError, match="no column 'piece'"):
        charts.pieces_chart(pieces.drop(columns="piece"))
    with pytest.raises(ValueError, match="5 series, 4 at most"):
        charts.pieces_chart(pd.concat([pieces.assign(piece=str(i)) for i in range(5)]))


def test_a_piece_of_nothing_and_a_zero_sum_are_drawn():
    pieces = pd.DataFrame({"panel": "p", "level": "l", "piece": ["luck"], "value": [0.0]})
    (total,) = rows_of(charts.pieces_chart(pieces), "sum")
    assert total["sum"] == 0.0


# ------------------------------------------------------------------------------- outcome table


def test_cells_hold_count_share_expected_and_thin_evidence():
    expected = pd.DataFrame([[4.0, 118.96], [0.04, 877.0]])
    chart = charts.outcome_table_chart(TABLE, expected=expected, thin=TABLE // 2)
    cells = {(r["observed"], r["under the policy"]): r for r in rows_of(chart, "shade")}
    assert cells["died", "home"]["count"] == "119"
    assert cells["died", "home"]["lines"] == ["11.9%", "expected 119.0", "thin evidence 59"]
    assert cells["home", "died"]["count"] == "0"
    assert cells["home", "died"]["lines"] == ["expected <0.1", "thin evidence 0"]
    assert cells["home", "home"]["shade"] == 1.0
    assert {row["row"] for row in cells.values()} == {"died (123)", "home (877)"}  # with totals
    assert "A model estimate, not a fact." in words_of(chart)


def test_no_share_reads_like_certainty():
    cells = rows_of(charts.outcome_table_chart(TABLE * np.array([[0, 0], [0, 1]])), "shade")
    assert not re.search(r"\b(0|100)(\.0)?%", json.dumps(cells))
    tiny = rows_of(
        charts.outcome_table_chart(TABLE.replace(4, 1) * np.array([[1, 1], [1, 100]])), "shade"
    )
    assert tiny[0]["lines"] == ["under 0.1%"]


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "under 0.1%"), (0.004, "0.4%"), (0.5, "50%"), (0.998, "99.8%"), (1.0, "over 99.9%")],
)
def test_a_probability_is_never_0_or_100(share, text):
    assert percent(share) == text


def test_a_table_of_counterfactuals_is_drawn_as_it_comes():
    log = hidden_log()
    exact = bf.Replay(log, bf.fit_mdp(log), bf.estimate_behavior(log)).outcomes()
    chart = charts.outcome_table_chart(exact.table(), expected=exact.table(expected=True))
    cells = {(r["observed"], r["under the policy"]): r for r in rows_of(chart, "shade")}
    assert cells["death", "death"]["count"] == str(exact.table().loc["death", "death"])


# ---------------------------------------------------------------------------------- trajectory


def test_the_observed_line_has_one_point_per_step_and_one_for_the_final_state():
    log = hidden_log()
    for position, length in enumerate(log.lengths):
        lines = lines_of(charts.trajectory_chart(log, position))
        assert [step for step, _ in path(lines, "pulse")] == list(range(length + 1))
        assert [step for step, _ in path(lines, "sugar")] == list(range(length + 1))
    chart = charts.trajectory_chart(log, 0)
    lines = lines_of(chart)
    assert path(lines, "pulse") == [(0, "normal"), (1, "normal"), (2, "high")]
    assert path(lines, "sugar") == [(0, "normal"), (1, "high"), (2, "high")]  # never given
    assert path(lines, "action") == [(0, "0"), (1, "1")]  # when it was decided
    assert words_of(chart) == "Patient w: death at step 2. Sex: female (never given to the model)."
    assert "no outcome after 1 step." in words_of(charts.trajectory_chart(log, 3, word="Stay"))


def test_draws_are_beside_the_observed_line_and_end_in_their_outcomes():
    log = hidden_log().select([0])
    draws = draws_of(log, [[1, 0, 4], [1, 1, 2], [1, 0, 4]], [[1, 0], [0, 1], [1, 0]])
    chart = charts.trajectory_chart(log, 0, draws)
    lines = lines_of(chart)
    assert path(lines, "pulse", 1) == [(0, "normal"), (1, "low"), (2, "low")]  # held at the end
    assert path(lines, "pulse", 2) == path(lines, "pulse")
    assert path(lines, "action", 1) == [(0, "1"), (1, "0")]
    assert path(lines, "sugar", 1) == []  # the model says nothing about what it never saw
    start = [r.get("beside", 0) for r in lines if (r["variable"], r["step"]) == ("pulse", 0)]
    assert len(set(start)) == 4  # all four lines are visible
    ends = lines_of(chart, "ends", "draw_ends")
    marks = [(r["outcome"], r["variable"], r["step"], r["shape"]) for r in ends]
    cross, diamond = ("death", CROSS), ("home", "diamond")
    assert sorted(marks) == sorted(
        [(cross[0], variable, 2, cross[1]) for variable in ("pulse", "sugar", "action")]
        + [(diamond[0], variable, 2, diamond[1]) for variable in ("pulse", "action")] * 2
    )
    assert first_of(chart) == [-0.5]  # before the first decision, which shows when it is made
    words = words_of(chart)
    assert "2 of 3 draws under the policy: home; 1: no outcome." in words
    assert "A model estimate, not a fact." in words


def test_draws_that_treat_as_was_done_have_no_line_at_a_first_difference():
    log = hidden_log().select([0])
    chart = charts.trajectory_chart(log, 0, draws_of(log, [[1, 1, 3]], [[0, 1]]))
    assert first_of(chart) == []
    assert "In every draw the policy treats as was done." in words_of(chart)


def test_treatments_in_the_state_are_drawn_once_and_follow_the_last_decision():
    drug = Variable("drug", ("off", "on"))
    log = bf.Episodes.from_arrays(
        [0, 3],  # pulse * 2 + drug: normal and off, high and on
        [1, 0],
        [3, -1],  # the state at death is unknown
        offsets=[0, 2],
        states=[Variable("pulse", ("normal", "high"), normal=("normal",)), drug],
        actions=[drug],
        outcome=[0],
        outcomes=[DEATH, HOME],
    )
    chart = charts.trajectory_chart(log, 0, draws_of(log, [[0, 3, 5]], [[1, 1]]))
    lines = lines_of(chart)
    assert path(lines, "pulse") == [(0, "normal"), (1, "high"), (2, "high")]
    assert path(lines, "drug") == [(0, "off"), (1, "on"), (2, "off")]
    assert path(lines, "drug", 1) == [(0, "off"), (1, "on"), (2, "on")]
    assert first_of(chart) == [1.5]


def test_normal_ranges_are_the_edges_of_the_normal_levels():
    chart = charts.trajectory_chart(hidden_log(), 3)  # pulse: normal, then low
    limits = [row["y"] for row in chart.to_dict()["datasets"]["limits"]]
    normal, low = (row["y"] for row in lines_of(chart) if row["variable"] == "pulse")
    half = (low - normal) / 2
    assert sorted(limits) == pytest.approx([normal - half, normal + half])  # sugar has no normal


def test_a_simulated_patient_shows_vital_signs_hidden_ones_and_treatments_in_this_order():
    policy = np.full((144, 8), 1 / 8)
    log = bf.sepsis.simulate(policy, 30, seed=1).hide("glucose", "diabetes")
    model = bf.fit_mdp(log)
    target = bf.policy_iteration(model).table
    draws = bf.Replay(log.select([4, 7]), model, target).draws()
    chart = charts.trajectory_chart(log, 7, draws, note="Thin evidence.")
    lines = lines_of(chart)
    shown = dict.fromkeys(row["variable"] for row in lines)
    vital = ["heart rate", "blood pressure", "oxygen"]
    assert list(shown) == [*vital, "glucose", "antibiotics", "ventilation", "vasopressors"]
    assert words_of(chart).endswith("Thin evidence.")
    for draw, states in enumerate(draws.state[1], start=1):  # the second episode of the two
        steps = (states >= 0).sum()
        assert [step for step, _ in path(lines, "oxygen", draw)] == list(range(steps))


def test_many_levels_many_draws_and_long_courses_stay_within_their_panels():
    rng = np.random.default_rng(0)
    visits = rng.integers(144, size=61)
    log = bf.Episodes.from_arrays(
        visits[:-1], rng.integers(2, size=60), visits[1:], offsets=[0, 60], states=144, actions=2
    )
    states = np.tile(visits, (9, 1))
    chart = charts.trajectory_chart(log, 0, draws_of(log, states, np.tile(log.action, (9, 1))))
    spec = chart.to_dict()
    lines = lines_of(chart)
    assert {row["draw"] for row in lines} == set(range(10))
    places = [row["y"] + row.get("beside", 0) * row["room"] for row in lines]
    assert all(-10 <= place <= spec["height"] + 10 for place in places)
    (frame,) = spec["datasets"]["frame"]
    assert all(frame["low"] <= row["step"] <= frame["high"] for row in lines)


# ------------------------------------------------------------------- mechanisms and diagrams


def test_the_example_of_the_appendix_gives_3_by_one_order_and_4_by_the_other():
    chart = charts.nonidentifiability_chart(
        [0.25, 0.25, 0.3, 0.2], [0, 0.25, 0.25, 0.5], 1, [[0, 1, 2, 3], [0, 1, 3, 2]]
    )
    answers = {row["name"]: row["result"] for row in rows_of(chart, "result")}
    assert answers == {"ord": ["S′ = 3"], "ord′": ["S′ = 4"]}
    assert {row["words"] for row in rows_of(chart, "words")} == {"0.25 ≤ U < 0.5"}
    second = [row for row in rows_of(chart, "category") if row["line"] == "ord′\n[1, 2, 4, 3]"]
    factual, counterfactual = second[:4], second[4:]
    assert [row["category"] for row in factual] == ["1", "2", "4", "3"]
    assert [row["low"] for row in factual] == pytest.approx([0, 0.25, 0.5, 0.7])
    assert [row["category"] for row in counterfactual] == ["2", "4", "3"]  # 1 is impossible


def test_an_answer_in_several_categories_has_probabilities():
    # given category 1, U is uniform on [0, .5); the other row cuts that at .2 and .4
    chart = charts.nonidentifiability_chart([0.5, 0.5, 0], [0.2, 0.2, 0.6], 0, [[0, 1, 2]])
    (row,) = rows_of(chart, "result")
    assert row["result"] == ["S′ = 1: 40%", "S′ = 2: 40%", "S′ = 3: 20%"]


def test_diagrams_have_the_nodes_and_arrows_of_the_paper():
    diagrams = charts.scm_diagrams()
    nodes = [row["letter"] + row["subscript"] for row in rows_of(diagrams["graph"], "letter")]
    assert sorted(nodes) == ["T", "T", "Ut", "Ux", "Uy", "X", "X", "Y", "Y"]
    assert len(rows_of(diagrams["graph"], "angle")) == 3 + 6
    nodes = [row["letter"] + row["subscript"] for row in rows_of(diagrams["pomdp"], "letter")]
    assert {"S1", "O1", "H1", "A1", "Us1", "Uo1", "Ua1", "S3"} <= set(nodes)
    assert len(rows_of(diagrams["pomdp"], "angle")) == 3 * 6 + 2 * 4


# ------------------------------------------------------------------------------- files and text


class Page(HTMLParser):
    """Tags, attributes and the text of a page."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def hostile_charts():
    """Each chart that takes texts, with one that would break out of a page or an expression."""
    estimates = pd.DataFrame({"estimator": [HOSTILE], "value": [1.0], "low": [0.0], "high": [2.0]})
    noted = estimates.assign(note=HOSTILE)
    yield charts.estimates_chart(noted, reference=HOSTILE, title=HOSTILE, axis_title=HOSTILE)
    yield charts.boxplot_chart(estimates, published=estimates.rename(columns={"value": "mean"}))
    yield charts.outcome_table_chart(pd.DataFrame([[1]], index=[HOSTILE], columns=[HOSTILE]))
    yield charts.errors_chart(errors_of((HOSTILE, HOSTILE, HOSTILE, 1.0)), title=HOSTILE)
    piece = {"panel": [HOSTILE], "level": [HOSTILE], "piece": [HOSTILE], "value": [1.0]}
    yield charts.pieces_chart(pd.DataFrame(piece), axis_title=HOSTILE)
    log = bf.Episodes.from_arrays(
        [0, 1],
        [0, 1],
        [1, 0],
        offsets=[0, 2],
        states=[Variable(HOSTILE, (HOSTILE, "b"), normal=(HOSTILE,))],
        actions=[Variable("[x].y", (HOSTILE, "b"))],
        outcome=[0],
        outcomes=[Outcome(HOSTILE, 1.0)],
        id=[HOSTILE],
    )
    draws = draws_of(log, [[0, 1, 2]], [[1, 0]])
    yield charts.trajectory_chart(log, 0, draws, word=HOSTILE, note=HOSTILE)


def test_all_four_formats_are_what_they_claim_to_be(tmp_path):
    chart = charts.estimates_chart(ESTIMATES)
    paths = charts.save_figure(chart, tmp_path / "new" / "figure.3")
    assert [path.name for path in paths] == [
        f"figure.3.{end}" for end in ("png", "svg", "pdf", "html")
    ]
    png, svg, pdf, page = (path.read_bytes() for path in paths)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width = int.from_bytes(png[16:20])
    assert 1500 < width < 720 * 200 / 72  # sharp in print, and legible in a column
    assert svg.startswith(b"<svg ")
    assert b"Observed" in svg
    assert pdf.startswith(b"%PDF-")
    assert page.startswith(b"<!doctype html>")


def test_the_page_makes_no_requests(tmp_path):
    chart = next(hostile_charts())
    (path,) = charts.save_figure(chart, tmp_path / "page", ["html"])
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    assert page.tags.count("script") == 1
    names = {name for name, _ in page.attributes}
    assert not names & {"src", "href", "srcset", "data", "action", "style", "onload"}
    (policy,) = [value for name, value in page.attributes if name == "content"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "url" not in json.dumps(chart.to_dict()["datasets"])


def test_the_script_that_is_kept_is_the_one_that_was_made(tmp_path, monkeypatch):
    monkeypatch.setattr(save, "__file__", str(tmp_path / "save.py"))
    monkeypatch.setattr(save.sys, "dont_write_bytecode", False)  # whatever the environment says
    (tmp_path / "__pycache__").mkdir()
    make = save.chart_bundle.__wrapped__
    made = make()
    (kept,) = (tmp_path / "__pycache__").iterdir()
    assert kept.read_bytes().decode() == made == save.chart_bundle()
    monkeypatch.setattr(save.vl_convert, "javascript_bundle", None)
    assert make() == made


def test_hostile_texts_are_drawn_as_text_and_end_no_script(tmp_path):
    for number, chart in enumerate(hostile_charts()):
        rows = [row for rows in chart.to_dict()["datasets"].values() for row in rows]
        assert any(HOSTILE in row.values() for row in rows)
        svg, page = charts.save_figure(chart, tmp_path / str(number), ["svg", "html"])
        assert "<script" not in svg.read_text(encoding="utf-8")
        assert "&lt;/script&gt;" in svg.read_text(encoding="utf-8")
        html = page.read_text(encoding="utf-8")
        assert html.count("</script") == 1
        assert html.count("<script") == 1


def test_characters_that_steer_a_terminal_are_drawn_as_pictures(tmp_path):
    steering = "a\x1b[31m\x00\r\u2028b"
    noted = ESTIMATES.assign(warning=steering)
    chart = charts.estimates_chart(noted, title=steering, axis_title=f"{steering}\nc")
    (svg,) = charts.save_figure(chart, tmp_path / "figure", ["svg"])
    assert "a␛[31m␀␍ b c" in svg.read_text(encoding="utf-8")


def test_lines_are_broken_to_fit():
    lines = wrap("A model estimate, not a fact. " + "x" * 80, 120, 13)
    assert all(text_width(line, 13) <= 120 for line in lines)
    assert "".join(lines).replace(" ", "") == "Amodelestimate,notafact." + "x" * 80
    assert wrap("one two three", 20, 13, lines=2)[-1].endswith("…")


# ---------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: charts.estimates_chart(ESTIMATES.drop(columns="low")), "no column 'low'.*give"),
        (lambda: charts.estimates_chart(ESTIMATES[:0]), "estimates has 0 rows; give at least"),
        (lambda: charts.estimates_chart(ESTIMATES, reference="CF"), "'CF' is not.*give None"),
        (lambda: charts.estimates_chart(ESTIMATES, domain=(1, -1)), r"domain \(1, -1\).*lower"),
        (lambda: charts.boxplot_chart(ESTIMATES[["value"]]), "no column 'estimator'.*give"),
        (
            lambda: charts.boxplot_chart(ESTIMATES[:2], published=ESTIMATES),
            "published has no column 'mean'",
        ),
        (
            lambda: charts.boxplot_chart(
                ESTIMATES[:2], published=ESTIMATES.rename(columns={"value": "mean"})
            ),
            "'MB' is not drawn.*leave it out",
        ),
        (lambda: charts.outcome_table_chart(TABLE[:1]), r"shape \(1, 2\); give a square table"),
        (lambda: charts.outcome_table_chart(TABLE, thin=TABLE[:1]), r"shape \(1, 2\); give"),
        (lambda: charts.outcome_table_chart(-TABLE), "holds -4.*give counts"),
        (lambda: charts.outcome_table_chart(0 * TABLE), "counts 0 episodes; give"),
        (lambda: charts.trajectory_chart(hidden_log(), 4), "position 4: there are 4.*give 0..3"),
        (lambda: charts.trajectory_chart(hidden_log(), -1), "position -1"),
        (lambda: charts.trajectory_chart(hidden_log(), 0.5), "position 0.5"),
        (
            lambda: charts.trajectory_chart(
                hidden_log(), 1, draws_of(hidden_log().select([0]), [[1, 1, 3]], [[0, 1]])
            ),
            "no draws of episode 'x'; draw them with",
        ),
        (
            lambda: charts.trajectory_chart(
                patient_log(), 0, draws_of(hidden_log().select([0]), [[1, 1, 3]], [[0, 1]])
            ),
            "states over.*give the log drawn from",
        ),
        (
            lambda: charts.nonidentifiability_chart([0.5, 0.6], [0.5, 0.5], 0, [[0, 1]]),
            r"\[0.5, 0.6\] is not a distribution; make",
        ),
        (
            lambda: charts.nonidentifiability_chart([1.0], [0.5, 0.5], 0, [[0]]),
            r"shape \(2,\); give two rows",
        ),
        (
            lambda: charts.nonidentifiability_chart([0, 1.0], [0.5, 0.5], 0, [[0, 1]]),
            "observed 0: give one",
        ),
        (
            lambda: charts.nonidentifiability_chart([0.5, 0.5], [0.5, 0.5], 0, [[1, 2]]),
            r"order \[1, 2\]: give each of 0..1 once",
        ),
        (
            lambda: charts.nonidentifiability_chart([0.5, 0.5], [0.5, 0.5], 0, []),
            "0 orders; give at least one",
        ),
        (
            lambda: charts.save_figure(charts.scm_diagrams()["graph"], "x", ["gif"]),
            "format 'gif': give any of png",
        ),
    ],
)
def test_bad_input_is_named_with_a_remedy(call, message):
    with pytest.raises(ValueError, match=message):
        call()
