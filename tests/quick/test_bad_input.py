"""Bad input is refused with the value, where it is, and what to do about it.

Each case lists three patterns that its message must contain: what is wrong, where, and a remedy
(an instruction, or what would have been right). The functions of `butfor.replay.outcomes` and
`butfor.mechanisms` have their own.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sparse

from butfor.checks import check_policy
from butfor.log.episodes import Episodes
from butfor.log.variables import Outcome, Variable
from butfor.models.fit import fit_mdp
from butfor.models.mdp import TabularMDP
from butfor.models.planning import policy_iteration, policy_value, state_values, value_tables
from butfor.models.policies import estimate_behavior, greedy, soften
from butfor.random import check_seed, episode_keys, numbered_keys
from butfor.threads import in_blocks
from tests.builders import DEATH, HOME, PATIENT, patient_log, ward_log

NAN, INFINITE = float("nan"), float("inf")


@dataclass(frozen=True)
class Case:
    call: Any
    value: str
    where: str
    remedy: str


def case(name, call, *, value, where, remedy):
    return pytest.param(Case(call, value, where, remedy), id=name)


def check(bad):
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the patterns are the match
        bad.call()
    message = str(caught.value)
    for part in (bad.value, bad.where, bad.remedy):
        assert re.search(part, message, re.IGNORECASE), f"no {part!r} in: {message}"
    assert "np." not in message, f"a NumPy representation in: {message}"


# Episodes.from_arrays. The ward log has eight rows; stay 1 is rows 2 to 4, stay 3 is row 7.

GOOD_STATES = [0, 1, 0, 1, 0, 0, 0, 1]
GOOD_ACTIONS = [0, 1, 0, 1, 0, 1, 0, 1]
GOOD_NEXT = [1, 2, 1, 0, 2, 0, 1, 2]
ID = ["w", "x", "y", "z"]


def changed(values, row, value):
    return [value if position == row else old for position, old in enumerate(values)]


ARRAYS = [
    case(
        "state out of range",
        lambda: ward_log(state=changed(GOOD_STATES, 2, 3), id=ID),
        value="state 3 outside 0..2",
        where=r"row 2 \(episode x, step 0\)",
        remedy="relabel",
    ),
    case(
        "negative state",
        lambda: ward_log(state=changed(GOOD_STATES, 0, -1), id=ID),
        value="state -1",
        where=r"row 0 \(episode w, step 0\)",
        remedy="relabel",
    ),
    case(
        "action out of range",
        lambda: ward_log(action=changed(GOOD_ACTIONS, 4, 9), id=ID),
        value="action 9 outside 0..1",
        where=r"row 4 \(episode x, step 2\)",
        remedy="relabel",
    ),
    case(
        "next state out of range",
        lambda: ward_log(next_state=changed(GOOD_NEXT, 7, 3), id=ID),
        value="next state 3 outside 0..2",
        where=r"row 7 \(episode z, step 0\)",
        remedy="relabel",
    ),
    case(
        "unknown next state before the end",
        lambda: ward_log(next_state=changed(GOOD_NEXT, 2, -1), id=ID),
        value="next state -1",
        where=r"row 2 \(episode x, step 0\)",
        remedy="relabel|final|outcome",
    ),
    case(
        "unknown final state without outcome",
        lambda: ward_log(next_state=changed(GOOD_NEXT, 6, -1), id=ID),
        value="next state -1",
        where=r"row 6 \(episode y, step 1\)",
        remedy="relabel|final|outcome",
    ),
    case(
        "broken chain",
        lambda: ward_log(next_state=changed(GOOD_NEXT, 3, 2), id=ID),
        value="next state 2 .*state 0",
        where=r"row 3 \(episode x, step 1\)",
        remedy="sort the rows by time",
    ),
    case(
        "state that is no whole number",
        lambda: ward_log(state=changed(GOOD_STATES, 1, 1.5)),
        value=r"1\.5",
        where="state at (row )?1",
        remedy="whole number",
    ),
    case(
        "state that is missing",
        lambda: ward_log(state=changed(GOOD_STATES, 1, NAN)),
        value="nan",
        where="state at (row )?1",
        remedy="whole number",
    ),
    case(
        "state that is None",
        lambda: ward_log(state=changed(GOOD_STATES, 1, None)),
        value="None",
        where="state at (row )?1",
        remedy="whole number",
    ),
    case(
        "action that is text",
        lambda: ward_log(action=changed(GOOD_ACTIONS, 0, "drug")),
        value="drug",
        where="action at (row )?0",
        remedy="whole number",
    ),
    case(
        "state too large for its type",
        lambda: ward_log(state=changed(GOOD_STATES, 5, 2**40)),
        value=str(2**40),
        where="state at (row )?5",
        remedy="relabel",
    ),
    case(
        "state table",
        lambda: ward_log(state=[GOOD_STATES]),
        value=r"shape \(1, 8\)",
        where="state",
        remedy="expected one dimension",
    ),
    case(
        "too few actions",
        lambda: ward_log(action=GOOD_ACTIONS[:7]),
        value=r"\(7,\)",
        where="action",
        remedy=r"expected \(8,\)",
    ),
    case(
        "too many outcomes",
        lambda: ward_log(outcome=[0, 1, -1, 0, 0]),
        value=r"\(5,\)",
        where="outcome",
        remedy=r"expected \(4,\)",
    ),
    case(
        "too few identifiers",
        lambda: ward_log(id=["w"]),
        value=r"\(1,\)",
        where="id",
        remedy=r"expected \(4,\)",
    ),
    case(
        "too few final keys",
        lambda: ward_log(final_key=[1, 2]),
        value=r"\(2,\)",
        where="final_key",
        remedy=r"expected \(4,\)",
    ),
    case(
        "final key that is no whole number",
        lambda: ward_log(final_key=[1, 2, 0.5, 3]),
        value=r"0\.5",
        where="final_key at 2",
        remedy="whole number",
    ),
    case(
        "side frame without final rows",
        lambda: ward_log(side=pd.DataFrame({"age": range(8)})),
        value="8 rows",
        where="side",
        remedy="expected 12",
    ),
    case(
        "outcome index out of range",
        lambda: ward_log(outcome=[0, 2, -1, 0], id=ID),
        value="outcome 2",
        where="episode x",
        remedy=r"0\.\.1; .*-1 for none",
    ),
    case(
        "outcome index below none",
        lambda: ward_log(outcome=[0, -2, -1, 0], id=ID),
        value="outcome -2",
        where="episode x",
        remedy=r"0\.\.1; .*-1 for none",
    ),
    case(
        "outcome of a log that lists none",
        lambda: ward_log(outcomes=(), id=ID),
        value="outcome 0",
        where="episode w",
        remedy="outcomes=|list|give",
    ),
    case(
        "outcome by name without rewards",
        lambda: ward_log(outcomes=["death", "home"]),
        value="'death'",
        where="outcome",
        remedy=r"give Outcome\('death', reward\)",
    ),
    case(
        "two outcomes of one name",
        lambda: ward_log(outcomes=[DEATH, DEATH]),
        value="death",
        where="outcomes",
        remedy="different names",
    ),
    case(
        "outcome whose reward is no number",
        lambda: ward_log(outcomes=[Outcome("death", NAN), HOME]),
        value="nan",
        where="death",
        remedy="give|number",
    ),
    case(
        "reward that is no number",
        lambda: ward_log(reward=changed([0.0] * 8, 3, NAN), id=ID),
        value="reward nan",
        where=r"row 3 \(episode x, step 1\)",
        remedy="fill or drop",
    ),
    case(
        "last reward that is no number where outcomes are given by name",
        lambda: ward_log(reward=changed([0.0] * 8, 7, NAN), outcomes=["death", "home"], id=ID),
        value="reward nan",
        where=r"row 7 \(episode z, step 0\)",
        remedy="fill or drop",
    ),
    case(
        "reward table",
        lambda: ward_log(reward=np.zeros((8, 1))),
        value=r"shape \(8, 1\)",
        where="reward",
        remedy="expected",
    ),
    case(
        "one reward for all rows",
        lambda: ward_log(reward=0.0),
        value=r"shape \(\)|1 entries",
        where="reward",
        remedy="expected",
    ),
    case(
        "identifier table",
        lambda: ward_log(id=np.zeros((4, 1))),
        value=r"shape \(4, 1\)",
        where="id",
        remedy="expected",
    ),
    case(
        "infinite reward",
        lambda: ward_log(reward=changed([0.0] * 8, 7, -INFINITE), id=ID),
        value="reward -inf",
        where=r"row 7 \(episode z, step 0\)",
        remedy="fill or drop",
    ),
    case(
        "outcome called none",
        lambda: ward_log(outcomes=[Outcome("none", -1.0), HOME]),
        value="'none'",
        where="outcome",
        remedy="rename it",
    ),
    case(
        "identifiers of several kinds",
        lambda: ward_log(id=np.array(["w", 1, 2, 3], dtype=object)),
        value="int, str",
        where="id",
        remedy="one type",
    ),
    case(
        "horizon shorter than an episode",
        lambda: ward_log(horizon=2, id=ID),
        value="horizon 2",
        where="episode x has 3 steps",
        remedy=r"truncate\(\)",
    ),
    case(
        "horizon that is no whole number",
        lambda: ward_log(horizon=3.5),
        value=r"3\.5",
        where="horizon",
        remedy="give|expected",
    ),
    case(
        "horizon that is not a number",
        lambda: ward_log(horizon=NAN),
        value="nan",
        where="horizon",
        remedy="give|expected",
    ),
    case(
        "no states",
        lambda: ward_log(states=0),
        value="0 states",
        where="state",
        remedy="at least one",
    ),
    case(
        "variable without levels",
        lambda: ward_log(actions=[Variable("drug", ())]),
        value="drug|action variables",
        where="action",
        remedy="at least one level",
    ),
    case(
        "two variables of one name",
        lambda: patient_log(states=[PATIENT[0], PATIENT[1], Variable("sex", ("x", "y"))]),
        value="sex",
        where="state",
        remedy="different|once|rename|own",
    ),
    case(
        "two levels of one name",
        lambda: ward_log(states=[Variable("ward", ("a", "b", "a"))]),
        value="'?a'?",
        where="ward",
        remedy="different|once|rename|own",
    ),
]

OFFSETS = [
    case(
        "episode without steps",
        lambda: ward_log(offsets=[0, 2, 5, 5, 8]),
        value="0 steps",
        where="position 2",
        remedy="drop",
    ),
    case(
        "offsets that go back",
        lambda: ward_log(offsets=[0, 5, 2, 7, 8]),
        value="-3 steps|5 .*2",
        where="position 1",
        remedy="drop|order|increas",
    ),
    case(
        "offsets that start late",
        lambda: ward_log(offsets=[1, 2, 5, 7, 8]),
        value="from 1",
        where="offsets",
        remedy="expected 0 to 8",
    ),
    case(
        "offsets that end early",
        lambda: ward_log(offsets=[0, 2, 5, 7]),
        value="to 7",
        where="offsets",
        remedy="expected 0 to 8",
    ),
    case(
        "no episodes",
        lambda: ward_log(offsets=[0]),
        value="no episodes",
        where="offsets",
        remedy="at least two entries",
    ),
    case(
        "no rows",
        lambda: ward_log(state=[], action=[], next_state=[], offsets=[0, 0], outcome=[-1]),
        value="0 steps",
        where="position 0",
        remedy="drop",
    ),
    case(
        "offsets that are no whole numbers",
        lambda: ward_log(offsets=[0, 2.5, 5, 7, 8]),
        value=r"2\.5",
        where="offsets at 1",
        remedy="whole number",
    ),
    case(
        "offsets table",
        lambda: ward_log(offsets=[[0, 2, 5, 7, 8]]),
        value=r"shape \(1, 5\)",
        where="offsets",
        remedy="one dimension",
    ),
]

# Episodes: what is done with them

METHODS = [
    case(
        "position beyond the last episode",
        lambda: ward_log().select([1, 4]),
        value="4 outside 0..3",
        where="position",
        remedy="count from 0",
    ),
    case(
        "position before the first episode",
        lambda: ward_log().select([-5, 1]),
        value="-5 outside",
        where="position",
        remedy="count from 0",
    ),
    case(
        "position that is no whole number",
        lambda: ward_log().select([0.5]),
        value=r"0\.5",
        where="episode|position|index",
        remedy="whole number",
    ),
    case(
        "mask of the wrong length",
        lambda: ward_log().select([True, False]),
        value="mask of 2",
        where="select|mask",
        remedy="expected 4",
    ),
    case(
        "nothing selected",
        lambda: ward_log().select([]),
        value="no episode",
        where="select",
        remedy="at least|give|name",
    ),
    case(
        "mask that selects nothing",
        lambda: ward_log().select([False] * 4),
        value="no episode",
        where="select",
        remedy="at least|give|name",
    ),
    case(
        "truncate to nothing",
        lambda: ward_log().truncate(0),
        value="horizon 0",
        where="horizon",
        remedy="at least",
    ),
    case(
        "truncate at half a step",
        lambda: ward_log().truncate(1.5),
        value=r"horizon 1\.5",
        where="horizon",
        remedy="at least|whole",
    ),
    case(
        "discount of returns above one",
        lambda: ward_log().returns(1.5),
        value=r"discount 1\.5",
        where="discount",
        remedy="from 0 to 1",
    ),
    case(
        "discount of returns that is not a number",
        lambda: ward_log().returns(NAN),
        value="discount nan",
        where="discount",
        remedy="from 0 to 1",
    ),
    case(
        "unknown name to hide",
        lambda: patient_log().hide("sugar", "glucose"),
        value="'glucose'",
        where="state variable",
        remedy="sex.*pulse.*sugar",
    ),
    case(
        "name hidden already",
        lambda: patient_log().hide("sugar").hide("sugar"),
        value="'sugar'",
        where="state variable",
        remedy="sex.*pulse",
    ),
    case(
        "nothing left to see",
        lambda: patient_log().hide("sex", "pulse", "sugar"),
        value="every state variable",
        where="hiding",
        remedy="leave|keep",
    ),
    case(
        "hiding with an unknown final state",
        lambda: patient_log(next_state=[3, -1, 4, 9, 11, 6]).hide("sugar"),
        value="-1",
        where="episode w",
        remedy="add a last row|give",
    ),
    case(
        "unknown name to label by",
        lambda: patient_log().state_labels("glucose"),
        value="'glucose'",
        where="variable",
        remedy="sex.*pulse.*sugar",
    ),
]

# Episodes.from_frame: rows are those of the frame that was given

FRAME = pd.DataFrame(
    {
        "episode": ["w", "w", "w", "x", "x"],
        "time": [0, 1, 2, 0, 1],
        "state": ["a", "b", "c", "b", "a"],
        "action": ["yes", "no", None, "yes", None],
        "reward": [0.0, 0.0, -1.0, 0.0, 0.0],
        "outcome": [None, None, "death", None, None],
    }
)
BACKWARDS = FRAME.iloc[::-1].reset_index(drop=True)  # row 4 of this is row 0 of FRAME


def read(frame=FRAME, **options):
    return Episodes.from_frame(frame, **{"outcomes": [DEATH, HOME], **options})


def with_cell(row, column, value, frame=FRAME):
    table = frame.astype({column: object})
    table.loc[row, column] = value
    return table


FRAMES = [
    *(
        case(
            f"frame without its column {column}",
            lambda column=column: read(FRAME.drop(columns=column)),
            value=f"'{column}'",
            where="column",
            remedy="it has .*time",
        )
        for column in ("episode", "state", "action", "outcome")
    ),
    case(
        "frame without a column that was named",
        lambda: read(time="hour"),
        value="'hour'",
        where="column",
        remedy="it has 'episode', 'time', 'state'",
    ),
    case(
        "empty frame",
        lambda: read(FRAME.iloc[:0]),
        value="no (rows|episodes)|0 rows|empty",
        where="frame|log",
        remedy="check|give|at least",
    ),
    case(
        "row without an episode",
        lambda: read(with_cell(3, "episode", None)),
        value="no episode",
        where="row 3",
        remedy="fill or drop",
    ),
    case(
        "row without a time",
        lambda: read(with_cell(1, "time", NAN).astype({"time": float}), time="time"),
        value="no time",
        where="row 1",
        remedy="fill or drop",
    ),
    case(
        "row without a state",
        lambda: read(with_cell(1, "state", None)),
        value="no 'state'",
        where="row 1",
        remedy="fill or drop",
    ),
    case(
        "row without a state in a frame that has to be sorted",
        lambda: read(with_cell(4, "state", None, BACKWARDS), time="time"),
        value="no 'state'",
        where="row 4",
        remedy="fill or drop",
    ),
    case(
        "row without an action in the middle",
        lambda: read(with_cell(1, "action", None)),
        value="no 'action'",
        where=r"row 1 \(episode w\)",
        remedy="only the last row",
    ),
    case(
        "state that is not listed",
        lambda: read(states=["a", "b"]),
        value="'c'",
        where="row 2",
        remedy="'a', 'b'.*list it",
    ),
    case(
        "state that is listed twice",
        lambda: read(states=["a", "b", "c", "a"]),
        value="'a'",
        where="states?",
        remedy="twice|once|different",
    ),
    case(
        "state number that is not listed",
        lambda: read(FRAME.assign(state=[1, 2, 3, 2, 1]), states=[1, 2]),
        value="3",
        where="row 2",
        remedy="'1', '2'.*list it",
    ),
    case(
        "action that is not listed",
        lambda: read(actions=["no"]),
        value="'yes'",
        where="row 0",
        remedy="'no'.*list it",
    ),
    case(
        "outcome that is not listed",
        lambda: read(outcomes=[HOME]),
        value="'death'",
        where="row 2",
        remedy="'home'.*list it",
    ),
    case(
        "outcome before the last row",
        lambda: read(with_cell(0, "outcome", "home")),
        value="'home'",
        where=r"row 0 \(episode w\)",
        remedy="ends with its outcome",
    ),
    case(
        "outcomes without rewards",
        lambda: read(outcomes=None),
        value="'death'",
        where="outcome",
        remedy=r"give Outcome\('death', reward\)",
    ),
    case(
        "episode of one decision that leads nowhere",
        lambda: read(FRAME.iloc[:4]),
        value="no transition",
        where="episode x",
        remedy="drop the episode",
    ),
    case(
        "episode of a final row only",
        lambda: read(FRAME.iloc[[0, 1, 2, 4]]),
        value="no transition",
        where="episode x",
        remedy="drop the episode",
    ),
    case(
        "reward that is missing",
        lambda: read(with_cell(1, "reward", NAN), reward="reward"),
        value="no reward",
        where=r"row 1 \(episode w\)",
        remedy="fill or drop",
    ),
    case(
        "reward that is text",
        lambda: read(with_cell(1, "reward", "much"), reward="reward"),
        value="'much'",
        where="row 1",
        remedy="number",
    ),
    case(
        "infinite reward on a final row",
        lambda: read(with_cell(2, "reward", INFINITE), reward="reward"),
        value="'reward' that is not a finite number: 'inf'",
        where="episode w",
        remedy="fill or drop",
    ),
    case(
        "states of mixed kinds without a list",
        lambda: read(with_cell(1, "state", 5)),
        value="5",
        where="state",
        remedy="states=|list",
    ),
    case(
        "horizon shorter than an episode of a frame",
        lambda: read(horizon=1),
        value="horizon 1",
        where="episode w has 2 steps",
        remedy="leave the horizon out",
    ),
]

# TabularMDP.from_arrays: two states, two actions, death = 2 and home = 3

ROWS = np.array(
    [
        [[0.5, 0.25, 0.25, 0.0], [0.0, 1.0, 0.0, 0.0]],
        [[0.0, 0.0, 0.5, 0.5], [0.25, 0.0, 0.0, 0.75]],
    ]
)


def model(rows=ROWS, **options):
    return TabularMDP.from_arrays(rows, **{"outcomes": [DEATH, HOME], **options})


def with_entry(place, value, rows=ROWS):
    changed_rows = np.array(rows, dtype=float)
    changed_rows[place] = value
    return changed_rows


def flat(rows):
    return sparse.csr_array(rows.reshape(4, 4))


MODELS = [
    case(
        "row that sums to more than one",
        lambda: model(with_entry((1, 0, 2), 0.7)),
        value=r"sums to 1\.2",
        where="state 1, action 0",
        remedy="divide",
    ),
    case(
        "row that sums to less than one",
        lambda: model(with_entry((0, 1, 1), 0.9)),
        value=r"sums to 0\.9",
        where="state 0, action 1",
        remedy="divide",
    ),
    case(
        "empty row",
        lambda: model(with_entry((0, 1, 1), 0.0)),
        value="sums to 0",
        where="state 0, action 1",
        remedy="divide",
    ),
    *(
        case(
            f"probability {value} in a {kind} model",
            lambda value=value, make=make, options=options: model(
                make(with_entry((1, 1, 0), value)), **options
            ),
            value=str(value),
            where="state 1, action 1.*next state 0",
            remedy="numbers from 0 to 1",
        )
        for value in (-0.25, NAN, INFINITE, -INFINITE)
        for kind, make, options in (
            ("dense", lambda rows: rows, {}),
            ("sparse", flat, {"actions": 2}),
        )
    ),
    case(
        "sparse row that does not sum to one",
        lambda: model(flat(with_entry((1, 0, 2), 0.7)), actions=2),
        value=r"sums to 1\.2",
        where="state 1, action 0",
        remedy="divide",
    ),
    case(
        "transition of two dimensions",
        lambda: model(ROWS.reshape(4, 4)),
        value=r"shape \(4, 4\)",
        where="transition",
        remedy="expected",
    ),
    case(
        "transition without the outcomes' columns",
        lambda: model(ROWS[..., :2]),
        value=r"shape \(2, 2, 2\)",
        where="transition",
        remedy="expected .*2 outcomes",
    ),
    case(
        "sparse transition without the number of actions",
        lambda: model(flat(ROWS)),
        value="sparse",
        where="transition",
        remedy="needs actions=",
    ),
    case(
        "sparse transition with a wrong number of actions",
        lambda: model(flat(ROWS), actions=3),
        value=r"shape \(4, 4\)",
        where="transition",
        remedy=r"expected \(6, 4\)",
    ),
    case(
        "reward of a wrong shape",
        lambda: model(reward=[1.0, 2.0]),
        value=r"shape \(2,\)",
        where="reward",
        remedy=r"expected .*S = 2, A = 2, O = 2",
    ),
    case(
        "sparse reward of a wrong shape",
        lambda: model(reward=sparse.csr_array(np.ones((4, 3)))),
        value=r"shape \(4, 3\)",
        where="reward",
        remedy=r"\(4, 4\)|expected",
    ),
    case(
        "reward that is no number",
        lambda: model(reward=with_entry((1, 1, 3), NAN, np.zeros((2, 2, 4)))),
        value="nan",
        where="state 1, action 1, next state 3",
        remedy="needs a number",
    ),
    case(
        "outcome whose reward is infinite",
        lambda: model(outcomes=[Outcome("death", -INFINITE), HOME]),
        value="-inf",
        where="state 0, action 0, next state 2|death",
        remedy="give a finite number",
    ),
    case(
        "two outcomes of one name",
        lambda: model(outcomes=[DEATH, DEATH]),
        value="death",
        where="outcomes",
        remedy="different names",
    ),
    case(
        "outcome by name only",
        lambda: model(outcomes=["death", "home"]),
        value="'death'",
        where="outcome",
        remedy=r"give Outcome\('death', reward\)",
    ),
    case(
        "absorbing state out of range",
        lambda: model(absorbing={2: 0}),
        value="state 2",
        where="absorbing",
        remedy="2 states",
    ),
    case(
        "absorbing outcome out of range",
        lambda: model(absorbing={1: 2}),
        value="outcome 2",
        where="absorbing",
        remedy="2 outcomes",
    ),
    case(
        "first states of a wrong shape",
        lambda: model(initial=[0.5, 0.25, 0.25]),
        value=r"shape \(3,\)",
        where="initial",
        remedy=r"expected \(2,\)",
    ),
    case(
        "first states that do not sum to one",
        lambda: model(initial=[0.5, 0.25]),
        value=r"sums to 0\.75",
        where="initial",
        remedy="divide",
    ),
    case(
        "first states that are negative",
        lambda: model().with_initial([1.5, -0.5]),
        value=r"-0\.5 at 1",
        where="initial",
        remedy="numbers from 0 to 1",
    ),
    case(
        "counts of a wrong shape",
        lambda: model(counts=[[1, 2]]),
        value=r"shape \(1, 2\)",
        where="counts",
        remedy=r"shape \(2, 2\)",
    ),
    case(
        "negative count",
        lambda: model(counts=[[1, 2], [-3, 4]]),
        value="-3",
        where="state 1, action 0",
        remedy="whole numbers, at least 0",
    ),
    case(
        "count that is no whole number",
        lambda: model(counts=[[1, 2], [3, 0.5]]),
        value=r"0\.5|float",
        where="counts",
        remedy="expected whole numbers",
    ),
    case(
        "labels of a wrong shape",
        lambda: model(labels=[0, 1, 2]),
        value=r"shape \(3,\)",
        where="labels",
        remedy=r"expected \(2,\)",
    ),
    case(
        "label table",
        lambda: model().with_labels([[0, 1]]),
        value=r"shape \(1, 2\)",
        where="labels",
        remedy=r"expected \(2,\)",
    ),
    case(
        "one label for two next states of a row",
        lambda: model(labels=[7, 7]),
        value="0 and 1 have the same label",
        where="state 0, action 0",
        remedy="different labels",
    ),
    case(
        "outcome that shares the label of a state",
        lambda: model(labels=[7, 8, 8, 9]),
        value="8",
        where="outcome (0|'?death)",
        remedy="its own label",
    ),
    case(
        "row of a state out of range",
        lambda: model().row(2, 0),
        value="state 2",
        where="action 0",
        remedy=r"0\.\.1",
    ),
    case(
        "row of an action out of range",
        lambda: model().row(0, -1),
        value="action -1",
        where="state 0",
        remedy=r"0\.\.1",
    ),
]

# fit_mdp and estimate_behavior

EVERYTHING_SEEN = {
    "state": [0, 1],
    "action": [0, 0],
    "next_state": [1, 0],
    "offsets": [0, 2],
    "states": 2,
    "actions": 1,
}
NO_FINAL_STATE = {"next_state": changed(GOOD_NEXT, 4, -1), "id": ID}  # stay x went home

LEARNING = [
    *(
        case(
            f"unknown terminal for {learn.__name__}",
            lambda learn=learn: learn(ward_log(), terminal="visit"),
            value="'visit'",
            where="terminal",
            remedy="visits.*icml2019",
        )
        for learn in (fit_mdp, estimate_behavior)
    ),
    *(
        case(
            f"prior {prior} for {learn.__name__}",
            lambda learn=learn, prior=prior: learn(ward_log(), prior=prior),
            value=str(prior),
            where="prior",
            remedy="0 or more",
        )
        for learn in (fit_mdp, estimate_behavior)
        for prior in (-0.5, NAN, INFINITE)
    ),
    *(
        case(
            f"unknown final state with icml2019 ends for {learn.__name__}",
            lambda learn=learn: learn(ward_log(**NO_FINAL_STATE), terminal="icml2019"),
            value="final state is unknown",
            where="episode x",
            remedy="add a last row without action.*terminal='visits'",
        )
        for learn in (fit_mdp, estimate_behavior)
    ),
    case(
        "unknown rule for unseen pairs",
        lambda: fit_mdp(ward_log(), unseen="dead"),
        value="'dead'",
        where="unseen",
        remedy="death, home.*'uniform'.*'self-loop'",
    ),
    case(
        "unknown rule for unseen pairs where there are none",
        lambda: fit_mdp(Episodes.from_arrays(**EVERYTHING_SEEN), unseen="dead"),
        value="'dead'",
        where="unseen",
        remedy="'uniform'.*'self-loop'",
    ),
    case(
        "unseen pairs and no outcome to send them to",
        lambda: fit_mdp(ward_log(outcome=None, outcomes=())),
        value="3 state-action pairs",
        where="never seen",
        remedy="unseen='uniform' or unseen='self-loop'",
    ),
    case(
        "labels of a wrong shape for a learned model",
        lambda: fit_mdp(ward_log(), labels=[0, 1]),
        value=r"shape \(2,\)",
        where="labels",
        remedy=r"expected \(3,\)",
    ),
]

# policies, planning, evaluation

GOOD_POLICY = [[0.5, 0.5], [1.0, 0.0]]

PLANNING = [
    *(
        case(
            f"policy of shape {np.shape(policy)} for {evaluate.__name__}",
            lambda evaluate=evaluate, policy=policy: evaluate(model(), policy, horizon=3),
            value=re.escape(f"shape {np.shape(policy)}"),
            where="policy",
            remedy=r"expected \(2, 2\).*one row per state",
        )
        for evaluate in (policy_value, state_values, value_tables)
        for policy in ([0, 1], [[1.0, 0.0]] * 3, [[1.0, 0.0, 0.0]] * 2)
    ),
    case(
        "policy row that does not sum to one",
        lambda: policy_value(model(), [[0.5, 0.5], [0.5, 0.25]], horizon=3),
        value=r"sums to 0\.75",
        where="policy: state 1",
        remedy="divide",
    ),
    *(
        case(
            f"policy with probability {value}",
            lambda value=value: check_policy([[0.5, 0.5], [value, 1.0]], 2, 2, "target"),
            value=f"{value} at 0",
            where="target: state 1",
            remedy="numbers from 0 to 1",
        )
        for value in (-0.5, NAN, INFINITE)
    ),
    *(
        case(
            f"planning discount {discount}",
            lambda discount=discount: policy_iteration(model(), discount=discount),
            value=f"discount {discount}",
            where="planning",
            remedy="from 0 to below 1",
        )
        for discount in (-0.1, 1.0, 1.5, NAN)
    ),
    *(
        case(
            f"evaluation discount {discount} with horizon {horizon}",
            lambda discount=discount, horizon=horizon: policy_value(
                model(), GOOD_POLICY, horizon=horizon, discount=discount
            ),
            value=f"discount {discount}",
            where="discount",
            remedy="from 0 to 1",
        )
        for discount in (-0.1, 1.5, NAN)
        for horizon in (None, 3)
    ),
    *(
        case(
            f"horizon {horizon!r}",
            lambda horizon=horizon: policy_value(model(), GOOD_POLICY, horizon=horizon),
            value=f"horizon {horizon!r}",
            where="horizon",
            remedy="at least 1",
        )
        for horizon in (0, -3, 2.5, NAN, "20", True)
    ),
    case(
        "first states of a wrong shape for a value",
        lambda: policy_value(model(), GOOD_POLICY, horizon=3, initial=[1.0]),
        value=r"shape \(1,\)",
        where="initial",
        remedy=r"expected \(2,\)",
    ),
    case(
        "return without end",
        lambda: policy_value(model([[[1.0, 0.0, 0.0]]]), [[1.0]]),
        value="never reaches an outcome",
        where="from state 0",
        remedy="give a horizon, or a discount below 1",
    ),
    *(
        case(
            f"epsilon {epsilon}",
            lambda epsilon=epsilon: soften(GOOD_POLICY, epsilon),
            value=f"epsilon {epsilon}",
            where="epsilon",
            remedy="give a probability",
        )
        for epsilon in (-0.1, 1.5, NAN)
    ),
    case(
        "softening a single action",
        lambda: soften([[1.0], [1.0]], 0.1),
        value=r"shape \(2, 1\)",
        where="policy",
        remedy="at least two actions",
    ),
    case(
        "softening what is no policy",
        lambda: soften([[1.0, 0.5], [0.5, 0.5]], 0.1),
        value=r"sums to 1\.5",
        where="policy: state 0",
        remedy="divide",
    ),
    case(
        "greedy by a value that is no number",
        lambda: greedy([[1.0, 2.0], [NAN, 3.0]]),
        value="nan",
        where="state 1, action 0",
        remedy="number",
    ),
    case(
        "greedy by a row instead of a table",
        lambda: greedy([1.0, 2.0]),
        value=r"shape \(2,\)",
        where="values",
        remedy=r"expected|\[S, A\]",
    ),
    case(
        "preference of a wrong shape",
        lambda: greedy([[1.0, 1.0], [1.0, 1.0]], prefer=[True, False]),
        value=r"shape \(2,\)",
        where="prefer",
        remedy=r"expected|\[S, A\]",
    ),
]

# seeds and threads

STREAMS = [
    *(
        case(
            f"seed {seed!r}",
            lambda seed=seed: check_seed(seed),
            value=f"seed {seed!r}",
            where="seed",
            remedy="whole number, at least 0",
        )
        for seed in (-1, 1.5, "7", None, True)
    ),
    case(
        "seed of episode keys",
        lambda: episode_keys(-1, np.arange(3), "draws"),
        value="-1",
        where="seed",
        remedy="whole number, at least 0",
    ),
    case(
        "seed of numbered keys",
        lambda: numbered_keys(-1, 3, "draws"),
        value="-1",
        where="seed",
        remedy="whole number, at least 0",
    ),
    *(
        case(
            f"{threads} threads",
            lambda threads=threads: in_blocks(lambda start, stop: None, 5, threads=threads),
            value=f"threads {threads}",
            where="threads",
            remedy="at least 1",
        )
        for threads in (0, -2)
    ),
]


@pytest.mark.parametrize("bad", ARRAYS)
def test_bad_arrays_are_refused(bad):
    check(bad)


@pytest.mark.parametrize("bad", OFFSETS)
def test_bad_offsets_are_refused(bad):
    check(bad)


@pytest.mark.parametrize("bad", METHODS)
def test_bad_requests_to_a_log_are_refused(bad):
    check(bad)


@pytest.mark.parametrize("bad", FRAMES)
def test_bad_frames_are_refused(bad):
    check(bad)


@pytest.mark.parametrize("bad", MODELS)
def test_bad_models_are_refused(bad):
    check(bad)


@pytest.mark.parametrize("bad", LEARNING)
def test_bad_requests_to_learn_are_refused(bad):
    check(bad)


@pytest.mark.parametrize("bad", PLANNING)
def test_bad_requests_to_plan_are_refused(bad):
    check(bad)


@pytest.mark.parametrize("bad", STREAMS)
def test_bad_seeds_and_threads_are_refused(bad):
    check(bad)


def test_the_inputs_that_the_cases_spoil_are_good():
    assert len(ward_log(id=ID)) == len(patient_log()) == 4
    assert len(read()) == len(read(BACKWARDS, time="time")) == len(read(reward="reward")) == 2
    assert model().row(0, 0) == model(flat(ROWS), actions=2).row(0, 0)
    assert check_policy(GOOD_POLICY, 2, 2).tolist() == GOOD_POLICY
    assert fit_mdp(Episodes.from_arrays(**EVERYTHING_SEEN)).unseen.sum() == 0
