"""Learning with a hidden state: expected counts, EM for the behavior and for tables."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

import butfor as bf
from butfor import kernels
from butfor.hidden.pairs import behavior_arrays, log_arrays
from butfor.models.policies import greedy
from tests.clinic import clinic, clinician, simulate
from tests.grids import few
from tests.reference.pomdp_learning import expected_counts, improve, seen_episodes

CLEAR = {"rtol": 1e-12, "atol": 1e-12}


def noisy_model(seed, *, silent_ends):
    """Five hidden states, two of them ends, three observations by chance, two actions."""
    rng = np.random.default_rng(seed)
    transition = rng.dirichlet(np.ones(5), size=(5, 2)) * (rng.random((5, 2, 5)) < 0.8)
    transition[..., 3:] += 0.05
    emission = rng.dirichlet(np.ones(3), size=5)
    if silent_ends:
        emission[3:] = 0.0
    return bf.hidden.TabularPOMDP.from_arrays(
        transition / transition.sum(axis=-1, keepdims=True),
        emission,
        initial=[0.5, 0.3, 0.2, 0.0, 0.0],
        outcome=[-1, -1, -1, 0, 1],
        outcomes=[bf.Outcome("died", -1.0, bad=True), bf.Outcome("home", 1.0)],
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("saw", [True, False])
def test_expected_counts_are_those_over_all_hidden_paths(seed, saw):
    model = noisy_model(seed, silent_ends=seed % 2 == 1)
    table = clinician(model, seed)
    log = simulate(model, table, 6, seed=seed)
    behavior = behavior_arrays(log, model, bf.hidden.LatentPolicy(table) if saw else None)
    arrays = log_arrays(log, None)
    moved = np.zeros(len(model.dynamics.probability))
    began, evidence = np.zeros(model.n_states), np.empty(len(log))
    trace = kernels.make_trace(model.arrays, arrays)
    for first, last in ((0, 2), (2, len(log))):
        found = kernels.count_paths(
            first, last, model.arrays, behavior, arrays, trace, evidence, moved, began
        )
        assert found == -1
    moves, begins, chances = expected_counts(model, table if saw else None, seen_episodes(log))
    state, action = np.divmod(model.dynamics.entry_row, model.n_actions)
    pairs = zip(state.tolist(), action.tolist(), model.dynamics.next_state.tolist(), strict=True)
    np.testing.assert_allclose(moved, [moves[key] for key in pairs], **CLEAR)
    np.testing.assert_allclose(began, [begins[h] for h in range(5)], **CLEAR)
    np.testing.assert_allclose(evidence, np.log(chances), **CLEAR)


def test_an_impossible_episode_is_found():
    model = clinic().model()
    log = simulate(model, clinician(model), 5)
    blind = bf.hidden.LatentPolicy(
        np.eye(4)[np.zeros(36, int)]
    )  # never takes another action than 0
    with pytest.raises(
        ValueError, match=r"episode \d, step \d: .* of a behavior that sees the state"
    ):
        bf.hidden.fit_latent_behavior(log, model, start=blind)


def normal_rows(counts, shape):
    table = np.zeros(shape)
    for key, weight in counts.items():
        table[key] = weight
    total = table.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return np.where(total > 0, table / total, np.nan)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("behavior", [None, "learn"])
def test_an_iteration_is_that_of_all_hidden_paths(joint, behavior):
    truth = clinic(1)
    log = simulate(truth.model(), clinician(truth.model()), 30, seed=3)
    factored = replace(truth, initial=truth.first) if joint else truth
    before, after = (
        bf.hidden.fit_pomdp(log, factored, behavior=behavior, restarts=1, iterations=k, seed=5)
        for k in (1, 2)
    )
    known = None if behavior is None else before.behavior.table
    value, counts, first, decisions = improve(before.factored, known, log)
    assert before.log_likelihood[0] == pytest.approx(value, abs=1e-10)
    for name, table in after.factored.tables.items():
        expected = normal_rows(counts[name], table.probability.shape)
        kept = np.where(np.isnan(expected), truth.tables[name].probability, expected)
        np.testing.assert_allclose(table.probability, kept, **CLEAR)
    if joint:
        expected = [first.get(h, 0.0) / len(log) for h in range(36)]
        np.testing.assert_allclose(after.initial, expected, **CLEAR)
    else:
        for name, table in after.factored.initial.items():
            expected = normal_rows(first[name], table.probability.shape)
            np.testing.assert_allclose(table.probability, expected, **CLEAR)
    if behavior == "learn":
        expected = normal_rows(decisions, (36, 4))
        visited = ~np.isnan(expected).any(axis=1)
        assert 0 < visited.sum() < 36
        np.testing.assert_allclose(after.behavior.table[visited], expected[visited], **CLEAR)


@pytest.mark.parametrize(
    ("seed", "prior"), few([(0, 0.0), (1, 0.5), (0, 0.5), (1, 0.0), (2, 0.0), (2, 0.5)], 2)
)
def test_no_iteration_lowers_the_log_likelihood(seed, prior):
    truth = clinic(seed)
    model = truth.model()
    log = simulate(model, clinician(model, seed), 40, seed=seed)
    options = {"iterations": 30, "tolerance": 0.0, "prior": prior, "seed": seed}
    alone = bf.hidden.fit_latent_behavior(log, model, restarts=2, **options)
    both = bf.hidden.fit_pomdp(log, truth, behavior="learn", start="uniform", restarts=2, **options)
    for fit in (alone, both):
        assert len(fit.log_likelihood) > 10
        rounding = 1e-12 * abs(fit.log_likelihood[0])
        assert np.diff(fit.log_likelihood).min() >= -rounding
        assert fit.log_likelihood[-1] == fit.restarts["log_likelihood"].max()
    if prior == 0:
        evidence = bf.hidden.latent_posterior(log, model, behavior=alone.policy).log_evidence.sum()
        assert alone.log_likelihood[-1] == pytest.approx(evidence, abs=1e-8)
        evidence = bf.hidden.latent_posterior(
            log, both.model, behavior=both.behavior
        ).log_evidence.sum()
        assert both.log_likelihood[-1] == pytest.approx(evidence, abs=1e-8)


def test_the_truth_is_not_much_less_likely_than_what_is_learned_from_it():
    # Wilks: twice the gain over the truth is chi-squared with as many degrees of freedom as there
    # are free parameters, here those of the tables and of the first state. One in a million.
    truth = clinic(4)
    model = truth.model()
    behavior = bf.hidden.LatentPolicy(clinician(model, 4))
    log = simulate(model, behavior.table, 600, seed=8)
    right = bf.hidden.latent_posterior(log, model, behavior=behavior).log_evidence.sum()
    fit = bf.hidden.fit_pomdp(log, truth, behavior=behavior, restarts=2)
    free = sum(
        int((table.probability > 0).sum() - table.probability[..., 0].size)
        for table in (*truth.tables.values(), *truth.initial.values())
    )
    gain = 2 * (fit.log_likelihood[-1] - right)
    assert 0 < gain < chi2.isf(1e-6, free)
    wrong = replace(truth, initial=clinic(5).initial, moves=clinic(5).moves).model()
    far = bf.hidden.latent_posterior(log, wrong, behavior=behavior).log_evidence.sum()
    assert 2 * (right - far) > chi2.isf(1e-6, free)  # so the criterion tells wrong tables


def test_results_do_not_depend_on_threads():
    truth = clinic(2)
    log = simulate(truth.model(), clinician(truth.model()), 70)
    one, three = (
        bf.hidden.fit_pomdp(log, truth, behavior="learn", restarts=2, iterations=8, threads=threads)
        for threads in (1, 3)
    )
    assert one.restarts.equals(three.restarts)
    assert np.array_equal(one.model.dynamics.probability, three.model.dynamics.probability)
    assert np.array_equal(one.behavior.table, three.behavior.table)


def test_what_is_not_to_be_learned_and_what_is_impossible_stay_as_they_are():
    truth = clinic(3)
    log = simulate(truth.model(), clinician(truth.model()), 60)
    fit = bf.hidden.fit_pomdp(
        log, truth, learn=["sugar"], learn_initial=False, start="uniform", restarts=1, iterations=9
    )
    assert np.array_equal(
        fit.factored.tables["pulse"].probability, truth.tables["pulse"].probability
    )
    np.testing.assert_allclose(fit.initial, truth.first, **CLEAR)
    found, given = (f.tables["sugar"].probability for f in (fit.factored, truth))
    assert (found[given == 0] == 0).all()
    assert np.abs(found - given).max() > 0.01
    assert fit.behavior is None
    free = bf.hidden.fit_pomdp(log, truth, restarts=1, iterations=9)
    assert (free.initial[truth.first == 0] == 0).all()
    assert free.initial.sum() == pytest.approx(1.0)


def test_a_strong_prior_keeps_what_was_given():
    truth = clinic(3)
    log = simulate(truth.model(), clinician(truth.model()), 30)
    fit = bf.hidden.fit_pomdp(log, truth, behavior="learn", restarts=1, prior=1e9)
    assert fit.converged
    for name, table in truth.tables.items():
        np.testing.assert_allclose(
            fit.factored.tables[name].probability, table.probability, atol=1e-6
        )
    seen = bf.estimate_behavior(log)[truth.model().shows]
    np.testing.assert_allclose(fit.behavior.table, seen, atol=1e-6)


def test_a_prior_makes_possible_what_the_start_was_not():
    truth = clinic(3)
    model = truth.model()
    log = simulate(model, clinician(model), 20)
    table = np.full((36, 4), 0.25)
    table[18:] = [0.5, 0.5, 0.0, 0.0]  # the frail
    fit = bf.hidden.fit_latent_behavior(log, model, start=bf.hidden.LatentPolicy(table), prior=1.0)
    assert fit.log_likelihood[0] == -np.inf
    assert np.isfinite(fit.log_likelihood[1:]).all()
    seen = bf.estimate_behavior(log)[model.shows]
    assert ((fit.policy.table > 0) == (seen > 0)).all()


def test_states_never_visited_get_the_row_of_their_observation():
    truth = clinic(3)
    model = truth.model()
    log = simulate(model, clinician(model), 10)
    fit = bf.hidden.fit_latent_behavior(log, model)
    unseen = (
        bf.hidden.latent_posterior(log, model, behavior=fit.policy).pair_counts().sum(axis=1) == 0
    )
    rows = bf.estimate_behavior(log)[model.shows]
    assert unseen.any()
    np.testing.assert_allclose(fit.policy.table[unseen], rows[unseen], **CLEAR)


def test_restarts_say_what_the_target_is_worth_by_each():
    truth = clinic(1)
    model = truth.model()
    log = simulate(model, clinician(model), 60)
    target = greedy(np.random.default_rng(0).random((model.n_observations, 4)))
    told = []
    fit = bf.hidden.fit_pomdp(
        log,
        truth,
        behavior="learn",
        start="uniform",
        restarts=3,
        iterations=40,
        target=target,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(1, 3), (2, 3), (3, 3)]
    best = fit.restarts.loc[fit.restarts["log_likelihood"].idxmax()]
    exact = bf.Replay(log, fit.model, target, behavior=fit.behavior).outcomes()
    assert best["counterfactual"] == pytest.approx(exact.expected_return.mean(), abs=1e-12)
    full = bf.hidden.LatentPolicy(target[fit.model.shows])
    same = bf.hidden.fit_pomdp(
        log,
        fit.factored,
        learn=[],
        learn_initial=False,
        behavior=fit.behavior,
        target=full,
        restarts=1,
    )
    assert same.restarts.loc[0, "model_value"] == pytest.approx(best["model_value"], abs=1e-12)
    assert fit.restarts["counterfactual"].std() > 0


@pytest.mark.exhaustive
def test_the_behavior_of_sepsis_is_learned_well_enough():
    # The dynamics being known, what is lost by learning who treated must be small beside what any
    # log of this size leaves open, the standard error of the mean; and beside what is lost by
    # ignoring that the clinician saw more than the log.
    model = bf.sepsis.pomdp()
    clinician_ = bf.hidden.LatentPolicy(bf.sepsis.behavior_policy())
    log = bf.sepsis.simulate(clinician_.table, 300, seed=2).hide("diabetes", "glucose")
    target = bf.policy_iteration(bf.fit_mdp(log)).table
    fit = bf.hidden.fit_latent_behavior(log, model, tolerance=1e-4)
    right, learned, ignored = (
        bf.Replay(log, model, target, behavior=behavior).outcomes().expected_return
        for behavior in (clinician_, fit.policy, None)
    )
    standard_error = right.std() / np.sqrt(len(log))
    assert abs(learned.mean() - right.mean()) < standard_error
    assert abs(learned.mean() - right.mean()) < abs(ignored.mean() - right.mean())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learn": ["mood"]}, "learn: 'mood' has no table; there are tables of 'sugar', 'pulse'"),
        ({"learn": ["kind"]}, "learn: 'kind' has no table"),
        ({"learn": "sugar"}, "learn 'sugar': give a list of names"),
        ({"behavior": "guess"}, "behavior 'guess': give one of 'learn'"),
        ({"behavior": np.ones((3, 3))}, r"behavior has shape \(3, 3\)"),
        ({"start": "truth"}, "start 'truth': give one of 'given', 'uniform'"),
        ({"restarts": 0}, "restarts 0: give a whole number, at least 1"),
        ({"iterations": 0}, "iterations 0"),
        ({"tolerance": -1.0}, "tolerance -1.0: give a number, 0 or more"),
        ({"prior": float("nan")}, "prior nan: give a number, 0 or more"),
        ({"seed": -1}, "seed -1"),
        ({"target": np.ones((3, 3))}, r"target has shape \(3, 3\)"),
        (
            {"target": bf.hidden.BeliefPolicy(lambda beliefs: beliefs)},
            "target: a policy on beliefs has infinitely many memory states; give a Fini",
        ),
    ],
)
def test_what_cannot_be_learned_from_is_refused(changes, words):
    truth = clinic()
    log = simulate(truth.model(), clinician(truth.model()), 5)
    with pytest.raises(ValueError, match=words):
        bf.hidden.fit_pomdp(log, truth, **changes)


def test_logs_and_starts_that_do_not_fit_are_refused():
    truth = clinic()
    model = truth.model()
    log = simulate(model, clinician(model), 5)
    other = bf.sepsis.factored()
    with pytest.raises(ValueError, match="the log has 6 observations, 4 actions"):
        bf.hidden.fit_pomdp(log, other)
    with pytest.raises(ValueError, match="the log has 6 observations, 4 actions"):
        bf.hidden.fit_latent_behavior(log, other.model())
    with pytest.raises(ValueError, match="start: give a LatentPolicy"):
        bf.hidden.fit_latent_behavior(log, model, start=np.full((6, 4), 0.25))
    narrow = clinic(initial=np.eye(36)[int(np.flatnonzero(truth.first)[0])])
    with pytest.raises(ValueError, match="step 0: the model gives observation"):
        bf.hidden.fit_pomdp(log, narrow)
