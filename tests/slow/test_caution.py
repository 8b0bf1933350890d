"""Caution: plans that do not chase luck."""

from dataclasses import asdict

import numpy as np
import pytest
from typer.testing import CliRunner

import butfor as bf
from butfor.cli.main import app
from butfor.models.caution import usual_actions
from tests.builders import DEATH, HOME
from tests.factored import clinic_model, simulate_factored
from tests.grids import each_value
from tests.quick.test_planning import DISCOUNT, SWEEPS, one_state, random_problem
from tests.reference import cases as slow
from tests.reference import planning as twin

# one state: action 0 went home 8 times of 10, action 1 the one time it was tried, action 2 never
LUCKY = [[0, 0.2, 0.8], [0, 0, 1], [0, 1, 0]]
TIMES = [[10, 1, 0]]


def lucky():
    return one_state(LUCKY, counts=TIMES)


def clinic(episodes=40):
    generator = np.random.default_rng(5)
    log = simulate_factored(generator, clinic_model(generator), np.full((24, 2), 0.5), episodes, 6)
    return bf.fit_factored(log, order=["sugar", "pulse"])


def test_without_caution_luck_is_chased():
    assert bf.policy_iteration(lucky()).tolist() == [[0, 1, 0]]


def test_bad_cases_by_hand():
    # with b bad cases action 0 is worth (6 - b) / (10 + b), action 1 (1 - b) / (1 + b)
    assert bf.policy_iteration(lucky(), caution=bf.Caution()).tolist() == [[1, 0, 0]]
    # b = .25: .561 and .6; b = .3: .553 and .538
    for cases, best in ((0.25, 1), (0.3, 0)):
        plan = bf.policy_iteration(lucky(), caution=bf.Caution(bad_cases=cases))
        assert plan.argmax() == best


@pytest.mark.parametrize("seed", range(5))
def test_bad_cases_are_rows_with_another_way_to_the_worst_outcome(seed):
    _, rows, reward, _ = random_problem(seed)
    counts = np.random.default_rng(seed).integers(0, 6, size=(4, 3))
    worst = bf.Outcome("worst", -2.0)
    model = bf.TabularMDP.from_arrays(
        rows, reward=reward, outcomes=[bf.Outcome("fair", 0.0), worst], counts=counts
    )
    longer, earned = _with_bad_cases(rows, reward, lambda s, a: int(counts[s, a]), worst=-2.0)
    best = twin.best_actions(longer, earned, DISCOUNT, SWEEPS, (counts > 0).tolist())
    plan = bf.policy_iteration(model, discount=DISCOUNT, caution=bf.Caution())
    assert plan.argmax(axis=1).tolist() == best


def test_nothing_to_be_cautious_about_is_planned_as_before():
    model = random_problem(3)[0]
    known = bf.TabularMDP.from_arrays([LUCKY], outcomes=(DEATH, HOME))
    for one, caution in ((model, bf.Caution(bad_cases=0)), (known, bf.Caution(2, 10, 0.05))):
        np.testing.assert_array_equal(
            bf.policy_iteration(one, caution=caution), bf.policy_iteration(one)
        )


def test_few_cases_leave_the_usual_action():
    few = bf.Caution(bad_cases=0, least_cases=2)
    assert bf.policy_iteration(lucky(), caution=few).tolist() == [[1, 0, 0]]
    # where all are rare the one taken most often stays; where none was taken all are allowed
    all_rare = one_state(LUCKY, counts=[[1, 0, 3]])
    assert bf.policy_iteration(all_rare, caution=few).tolist() == [[0, 0, 1]]
    assert few.allowed(all_rare).tolist() == [[False, False, True]]
    two = bf.TabularMDP.from_arrays(
        [[[*row[:1], 0, *row[1:]] for row in LUCKY]] * 2,
        outcomes=(DEATH, HOME),
        counts=[[9, 1, 0], [0, 0, 0]],
    )
    assert few.allowed(two).tolist() == [[True, False, False], [True, True, True]]


def test_risk_changes_the_usual_action_only_where_that_is_surely_better():
    careful = bf.Caution(bad_cases=1, risk=0.05)
    for usual, other, times, changed in (
        (0.2, 0.8, (101, 100), True),  # better in every draw
        (0.5, 0.52, (101, 100), False),  # in about six draws of ten
        # a row of n cases and one bad one: P(Beta(3, 1) > .7) = 1 - .7^3 = .66
        (0.7, 1.0, (1000, 3), False),
    ):
        rows = [[0, 1 - usual, usual], [0, 1 - other, other]]
        model = one_state(rows, counts=[times])
        assert bf.policy_iteration(model).argmax() == 1
        assert bf.policy_iteration(model, caution=careful).argmax() == changed


def test_a_factored_model_is_planned_by_its_similar_cases():
    model = clinic(20)
    rows, rewards = (
        _dense(model, getattr(model.tabular(), name)) for name in ("probability", "reward")
    )
    longer, earned = _with_bad_cases(
        rows, rewards, lambda s, a: slow.cases_of_pair(model, s, a), worst=-1.0
    )
    best = twin.best_actions(longer, earned, DISCOUNT, SWEEPS, (model.counts > 0).tolist())
    plan = bf.policy_iteration(model, discount=DISCOUNT, caution=bf.Caution())
    assert plan.argmax(axis=1).tolist() == best
    assert (plan != bf.policy_iteration(model, discount=DISCOUNT)).any()


def test_the_cases_of_a_factored_model_allow_its_actions():
    model = clinic(10)
    caution = bf.Caution(bad_cases=0, least_cases=8)
    enough = np.array(
        [[slow.cases_of_pair(model, s, a) >= 8 for a in range(2)] for s in range(model.n_states)]
    )
    usual = usual_actions(model)
    assert 0 < enough.sum() < enough.size
    either = enough | usual
    either[~either.any(axis=1)] = True
    np.testing.assert_array_equal(caution.allowed(model), either)
    assert (bf.policy_iteration(model, caution=caution) <= either).all()


def _dense(model, values):
    """Return the entries of a model's rows as nested lists, [S, A, S + O]."""
    table = model.tabular()
    rows = np.zeros((model.n_states * model.n_actions, model.n_states + len(model.outcomes)))
    rows[table.entry_row, table.next_state] = values
    return rows.reshape(model.n_states, model.n_actions, -1).tolist()


def _with_bad_cases(rows, reward, cases, *, worst, bad=2):
    """Return rows and rewards with one more outcome, reached with probability bad / (n + bad)."""
    longer, earned = [], []
    for s, actions in enumerate(rows):
        longer.append([])
        for a, row in enumerate(actions):
            trust = cases(s, a) / (cases(s, a) + bad)
            longer[s].append([trust * p for p in row] + [1 - trust])
        earned.append([[*row, worst] for row in reward[s]])
    return longer, earned


def test_without_outcomes_a_bad_case_leads_to_the_worst_state():
    # state 0: wait (earns .1) or try (earns .3); state 1 is never left and earns -1.
    # With one case and two bad ones, trying is worth at most (.3 + 9 * 1) / 3 - 2 / 3 * 10 < 0
    rows = [[[1, 0], [1, 0]], [[0, 1], [0, 1]]]
    reward = [[0.1, 0.3], [-1.0, -1.0]]
    model = bf.TabularMDP.from_arrays(rows, reward=reward, counts=[[1000, 1], [5, 5]])
    assert bf.policy_iteration(model, discount=0.9)[0].tolist() == [0, 1]
    assert bf.policy_iteration(model, discount=0.9, caution=bf.Caution())[0].tolist() == [1, 0]


def test_the_usual_action_is_the_one_taken_most_often():
    model = one_state(LUCKY, counts=[[2, 5, 5]])
    assert usual_actions(model).tolist() == [[False, True, False]]
    assert not usual_actions(one_state(LUCKY)).any()


def test_plans_have_no_seed():
    model, caution = clinic(), bf.Caution(risk=0.1)
    first, second = (bf.policy_iteration(model, caution=caution) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bad_cases": -1}, "bad_cases -1: give a number of cases, 0 or more"),
        ({"bad_cases": float("nan")}, "bad_cases nan"),
        ({"least_cases": 0.5}, "least_cases 0.5: give a whole number of cases, at least 0"),
        ({"risk": 0.0}, "risk 0.0: give a probability above 0, at most 0.5"),
        ({"risk": 0.6}, "at most 0.5"),
        ({"risk": 0.1, "bad_cases": 0}, "risk needs bad_cases above 0"),
    ],
)
def test_impossible_cautions_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        bf.Caution(**options)


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    """A log in a file and its study file, and the log itself."""
    folder = tmp_path_factory.mktemp("log")
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), 80, seed=4)
    log = log.hide("glucose", "diabetes", "oxygen")
    bf.write_episodes(log, folder / "log.csv", folder / "study.toml")
    return folder, log


@pytest.mark.parametrize(
    ("options", "caution", "detail"),
    each_value(
        (*options, detail)
        for options in (
            ([], bf.Caution()),
            (["--bad-cases", "0"], bf.Caution(bad_cases=0)),
            (["--least-cases", "5", "--risk", "0.2", "--model", "tabular"], bf.Caution(2, 5, 0.2)),
        )
        for detail in ("full", "summary")
    ),
)
def test_an_audit_learns_with_the_caution_that_is_asked_for(
    patients, options, caution, detail, tmp_path, monkeypatch
):
    monkeypatch.setattr("butfor.evaluate.crossfit.SPLITS", 2)  # not 10: each plans twice
    folder, log = patients
    rest = ["--detail", detail, "--no-rehearsal", "--flags", "1", *options]
    rest += ["--review-size", "2", "--intervals", "2"]
    if detail == "full":
        rest += ["--models", "0"]
    files = [str(folder / "log.csv"), "--study", str(folder / "study.toml")]
    result = CliRunner().invoke(app, ["audit", *files, "--out", str(tmp_path / "audit"), *rest])
    assert result.exit_code == 0, result.output
    audit = bf.Audit.load(tmp_path / "audit")
    assert audit.meta.made_by["caution"] == asdict(caution)
    model = bf.fit_mdp(log) if "tabular" in options else bf.fit_factored(log)
    np.testing.assert_array_equal(
        audit.target, bf.policy_iteration(model, discount=0.99, caution=caution)
    )
