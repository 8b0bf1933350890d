"""The plane on which an episode is drawn: every level has a name that can be read."""

from __future__ import annotations

import pytest

import butfor as bf
from butfor.present.charts.style import SMALL, text_width
from butfor.present.charts.trajectory.layout import LINES, MOST_NAMED, TrajectoryLayout


def layout(*levels: str, actions: tuple[str, ...] = ("off", "on")) -> TrajectoryLayout:
    outcomes = (bf.Outcome("died", -1.0, bad=True),)
    state, action = bf.Variable("state", levels), bf.Variable("drug", actions)
    return TrajectoryLayout((state,), (action,), (), outcomes, none="none", horizon=5)


def named(plane: TrajectoryLayout, variable: str) -> list[str]:
    rows = [row for row in plane.level_rows if row["variable"] == variable]
    return [" ".join(row["label"]) for row in rows]


@pytest.mark.parametrize(
    "levels",
    [
        ("low", "high"),
        ("below 1.48", "1.48 to 3.11", "3.11 or more"),
        ("walks", "sits in a chair with help", "confined to bed, needs full support by two"),
        ("Donaudampfschifffahrtsgesellschaftskapitän", "no"),
        tuple(f"level {number} of many" for number in range(8)),
    ],
)
def test_no_name_is_cut_off_and_none_reaches_into_another(levels: tuple[str, ...]) -> None:
    plane = layout(*levels)
    shown = named(plane, "state")
    assert [name.replace(" ", "") for name in shown] == [name.replace(" ", "") for name in levels]
    for row in plane.level_rows:
        assert all(1.18 * text_width(line, SMALL) <= plane.level_room - 12 for line in row["label"])
        # 13 pixels high, 16 from line to line
        assert row["y_label"] - 7 >= row["top"] - 1
        assert row["y_label"] + 16 * (len(row["label"]) - 1) + 7 <= row["bottom"] + 1


def test_short_names_leave_the_chart_as_wide_as_it_was() -> None:
    assert layout("low", "normal", "high").left == 128 + 82
    assert layout("x" * 500, "no").left == 128 + 176
    (long, *_) = (row["label"] for row in layout("y", "x " * 500).level_rows if row["k"] == 1)
    assert len(long) == LINES
    assert long[-1].endswith("…")


def test_every_action_is_named_unless_there_are_very_many() -> None:
    some, many = (
        tuple(f"dose {number}" for number in range(count)) for count in (25, MOST_NAMED + 1)
    )
    assert named(layout("a", "b", actions=some), "drug") == list(some)
    shown = named(layout("a", "b", actions=many), "drug")
    assert 0 < sum(map(bool, shown)) < 10


def test_decisions_show_unless_the_state_records_every_treatment() -> None:
    assert layout("a", "b").shows_decisions
    drug = bf.Variable("drug", ("off", "on"))
    outcomes = (bf.Outcome("died", -1.0, bad=True),)
    recorded = TrajectoryLayout((drug,), (drug,), (), outcomes, none="none", horizon=5)
    assert not recorded.shows_decisions
