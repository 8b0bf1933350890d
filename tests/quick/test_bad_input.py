"""Bad input is refused with the value, where it is, and what to do about it.

Each case lists three patterns that its message must contain: what is wrong, where, and a remedy
(an instruction, or what would have been right). The functions of `butfor.replay.outcomes` and
`butfor.mechanisms` have their own.
"""

import re

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


def case(name, call, patterns):
    """A call that is refused, with patterns for the value, the place and the remedy."""
    return pytest.param((call, patterns), id=name)


def check(bad):
    call, patterns = bad
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the patterns are the match
        call()
    message = str(caught.value)
    for part in patterns:
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
        ("state 3 outside 0..2", r"row 2 \(episode x, step 0\)", "relabel"),
    ),
    case(
        "negative state",
        lambda: ward_log(state=changed(GOOD_STATES, 0, -1), id=ID),
        ("state -1", r"row 0 \(episode w, step 0\)", "relabel"),
    ),
    case(
        "action out of range",
        lambda: ward_log(action=changed(GOOD_ACTIONS, 4, 9), id=ID),
        ("action 9 outside 0..1", r"row 4 \(episode x, step 2\)", "relabel"),
    ),
    case(
        "next state out of range",
        lambda: ward_log(next_state=changed(GOOD_NEXT, 7, 3), id=ID),
        ("next state 3 outside 0..2", r"row 7 \(episode z, step 0\)", "relabel"),
    ),
    case(
        "unknown next state before the end",
        lambda: ward_log(next_state=changed(GOOD_NEXT, 2, -1), id=ID),
        ("next state -1", r"row 2 \(episode x, step 0\)", "relabel|final|outcome"),
    ),
    case(
        "unknown final state without outcome",
        lambda: ward_log(next_state=changed(GOOD_NEXT, 6, -1), id=ID),
        ("next state -1", r"row 6 \(episode y, step 1\)", "relabel|final|outcome"),
    ),
    case(
        "broken chain",
        lambda: ward_log(next_state=changed(GOOD_NEXT, 3, 2), id=ID),
        ("next state 2 .*state 0", r"row 3 \(episode x, step 1\)", "sort the rows by time"),
    ),
    case(
        "state that is no whole number",
        lambda: ward_log(state=changed(GOOD_STATES, 1, 1.5)),
        (r"1\.5", "state at (row )?1", "whole number"),
    ),
    case(
        "state that is missing",
        lambda: ward_log(state=changed(GOOD_STATES, 1, NAN)),
        ("nan", "state at (row )?1", "whole number"),
    ),
    case(
        "state that is None",
        lambda: ward_log(state=changed(GOOD_STATES, 1, None)),
        ("None", "state at (row )?1", "whole number"),
    ),
    case(
        "action that is text",
        lambda: ward_log(action=changed(GOOD_ACTIONS, 0, "drug")),
        ("drug", "action at (row )?0", "whole number"),
    ),
    case(
        "state too large for its type",
        lambda: ward_log(state=changed(GOOD_STATES, 5, 2**40)),
        (str(2**40), "state at (row )?5", "relabel"),
    ),
    case(
        "state table",
        lambda: ward_log(state=[GOOD_STATES]),
        (r"shape \(1, 8\)", "state", "expected one dimension"),
    ),
    case(
        "too few actions",
        lambda: ward_log(action=GOOD_ACTIONS[:7]),
        (r"\(7,\)", "action", r"expected \(8,\)"),
    ),
    case(
        "too many outcomes",
        lambda: ward_log(outcome=[0, 1, -1, 0, 0]),
        (r"\(5,\)", "outcome", r"expected \(4,\)"),
    ),
    case("too few identifiers", lambda: ward_log(id=["w"]), (r"\(1,\)", "id", r"expected \(4,\)")),
    case(
        "too few final keys",
        lambda: ward_log(final_key=[1, 2]),
        (r"\(2,\)", "final_key", r"expected \(4,\)"),
    ),
    case(
        "final key that is no whole number",
        lambda: ward_log(final_key=[1, 2, 0.5, 3]),
        (r"0\.5", "final_key at 2", "whole number"),
    ),
    case(
        "side frame without final rows",
        lambda: ward_log(side=pd.DataFrame({"age": range(8)})),
        ("8 rows", "side", "expected 12"),
    ),
    case(
        "outcome index out of range",
        lambda: ward_log(outcome=[0, 2, -1, 0], id=ID),
        ("outcome 2", "episode x", r"0\.\.1; .*-1 for none"),
    ),
    case(
        "outcome index below none",
        lambda: ward_log(outcome=[0, -2, -1, 0], id=ID),
        ("outcome -2", "episode x", r"0\.\.1; .*-1 for none"),
    ),
    case(
        "outcome of a log that lists none",
        lambda: ward_log(outcomes=(), id=ID),
        ("outcome 0", "episode w", "outcomes=|list|give"),
    ),
    case(
        "outcome by name without rewards",
        lambda: ward_log(outcomes=["death", "home"]),
        ("'death'", "outcome", r"give Outcome\('death', reward\)"),
    ),
    case(
        "two outcomes of one name",
        lambda: ward_log(outcomes=[DEATH, DEATH]),
        ("death", "outcomes", "different names"),
    ),
    case(
        "outcome whose reward is no number",
        lambda: ward_log(outcomes=[Outcome("death", NAN), HOME]),
        ("nan", "death", "give|number"),
    ),
    case(
        "reward that is no number",
        lambda: ward_log(reward=changed([0.0] * 8, 3, NAN), id=ID),
        ("reward nan", r"row 3 \(episode x, step 1\)", "fill or drop"),
    ),
    case(
        "last reward that is no number where outcomes are given by name",
        lambda: ward_log(reward=changed([0.0] * 8, 7, NAN), outcomes=["death", "home"], id=ID),
        ("reward nan", r"row 7 \(episode z, step 0\)", "fill or drop"),
    ),
    case(
        "reward table",
        lambda: ward_log(reward=np.zeros((8, 1))),
        (r"shape \(8, 1\)", "reward", "expected"),
    ),
    case(
        "one reward for all rows",
        lambda: ward_log(reward=0.0),
        (r"shape \(\)|1 entries", "reward", "expected"),
    ),
    case(
        "identifier table",
        lambda: ward_log(id=np.zeros((4, 1))),
        (r"shape \(4, 1\)", "id", "expected"),
    ),
    case(
        "infinite reward",
        lambda: ward_log(reward=changed([0.0] * 8, 7, -INFINITE), id=ID),
        ("reward -inf", r"row 7 \(episode z, step 0\)", "fill or drop"),
    ),
    case(
        "outcome called none",
        lambda: ward_log(outcomes=[Outcome("none", -1.0), HOME]),
        ("'none'", "outcome", "rename it"),
    ),
    case(
        "identifiers of several kinds",
        lambda: ward_log(id=np.array(["w", 1, 2, 3], dtype=object)),
        ("int, str", "id", "one type"),
    ),
    case(
        "horizon shorter than an episode",
        lambda: ward_log(horizon=2, id=ID),
        ("horizon 2", "episode x has 3 steps", r"truncate\(\)"),
    ),
    case(
        "horizon that is no whole number",
        lambda: ward_log(horizon=3.5),
        (r"3\.5", "horizon", "give|expected"),
    ),
    case(
        "horizon that is not a number",
        lambda: ward_log(horizon=NAN),
        ("nan", "horizon", "give|expected"),
    ),
    case("no states", lambda: ward_log(states=0), ("0 states", "state", "at least one")),
    case(
        "variable without levels",
        lambda: ward_log(actions=[Variable("drug", ())]),
        ("drug|action variables", "action", "at least one level"),
    ),
    case(
        "two variables of one name",
        lambda: patient_log(states=[PATIENT[0], PATIENT[1], Variable("sex", ("x", "y"))]),
        ("sex", "state", "different|once|rename|own"),
    ),
    case(
        "two levels of one name",
        lambda: ward_log(states=[Variable("ward", ("a", "b", "a"))]),
        ("'?a'?", "ward", "different|once|rename|own"),
    ),
]

OFFSETS = [
    case(
        "episode without steps",
        lambda: ward_log(offsets=[0, 2, 5, 5, 8]),
        ("0 steps", "position 2", "drop"),
    ),
    case(
        "offsets that go back",
        lambda: ward_log(offsets=[0, 5, 2, 7, 8]),
        ("-3 steps|5 .*2", "position 1", "drop|order|increas"),
    ),
    case(
        "offsets that start late",
        lambda: ward_log(offsets=[1, 2, 5, 7, 8]),
        ("from 1", "offsets", "expected 0 to 8"),
    ),
    case(
        "offsets that end early",
        lambda: ward_log(offsets=[0, 2, 5, 7]),
        ("to 7", "offsets", "expected 0 to 8"),
    ),
    case(
        "no episodes",
        lambda: ward_log(offsets=[0]),
        ("no episodes", "offsets", "at least two entries"),
    ),
    case(
        "no rows",
        lambda: ward_log(state=[], action=[], next_state=[], offsets=[0, 0], outcome=[-1]),
        ("0 steps", "position 0", "drop"),
    ),
    case(
        "offsets that are no whole numbers",
        lambda: ward_log(offsets=[0, 2.5, 5, 7, 8]),
        (r"2\.5", "offsets at 1", "whole number"),
    ),
    case(
        "offsets table",
        lambda: ward_log(offsets=[[0, 2, 5, 7, 8]]),
        (r"shape \(1, 5\)", "offsets", "one dimension"),
    ),
]

# Episodes: what is done with them

METHODS = [
    case(
        "position beyond the last episode",
        lambda: ward_log().select([1, 4]),
        ("4 outside 0..3", "position", "count from 0"),
    ),
    case(
        "position before the first episode",
        lambda: ward_log().select([-5, 1]),
        ("-5 outside", "position", "count from 0"),
    ),
    case(
        "position that is no whole number",
        lambda: ward_log().select([0.5]),
        (r"0\.5", "episode|position|index", "whole number"),
    ),
    case(
        "mask of the wrong length",
        lambda: ward_log().select([True, False]),
        ("mask of 2", "select|mask", "expected 4"),
    ),
    case(
        "nothing selected",
        lambda: ward_log().select([]),
        ("no episode", "select", "at least|give|name"),
    ),
    case(
        "mask that selects nothing",
        lambda: ward_log().select([False] * 4),
        ("no episode", "select", "at least|give|name"),
    ),
    case(
        "truncate to nothing", lambda: ward_log().truncate(0), ("horizon 0", "horizon", "at least")
    ),
    case(
        "truncate at half a step",
        lambda: ward_log().truncate(1.5),
        (r"horizon 1\.5", "horizon", "at least|whole"),
    ),
    case(
        "discount of returns above one",
        lambda: ward_log().returns(1.5),
        (r"discount 1\.5", "discount", "from 0 to 1"),
    ),
    case(
        "discount of returns that is not a number",
        lambda: ward_log().returns(NAN),
        ("discount nan", "discount", "from 0 to 1"),
    ),
    case(
        "unknown name to hide",
        lambda: patient_log().hide("sugar", "glucose"),
        ("'glucose'", "state variable", "sex.*pulse.*sugar"),
    ),
    case(
        "name hidden already",
        lambda: patient_log().hide("sugar").hide("sugar"),
        ("'sugar'", "state variable", "sex.*pulse"),
    ),
    case(
        "nothing left to see",
        lambda: patient_log().hide("sex", "pulse", "sugar"),
        ("every state variable", "hiding", "leave|keep"),
    ),
    case(
        "hiding with an unknown final state",
        lambda: patient_log(next_state=[3, -1, 4, 9, 11, 6]).hide("sugar"),
        ("-1", "episode w", "add a last row|give"),
    ),
    case(
        "unknown name to label by",
        lambda: patient_log().state_labels("glucose"),
        ("'glucose'", "variable", "sex.*pulse.*sugar"),
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
            (f"'{column}'", "column", "it has .*time"),
        )
        for column in ("episode", "state", "action", "outcome")
    ),
    case(
        "frame without a column that was named",
        lambda: read(time="hour"),
        ("'hour'", "column", "it has 'episode', 'time', 'state'"),
    ),
    case(
        "empty frame",
        lambda: read(FRAME.iloc[:0]),
        ("no (rows|episodes)|0 rows|empty", "frame|log", "check|give|at least"),
    ),
    case(
        "row without an episode",
        lambda: read(with_cell(3, "episode", None)),
        ("no episode", "row 3", "fill or drop"),
    ),
    case(
        "row without a time",
        lambda: read(with_cell(1, "time", NAN).astype({"time": float}), time="time"),
        ("no time", "row 1", "fill or drop"),
    ),
    case(
        "row without a state",
        lambda: read(with_cell(1, "state", None)),
        ("no 'state'", "row 1", "fill or drop"),
    ),
    case(
        "row without a state in a frame that has to be sorted",
        lambda: read(with_cell(4, "state", None, BACKWARDS), time="time"),
        ("no 'state'", "row 4", "fill or drop"),
    ),
    case(
        "row without an action in the middle",
        lambda: read(with_cell(1, "action", None)),
        ("no 'action'", r"row 1 \(episode w\)", "only the last row"),
    ),
    case(
        "state that is not listed",
        lambda: read(states=["a", "b"]),
        ("'c'", "row 2", "'a', 'b'.*list it"),
    ),
    case(
        "state that is listed twice",
        lambda: read(states=["a", "b", "c", "a"]),
        ("'a'", "states?", "twice|once|different"),
    ),
    case(
        "state number that is not listed",
        lambda: read(FRAME.assign(state=[1, 2, 3, 2, 1]), states=[1, 2]),
        ("3", "row 2", "'1', '2'.*list it"),
    ),
    case(
        "action that is not listed",
        lambda: read(actions=["no"]),
        ("'yes'", "row 0", "'no'.*list it"),
    ),
    case(
        "outcome that is not listed",
        lambda: read(outcomes=[HOME]),
        ("'death'", "row 2", "'home'.*list it"),
    ),
    case(
        "outcome before the last row",
        lambda: read(with_cell(0, "outcome", "home")),
        ("several different outcomes", r"row 0 \(episode w\)", "one outcome, on its last row"),
    ),
    case(
        "outcomes without rewards",
        lambda: read(outcomes=None),
        ("'death'", "outcome", r"give Outcome\('death', reward\)"),
    ),
    case(
        "episode of one decision that leads nowhere",
        lambda: read(FRAME.iloc[:4]),
        ("no transition", "episode x", "drop the episode"),
    ),
    case(
        "episode of a final row only",
        lambda: read(FRAME.iloc[[0, 1, 2, 4]]),
        ("no transition", "episode x", "drop the episode"),
    ),
    case(
        "reward that is missing",
        lambda: read(with_cell(1, "reward", NAN), reward="reward"),
        ("no reward", r"row 1 \(episode w\)", "fill or drop"),
    ),
    case(
        "reward that is text",
        lambda: read(with_cell(1, "reward", "much"), reward="reward"),
        ("'much'", "row 1", "number"),
    ),
    case(
        "infinite reward on a final row",
        lambda: read(with_cell(2, "reward", INFINITE), reward="reward"),
        ("'reward' that is not a finite number: 'inf'", "episode w", "fill or drop"),
    ),
    case(
        "states of mixed kinds without a list",
        lambda: read(with_cell(1, "state", 5)),
        ("5", "state", "states=|list"),
    ),
    case(
        "horizon shorter than an episode of a frame",
        lambda: read(horizon=1),
        ("longer than the horizon", "episode w", "leave it out; or problems=.*cut"),
    ),
]

# TabularMDP.from_arrays: two states, two actions, death = 2 and home = 3

ROWS = np.array(
    [[[0.5, 0.25, 0.25, 0.0], [0.0, 1.0, 0.0, 0.0]], [[0.0, 0.0, 0.5, 0.5], [0.25, 0.0, 0.0, 0.75]]]
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
        (r"sums to 1\.2", "state 1, action 0", "divide"),
    ),
    case(
        "row that sums to less than one",
        lambda: model(with_entry((0, 1, 1), 0.9)),
        (r"sums to 0\.9", "state 0, action 1", "divide"),
    ),
    case(
        "empty row",
        lambda: model(with_entry((0, 1, 1), 0.0)),
        ("sums to 0", "state 0, action 1", "divide"),
    ),
    *(
        case(
            f"probability {value} in a {kind} model",
            lambda value=value, make=make, options=options: model(
                make(with_entry((1, 1, 0), value)), **options
            ),
            (str(value), "state 1, action 1.*next state 0", "numbers from 0 to 1"),
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
        (r"sums to 1\.2", "state 1, action 0", "divide"),
    ),
    case(
        "transition of two dimensions",
        lambda: model(ROWS.reshape(4, 4)),
        (r"shape \(4, 4\)", "transition", "expected"),
    ),
    case(
        "transition without the outcomes' columns",
        lambda: model(ROWS[..., :2]),
        (r"shape \(2, 2, 2\)", "transition", "expected .*2 outcomes"),
    ),
    case(
        "sparse transition without the number of actions",
        lambda: model(flat(ROWS)),
        ("sparse", "transition", "needs actions="),
    ),
    case(
        "sparse transition with a wrong number of actions",
        lambda: model(flat(ROWS), actions=3),
        (r"shape \(4, 4\)", "transition", r"expected \(6, 4\)"),
    ),
    case(
        "reward of a wrong shape",
        lambda: model(reward=[1.0, 2.0]),
        (r"shape \(2,\)", "reward", r"expected .*S = 2, A = 2, O = 2"),
    ),
    case(
        "sparse reward of a wrong shape",
        lambda: model(reward=sparse.csr_array(np.ones((4, 3)))),
        (r"shape \(4, 3\)", "reward", r"\(4, 4\)|expected"),
    ),
    case(
        "reward that is no number",
        lambda: model(reward=with_entry((1, 1, 3), NAN, np.zeros((2, 2, 4)))),
        ("nan", "state 1, action 1, next state 3", "needs a number"),
    ),
    case(
        "outcome whose reward is infinite",
        lambda: model(outcomes=[Outcome("death", -INFINITE), HOME]),
        ("-inf", "state 0, action 0, next state 2|death", "give a finite number"),
    ),
    case(
        "two outcomes of one name",
        lambda: model(outcomes=[DEATH, DEATH]),
        ("death", "outcomes", "different names"),
    ),
    case(
        "outcome by name only",
        lambda: model(outcomes=["death", "home"]),
        ("'death'", "outcome", r"give Outcome\('death', reward\)"),
    ),
    case(
        "absorbing state out of range",
        lambda: model(absorbing={2: 0}),
        ("state 2", "absorbing", "2 states"),
    ),
    case(
        "absorbing outcome out of range",
        lambda: model(absorbing={1: 2}),
        ("outcome 2", "absorbing", "2 outcomes"),
    ),
    case(
        "first states of a wrong shape",
        lambda: model(initial=[0.5, 0.25, 0.25]),
        (r"shape \(3,\)", "initial", r"expected \(2,\)"),
    ),
    case(
        "first states that do not sum to one",
        lambda: model(initial=[0.5, 0.25]),
        (r"sums to 0\.75", "initial", "divide"),
    ),
    case(
        "first states that are negative",
        lambda: model().with_initial([1.5, -0.5]),
        (r"-0\.5 at 1", "initial", "numbers from 0 to 1"),
    ),
    case(
        "counts of a wrong shape",
        lambda: model(counts=[[1, 2]]),
        (r"shape \(1, 2\)", "counts", r"shape \(2, 2\)"),
    ),
    case(
        "negative count",
        lambda: model(counts=[[1, 2], [-3, 4]]),
        ("-3", "state 1, action 0", "whole numbers, at least 0"),
    ),
    case(
        "count that is no whole number",
        lambda: model(counts=[[1, 2], [3, 0.5]]),
        (r"0\.5|float", "counts", "expected whole numbers"),
    ),
    case(
        "labels of a wrong shape",
        lambda: model(labels=[0, 1, 2]),
        (r"shape \(3,\)", "labels", r"expected \(2,\)"),
    ),
    case(
        "label table",
        lambda: model().with_labels([[0, 1]]),
        (r"shape \(1, 2\)", "labels", r"expected \(2,\)"),
    ),
    case(
        "one label for two next states of a row",
        lambda: model(labels=[7, 7]),
        ("0 and 1 have the same label", "state 0, action 0", "different labels"),
    ),
    case(
        "outcome that shares the label of a state",
        lambda: model(labels=[7, 8, 8, 9]),
        ("8", "outcome (0|'?death)", "its own label"),
    ),
    case(
        "row of a state out of range", lambda: model().row(2, 0), ("state 2", "action 0", r"0\.\.1")
    ),
    case(
        "row of an action out of range",
        lambda: model().row(0, -1),
        ("action -1", "state 0", r"0\.\.1"),
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
            ("'visit'", "terminal", "visits.*icml2019"),
        )
        for learn in (fit_mdp, estimate_behavior)
    ),
    *(
        case(
            f"prior {prior} for {learn.__name__}",
            lambda learn=learn, prior=prior: learn(ward_log(), prior=prior),
            (str(prior), "prior", "0 or more"),
        )
        for learn in (fit_mdp, estimate_behavior)
        for prior in (-0.5, NAN, INFINITE)
    ),
    *(
        case(
            f"unknown final state with icml2019 ends for {learn.__name__}",
            lambda learn=learn: learn(ward_log(**NO_FINAL_STATE), terminal="icml2019"),
            (
                "final state is unknown",
                "episode x",
                "add a last row without action.*terminal='visits'",
            ),
        )
        for learn in (fit_mdp, estimate_behavior)
    ),
    case(
        "unknown rule for unseen pairs",
        lambda: fit_mdp(ward_log(), unseen="dead"),
        ("'dead'", "unseen", "death, home.*'uniform'.*'self-loop'"),
    ),
    case(
        "unknown rule for unseen pairs where there are none",
        lambda: fit_mdp(Episodes.from_arrays(**EVERYTHING_SEEN), unseen="dead"),
        ("'dead'", "unseen", "'uniform'.*'self-loop'"),
    ),
    case(
        "unseen pairs and no outcome to send them to",
        lambda: fit_mdp(ward_log(outcome=None, outcomes=())),
        ("3 state-action pairs", "never seen", "unseen='uniform' or unseen='self-loop'"),
    ),
    case(
        "labels of a wrong shape for a learned model",
        lambda: fit_mdp(ward_log(), labels=[0, 1]),
        (r"shape \(2,\)", "labels", r"expected \(3,\)"),
    ),
]

# policies, planning, evaluation

GOOD_POLICY = [[0.5, 0.5], [1.0, 0.0]]

PLANNING = [
    *(
        case(
            f"policy of shape {np.shape(policy)} for {evaluate.__name__}",
            lambda evaluate=evaluate, policy=policy: evaluate(model(), policy, horizon=3),
            (
                re.escape(f"shape {np.shape(policy)}"),
                "policy",
                r"expected \(2, 2\).*one row per state",
            ),
        )
        for evaluate in (policy_value, state_values, value_tables)
        for policy in ([0, 1], [[1.0, 0.0]] * 3, [[1.0, 0.0, 0.0]] * 2)
    ),
    case(
        "policy row that does not sum to one",
        lambda: policy_value(model(), [[0.5, 0.5], [0.5, 0.25]], horizon=3),
        (r"sums to 0\.75", "policy: state 1", "divide"),
    ),
    *(
        case(
            f"policy with probability {value}",
            lambda value=value: check_policy([[0.5, 0.5], [value, 1.0]], 2, 2, "target"),
            (f"{value} at 0", "target: state 1", "numbers from 0 to 1"),
        )
        for value in (-0.5, NAN, INFINITE)
    ),
    *(
        case(
            f"planning discount {discount}",
            lambda discount=discount: policy_iteration(model(), discount=discount),
            (f"discount {discount}", "planning", "from 0 to below 1"),
        )
        for discount in (-0.1, 1.0, 1.5, NAN)
    ),
    *(
        case(
            f"evaluation discount {discount} with horizon {horizon}",
            lambda discount=discount, horizon=horizon: policy_value(
                model(), GOOD_POLICY, horizon=horizon, discount=discount
            ),
            (f"discount {discount}", "discount", "from 0 to 1"),
        )
        for discount in (-0.1, 1.5, NAN)
        for horizon in (None, 3)
    ),
    *(
        case(
            f"horizon {horizon!r}",
            lambda horizon=horizon: policy_value(model(), GOOD_POLICY, horizon=horizon),
            (f"horizon {horizon!r}", "horizon", "at least 1"),
        )
        for horizon in (0, -3, 2.5, NAN, "20", True)
    ),
    case(
        "first states of a wrong shape for a value",
        lambda: policy_value(model(), GOOD_POLICY, horizon=3, initial=[1.0]),
        (r"shape \(1,\)", "initial", r"expected \(2,\)"),
    ),
    case(
        "return without end",
        lambda: policy_value(model([[[1.0, 0.0, 0.0]]]), [[1.0]]),
        ("never reaches an outcome", "from state 0", "give a horizon, or a discount below 1"),
    ),
    *(
        case(
            f"epsilon {epsilon}",
            lambda epsilon=epsilon: soften(GOOD_POLICY, epsilon),
            (f"epsilon {epsilon}", "epsilon", "give a probability"),
        )
        for epsilon in (-0.1, 1.5, NAN)
    ),
    case(
        "softening a single action",
        lambda: soften([[1.0], [1.0]], 0.1),
        (r"shape \(2, 1\)", "policy", "at least two actions"),
    ),
    case(
        "softening what is no policy",
        lambda: soften([[1.0, 0.5], [0.5, 0.5]], 0.1),
        (r"sums to 1\.5", "policy: state 0", "divide"),
    ),
    case(
        "greedy by a value that is no number",
        lambda: greedy([[1.0, 2.0], [NAN, 3.0]]),
        ("nan", "state 1, action 0", "number"),
    ),
    case(
        "greedy by a row instead of a table",
        lambda: greedy([1.0, 2.0]),
        (r"shape \(2,\)", "values", r"expected|\[S, A\]"),
    ),
    case(
        "preference of a wrong shape",
        lambda: greedy([[1.0, 1.0], [1.0, 1.0]], prefer=[True, False]),
        (r"shape \(2,\)", "prefer", r"expected|\[S, A\]"),
    ),
]

# seeds and threads

STREAMS = [
    *(
        case(
            f"seed {seed!r}",
            lambda seed=seed: check_seed(seed),
            (f"seed {seed!r}", "seed", "whole number, at least 0"),
        )
        for seed in (-1, 1.5, "7", None, True)
    ),
    case(
        "seed of episode keys",
        lambda: episode_keys(-1, np.arange(3), "draws"),
        ("-1", "seed", "whole number, at least 0"),
    ),
    case(
        "seed of numbered keys",
        lambda: numbered_keys(-1, 3, "draws"),
        ("-1", "seed", "whole number, at least 0"),
    ),
    *(
        case(
            f"{threads} threads",
            lambda threads=threads: in_blocks(lambda start, stop: None, 5, threads=threads),
            (f"threads {threads}", "threads", "at least 1"),
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
