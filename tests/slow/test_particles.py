"""Particles: counterfactuals by sampling, where the states of a model cannot be enumerated."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import butfor as bf
from butfor import kernels
from butfor.mechanisms.gumbel_max import GumbelMax
from butfor.models.behavior import fit_behavior
from butfor.replay.particles import ParticleEngine, state_table
from tests.factored import clinic_model, simulate_factored
from tests.reference import particles as slow
from tests.wide import OUTCOMES, always, cautious, never, simulate


@pytest.fixture(scope="module")
def log():
    return simulate(0, 60).log


@pytest.fixture(scope="module")
def model():
    return bf.fit_factored(simulate(0, 60).log)


def same(one, other):
    np.testing.assert_array_equal(one.probability, other.probability)
    np.testing.assert_array_equal(one.expected_return, other.expected_return)


# the kernel


def test_levels_are_those_of_the_slow_twin():
    generator = np.random.default_rng(0)
    rows = generator.dirichlet(np.full(4, 0.6), 7)
    rows[generator.random(rows.shape) < 0.2] = 0.0
    rows[:, 3] += 0.1
    rows /= rows.sum(axis=1, keepdims=True)
    own, factual = generator.integers(0, 7, 500), generator.integers(-1, 7, 500)
    observed = np.array([generator.choice(4, p=rows[p]) if p >= 0 else -1 for p in factual])
    keys = generator.integers(0, 2**63, 500).astype(np.uint64)
    first, level = generator.integers(0, 2**40, 500), np.empty(500, np.intp)
    ratio = np.ones(500)
    kernels.draw_levels(
        GumbelMax().coupling(4), rows, own, factual, observed, keys, first, 3, level, ratio
    )
    columns = (own, factual, observed, keys, first + 3)
    expected = [
        slow.draw_level(rows.tolist(), *values)
        for values in zip(*(column.tolist() for column in columns), strict=True)
    ]
    assert level.tolist() == [one for one, _ in expected]
    np.testing.assert_allclose(ratio, [share for _, share in expected], rtol=1e-9)


def test_similar_cases_are_those_of_the_slow_twin():
    generator = np.random.default_rng(1)
    total, own = generator.integers(0, 4, 6).astype(float), generator.integers(-1, 6, 30)
    place, start = generator.integers(0, 6, 200), generator.integers(0, 25, 200)
    least = np.where(generator.random(200) < 0.5, np.inf, 1.0)
    expected = [
        slow.cases(total.tolist(), p, own[s : s + 5].tolist(), before)
        for p, s, before in zip(place.tolist(), start.tolist(), least.tolist(), strict=True)
    ]
    kernels.fewest_cases(total, place, own, start, start + 5, least)
    assert least.tolist() == expected


# identities


def test_the_behavior_itself_gives_back_every_episode(log, model):
    found = bf.Replay(log, model, cautious, behavior=cautious).outcomes(draws=4)
    names = np.eye(3)[log.outcome]
    np.testing.assert_array_equal(found.probability, names)
    np.testing.assert_array_equal(found.expected_return, log.returns())
    np.testing.assert_array_equal(found.return_error, 0.0)


def test_an_array_suffices_for_a_target_that_stays_in_the_log(log, model):
    behavior = state_table(fit_behavior(log), log)
    found = bf.Replay(log, model, behavior, behavior=behavior).outcomes(draws=3)
    np.testing.assert_array_equal(found.probability, np.eye(3)[log.outcome])


def test_every_draw_is_the_observed_episode_up_to_the_first_other_action(log, model):
    draws = bf.Replay(log, model, never).draws(3)
    for episode in range(len(log)):
        rows = slice(*log.offsets[episode : episode + 2])
        given = np.flatnonzero(log.action[rows])
        kept = given[0] if len(given) else rows.stop - rows.start
        found = draws.state[episode, :, : kept + 1]
        whole = np.append(log.state[rows], log.next_state[rows.stop - 1])[: kept + 1]
        if not len(given) and log.outcome[episode] >= 0:
            whole[-1] = draws.episodes.n_states + log.outcome[episode]
        np.testing.assert_array_equal(found, np.tile(whole, (3, 1)))


def test_outcomes_are_shares_of_the_draws(log, model):
    replay = bf.Replay(log, model, always, discount=0.9)
    found, draws = replay.outcomes(draws=20, seed=3), replay.draws(20, seed=3)
    shares = (draws.outcome[:, :, None] == [0, 1, -1]).mean(axis=1)
    np.testing.assert_allclose(found.probability, shares, atol=1e-12)
    returns = draws.returns(0.9)
    np.testing.assert_allclose(found.expected_return, returns.mean(axis=1), atol=1e-12)
    np.testing.assert_allclose(
        found.return_error, returns.std(axis=1, ddof=1) / np.sqrt(20), atol=1e-12
    )
    p = found.probability
    np.testing.assert_allclose(found.probability_error, np.sqrt(p * (1 - p) / 20))


def test_the_states_of_draws_follow_those_of_the_log(log, model):
    draws = bf.Replay(log, model, always).draws(2)
    known = draws.episodes
    np.testing.assert_array_equal(known.combinations[: log.n_states], log.combinations)
    assert known.n_states > log.n_states
    assert len(np.unique(known.combinations, axis=0)) == known.n_states
    np.testing.assert_array_equal(draws.state[:, 0, 0], log.first_state)


# seeds


def test_results_do_not_depend_on_threads_or_on_other_episodes(log, model):
    replay = bf.Replay(log, model, always, behavior=cautious)
    whole = replay.outcomes(draws=10, threads=1)
    same(whole, bf.Replay(log, model, always, behavior=cautious).outcomes(draws=10, threads=2))
    part = bf.Replay(log.select([7, 3]), model, always, behavior=cautious).outcomes(draws=10)
    np.testing.assert_array_equal(part.probability, whole.probability[[7, 3]])


def test_more_draws_keep_the_first_ones(log, model):
    replay = bf.Replay(log, model, always)
    np.testing.assert_array_equal(replay.draws(5).action[:, :2], replay.draws(2).action)


def test_another_seed_gives_other_draws(log, model):
    replay = bf.Replay(log, model, always)
    assert (replay.outcomes(seed=1).probability != replay.outcomes(seed=2).probability).any()


# the question


def test_without_continuation_a_counterfactual_stops_where_the_episode_did(log, model):
    replay = bf.Replay(log, model, always, continuation=False)
    taken = (replay.draws(5).action >= 0).sum(axis=2)
    assert (taken <= log.lengths[:, None]).all()
    assert (bf.Replay(log, model, always).draws(5).action >= 0).sum() > taken.sum()


def test_a_function_is_evaluated_in_every_state_where_states_can_be_enumerated():
    generator = np.random.default_rng(1)
    clinic = clinic_model(generator)
    behavior = generator.dirichlet([1.0, 1.0], 24)
    log = simulate_factored(generator, clinic, behavior, 10, 4)

    def by_pulse(codes):
        return np.stack([codes[:, 0] == 2, codes[:, 0] < 2], axis=1)

    table = by_pulse(np.stack(np.unravel_index(np.arange(24), (3, 2, 2, 2)), axis=1))
    one = bf.Replay(log, clinic, by_pulse, behavior=behavior)
    same(one.outcomes(), bf.Replay(log, clinic, table, behavior=behavior).outcomes())


def test_a_model_with_a_predictor_is_sampled(log):
    model = bf.fit_factored(log, {"x02": DecisionTreeClassifier(max_depth=2)})
    replay = bf.Replay(log, model, cautious, behavior=cautious)
    np.testing.assert_array_equal(replay.outcomes(draws=2).probability, np.eye(3)[log.outcome])
    one, two = (bf.Replay(log, model, always).outcomes(draws=5, threads=n) for n in (1, 2))
    same(one, two)
    assert isinstance(replay.engine, ParticleEngine)


def test_outcomes_by_draws_are_kept_by_their_number_and_seed(log, model):
    replay = bf.Replay(log, model, always)
    assert replay.outcomes(draws=5, seed=1) is replay.outcomes(draws=5, seed=1)
    assert replay.outcomes(draws=5, seed=1).draws == 5
    assert replay.outcomes(draws=5, seed=2) is not replay.outcomes(draws=5, seed=1)
    assert replay.outcomes(draws=6, seed=1).draws == 6
    with pytest.raises(ValueError, match="draws 0"):
        replay.outcomes(draws=0)


def test_the_behavior_is_estimated_from_the_variables_that_tell_most():
    # given more often the more of x00 to x05 are ill: .2 to .8
    log = simulate(3, 400).log
    codes = np.stack(list(log.codes(np.arange(log.n_states)).values()), axis=1)
    found, true = fit_behavior(log)(codes)[:, 1], cautious(codes)[:, 1]
    visits = np.bincount(log.state, minlength=log.n_states)
    error = np.average((found - true) ** 2, weights=visits)
    # closer than the frequency of the drug in the whole log
    assert error < np.average((true - log.action.mean()) ** 2, weights=visits)


def test_the_behavior_has_a_table_for_each_action_variable():
    # the fluid is x0 in four cases of five, the drug is not the fluid in nine of ten
    generator = np.random.default_rng(4)
    codes = generator.integers(0, 2, (4000, 30))
    fluid = np.where(generator.random(4000) < 0.8, codes[:, 0], 1 - codes[:, 0])
    drug = np.where(generator.random(4000) < 0.9, 1 - fluid, fluid)
    log = bf.Episodes.from_codes(
        codes,
        fluid * 2 + drug,
        codes,
        offsets=np.arange(4001),
        states=[bf.Variable(f"x{j}", ("0", "1")) for j in range(30)],
        actions=[bf.Variable(name, ("off", "on")) for name in ("fluid", "drug")],
    )
    behavior = fit_behavior(log)
    assert [factor.parents[0] for factor in behavior.factors] == ["x0", "action.fluid"]
    rows = behavior(codes)
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)
    # one of the two, as in the log, of which back-off may give a few cases elsewhere
    assert rows[:, [1, 2]].sum(axis=1).mean() == pytest.approx((drug != fluid).mean(), abs=0.01)
    given = rows[:, 2:].sum(axis=1)
    assert given[codes[:, 0] == 1].mean() == pytest.approx(0.8, abs=0.04)


# results that are sampled


def test_contributions_of_the_behavior_itself_are_zero(log, model):
    ended = log.select(log.outcome >= 0)
    found = bf.Replay(ended, model, cautious, behavior=cautious).contributions()
    np.testing.assert_allclose(found, 0.0, atol=1e-12)


def test_one_seed_belongs_to_the_question(log, model):
    one = bf.Replay(log, model, always, seed=3)
    same(one.compute().outcomes(), bf.Replay(log, model, always).outcomes(seed=3))
    other = bf.Replay(log, model, always, seed=4)
    assert (one.engine.first_values() != other.engine.first_values()).any()
    assert one.part([2]).seed == 3


def test_steps_of_part_of_a_log_are_those_of_the_whole(log, model):
    replay = bf.Replay(log, model, always, behavior=cautious)
    whole, part = replay.steps(), replay.part([5, 2]).steps()
    for name in ("influence", "mass", "earned", "other"):
        np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[[5, 2]])


def test_everything_is_still_about_the_patient_who_is_treated_alike(log, model):
    steps = bf.Replay(log, model, cautious, behavior=cautious).steps()
    first = slice(0, 1)  # 1 - P(observed) of thirty variables together
    assert (steps.influence[:, first] > 0.99).all()
    assert not steps.other.any()
    np.testing.assert_array_equal(steps.mass[:, 0], 1.0)


# what is refused


@pytest.mark.parametrize(
    "ask",
    [
        lambda replay: replay.bounds(),
        lambda replay: replay.fewest_changes(1),
        lambda replay: replay.steps(probability=True),
        bf.credible_intervals,
    ],
)
def test_what_particles_cannot_answer_is_refused_by_a_sentence(log, model, ask):
    with pytest.raises(ValueError, match="not available where states cannot be enumerated"):
        ask(bf.Replay(log, model, always))


def test_an_array_that_lacks_a_state_is_refused(log, model):
    target = np.tile([0.0, 1.0], (log.n_states, 1))
    with pytest.raises(ValueError, match=r"not in the log \(x00 \d.*give a function"):
        bf.Replay(log, model, target).outcomes(draws=2)


def test_a_function_of_the_wrong_shape_is_refused(log, model):
    with pytest.raises(ValueError, match=r"the function returned shape \(\d+,\)"):
        bf.Replay(log, model, lambda codes: np.ones(len(codes)))


def test_a_step_that_the_model_rules_out_is_refused(log, model):
    table = np.zeros_like(model.factor("x03").table)
    table[..., 0] = 1.0
    wrong = replace(model.factor("x03"), table=table)
    others = tuple(one for one in model.factors if one.variable != "x03")
    ruled_out = replace(model, factors=(*others[:-1], wrong, others[-1]))
    with pytest.raises(ValueError, match="gives the value of 'x03' that was logged probability 0"):
        bf.Replay(log, ruled_out, always).outcomes()


def test_a_behavior_that_rules_out_what_was_done_is_refused(log, model):
    with pytest.raises(ValueError, match="which the behavior policy gives probability 0"):
        bf.Replay(log, model, always, behavior=never).outcomes()


def test_noise_on_whole_states_is_refused(log, model):
    with pytest.raises(ValueError, match="no table of all its states"):
        bf.Replay(log, model, always, noise="state")


def test_a_mechanism_without_a_kernel_is_refused(log, model):
    class Own:
        def counterfactual_rows(self, factual, counterfactual, observed):
            return counterfactual

    with pytest.raises(ValueError, match="particles need a mechanism that is built in"):
        bf.Replay(log, model, always, mechanism=Own()).outcomes()


def test_final_states_that_were_not_logged_need_an_end_without_them(log, model):
    codes = np.stack(list(log.codes(log.state).values()), axis=1)
    reached = np.stack(list(log.codes(log.next_state).values()), axis=1)
    reached[log.offsets[1:][log.outcome >= 0] - 1] = -1
    lost = bf.Episodes.from_codes(
        codes,
        log.action,
        reached,
        offsets=log.offsets,
        states=log.state_variables,
        actions=log.action_variables,
        outcome=log.outcome,
        outcomes=OUTCOMES,
    )
    with pytest.raises(ValueError, match="the final state was not logged"):
        bf.Replay(lost, model, always)
    found = bf.Replay(lost, bf.fit_factored(lost), cautious, behavior=cautious).outcomes(draws=2)
    np.testing.assert_array_equal(found.probability, np.eye(3)[log.outcome])
