"""The study file: what it says is what is read, and every mistake is reported at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from butfor import Outcome, Variable
from butfor.log.fields import place
from butfor.log.sections import Study
from butfor.log.study import read_study

TEXT = """
[columns]
episode = "stay"
time = "hour"
time_step = "4h"
outcome = "end"

[state.pulse]
cuts = [60, 100.5]
normal = [60, 100.5]

[state."blood sugar"]
levels = ["low", "normal", "high"]
normal = "normal"
name = "sugar"

[state.sex]
levels = [0, 1.0, true]
static = true

[action.drug]
levels = ["none", "full"]

[outcome.1]
name = "died"
reward = -1
bad = true

[outcome.0]
name = "home"
reward = 1

[side.note]
type = "text"

[problems]
duplicates = "drop"

[words]
episode = "stay"
none = "still in"

[evaluation]
horizon = 20
planning_discount = 0.9
"""


def mistakes(content: dict[str, Any]) -> list[str]:
    with pytest.raises(ValueError, match="mistake") as caught:
        read_study(content)
    return str(caught.value).splitlines()[1:]


def small(**sections: Any) -> dict[str, Any]:
    """The least study, with some keys of some sections replaced."""
    least: dict[str, Any] = {
        "columns": {"episode": "stay", "reward": "r"},
        "state": {"pulse": {"cuts": [60]}},
        "action": {"drug": {"levels": ["none", "full"]}},
    }
    return {**least, **{key: {**least.get(key, {}), **part} for key, part in sections.items()}}


def test_a_study_file_is_read_as_written(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text("\ufeff" + TEXT, encoding="utf-8")  # with the mark that Windows editors put
    study = read_study(path)
    assert study.state_variables() == (
        Variable("pulse", ("below 60", "60 to 100.5", "100.5 or more"), ("60 to 100.5",)),
        Variable("sugar", ("low", "normal", "high"), ("normal",)),
        Variable("sex", ("0", "1", "true"), static=True),
    )
    assert study.action_variables() == (Variable("drug", ("none", "full")),)
    assert study.outcomes() == {"1": Outcome("died", -1, bad=True), "0": Outcome("home", 1)}
    assert study.columns.step == 4 * 3600
    assert study.problems == {"duplicates": "drop"}
    assert (study.words.episode, study.words.none) == ("stay", "still in")
    assert study.evaluation.horizon == 20
    assert (study.evaluation.discount, study.evaluation.planning_discount) == (1.0, 0.9)
    assert study.text_columns() == {"stay", "end", "blood sugar", "sex", "drug", "note"}
    assert study.places()["blood sugar"] == '[state."blood sugar"]'
    assert read_study(study) is study
    assert read_study(str(path)) == study


def test_the_least_study() -> None:
    study = read_study(small())
    assert isinstance(study, Study)
    assert study.evaluation.horizon is None
    assert study.columns.step is None


def test_normal_may_name_bins() -> None:
    section = {"cuts": [1, 2], "names": ["a", "b", "c"], "normal": ["b", "c"]}
    assert read_study(small(state={"x": section})).state["x"].variable("x").normal == ("b", "c")


@pytest.mark.parametrize(
    ("step", "seconds"), [("30 min", 1800), ("1.5h", 5400), ("2d", 172800), ("10s", 10), (4, 4)]
)
def test_time_steps(step: Any, seconds: float) -> None:
    columns = {"time": "t", "time_step": step}
    assert read_study(small(columns=columns)).columns.step == seconds


def test_every_mistake_is_reported_at_once_with_its_place() -> None:
    content = {
        "colums": {},
        "columns": {"episode": 3, "tme": "hour", "outcome": "end"},
        "state": {
            "heart rate": {"cuts": [100, 60], "normal": "usual"},
            "sugar": {"levels": ["low", "high"], "cuts": [1]},
            "oxygen": {"level": ["low"]},
        },
        "outcome": {"a": {"name": "x", "reward": "high"}, "b": {"name": "x", "reward": 1}},
        "problems": {"duplicate": "drop", "order": "fill"},
        "evaluation": {"discount": 2, "horizon": 0},
    }
    found = mistakes(content)
    for part in (
        "[colums]: no such section; did you mean columns?",
        "[columns] episode: 3: expected text in quotes",
        "[columns] tme: no such key; did you mean time?",
        '[state."heart rate"] cuts: 60 follows 100; list different numbers from low to high',
        "[state.sugar] levels: given together with cuts; give levels for text or cuts for numbers",
        "[state.oxygen] level: no such key; did you mean levels?",
        "[state.oxygen] levels: missing; give levels",
        "[outcome.a] reward: 'high': expected a number",
        "[problems] duplicate: no such key; did you mean duplicates?",
        "[problems] order: 'fill': expected 'refuse' or 'sort'",
        "[evaluation] discount: 2: expected a number of at most 1",
        "[evaluation] horizon: 0: expected a number of at least 1",
    ):
        assert any(line.startswith(f"- {part}") for line in found), part
    assert len(found) == 12


def test_mistakes_between_sections_come_with_the_others() -> None:
    found = mistakes(
        {
            "columns": {"episode": "stay", "outcome": "end", "state": "s", "time": "stay"},
            "state": {"end": {"levels": ["a"]}},
            "cluster": {"columns": ["end"], "count": 3},
            "outcome": {"a": {"name": "x"}, "b": {"name": "x", "reward": 1}},
            "words": {"none": "x"},
            "problems": {"gaps": "drop"},
        }
    )
    assert found == [
        "- [columns] state: given together with [state]; give one of the two",
        "- [action]: no action; add [action.<column>] or [columns] action",
        "- [columns] time: the column 'stay' is already [columns] episode; name another one",
        "- [state.end]: the column 'end' is already [columns] outcome; name another one",
        "- [cluster] columns: the column 'end' is already [columns] outcome; name another one",
        "- [outcome]: two outcomes are called 'x'; give different names",
        "- [words] none: 'x' is also an outcome; give another word",
        "- [outcome.a] reward: missing; give a number, or a reward column",
        "- [problems] gaps: gaps can be found only with [columns] time_step; add it",
    ]


def test_a_mistake_is_not_reported_twice() -> None:
    """A key of the wrong type is there, so nothing else may say that it is missing."""
    assert mistakes(small(state={"pulse": {"cuts": "60"}})) == [
        "- [state.pulse] cuts: '60': expected a list in square brackets"
    ]
    assert mistakes(small(columns={"reward": 1})) == [
        "- [columns] reward: 1: expected text in quotes"
    ]


def test_places_are_written_as_in_the_file() -> None:
    assert place("state", "heart_rate") == "[state.heart_rate]"
    assert place("state", 'a "b".c') == '[state."a \\"b\\".c"]'
