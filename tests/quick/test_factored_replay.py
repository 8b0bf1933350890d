"""Counterfactuals with noise per variable: the exact engine for factored models."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import butfor as bf
from butfor.models.factored import END, FactoredModel, Rewards
from butfor.models.posterior import draw_factored
from butfor.replay.credible import credible_of_models
from butfor.replay.factored import draw_final_states
from butfor.replay.replay import Replay
from butfor.replay.steps import THIN
from tests.factored import (
    ACTIONS,
    OUTCOMES,
    as_log,
    clinic_model,
    given,
    plain,
    rows,
    seen_steps,
    simulate_factored,
    tiny_model,
    without_finals,
)
from tests.reference.factored_replay import Seen, exact_outcomes, next_law
from tests.support import frequencies_agree, vary_rewards

HORIZON, DISCOUNT = 4, 0.9
MECHANISMS = (bf.GumbelMax(), bf.InverseCDF(), bf.MaximalCoupling(), bf.Independent())


@dataclass(frozen=True)
class Maximal:
    """The maximal coupling without a kernel."""

    def counterfactual_rows(self, factual, counterfactual, observed):
        return bf.MaximalCoupling().counterfactual_rows(factual, counterfactual, observed)


def random_policies(generator, model, count=2):
    return [
        generator.dirichlet(np.full(model.n_actions, 1.5), model.n_states) for _ in range(count)
    ]


@pytest.fixture(scope="module")
def ward():
    """A model, a log of it, its behavior and a stochastic target."""
    generator = np.random.default_rng(4)
    model = clinic_model(generator)
    behavior, target = random_policies(generator, model)
    log = simulate_factored(generator, model, behavior, 40, HORIZON)
    return model, vary_rewards(log), behavior, target


def ask(ward, **changes):
    model, log, behavior, target = ward
    return Replay(log, model, target, **{"behavior": behavior, "discount": DISCOUNT} | changes)


# ----------------------------------------------------------------------------------- hand values


def test_each_variable_keeps_its_own_noise():
    # x: P(1 | dose 0) = .5, P(1 | dose 1) = .25, seen 1 under dose 0: with two levels every stable
    # mechanism gives P(1 | 1) = min(1, .25 / .5) = .5. y ignores the dose: it stays at 1, although
    # x differs and P(y = 1) is only .2. The end: P(home | x) is .5 where x = 0, .1 where x = 1, and
    # nothing came of x = 1: P(none) is .9 there and .5 where x = 0, so none stays with
    # .5 / .9 = 5/9 where x became 0, and is certain where x stayed 1.
    model = FactoredModel(
        (bf.Variable("x", ("0", "1")), bf.Variable("y", ("0", "1"))),
        ACTIONS,
        (bf.Outcome("home", 1.0),),
        (
            given("x", ("action.dose",), np.array([[0.5, 0.5], [0.75, 0.25]])),
            given("y", (), np.array([0.8, 0.2])),
            given(END, ("next.x",), np.array([[0.5, 0.5], [0.1, 0.9]])),
        ),
        Rewards((), np.array([1.0, 0.0])),
        np.full(4, 0.25),
        np.zeros((4, 2), np.int64),
    )
    log = as_log([([Seen(0, 0, 3, 1)], -1)], model, 1)  # from (0, 0) by dose 0 to (1, 1), no end
    target = np.tile([0.0, 1.0], (4, 1))
    replay = Replay(log, model, target)
    place = replay.steps(probability=True).probability[0, 1]
    np.testing.assert_allclose(place, [0, 0.5 * 5 / 9, 0, 0.5, 0.5 * 4 / 9], atol=1e-15)
    assert replay.outcomes().expected_return == pytest.approx([2 / 9], abs=1e-15)


def test_a_variable_with_the_same_parents_keeps_its_value_under_every_mechanism(ward):
    # sugar depends on sugar and sex only: whatever the dose, its first step repeats
    model, log, *_ = ward
    sugar = np.arange(24) // 4 % 2
    going = np.arange(24)
    for mechanism in MECHANISMS:
        for dose in range(2):
            always = np.tile(np.eye(2)[dose], (24, 1))
            place = ask((model, log, None, always), mechanism=mechanism, behavior=None)
            after = place.steps(probability=True).probability[:, 1, going]
            other = sugar != sugar[log.next_state[log.offsets[:-1]]][:, None]
            assert after[other].max() == 0.0


# ------------------------------------------------------------------------------------- the twins


def test_outcomes_equal_the_slow_twin(ward):
    found = ask(ward).outcomes()
    for episode in range(2):
        law, value = twin(ward, episode)
        np.testing.assert_allclose(found.probability[episode], law, atol=1e-13)
        assert found.expected_return[episode] == pytest.approx(value, abs=1e-13)


def twin(ward, episode):
    model, log, behavior, target = ward
    return exact_outcomes(
        plain(model),
        seen_steps(log, episode),
        behavior,
        target,
        shared=True,
        horizon=HORIZON,
        discount=DISCOUNT,
    )


def test_a_wrong_factor_is_found(ward):
    model, (_, log, behavior, target) = smooth(ward[0]), ward
    wrong = list(model.factors)
    place = [factor.variable for factor in wrong].index("pulse")
    wrong[place] = replace(wrong[place], table=np.roll(wrong[place].table, 1, axis=0))
    found = ask((replace(model, factors=tuple(wrong)), log, behavior, target)).outcomes()
    wrongest = [
        np.abs(found.probability[e] - twin((model, log, behavior, target), e)[0]).max()
        for e in range(3)
    ]
    assert max(wrongest) > 1e-3


def test_a_mechanism_without_a_kernel_is_tabulated_by_factor(ward):
    known, unknown = (ask(ward, mechanism=m) for m in (bf.MaximalCoupling(), Maximal()))
    for name in ("probability", "expected_return"):
        np.testing.assert_allclose(
            getattr(unknown.outcomes(), name), getattr(known.outcomes(), name), atol=1e-14
        )
    np.testing.assert_allclose(
        unknown.fewest_changes(1).value, known.fewest_changes(1).value, atol=1e-14
    )


# ------------------------------------------------------------------------------------ identities


@pytest.mark.parametrize("mechanism", [*MECHANISMS, Maximal()], ids=repr)
def test_the_behavior_itself_reproduces_every_episode(ward, mechanism):
    _, log, behavior, _ = ward
    replay = ask((*ward[:3], behavior), mechanism=mechanism, continuation=False)
    outcomes = replay.outcomes()
    np.testing.assert_allclose(
        outcomes.probability[np.arange(len(log)), log.outcome], 1.0, atol=1e-12
    )
    np.testing.assert_allclose(outcomes.expected_return, replay.observed_return, atol=1e-12)


def every_episode(model, behavior, horizon):
    """All episodes of a model, with final states, and their probabilities."""
    drawn, weight, world = [], [], plain(model)
    laws = {
        (state, action): transitions(world, state, action)
        for state in range(16)
        for action in (0, 1)
    }
    waiting = [([], state, p) for state, p in enumerate(model.initial)]
    while waiting:
        steps, state, p = waiting.pop()
        end = steps[-1].end if steps else len(OUTCOMES)
        if end < len(OUTCOMES) or len(steps) == horizon:
            drawn.append((steps, end if end < len(OUTCOMES) else -1))
            weight.append(p)
            continue
        for action in range(2):
            for (reached, end), moved in laws[state, action].items():
                step = Seen(state, action, reached, end)
                waiting.append(([*steps, step], reached, p * behavior[state][action] * moved))
    return as_log(drawn, model, horizon), np.array(weight)


def transitions(world, state, action):
    """Probability of each pair of next state and end."""
    law = {}
    for number in range(16):
        after = dict(zip(world.variables, np.unravel_index(number, (2, 2, 2, 2)), strict=True))
        mass = 1.0
        for part in world.parts[:-1]:
            mass *= row_of(world, part, state, action, after)[after[part.variable]]
        for end, share in enumerate(row_of(world, world.parts[-1], state, action, after)):
            if mass * share > 0:
                law[number, end] = mass * share
    return law


def row_of(world, part, state, action, after):
    before = dict(zip(world.variables, np.unravel_index(state, (2, 2, 2, 2)), strict=True))
    known = before | {"action.dose": action} | {f"next.{name}": after[name] for name in after}
    return part.rows[tuple(int(known[parent]) for parent in part.parents)]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_counterfactuals_average_to_the_value_in_the_model(mechanism):
    # the paper's lemma: over all episodes, by their probability, the target's law in the model
    generator = np.random.default_rng(5)
    model = tiny_model(generator)
    behavior, target = random_policies(generator, model)
    log, weight = every_episode(model, behavior, 2)
    assert weight.sum() == pytest.approx(1.0, abs=1e-12)
    replay = Replay(log, model, target, behavior=behavior, mechanism=mechanism, discount=DISCOUNT)
    outcomes = replay.outcomes()
    value = bf.policy_value(model.tabular(), target, horizon=2, discount=DISCOUNT)
    assert weight @ outcomes.expected_return == pytest.approx(value, abs=1e-12)
    law = model.initial @ replay.engine.values[1][-1]
    np.testing.assert_allclose(weight @ outcomes.probability, law, atol=1e-12)


def test_with_one_variable_and_no_ends_noise_on_it_is_noise_on_the_state():
    generator = np.random.default_rng(6)
    table = rows(generator, 5, 2, 5)
    model = FactoredModel(
        (bf.Variable("x", tuple("abcde")),),
        ACTIONS,
        OUTCOMES,
        (given("x", ("x", "action.dose"), table), given(END, (), np.array([0.0, 0.0, 1.0]))),
        Rewards(("x", "next.x"), generator.normal(size=(5, 5, 3))),
        np.full(5, 0.2),
        np.zeros((5, 2), np.int64),
    )
    behavior, target = random_policies(generator, model)
    log = simulate_factored(generator, model, behavior, 20, HORIZON)
    for mechanism in (*MECHANISMS, Maximal()):
        variables, state = (
            Replay(log, model, target, behavior=behavior, mechanism=mechanism, noise=noise)
            for noise in ("variables", "state")
        )
        for name in ("influence", "mass", "probability"):
            np.testing.assert_allclose(
                getattr(variables.steps(probability=True), name),
                getattr(state.steps(probability=True), name),
                atol=1e-13,
            )
        np.testing.assert_allclose(
            variables.bounds().expected_return, state.bounds().expected_return, atol=1e-12
        )
        np.testing.assert_allclose(
            variables.fewest_changes(2).value, state.fewest_changes(2).value, atol=1e-12
        )


def test_contributions_add_up_to_the_difference(ward):
    replay = ask(ward, continuation=False)
    total = np.add.reduceat(replay.contributions(), replay.log.offsets[:-1])
    np.testing.assert_allclose(total, replay.outcomes().difference, atol=1e-12)


# ------------------------------------------------------------------------------- bounds and draws


def test_bounds_contain_every_mechanism(ward):
    bounds = ask(ward).bounds()
    assert not bounds.tight
    for mechanism in MECHANISMS:
        outcomes = ask(ward, mechanism=mechanism).outcomes()
        stable = isinstance(mechanism, bf.GumbelMax | bf.MaximalCoupling)
        for kind in range(1 + stable):
            for found, span in (
                (outcomes.expected_return, bounds.expected_return[kind]),
                (outcomes.probability, bounds.probability[kind]),
            ):
                assert (found >= span[..., 0] - 1e-12).all()
                assert (found <= span[..., 1] + 1e-12).all()


def test_stable_bounds_lie_inside_those_of_all_mechanisms(ward):
    every, stable = ask(ward).bounds().expected_return
    assert (stable[:, 0] >= every[:, 0] - 1e-12).all()
    assert (stable[:, 1] <= every[:, 1] + 1e-12).all()
    assert (np.diff(stable) < np.diff(every) - 1e-3).any()


def share_of_draws(replay, draws):
    drawn = replay.draws(draws, seed=1).outcome
    return np.stack([(drawn == o).sum(axis=1) for o in (0, 1, -1)], axis=1)


def test_draws_agree_with_the_exact_probabilities(ward):
    replay, draws = ask(ward), 1000
    assert frequencies_agree(share_of_draws(replay, draws), replay.outcomes().probability, draws)


def test_draws_with_noise_on_states_do_not_agree(ward):
    other, draws = ask(ward, noise="state"), 1000
    exact = ask(ward).outcomes().probability
    assert not frequencies_agree(share_of_draws(other, draws), exact, draws)


# -------------------------------------------------------------------------------- the final state


def test_of_an_unlogged_final_state_only_the_end_is_known():
    generator = np.random.default_rng(9)
    model = clinic_model(generator, end=("pulse", "sugar", "dose"))
    behavior, target = random_policies(generator, model)
    log = without_finals(simulate_factored(generator, model, behavior, 30, HORIZON))
    assert (log.next_state < 0).any()
    found = Replay(log, model, target, behavior=behavior).outcomes()
    for episode in np.flatnonzero(log.outcome >= 0)[:2]:
        law, _ = exact_outcomes(
            plain(model), seen_steps(log, episode), behavior, target, shared=True, horizon=HORIZON
        )
        np.testing.assert_allclose(found.probability[episode], law, atol=1e-13)
    null = Replay(log, model, behavior, behavior=behavior, continuation=False).outcomes()
    np.testing.assert_allclose(null.probability[np.arange(30), log.outcome], 1.0, atol=1e-12)


def test_an_end_that_depends_on_an_unlogged_final_state_is_that_of_a_drawn_one(ward):
    model, log, behavior, target = ward
    hidden = without_finals(log)
    drawn = draw_final_states(hidden, model)
    assert (drawn.next_state >= 0).all()
    known = hidden.next_state >= 0
    np.testing.assert_array_equal(drawn.next_state[known], hidden.next_state[known])
    found, same = (
        Replay(one, model, target, behavior=behavior).outcomes() for one in (hidden, drawn)
    )
    np.testing.assert_allclose(found.probability, same.probability, atol=1e-14)


# ----------------------------------------------------------------------------- evidence and errors


def counted(log, model):
    """Return the model as if learned from the log: with the counts of its factors."""
    codes = model.codes(log.state, log.action)
    after = np.unravel_index(log.next_state, [len(v.levels) for v in model.state_variables])
    names = [f"next.{variable.name}" for variable in model.state_variables]
    codes |= dict(zip(names, after, strict=True))
    ended = np.full(len(log.state), 2)
    ended[log.offsets[1:] - 1] = np.where(log.outcome >= 0, log.outcome, 2)
    factors = []
    for factor in model.factors:
        counts = np.zeros(factor.table.shape)
        level = codes[f"next.{factor.variable}"] if factor.variable else ended
        np.add.at(counts, (*(codes[parent] for parent in factor.parents), level), 1.0)
        factors.append(replace(factor, counts=counts))
    return replace(model, factors=tuple(factors)), codes


def test_similar_past_cases_are_the_fewest_that_share_the_parents_of_a_variable(ward):
    # in the first step of the observed row: transitions of other episodes with the same parents
    model, log, behavior, _ = ward
    learned, codes = counted(log, model)
    replay = ask((learned, log, behavior, behavior), continuation=False)
    episode = np.repeat(np.arange(len(log)), log.lengths)
    for number, row in enumerate(log.offsets[:5]):
        cases = []
        for factor in learned.factors:
            if factor.learned:
                same = np.ones(len(log.state), bool)
                for parent in factor.parents:
                    same &= codes[parent] == codes[parent][row]
                cases.append((same & (episode != number)).sum())
        assert replay.steps().evidence[number, 0] == min(cases)


def test_cases_of_next_step_parents_are_averaged_over_the_next_states(ward):
    # the other dose in the first state: by the twin's law of the next sugar and pulse
    model, log, behavior, _ = ward
    learned, codes = counted(log, model)
    episode, state = 0, int(log.state[0])
    dose = 1 - int(log.action[0])
    always = np.tile(np.eye(2)[dose], (24, 1))
    replay = ask((learned, log, behavior, always))
    own = np.repeat(np.arange(len(log)), log.lengths) == episode
    law = next_law(plain(model), seen_steps(log, 0)[0], state, dose)
    assert len(law) > 2
    world, cases = plain(model), []
    for factor, part in zip(learned.factors, world.parts, strict=True):
        if not factor.learned:
            continue
        expected = 0.0
        for number, mass in joint_law(world, seen_steps(log, 0)[0], state, dose).items():
            known = {
                name: int(code[0])
                for name, code in model.codes(np.array([state]), np.array([dose])).items()
            }
            after = np.unravel_index(number, (3, 2, 2, 2))
            known |= {
                f"next.{name}": level for name, level in zip(world.variables, after, strict=True)
            }
            same = np.ones(len(log.state), bool)
            for parent in part.parents:
                same &= codes[parent] == known[parent]
            expected += mass * (same & ~own).sum()
        cases.append(expected)
    assert replay.steps().evidence[0, 0] == pytest.approx(min(cases), abs=1e-12)
    thin = replay.steps().thin[0, 0]
    assert thin == (1.0 if min(cases) < THIN else 0.0)


def joint_law(world, seen, state, action):
    """Distribution of the next state before the end is decided."""
    always = world.parts[-1]._replace(parents=(), rows={(): [0.0] * world.outcomes + [1.0]})
    unended = world._replace(parts=[*world.parts[:-1], always])
    return next_law(unended, seen._replace(end=world.outcomes), state, action)


def test_a_transition_that_a_factor_excludes_is_refused(ward):
    model, log, behavior, target = ward
    factors = list(model.factors)
    place = [factor.variable for factor in factors].index("sugar")
    factors[place] = replace(factors[place], table=np.tile([1.0, 0.0], (2, 2, 1)))
    with pytest.raises(ValueError, match=r"the value of the variable 'sugar' probability 0"):
        ask((replace(model, factors=tuple(factors)), log, behavior, target)).outcomes()
    place = [factor.variable for factor in model.factors].index("sex")
    factors = list(model.factors)
    factors[place] = replace(factors[place], table=np.eye(2)[::-1].copy())
    with pytest.raises(ValueError, match=r"the value of the variable 'sex' probability 0"):
        ask((replace(model, factors=tuple(factors)), log, behavior, target)).outcomes()


def test_noise_is_part_of_the_question(ward):
    model, log, behavior, target = ward
    state = ask(ward, noise="state")
    assert (ask(ward).noise, state.noise) == ("variables", "state")
    tabular = ask((model.tabular(), log, behavior, target))
    assert tabular.noise == "state"
    np.testing.assert_array_equal(state.outcomes().probability, tabular.outcomes().probability)
    assert state.ask(target=behavior).noise == state.part([0, 1]).noise == "state"
    assert ask(ward).ask(model=model.tabular()).noise == "state"
    with pytest.raises(ValueError, match=r"noise 'variables': a TabularMDP has no variables"):
        ask((model.tabular(), log, behavior, target), noise="variables")
    with pytest.raises(ValueError, match=r"noise"):
        ask(ward, noise="levels")


def test_a_log_of_other_variables_is_refused(ward):
    model, log, behavior, target = ward
    renamed = (bf.Variable("beat", ("low", "normal", "high")), *log.state_variables[1:])
    with pytest.raises(ValueError, match=r"state variables of the episodes are 'beat' \(3\)"):
        Replay(replace(log, state_variables=renamed), model, target, behavior=behavior)


def test_credible_intervals_come_from_drawn_models(ward):
    model, log, *_ = ward
    generator = np.random.default_rng(3)
    drawn = [model, clinic_model(generator), clinic_model(generator)]
    possible = [smooth(one) for one in drawn]
    replay = ask((possible[0], log, *ward[2:]))
    found = credible_of_models(replay, possible, confidence=0.5)
    each = np.stack([ask((one, log, *ward[2:])).outcomes().expected_return for one in possible])
    np.testing.assert_allclose(found.mean_return, each.mean(axis=0), atol=1e-4)
    # three draws make four gaps: the first and the last draw
    ends = np.stack([each.min(axis=0), each.max(axis=0)], axis=1)
    np.testing.assert_allclose(found.expected_return, ends, atol=1e-4)
    assert found.models == 3
    with pytest.raises(ValueError, match=r"no models were drawn"):
        credible_of_models(replay, [])


def test_credible_intervals_of_a_factored_model_come_from_its_posterior(ward):
    _, log, *_ = ward
    with pytest.warns(UserWarning, match="varies for the same state"):
        model = bf.fit_factored(log)
    replay = ask((model, log, *ward[2:]))
    found = bf.credible_intervals(replay, models=4, seed=2)
    posterior = draw_factored(model, 4, seed=2)
    again = credible_of_models(replay, [posterior.model(b) for b in range(4)])
    np.testing.assert_array_equal(found.expected_return, again.expected_return)


def smooth(model):
    """Give every level of the factors that nature decides some probability."""
    factors = [
        replace(one, table=0.9 * one.table + 0.1 / one.table.shape[-1]) if one.learned else one
        for one in model.factors
    ]
    return replace(model, factors=tuple(factors))
