import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from butfor import Episodes, Outcome, fit_mdp
from tests.builders import DEATH, HOME, patient_log, random_log, ward_log
from tests.support import PROPERTY


def reward_of(model, state, action):
    entries = slice(*model.start[state * model.n_actions + action :][:2])
    return dict(
        zip(model.next_state[entries].tolist(), model.reward[entries].tolist(), strict=True)
    )


def near(row):
    return pytest.approx(row, abs=1e-15)


# The log of these tests (builders.ward_log); in the model death is 3 and home is 4.
#   stay 0:  0 -a0-> 1 -a1-> 2             death
#   stay 1:  0 -a0-> 1 -a1-> 0 -a0-> 2     home
#   stay 2:  0 -a1-> 0 -a0-> 1             none
#   stay 3:  1 -a1-> 2                     death


# ends


def test_visits_ends_lead_from_the_last_state_into_the_outcome():
    # (0, a0): to 1 in stays 0, 1, 2, then home in stay 1.   (0, a1): to 0 in stay 2.
    # (1, a1): death in stays 0 and 3, to 0 in stay 1.
    model = fit_mdp(ward_log())
    assert model.row(0, 0) == {1: 0.75, 4: 0.25}
    assert model.row(0, 1) == {0: 1.0}
    assert model.row(1, 1) == near({0: 1 / 3, 3: 2 / 3})
    assert reward_of(model, 0, 0) == {1: 0.0, 4: 1.0}
    assert reward_of(model, 1, 1) == {0: 0.0, 3: -1.0}
    assert model.terminal == "visits"


def test_visits_ends_need_no_final_states():
    log = ward_log(next_state=[1, -1, 1, 0, -1, 0, 1, -1])
    assert fit_mdp(log).row(1, 1) == near({0: 1 / 3, 3: 2 / 3})


def test_icml2019_ends_lead_to_the_final_state_first():
    # (0, a0): to 1 in stays 0, 1, 2, then to 2 in stay 1. (1, a1): to 2 in stays 0 and 3, to 0.
    model = fit_mdp(ward_log(), terminal="icml2019")
    assert model.row(0, 0) == {1: 0.75, 2: 0.25}
    assert model.row(1, 1) == near({0: 1 / 3, 2: 2 / 3})
    assert model.terminal == "icml2019"


def test_icml2019_ends_count_each_final_state_and_outcome_once_for_every_action():
    # state 2 ended in death twice and at home once; by distinct states once each
    model = fit_mdp(ward_log(), terminal="icml2019")
    assert model.row(2, 0) == {3: 0.5, 4: 0.5}
    assert model.row(2, 1) == {3: 0.5, 4: 0.5}


def test_icml2019_ends_tell_unreduced_final_states_apart():
    # stays 0 and 3 died in state 2, unreduced 20 and 22; stay 1 went home from 21
    model = fit_mdp(ward_log(final_key=[20, 21, 5, 22]), terminal="icml2019")
    assert model.row(2, 0) == near({3: 2 / 3, 4: 1 / 3})


def test_icml2019_pseudo_counts_add_to_what_was_seen_in_that_state():
    # stay 0: 0 -a0-> 1, home from 1.   stay 1: 1 -a0-> 0, death from 0.
    # (0, a0): to 1 once, death once; (0, a1): death once. (1, a0): to 0 and home; (1, a1): home.
    log = Episodes.from_arrays(
        [0, 1], [0, 0], [1, 0], offsets=[0, 1, 2], states=2, actions=2, outcome=[1, 0],
        outcomes=[DEATH, HOME],
    )  # fmt: skip
    model = fit_mdp(log, terminal="icml2019")
    assert model.row(0, 0) == {1: 0.5, 2: 0.5}
    assert model.row(0, 1) == {2: 1.0}
    assert model.row(1, 0) == {0: 0.5, 3: 0.5}
    assert model.row(1, 1) == {3: 1.0}


def test_icml2019_ends_earn_the_outcome_s_reward_on_the_pseudo_step():
    model = fit_mdp(ward_log(), terminal="icml2019")
    assert reward_of(model, 1, 1) == {0: 0.0, 2: 0.0}
    assert reward_of(model, 2, 0) == {3: -1.0, 4: 1.0}


def test_icml2019_ends_leave_other_rewards_of_the_last_step_where_they_were():
    # every step costs 1/4, the last one on top of its outcome
    reward = np.array([0, -1, 0, 0, 1, 0, 0, -1]) - 0.25
    model = fit_mdp(ward_log(reward=reward), terminal="icml2019")
    assert reward_of(model, 1, 1) == {0: -0.25, 2: -0.25}
    assert reward_of(model, 2, 0) == {3: -1.0, 4: 1.0}


def test_hidden_moving_variables_multiply_icml2019_pseudo_counts():
    # three patients die; hiding sugar leaves (sex, pulse): w and x share the final state
    # (0, 2) = 2 with other sugar, so two pseudo-counts; y ends in (1, 2) = 5. Death is 6.
    # Nothing else was seen in state 2: all of it leads to death. To see the counts, send
    # somebody home from state 2 too: z ends in (0, 2, 1) with the key of w but another outcome.
    log = patient_log().hide("sugar")
    assert fit_mdp(log, terminal="icml2019").row(2, 0) == {6: 1.0}
    outcome = [0, 0, 0, 1]
    next_state = [3, 5, 4, 9, 11, 5]  # z moves to (0, 2, 1) = 5
    mixed = patient_log(next_state=next_state, outcome=outcome)
    model = fit_mdp(mixed.hide("sugar"), terminal="icml2019")
    assert model.row(2, 0) == near({6: 2 / 3, 7: 1 / 3})


def test_hidden_static_variables_do_not_multiply_icml2019_pseudo_counts():
    # hiding sex: w (0, 2, 1) and y (1, 2, 1) are one final state, pulse * 2 + sugar = 5: death
    # counts once, and home from (1, 2, 1), by z, once
    log = patient_log(next_state=[3, 5, 4, 9, 11, 11], outcome=[0, 0, 0, 1]).hide("sex")
    assert fit_mdp(log, terminal="icml2019").row(5, 0) == {6: 0.5, 7: 0.5}
    # with sex in sight they are two final states: pulse * 2 + sugar of sex 1 is state 11
    seen = patient_log(next_state=[3, 5, 4, 9, 11, 11], outcome=[0, 0, 0, 1])
    assert fit_mdp(seen, terminal="icml2019").row(5, 0) == {12: 1.0}
    assert fit_mdp(seen, terminal="icml2019").row(11, 0) == {12: 0.5, 13: 0.5}


# first states, counts and what is made up


def test_first_states_are_those_of_the_log():
    assert fit_mdp(ward_log()).initial.tolist() == [0.75, 0.25, 0.0]


@pytest.mark.parametrize("terminal", ["visits", "icml2019"])
def test_counts_are_logged_decisions_without_pseudo_counts_or_prior(terminal):
    for prior in (0.0, 2.0):
        model = fit_mdp(ward_log(), terminal=terminal, prior=prior)
        assert model.counts.tolist() == [[4, 1], [0, 3], [0, 0]]


def test_the_unseen_mask_marks_the_rows_that_were_made_up():
    expected = [[False, False], [True, False], [True, True]]
    assert fit_mdp(ward_log()).unseen.tolist() == expected
    # with icml2019 ends the pseudo-counts fill state 2
    expected = [[False, False], [True, False], [False, False]]
    assert fit_mdp(ward_log(), terminal="icml2019").unseen.tolist() == expected


# unseen pairs


def test_by_default_unseen_pairs_lead_to_the_outcome_of_lowest_reward():
    model = fit_mdp(ward_log())
    for state, action in ((1, 0), (2, 0), (2, 1)):
        assert model.row(state, action) == {3: 1.0}
        assert reward_of(model, state, action) == {3: -1.0}
    # the order of the outcomes does not matter, their reward does
    turned = ward_log(outcomes=[HOME, DEATH], outcome=[1, 0, -1, 1])
    assert fit_mdp(turned).row(1, 0) == {4: 1.0}


def test_unseen_pairs_lead_to_the_outcome_that_is_named():
    model = fit_mdp(ward_log(), unseen="home")
    assert model.row(1, 0) == {4: 1.0}
    assert reward_of(model, 1, 0) == {4: 1.0}
    assert model.row(0, 1) == {0: 1.0}  # what was seen stays


def test_uniform_unseen_pairs_lead_to_whatever_followed_that_state():
    # state 1 was followed by 0 and by death; nothing followed state 2, so it loops
    model = fit_mdp(ward_log(), unseen="uniform")
    assert model.row(1, 0) == {0: 0.5, 3: 0.5}
    assert reward_of(model, 1, 0) == {0: 0.0, 3: -1.0}
    for action in (0, 1):
        assert model.row(2, action) == {2: 1.0}
        assert reward_of(model, 2, action) == {2: 0.0}


def test_self_looping_unseen_pairs_stay_where_they_are():
    model = fit_mdp(ward_log(), unseen="self-loop")
    assert model.row(1, 0) == {1: 1.0}
    assert model.row(2, 1) == {2: 1.0}
    assert reward_of(model, 2, 1) == {2: 0.0}


@pytest.mark.parametrize("unseen", [None, "home", "uniform", "self-loop"])
def test_the_rule_for_unseen_pairs_does_not_change_what_was_seen(unseen):
    model, plain = fit_mdp(ward_log(), unseen=unseen), fit_mdp(ward_log())
    for state, action in ((0, 0), (0, 1), (1, 1)):
        assert model.row(state, action) == plain.row(state, action)
    np.testing.assert_array_equal(model.unseen, plain.unseen)


def test_a_log_without_outcomes_needs_a_rule_only_where_something_is_unseen():
    log = Episodes.from_arrays([0, 1], [0, 0], [1, 0], offsets=[0, 2], states=2, actions=1)
    assert fit_mdp(log).row(1, 0) == {0: 1.0}


# prior


def test_a_prior_is_added_for_what_followed_that_state_and_for_every_outcome():
    # state 0 was followed by 0, 1 and home; with the outcomes {0, 1, 3, 4}, 1/2 each:
    #   (0, a0): 0 + .5, 3 + .5, 0 + .5, 1 + .5 of 6;  (0, a1): 1.5, .5, .5, .5 of 3
    # state 1 was followed by 0 and death, with home {0, 3, 4}: (1, a1): 1.5, 2.5, .5 of 4.5
    model = fit_mdp(ward_log(), prior=0.5)
    assert model.row(0, 0) == near({0: 1 / 12, 1: 7 / 12, 3: 1 / 12, 4: 3 / 12})
    assert model.row(0, 1) == near({0: 1 / 2, 1: 1 / 6, 3: 1 / 6, 4: 1 / 6})
    assert model.row(1, 1) == near({0: 3 / 9, 3: 5 / 9, 4: 1 / 9})


def test_a_prior_leaves_unseen_pairs_to_their_rule():
    assert fit_mdp(ward_log(), prior=0.5).row(1, 0) == {3: 1.0}
    assert fit_mdp(ward_log(), prior=0.5, unseen="uniform").row(1, 0) == {0: 0.5, 3: 0.5}
    assert fit_mdp(ward_log(), prior=0.5).unseen.tolist() == fit_mdp(ward_log()).unseen.tolist()


def test_a_transition_known_from_the_prior_only_earns_what_others_to_there_earn():
    # going home from state 0 earned 5 in stay 1, though home is worth 1 elsewhere;
    # nobody died from state 0, so death earns its own reward
    model = fit_mdp(ward_log(reward=[0, -1, 0, 0, 5, 0, 0, -1]), prior=0.5)
    assert reward_of(model, 0, 1) == {0: 0.0, 1: 0.0, 3: -1.0, 4: 5.0}
    assert reward_of(model, 1, 1) == {0: 0.0, 3: -1.0, 4: 1.0}


def test_a_prior_leaves_the_rewards_of_logged_transitions_alone():
    # from 0 to 1 earns 1 by action 0, 3 by action 1; together 2 by action 2, known from 0 to 0
    log = Episodes.from_arrays(
        [0, 0, 0], [0, 1, 2], [1, 1, 0], offsets=[0, 1, 2, 3], states=2, actions=3,
        reward=[1, 3, 9],
    )  # fmt: skip
    model = fit_mdp(log, prior=0.5, unseen="self-loop")
    assert reward_of(model, 0, 0) == {0: 9.0, 1: 1.0}
    assert reward_of(model, 0, 1) == {0: 9.0, 1: 3.0}
    assert reward_of(model, 0, 2) == {0: 9.0, 1: 2.0}


def test_a_prior_that_shrinks_to_nothing_gives_the_counts():
    small, none = fit_mdp(ward_log(), prior=1e-12), fit_mdp(ward_log())
    for state, action in ((0, 0), (0, 1), (1, 1)):
        row, plain = small.row(state, action), none.row(state, action)
        # at most four entries of 1e-12 were added to at least one count
        assert row == pytest.approx({key: plain.get(key, 0.0) for key in row}, abs=1e-11)


# labels


def test_labels_are_handed_to_the_model():
    log = patient_log()
    model = fit_mdp(log, labels=log.state_labels("pulse", "sugar"))
    assert model.labels.tolist() == [0, 1, 2, 3, 4, 5] * 2 + [6, 7]


# rewards


def test_the_reward_of_a_transition_is_the_mean_with_a_warning_where_it_varies():
    # deaths from (1, a1) earn -1 (row 1) and -4 (row 7): mean -2.5
    log = ward_log(reward=[0, -1, 0, 0, 1, 0, 0, -4])
    with pytest.warns(UserWarning, match=r"1 transitions? .*row 1.*state 1.*action 1.*mean"):
        model = fit_mdp(log)
    assert reward_of(model, 1, 1) == {0: 0.0, 3: -2.5}


def test_the_warning_points_at_the_caller():
    log = ward_log(reward=[0, -1, 0, 0, 1, 0, 0, -4])
    with pytest.warns(UserWarning, match="mean") as caught:
        fit_mdp(log)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("reward", [0.1, 1e-12, 12345.678, 1e8 / 3, 1e9 + 0.1, -1e15 / 7])
@pytest.mark.parametrize("terminal", ["visits", "icml2019"])
def test_rewards_that_do_not_vary_give_no_warning_whatever_their_size(reward, terminal):
    # seven stays of one step 0 -> 0; a warning is an error in this project's tests
    log = Episodes.from_arrays(
        [0] * 7, [0] * 7, [0] * 7, offsets=range(8), states=1, actions=1, reward=[reward] * 7,
        outcome=[0] * 7, outcomes=[Outcome("end", 0.0)],
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fit_mdp(log, terminal=terminal)
    assert model.reward[0] == pytest.approx(reward, rel=1e-15)


# size


def test_fitting_takes_memory_for_state_action_pairs_not_for_pairs_of_states():
    states, actions = 20_000, 20
    rng = np.random.default_rng(1)
    visits = rng.integers(states, size=(50, 3))
    log = Episodes.from_arrays(
        visits[:, :-1].ravel(),
        rng.integers(actions, size=100),
        visits[:, 1:].ravel(),
        offsets=np.arange(0, 101, 2),
        states=states,
        actions=actions,
        outcome=rng.integers(2, size=50),
        outcomes=[DEATH, HOME],
    )
    tracemalloc.start()
    try:
        model = fit_mdp(log)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # dense [A, S, S] would be 6.4e10 bytes; allow 25 numbers a state-action pair
    assert peak < 25 * 8 * states * actions
    # the hundred logged pairs are all different, so every row has one entry
    assert model.unseen.sum() == states * actions - 100
    assert len(model.probability) == states * actions


# properties


@PROPERTY
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["visits", "icml2019"]),
    st.sampled_from([None, "home", "uniform", "self-loop"]),
    st.sampled_from([0.0, 0.3]),
)
def test_every_row_is_a_distribution_over_distinct_next_states(seed, terminal, unseen, prior):
    log = random_log(np.random.default_rng(seed)).hide("sugar")
    model = fit_mdp(log, terminal=terminal, unseen=unseen, prior=prior)
    rows = len(model.start) - 1
    assert (np.diff(model.start) > 0).all()
    total = np.bincount(model.entry_row, model.probability, rows)
    np.testing.assert_allclose(total, 1.0, rtol=0, atol=1e-14)
    key = model.entry_row * 100 + model.next_state
    assert (np.diff(key) > 0).all()
    assert np.isfinite(model.reward).all()


@PROPERTY
@given(st.integers(0, 2**32 - 1), st.sampled_from(["visits", "icml2019"]))
def test_the_order_of_the_episodes_does_not_matter(seed, terminal):
    rng = np.random.default_rng(seed)
    log = random_log(rng)
    one = fit_mdp(log, terminal=terminal)
    other = fit_mdp(log.select(rng.permutation(len(log))), terminal=terminal)
    for name in ("start", "next_state", "probability", "reward", "counts", "initial"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@PROPERTY
@given(st.integers(0, 2**32 - 1))
def test_seeing_every_episode_twice_changes_nothing_but_the_counts(seed):
    log = random_log(np.random.default_rng(seed))
    twice = log.select(np.tile(np.arange(len(log)), 2))
    one, two = fit_mdp(log), fit_mdp(twice)
    np.testing.assert_array_equal(one.next_state, two.next_state)
    np.testing.assert_array_equal(one.probability, two.probability)
    np.testing.assert_array_equal(2 * one.counts, two.counts)


def test_labels_that_clash_because_of_a_prior_say_so():
    # rows of state 0: by action 0 to state 1, by action 1 to state 0; the prior mixes them
    log = Episodes.from_arrays(
        [0, 1, 0], [0, 0, 1], [1, 0, 0], offsets=[0, 3], states=2, actions=2, outcomes=()
    )
    fit_mdp(log, unseen="self-loop", labels=[0, 0])
    with pytest.raises(ValueError, match="have the same label") as caught:
        fit_mdp(log, unseen="self-loop", labels=[0, 0], prior=1.0)
    assert "prior" in caught.value.__notes__[0]


def test_uniform_rows_earn_what_the_same_move_earned_under_other_actions():
    # from state 0 action 0 led to state 1 and earned -.25; action 1 was never tried there
    log = Episodes.from_arrays(
        [0, 1],
        [0, 0],
        [1, 1],
        reward=[-0.25, 2.0],
        offsets=[0, 2],
        states=2,
        actions=2,
    )
    model = fit_mdp(log, unseen="uniform")
    assert model.row(0, 1) == {1: 1.0}
    assert model.reward[model.start[1]] == -0.25
