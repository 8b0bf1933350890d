"""Fitted Q iteration, where the best policy is known."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

import butfor as bf
from butfor.models.factored import END, FactoredModel, Rewards
from butfor.models.fitted_q import fit_q
from butfor.models.simulate_factored import simulate_factored
from tests.factored import clinic_model, given
from tests.wide import DRUG, OUTCOMES, VARIABLES


def one_that_matters(*, wide):
    """Patients die only while x00 is 1. The drug helps if it is, and harms if it is not.

    A state without illness is better at every step, and only x00 matters; so the best action is
    the one that makes x00 = 0 most likely: the drug if x00 = 1, nothing if x00 = 0.
    """
    ill = np.array([[0.1, 0.6], [0.8, 0.1]])  # by x00 and drug: chance that x00 is 1 afterwards
    stays = np.array([[0.0, 0.2, 0.8], [0.2, 0.0, 0.8]])
    variables = VARIABLES if wide else VARIABLES[:4]
    factors = [given("x00", ("x00", "action.drug"), np.stack([1 - ill, ill], axis=-1))]
    for variable in variables[1:]:
        size = len(variable.levels)
        table = 0.7 * np.eye(size) + 0.3 / size
        factors.append(given(variable.name, (variable.name,), table))
    count = 40 if wide else 16
    generator = np.random.default_rng(0)
    sizes = [len(variable.levels) for variable in variables]
    return FactoredModel(
        variables,
        DRUG,
        OUTCOMES,
        (*factors, given(END, ("next.x00",), stays)),
        Rewards((), np.array([-1.0, 1.0, 0.0])),
        np.full(count, 1 / count),
        np.zeros((count, 2), np.int64),
        generator.integers(0, sizes, (count, len(sizes))).astype(np.int16) if wide else None,
    )


def some_states():
    sizes = [len(variable.levels) for variable in VARIABLES]
    return np.random.default_rng(1).integers(0, sizes, (2000, len(sizes)))


def test_the_best_policy_of_a_model_with_thirty_variables_is_found():
    model = one_that_matters(wide=True)
    # with 2000 episodes, chance alone makes a few of 2000 states wrong, in about every other log
    policy = bf.fitted_q_policy(model, LinearRegression(), horizon=8, episodes=4000)
    codes = some_states()
    np.testing.assert_array_equal(policy(codes).argmax(axis=1), codes[:, 0])


def test_features_that_sum_to_one_do_not_make_rounding_matter():
    # the same regression by numpy, with a feature left out of each variable: they sum to one
    model = one_that_matters(wide=True)
    found = bf.fitted_q_policy(model, LinearRegression(), horizon=1, episodes=300, seed=1)
    log = simulate_factored(
        model, lambda codes: np.full((len(codes), 2), 0.5), 300, horizon=1, seed=1
    )
    before = np.stack(list(log.codes(log.state).values()), axis=1)
    design, new = (
        np.concatenate(
            [np.ones((len(codes), 1))]
            + [
                (codes[:, [j]] == np.arange(1, len(variable.levels))).astype(float)
                for j, variable in enumerate(VARIABLES)
            ],
            axis=1,
        )
        for codes in (before, some_states())
    )
    for action in (0, 1):
        own = log.action == action
        fitted = np.linalg.lstsq(design[own], log.reward[own], rcond=None)[0]
        np.testing.assert_allclose(
            found.values(some_states())[:, action], new @ fitted, rtol=0, atol=1e-9
        )


def test_boosting_gains_most_of_what_the_best_policy_gains():
    # all with the same random numbers, in the model; one that ignores the state gains nothing
    model = one_that_matters(wide=True)
    planned = bf.fitted_q_policy(model, horizon=3)

    def value(policy):
        return simulate_factored(model, policy, 4000, horizon=3, seed=9).returns().mean()

    never, best = (value(lambda codes, f=f: np.eye(2)[f * codes[:, 0]]) for f in (0, 1))
    assert best > never
    assert value(planned) - never > 0.9 * (best - never)


def test_with_means_by_state_it_is_value_iteration_on_the_simulated_transitions():
    model = one_that_matters(wide=False)
    tree = DecisionTreeRegressor(random_state=0)  # grown until every state has its own leaf
    found = bf.fitted_q_policy(model, tree, horizon=4, discount=0.9, episodes=3000, seed=1)
    log = simulate_factored(
        model, lambda codes: np.full((len(codes), 2), 0.5), 3000, horizon=4, seed=1
    )
    ended = np.zeros(len(log.state), bool)
    ended[log.offsets[1:][log.outcome >= 0] - 1] = True
    rows = list(
        zip(
            *(c.tolist() for c in (log.state, log.action, log.reward, log.next_state, ended)),
            strict=True,
        )
    )
    value = [0.0] * 16
    for _ in range(4):
        targets = {}
        for state, action, reward, reached, over in rows:
            later = 0.0 if over else 0.9 * value[reached]
            targets.setdefault((state, action), []).append(reward + later)
        q = [[float(np.mean(targets[state, action])) for action in (0, 1)] for state in range(16)]
        value = [max(row) for row in q]
    codes = np.stack(np.unravel_index(np.arange(16), (2, 2, 2, 2)), axis=1)
    np.testing.assert_allclose(found.values(codes), q, rtol=0, atol=1e-9)


def test_a_plan_gains_most_of_what_the_optimum_gains():
    generator = np.random.default_rng(4)
    model = clinic_model(generator)
    tabular = model.tabular()
    best = bf.policy_iteration(tabular, discount=0.95)
    tree = DecisionTreeRegressor(min_samples_leaf=30, random_state=0)
    planned = bf.fitted_q_policy(model, tree, horizon=40, discount=0.95, episodes=1500)
    codes = np.stack(np.unravel_index(np.arange(24), (3, 2, 2, 2)), axis=1)
    uniform = np.full((24, 2), 0.5)

    def value(policy):
        return bf.policy_value(tabular, policy, discount=0.95)

    gain = (value(planned(codes)) - value(uniform)) / (value(best) - value(uniform))
    assert gain > 0.9


def test_the_same_seed_gives_the_same_plan():
    model = one_that_matters(wide=True)
    codes = np.asarray(model.combinations)
    one, two = (
        bf.fitted_q_policy(model, LinearRegression(), horizon=3, episodes=300) for _ in range(2)
    )
    np.testing.assert_array_equal(one.values(codes), two.values(codes))


def test_a_simulated_log_follows_the_model():
    # x00 = 1 and no drug: 1 again with probability .8, exactly binomial
    model = one_that_matters(wide=True)
    log = simulate_factored(
        model, lambda codes: np.tile([1.0, 0.0], (len(codes), 1)), 3000, horizon=1, seed=2
    )
    ill = log.codes(log.state)["x00"] == 1
    again = log.codes(log.next_state)["x00"][ill]
    # Hoeffding, false alarm 1e-6
    assert abs(again.mean() - 0.8) < np.sqrt(np.log(2 / 1e-6) / (2 * len(again)))
    assert log.combinations is not None


def test_what_is_no_regressor_is_refused():
    with pytest.raises(ValueError, match=r"give a regressor of scikit-learn, such as Ridge\(\)"):
        bf.fitted_q_policy(one_that_matters(wide=True), LinearRegression, horizon=3)


def test_fitted_q_on_a_log_learns_what_is_best():
    # action 1 earns 1 at once in state 1 and nothing in state 0, action 0 the other way round
    state = np.array([0, 0, 1, 1] * 10)
    action = np.array([0, 1, 0, 1] * 10)
    short = bf.Episodes.from_arrays(
        state,
        action,
        state,
        offsets=np.arange(41),
        states=2,
        actions=2,
        outcome=np.zeros(40, int),
        outcomes=["done"],
        reward=(state == action).astype(float),
    )

    found = fit_q(short, LinearRegression(), horizon=3)
    np.testing.assert_allclose(found.values(np.array([[0], [1]])), np.eye(2), atol=1e-6)


def test_a_planned_function_knows_which_log_taught_it():
    world = one_that_matters(wide=False)
    log = simulate_factored(world, lambda codes: np.full((len(codes), 2), 0.5), 120, horizon=4)
    log = log.widen()
    model = bf.fit_factored(log)
    plan = bf.fitted_q_policy(model, LinearRegression(), horizon=4, episodes=300)
    assert isinstance(plan, bf.Plan)
    assert "a function of level codes" in repr(plan)
    replay = bf.Replay(log, model, plan)
    assert replay.learned_here
    asked = {"estimators": ["Observed", "MB", "MB (cross-fitted)"], "resamples": 20}
    found = bf.estimate_values(replay, **asked).set_index("estimator")["low"]
    assert np.isfinite(found).to_dict() == {
        "Observed": True,
        "MB": False,
        "MB (cross-fitted)": True,
    }
    half = log.select(np.arange(60))
    _, again = plan.recipe(half)
    expected = bf.fitted_q_policy(plan.recipe(half)[0], LinearRegression(), horizon=4, episodes=300)
    codes = np.stack(list(log.codes(log.state).values()), axis=1)
    np.testing.assert_array_equal(again(codes), expected(codes))
    fixed = bf.Replay(log, model, plan.policy)  # the function alone
    assert not fixed.learned_here
    with pytest.raises(ValueError, match="a function of level codes"):
        np.asarray(plan)
