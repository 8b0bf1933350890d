"""The story of an episode in two sentences, how sure it is, and the unit of its times."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from butfor import Outcome, Variable
from butfor.audit.meta import CredibleSettings
from butfor.log.study import read_study
from butfor.present import Stays
from butfor.present.charts.trajectory.rows import trajectory_datasets
from butfor.present.story import (
    Decision,
    chance_range,
    fraction,
    tell_difference,
    tell_evidence,
    tell_expectation,
    tell_range,
    tell_risk,
)
from butfor.present.text import STEPS, Clock
from tests.audits import trade_audit
from tests.reference.story import first_time, read_claims, spoken

HOURS = Clock("hour", 4.0)
SWITCHES = tuple(Variable(name, ("off", "on")) for name in ("antibiotics", "ventilation", "fluids"))
DOSES = (Variable("dose", ("none", "low", "high")), Variable("oxygen", ("no", "yes")))


@pytest.mark.parametrize(
    ("p", "words"),
    [
        (1.0, "nearly all"),
        (0.96, "nearly all"),
        (0.94, "about 9 of 10"),
        (0.75, "3 of 4"),
        (0.71, "about 3 of 4"),
        (0.7, "about 2 of 3"),  # .033 from 2/3, .05 from 3/4
        (0.5, "half"),
        (0.46, "about half"),
        (1 / 3, "1 of 3"),
        (0.11, "1 of 10"),
        (0.05, "1 of 20"),
    ],
)
def test_fractions_are_said_as_people_say_them(p, words):
    assert fraction(p) == words


def test_every_probability_lies_in_what_its_words_may_mean():
    for p in np.linspace(0.05, 1, 951):
        low, high = spoken(fraction(p))
        assert low <= p <= high, p


@pytest.mark.parametrize(
    ("actions", "decision", "sentence"),
    [
        # codes of switches: the last changes fastest, so 2 is ventilation and 7 is everything
        (
            SWITCHES,
            Decision(1, 0, 2, 1.0),
            "At hour 4 the team gave nothing; the policy would have given ventilation.",
        ),
        (
            SWITCHES,
            Decision(0, 7, 6, 0.8),
            "At hour 0 the team gave antibiotics, ventilation and fluids; the policy would "
            "probably have given antibiotics and ventilation (probability 80%).",
        ),
        (  # dose none and oxygen no → dose high: only what differs
            DOSES,
            Decision(2, 0, 4, 0.4),
            "At hour 8 the team chose dose: none; the policy would most likely have chosen "
            "dose: high (probability 40%).",
        ),
        (
            DOSES,
            Decision(2, 0, 5, 1.0),
            "At hour 8 the team chose dose: none and oxygen: no; the policy would have chosen "
            "dose: high and oxygen: yes.",
        ),
        (
            (Variable("action", tuple(map(str, range(25)))),),
            Decision(0, 7, 24, 1.0),
            "At hour 0 the team chose action: 7; the policy would have chosen action: 24.",
        ),
        (SWITCHES, None, "The policy would have treated as was done, at every step."),
    ],
)
def test_the_first_sentence_says_what_differs(actions, decision, sentence):
    assert tell_difference(decision, actions, HOURS) == sentence


@pytest.mark.parametrize(
    ("chances", "by_then", "words"),
    [
        # all are discharged: .76 of them by step 3, 19 of 20 first by step 7
        (
            {"died": 0.0, "discharge": 1.0, "still there": 0.0},
            {"discharge": [0, 0, 0.5, 0.76, 0.8, 0.85, 0.9, 0.96, 1.0]},
            "discharge by hour 12 in 3 of 4 replays, otherwise by hour 28",
        ),
        (
            {"died": 0.01, "discharge": 0.99, "still there": 0.0},
            {"discharge": [0, 0.2, 0.98, 0.98, 0.99], "died": [0, 0, 0, 0.01, 0.01]},
            "discharge by hour 8 in nearly all replays, rarely: died",
        ),
        (
            {"died": 0.25, "discharge": 0.59, "still there": 0.16},
            {"died": [0, 0.25, 0.25], "discharge": [0, 0.1, 0.59]},
            "discharge by hour 8 in 3 of 5 replays, died by hour 4 in 1 of 4, still there at hour "
            "80 in about 1 of 5",
        ),
        # no course was kept
        (
            {"died": 0.5, "discharge": 0.5, "still there": 0.0},
            {},
            "died in half of the replays, discharge in half",
        ),
        (
            {f"o{i}": 0.1 for i in range(10)} | {"still there": 0.0},
            {},
            "o0 in 1 of 10 replays, o1 in 1 of 10, o2 in 1 of 10, o3 in 1 of 10, otherwise one of "
            "6 other outcomes",
        ),
    ],
)
def test_the_second_sentence_says_what_is_expected_and_by_when(chances, by_then, words):
    arrays = {name: np.array(values) for name, values in by_then.items()}
    given = {"horizon": 20, "clock": HOURS}
    said = tell_expectation(list(chances.items()), arrays, then=True, **given)
    assert said == f"The model then expects: {words}"
    said = tell_expectation(list(chances.items()), arrays, then=False, **given)
    assert said == f"The model expects: {words}"


def test_evidence_counts_every_step_of_the_chart_and_few_replays_apart():
    rows = [
        {"step": step, "mass": mass, "cases": cases}
        for step, (mass, cases) in enumerate([(1, 90.0), (1, 1.0), (0.5, 4.0), (0.02, 0.5)])
    ]
    assert tell_evidence(rows[:3], 0.0) == "; this rests on 1 to 90 similar past cases"
    assert tell_evidence(rows, 0.0) == (
        "; this rests on 1 to 90 similar past cases (0.5 where fewer than 1 of 20 replays come)"
    )
    assert tell_evidence(rows[1:2], 0.0) == "; this rests on 1 similar past case"
    assert tell_evidence(rows[3:], 0.0) == ""
    assert tell_evidence([], 3.0) == "; this rests on 3 similar past cases at the thinnest"
    assert tell_evidence([], np.inf) == ""


OUTCOMES = (Outcome("discharged", 1.0), Outcome("died", -1.0, bad=True))
NAMES = ["discharged", "died", "none yet"]
ROW = pd.Series(
    {
        "thin_share": 0.8,
        "expected_return": 0.5,
        "low_any": -1.0,
        "high_any": 1.0,
        "p_discharged_low_credible": 0.15,
        "p_discharged_high_credible": 0.97,
        "p_died_low_credible": 0.02,
        "p_died_high_credible": 0.81,
        "p_none_low_credible": 0.0,
        "p_none_high_credible": 0.0,
    }
)
SETTINGS = CredibleSettings(models=200, confidence=0.95)


def test_the_honest_range_names_the_bad_outcome_first_and_what_it_covers():
    assert chance_range(ROW, OUTCOMES, NAMES, SETTINGS) == (
        "95% credible intervals: died 2% to 81%; discharged 15% to 97%; none yet under 0.1%. They "
        "cover how well these records determine the model, not what they leave out."
    )


def test_the_risk_is_how_likely_the_bad_outcome_could_be():
    said = "the chance of “died” could be as high as 81%."
    assert tell_risk(ROW, OUTCOMES, NAMES) == f"With so few similar cases, {said}"
    assert tell_risk(ROW.replace(0.8, 0.5), OUTCOMES, NAMES) == f"Given these records, {said}"
    assert tell_risk(ROW.drop("p_died_high_credible"), OUTCOMES, NAMES) == ""
    agreed = pd.Series({**ROW, "p_died_low_credible": 1.0, "p_died_high_credible": 1.0})
    assert tell_risk(agreed, OUTCOMES, NAMES) == ""


def test_the_honest_range_comes_before_worst_to_best_and_is_left_out_if_not_computed():
    said = tell_range(ROW, OUTCOMES, NAMES, SETTINGS)
    assert said.index("died 2% to 81%") < said.index("worst to best case is −1.00 to +1.00")
    for row, settings in ((ROW, None), (ROW.drop("p_died_high_credible"), SETTINGS)):
        said = tell_range(row, OUTCOMES, NAMES, settings)
        assert said.startswith("Expected return under the policy +0.50. Its worst to best")


# ------------------------------------------------------------------------------ units of time


def test_a_clock_counts_in_units():
    assert (HOURS.at(3), HOURS.lasting(3), HOURS.time(3)) == ("hour 12", "12 hours", 12)
    assert (STEPS.at(3), STEPS.lasting(1), STEPS.lasting(2)) == ("step 3", "1 step", "2 steps")
    assert Clock("day", 0.1).at(3) == "day 0.3"
    assert Clock("hour", 6.0).at(1_000_000) == "hour 6000000"
    reason = "After 2 steps: at step 1 (counted from 0), 40% of the steps. Step 3 matters."
    assert STEPS.retell(reason) == reason
    assert HOURS.retell(reason) == "After 8 hours: at hour 4, 40% of the steps. Hour 12 matters."


def study(time_step, **words):
    return {
        "columns": {"episode": "stay", "reward": "r", "time": "t"} | time_step,
        "state": {"pulse": {"cuts": [60]}},
        "action": {"drug": {"levels": ["none", "full"]}},
        "words": words,
    }


@pytest.mark.parametrize(
    ("step", "words", "clock"),
    [
        ({"time_step": "4h"}, {}, ("hour", 4.0)),
        ({"time_step": "1.5 min"}, {}, ("minute", 1.5)),
        ({"time_step": 6}, {"time": "hour"}, ("hour", 6.0)),
        ({"time_step": 6}, {}, None),
        ({}, {}, None),
    ],
)
def test_the_study_file_gives_the_unit_of_time(step, words, clock):
    found = read_study(study(step, **words))
    assert found.clock() == clock


@pytest.mark.parametrize("step", [{}, {"time_step": "4h"}])
def test_a_unit_of_time_needs_a_number_of_them(step):
    with pytest.raises(
        ValueError, match=r"\[words\] time: needs a number as \[columns\] time_step"
    ):
        read_study(study(step, time="hour"))


# -------------------------------------------------------------------------- stories of an audit


def test_times_and_fractions_of_stories_agree_with_sampled_paths():
    """Claims come from exact courses; paths drawn by another kernel end as they say."""
    draws, tests = 300, 0
    audit = trade_audit(draws=draws, horizon=12)
    stays = Stays(audit)
    n_states = len(audit.target)
    for identifier in audit.flagged["id"]:
        story = stays.one(identifier)["story"]
        claims, _ = read_claims(story, stays.names, "step")
        paths = audit.draws[audit.draws["id"] == identifier]
        ends = paths.groupby("draw")[["step", "state"]].last()
        rows = audit.courses[audit.courses["id"] == identifier]
        rows = rows[["step", "variable", "level", "probability"]].itertuples(index=False, name=None)
        rows = list(rows)
        assert claims, story
        for name, when, words in claims:
            if name == audit.meta.none:
                hits = int((ends["state"] < n_states).sum())
            else:
                outcome = n_states + audit.meta.outcomes.index(name)
                by = ends["step"] <= int(when)
                hits = int(((ends["state"] == outcome) & by).sum())
                parts = (0.75, 0.95)
                assert int(when) in [first_time(rows, name, part, 12) for part in parts]
            low, high = spoken(words)
            # few paths may come after the time that is named
            low *= 0.95
            tests += 1
            assert stats.binomtest(hits, draws, min(high, 1), "greater").pvalue > 1e-6
            assert stats.binomtest(hits, draws, max(low, 0), "less").pvalue > 1e-6
    assert tests >= 10


def test_times_of_an_audit_are_told_in_its_unit():
    audit = trade_audit()
    meta = audit.meta.model_copy(
        update={"words": {"episode": "delivery", "time": "hour"}, "time_step": 6.0}
    )
    object.__setattr__(audit, "meta", meta)
    stays = Stays(audit)
    one = stays.one(audit.flagged["id"].iloc[0])
    length = int(audit.flagged["length"].iloc[0])
    assert one["title"].endswith(f"at hour {6 * length}")
    assert one["story"].startswith(f"At hour {6 * one['first_change']} the team chose route: ")
    assert re.search(r"by hour \d+ in", one["story"])
    assert one["table"][0][0] == "Hour"
    assert [row[0] for row in one["table"][1:4]] == ["0", "6", "12"]
    assert "step" not in one["story"] + one["first"] + one["title"] + one["reason"].split("; ")[0]
    axis = next(
        layer["encoding"]["x"]["axis"]
        for layer in stays.template()["layer"]
        if "axis" in layer.get("encoding", {}).get("x", {})
    )
    assert axis["title"] == "Hour"
    assert axis["labelExpr"] == "datum.value % 1 ? '' : format(6.0 * datum.value, '~g')"


# ---------------------------------------------------------------------------------------- zoom


@pytest.fixture(scope="module")
def long_audit():
    return trade_audit(horizon=25)


def test_the_near_chart_is_the_whole_one_cut_where_little_is_left_to_see(long_audit):
    audit, stays = long_audit, Stays(long_audit)
    zoomed = 0
    for identifier in stays.order()[::2]:
        one = stays.one(identifier)
        near, whole = one["near"], one["datasets"]
        length = int(audit.steps.loc[audit.steps["id"] == identifier, "step"].max())
        mine = audit.course_steps[audit.course_steps["id"] == identifier]
        left = [step for step, mass in zip(mine["step"], mine["mass"], strict=True) if mass >= 0.05]
        last = min(max([length, *(step + 1 for step in left)]), 25)
        if near is None:
            assert last == 25
            continue
        zoomed += 1
        assert near["until"] == "step 25"
        assert near["rows"]["frame"] == [{"low": -0.5, "high": last + 0.5}]
        # what the page makes of it, is what would have been made for that axis
        cut = {
            name: near["rows"].get(name, [row for row in rows if row.get("step", 0) <= last])
            for name, rows in whole.items()
        }
        assert cut == trajectory_datasets(stays.layout, **stays._chart(identifier), last=last)
    assert zoomed > 20


def test_without_the_model_the_length_of_the_axis_tells_nothing_of_it(long_audit):
    audit, stays = long_audit, Stays(long_audit)
    for identifier in stays.order()[:10]:
        length = int(audit.episodes.set_index("id").loc[identifier, "length"])
        assert stays.record(identifier)["near"]["rows"]["frame"][0]["high"] == length + 0.5
