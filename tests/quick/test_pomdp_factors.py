"""Models with a hidden state that are written variable by variable."""

import numpy as np
import pytest

import butfor as bf
from tests.clinic import ACTIONS, NEAR, OUTCOMES, STATES, clinic
from tests.reference.pomdp_learning import chance, draw_chance, levels_of


def assert_same_model(model, other, tolerance=1e-12):
    assert np.array_equal(model.dynamics.start, other.dynamics.start)
    assert np.array_equal(model.dynamics.next_state, other.dynamics.next_state)
    for name in ("probability", "reward"):
        ours, theirs = getattr(model.dynamics, name), getattr(other.dynamics, name)
        assert np.abs(ours - theirs).max() <= tolerance
    assert np.abs(model.initial - other.initial).max() <= tolerance
    assert np.array_equal(model.emission.toarray(), other.emission.toarray())
    assert np.array_equal(model.outcome, other.outcome)
    for name in ("state_variables", "observation_variables", "action_variables", "outcomes"):
        assert getattr(model, name) == getattr(other, name)


@pytest.mark.parametrize("version", bf.sepsis.VERSIONS)
@pytest.mark.parametrize("hidden", [("diabetes", "glucose"), ("glucose",)])
def test_the_tables_of_sepsis_make_its_model(version, hidden):
    made = bf.sepsis.factored(version, hidden=hidden, prevalence=0.3).model()
    assert_same_model(made, bf.sepsis.pomdp(version, hidden=hidden, prevalence=0.3))


def test_rows_worked_by_hand():
    # Two variables: a hidden switch that stays with .9, and a lamp that is what the switch was,
    # or with .25 on if the action is "press". From (switch on, lamp off), press: lamp on for sure.
    # From (switch off, lamp off), press: on with .25. The lamp being on is the end.
    factored = bf.hidden.Factored.from_tables(
        [bf.Variable("switch", ("off", "on")), bf.Variable("lamp", ("dark", "lit"))],
        {
            "switch": (["switch"], {"off": [0.9, 0.1], "on": [0.1, 0.9]}),
            "lamp": (
                ["switch", "action:hand"],
                lambda switch, hand: (
                    "lit" if switch == "on" else [0.75, 0.25] if hand == "press" else "dark"
                ),
            ),
        },
        actions=[bf.Variable("hand", ("wait", "press"))],
        hidden=["switch"],
        initial=[[0.5, 0.0], [0.5, 0.0]],
        outcome=[-1, 0, -1, 0],
        outcomes=[bf.Outcome("light", 1.0)],
    )
    model = factored.model()
    assert model.dynamics.row(2, 1) == pytest.approx({1: 0.1, 3: 0.9})
    assert model.dynamics.row(0, 1) == pytest.approx({0: 0.675, 1: 0.225, 2: 0.075, 3: 0.025})
    assert model.dynamics.row(0, 0) == pytest.approx({0: 0.9, 2: 0.1})
    assert model.dynamics.row(1, 0) == {}  # an end
    assert model.initial.tolist() == [0.5, 0.0, 0.5, 0.0]
    assert model.shows.tolist() == [0, 1, 0, 1]
    frame = factored.frame("lamp")
    assert frame.loc[("off", "press"), "lit"] == 0.25


@pytest.mark.parametrize("seed", range(3))
def test_every_probability_is_the_product_of_its_factors(seed):
    factored = clinic(seed)
    model = factored.model()
    states, actions = levels_of(STATES), levels_of(ACTIONS)
    for h, state in enumerate(states):
        for a, action in enumerate(actions):
            row = {x: chance(factored, state, action, next_) for x, next_ in enumerate(states)}
            expected = {x: p for x, p in row.items() if p > 0} if model.outcome[h] < 0 else {}
            assert model.dynamics.row(h, a) == pytest.approx(expected, abs=1e-12)
    drawn = np.array([draw_chance(factored, state) for state in states])
    kept = np.where(model.outcome < 0, drawn, 0.0)
    assert kept.sum() < drawn.sum()  # some draws are ends, and are thrown away
    assert np.abs(model.initial - kept / kept.sum()).max() < 1e-12


def test_one_joint_distribution_of_the_first_state_is_as_good_as_tables():
    tables = clinic()
    joint = clinic(initial=tables.first)
    shaped = clinic(initial=tables.first.reshape(2, 3, 3, 2))
    assert_same_model(joint.model(), tables.model())
    assert_same_model(shaped.model(), tables.model())


def test_a_variable_without_parents_and_no_outcomes():
    factored = clinic(
        moves={
            "sugar": ((), [0.2, 0.3, 0.5]),
            "pulse": (["pulse"], NEAR),
            "drug": "action:drug",
        },
        outcome=None,
        outcomes=(),
    )
    assert (factored.model().outcome == -1).all()
    assert factored.frame("sugar").to_numpy().tolist() == [[0.2, 0.3, 0.5]]


MOVES = {"sugar": (["sugar"], NEAR), "pulse": (["pulse"], NEAR), "drug": "action:drug"}
FIRST = {
    "kind": ((), [0.5, 0.5]),
    "sugar": ((), [0.2, 0.6, 0.2]),
    "pulse": ((), [0.2, 0.6, 0.2]),
    "drug": ((), [1.0, 0.0]),
}
LOW = np.array([[0.6, 0.4, 0.0], [0.3, 0.3, 0.3], [0.0, 0.4, 0.6]])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"moves": MOVES | {"sugar": (["sugar"], LOW)}}, "'next sugar': sugar 1 sums to 0.9"),
        (
            {"moves": MOVES | {"sugar": (["mood"], NEAR)}},
            "parents of 'next sugar': there is no variable 'mood'",
        ),
        (
            {"moves": MOVES | {"sugar": (["diet"], NEAR)}},
            "there is no variable 'diet'.*'action:diet'",
        ),
        ({"moves": MOVES | {"sugar": (["kind"], NEAR)}}, r"shape \(3, 3\), expected \(2, 3\)"),
        ({"moves": MOVES | {"sugar": (["sugar", "sugar"], NEAR)}}, "'sugar' appears twice"),
        ({"moves": MOVES | {"sugar": NEAR}}, r"'next sugar': give a pair \(parents, table\)"),
        ({"moves": MOVES | {"sugar": ("sugar", NEAR)}}, r"give a pair \(parents, table\)"),
        (
            {"moves": MOVES | {"kind": ((), [0.5, 0.5])}},
            "'kind' is static and never moves",
        ),
        ({"moves": MOVES | {"mood": ((), [0.5, 0.5])}}, "moves: there is no variable 'mood'"),
        ({"moves": {k: MOVES[k] for k in ("sugar", "drug")}}, "moves: no entry for 'pulse'"),
        ({"moves": MOVES | {"drug": "drug"}}, "what 'drug' copies: there is no variable 'drug'"),
        (
            {"moves": MOVES | {"pulse": "action:drug"}},
            "'pulse' has 3 levels and cannot copy 'action:drug'",
        ),
        ({"hidden": ["mood"]}, "hidden: there is no variable 'mood'"),
        ({"hidden": "kind"}, "hidden 'kind': give a list of names"),
        ({"hidden": ["kind", "kind"]}, "'kind' appears twice"),
        ({"hidden": [v.name for v in STATES]}, "leave at least one observed"),
        ({"states": [*STATES, bf.Variable("action:x", ("0",))]}, "names that begin with 'action:'"),
        ({"initial": [0.5, 0.5]}, r"initial has shape \(2,\), expected \(36,\) or \(2, 3, 3, 2\)"),
        ({"initial": np.full(36, 1 / 36)}, "no episode starts at its end"),
        ({"initial": np.full(36, 1.0)}, "initial: the row sums to 36"),
        (
            {"initial": {k: FIRST[k] for k in ("kind", "sugar", "drug")}},
            "initial: no entry for 'pulse'",
        ),
        (
            {
                "initial": {"sugar": (["kind"], [[0.2, 0.6, 0.2]] * 2)}
                | FIRST
                | {"sugar": (["kind"], [[0.2, 0.6, 0.2]] * 2)}
            },
            "'kind' is a parent of 'sugar'; list it before",
        ),
        ({"initial": FIRST | {"sugar": ((), [0, 1, 0]), "pulse": ((), [0, 1, 0])}}, "is an end"),
        ({"outcome": [0, 1]}, r"outcome has shape \(2,\), expected \(36,\)"),
        ({"outcome": lambda levels: levels["sugar"] + 1}, "but there are 2 outcomes"),
        (
            {"states": [*STATES[:3], bf.Variable("drug", tuple(map(str, range(300_000))))]},
            "more than 5,000,000",
        ),
    ],
)
def test_what_is_wrong_with_a_description_is_said(changes, words):
    given = {
        "states": STATES,
        "moves": MOVES,
        "actions": ACTIONS,
        "hidden": ["kind", "sugar"],
        "initial": FIRST,
        "outcome": lambda levels: np.where((levels["sugar"] == 1) & (levels["pulse"] == 1), 1, -1),
        "outcomes": OUTCOMES,
    }
    assert bf.hidden.Factored.from_tables(**given).model().n_states == 36
    with pytest.raises(ValueError, match=words):
        bf.hidden.Factored.from_tables(**(given | changes))


def test_tables_can_be_put_in_the_place_of_others():
    before = clinic()
    table = np.broadcast_to(NEAR[:, None], (2, 3, 2, 3))
    after = before.with_tables({"sugar": table})
    assert after.tables["sugar"].parents == ("kind", "sugar", "action:diet")
    assert np.abs(after.tables["sugar"].probability - table).max() < 1e-15
    assert after.tables["pulse"] is before.tables["pulse"]
    assert_same_model(before.with_tables({}).model(), before.model())
    with pytest.raises(ValueError, match="no table of 'drug'"):
        before.with_tables({"drug": [0.5, 0.5]})
    with pytest.raises(ValueError, match=r"shape \(3, 3\), expected \(2, 3, 2, 3\)"):
        before.with_tables({"sugar": NEAR})


def test_a_frame_of_what_has_no_table_is_refused():
    with pytest.raises(
        ValueError, match="no table of 'kind'; there are tables of 'sugar', 'pulse'"
    ):
        clinic().frame("kind")


def test_prevalence_is_a_probability():
    with pytest.raises(ValueError, match="prevalence 2"):
        bf.sepsis.factored(prevalence=2)
