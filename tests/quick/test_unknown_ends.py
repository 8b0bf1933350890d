"""Final states that are unknown: what is learned without them, and what they may not change."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import butfor as bf
from butfor.audit.audit import Audit
from butfor.audit.shards.run import audit_shards
from butfor.audit.source import audit_log
from butfor.log.fields import LOST
from butfor.models.transitions import count_distinct
from butfor.replay.factored import draw_final_states

HORIZON, HOME, DIED = 8, 1, 0
STATES = [bf.Variable("score", tuple("01234")), bf.Variable("unit", ("a", "b"))]
ACTIONS = [bf.Variable("drug", ("off", "on"))]
OUTCOMES = [bf.Outcome("died", -1.0, bad=True), bf.Outcome("home", 1.0)]
USUAL, TREAT = ([1 - p, p] * np.ones((10, 2)) for p in (0.3, 0.9))


def make_world():
    """P(end, state reached | state, action), [S, A, died home none, S']; ends follow the state."""
    died = np.repeat([0, 0.02, 0.05, 0.2, 0.5], 2)
    home = np.outer([0.3, 0.15, 0.05, 0.02, 0], [1, 0.5]).ravel()
    ends = np.array([died, home, 1 - died - home])
    law = np.zeros((10, 2, 3, 10))
    for state in range(10):
        score, unit = divmod(state, 2)
        for action in range(2):
            up, down = 0.5 - 0.2 * action + 0.1 * unit, 0.3 + 0.1 * action
            moves = np.zeros(5)
            for to, chance in ((score + 1, up), (score - 1, down), (score, 1 - up - down)):
                moves[np.clip(to, 0, 4)] += chance
            reached = np.outer(moves, np.where(np.arange(2) == unit, 0.8, 0.2)).ravel()
            law[state, action] = ends * reached
    return law


WORLD = make_world()


def true_value(policy):
    """The value of a policy from the two states in which episodes start."""
    value = np.zeros(10)
    paid = WORLD[:, :, HOME].sum(axis=2) - WORLD[:, :, DIED].sum(axis=2)
    for _ in range(HORIZON):
        value = (policy * (paid + WORLD[:, :, 2] @ value)).sum(axis=1)
    return value[4:6].mean()


def simulate(episodes, seed, *, lost=0.0):
    """A log under the usual policy; each decision leads to an unknown state with a chance."""
    rng = np.random.default_rng(seed)
    rows, ends, offsets = [], [], [0]
    running = WORLD.reshape(10, 2, 30).cumsum(axis=2)
    for _ in range(episodes):
        state, end = 4 + int(rng.integers(2)), -1
        for _ in range(HORIZON):
            action = int(rng.random() < USUAL[state, 1])
            drawn, reached = divmod(int((running[state, action] < rng.random()).sum()), 10)
            end = 2 if rng.random() < lost else drawn if drawn < 2 else -1
            rows.append((state, action, -1 if end == 2 else reached))
            state = reached
            if end >= 0:
                break
        ends.append(end)
        offsets.append(len(rows))
    outcomes = [*OUTCOMES, bf.Outcome(LOST, 0.0)] if lost else OUTCOMES
    return bf.Episodes.from_arrays(
        *np.array(rows).T, offsets=offsets, states=STATES, actions=ACTIONS, outcome=ends,
        outcomes=outcomes, horizon=HORIZON,
    )  # fmt: skip


def hide(log, shares, seed=0):
    """Make a share of the final states unknown, by outcome."""
    chance = np.append(shares, 0.0)[log.outcome]
    chosen = np.random.default_rng(seed).random(len(log)) < chance
    reached = log.next_state.copy()
    reached[log.offsets[1:][chosen] - 1] = -1
    return replace(log, next_state=reached)


def test_one_unknown_final_state_does_not_change_how_ends_are_predicted():
    log = simulate(500, 0)
    reached = log.next_state.copy()
    reached[log.offsets[1:][np.flatnonzero(log.outcome == DIED)[0]] - 1] = -1
    before, after = (bf.fit_factored(one) for one in (log, replace(log, next_state=reached)))
    assert after.end.parents == before.end.parents == ("next.score", "next.unit")
    np.testing.assert_allclose(after.end.table, before.end.table, atol=0.02)


def test_known_final_states_stand_for_the_unknown_ones_of_their_outcome():
    rows = count_distinct(hide(simulate(500, 0), (0.45, 0.1)))
    found = rows.stand_ins()
    assert (found.next_state >= 0).all()
    for weight in ("weight", "reward"):
        both = [np.bincount(one.end, getattr(one, weight), 3) for one in (rows, found)]
        np.testing.assert_allclose(*both, rtol=1e-12)
    assert (found.weight >= 1).all()
    mostly = count_distinct(hide(simulate(500, 0), (0.6, 0)))
    assert mostly.stand_ins() is mostly
    for shares in ((1, 0), (0, 0.7), (1, 1)):  # an outcome is mostly reached in unknown states
        model = bf.fit_factored(hide(simulate(500, 0), shares))
        assert not any(one.startswith("next.") for one in model.end.parents)


@pytest.mark.parametrize("shares", [(0.2, 0.2), (0.45, 0.1)])
def test_values_stay_right_where_final_states_are_hidden_at_random(shares):
    """The mean error over 10 logs is at most 4 of its standard errors; from the state before, 7."""
    errors = []
    for seed in range(10):
        log = hide(simulate(500, seed), shares, seed)
        model = bf.fit_factored(log)
        replayed = bf.Replay(log, model, TREAT)
        bounds, found = replayed.bounds(), replayed.outcomes()
        low, high = np.moveaxis(bounds.expected_return[0], -1, 0)
        assert (low <= found.expected_return + 1e-9).all()
        assert (found.expected_return <= high + 1e-9).all()
        planned = bf.policy_value(model, TREAT, horizon=HORIZON)
        errors.append((planned, found.expected_return.mean()))
    wrong = np.array(errors) - true_value(TREAT)
    assert (np.abs(wrong.mean(axis=0)) < 4 * wrong.std(axis=0, ddof=1) / 10**0.5).all()


def test_a_final_state_is_drawn_from_those_that_the_outcome_leaves():
    model = bf.fit_factored(simulate(500, 0))
    count, state, action = 4000, 6, 0
    log = bf.Episodes.from_arrays(
        np.full(count, state), np.full(count, action), np.full(count, -1),
        offsets=np.arange(count + 1), states=STATES, actions=ACTIONS,
        outcome=np.full(count, DIED), outcomes=OUTCOMES, horizon=HORIZON,
    )  # fmt: skip
    drawn = draw_final_states(log, model).next_state
    *_, (end, _, weight, codes) = model.expand(np.array([state * 2 + action]))
    reached = codes["next.score"] * 2 + codes["next.unit"]
    law = np.bincount(reached, weight * end.rows(codes)[:, DIED], 10)
    law /= law.sum()
    error = np.sqrt(law * (1 - law) / count)
    assert (np.abs(np.bincount(drawn, minlength=10) / count - law) <= 5 * error).all()
    part = np.arange(7, count, 100)  # what an episode is given depends on it alone
    np.testing.assert_array_equal(
        draw_final_states(log.select(part), model).next_state, drawn[part]
    )


def test_what_repeats_ends_as_it_did_although_its_final_state_is_unknown():
    log = hide(simulate(300, 0), (0.3, 0.3))
    taken = np.zeros((10, 2))
    taken[:, 1] = 1.0
    alike = np.flatnonzero(np.minimum.reduceat(log.action, log.offsets[:-1]) == 1)
    found = bf.Replay(log, bf.fit_factored(log), taken).outcomes()
    assert (log.next_state[log.offsets[1:][alike] - 1] < 0).any()
    np.testing.assert_allclose(found.probability[alike, log.outcome[alike]], 1.0)


def test_the_lost_are_lost_at_their_rate_and_leave_other_ends_alone():
    log = simulate(500, 0, lost=0.02)
    rate = (log.outcome == 2).sum() / len(log.state)
    model = bf.fit_factored(log)
    assert model.end.parents == ("next.score", "next.unit")
    np.testing.assert_allclose(model.end.table[..., 2], rate, rtol=1e-12)
    np.testing.assert_allclose(model.end.table.sum(axis=-1), 1.0, rtol=1e-12)
    assert bf.Replay(log, model, TREAT).outcomes().probability[:, 2].mean() > rate
    assert np.isfinite(
        bf.credible_intervals(bf.Replay(log, model, TREAT), models=3).expected_return
    ).all()


def test_an_audit_of_unknown_final_states_is_the_same_in_memory_and_in_shards(tmp_path):
    log = hide(simulate(300, 0), (0.3, 0.3))
    bf.write_episodes(log, tmp_path / "log.csv", tmp_path / "study.toml")
    whole = audit_log(tmp_path / "log.csv", tmp_path / "study.toml", models=2, flags=2)
    audit_shards(tmp_path / "log.csv", tmp_path / "study.toml", tmp_path / "audit")
    parts = Audit.load(tmp_path / "audit")
    for table in (whole, parts):
        assert any("next." in one for one in table.meta.parameters.factors[-1].parents)
    both = [one.estimates.set_index("estimator")["value"] for one in (whole, parts)]
    for name in ("Observed", "MB", "CF"):
        assert both[0][name] == pytest.approx(both[1][name], abs=1e-12)
    pd.testing.assert_frame_equal(whole.outcome_table(), parts.outcome_table())
