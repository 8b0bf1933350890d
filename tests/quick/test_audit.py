"""The audit: decomposition, flags and their reasons, and the folder that it is saved as."""

import os
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

import butfor as bf
from butfor.audit.audit import Audit
from butfor.audit.files import ROW_GROUP, SCHEMAS, TableWriter, as_arrow, write_table
from butfor.audit.flags import (
    describe_flag,
    describe_survival,
    first_changes,
    heaviest_step,
)
from butfor.audit.meta import Meta
from butfor.audit.run import run_audit
from butfor.evaluate.decomposition import check_decomposition, decompose, pieces_of
from butfor.evaluate.wording import percent
from butfor.log.variables import describe_action, unravel
from butfor.replay.bounds import Bounds
from butfor.replay.outcomes import Counterfactuals, rank_flags
from tests.grids import few


@pytest.fixture(scope="module")
def problem():
    """A reduced sepsis log, its model and a target planned on it."""
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy("icml2019"), 150, version="icml2019", seed=4)
    log = log.hide("glucose", "diabetes")
    model = bf.fit_mdp(log)
    return log, model, bf.policy_iteration(model).table


@pytest.fixture(scope="module")
def audit(problem):
    return run_audit(*problem, flags=12, draws=3, seed=1)


@pytest.fixture(scope="module")
def exact(problem):
    return bf.Replay(*problem).outcomes()


# ------------------------------------------------------------------------------- decomposition


def test_the_pieces_add_up_to_the_difference_of_the_estimates(audit):
    estimates = audit.estimates.set_index("estimator")["value"]
    difference = estimates["CF"] - estimates["Observed"]
    sums = audit.decomposition.groupby("by")["contribution"].sum()
    assert set(sums.index) == {"all", "outcome", "first state"}
    np.testing.assert_allclose(sums, difference, atol=1e-10)
    assert audit.meta.decomposition_gap < 1e-10


def test_cells_count_episodes_by_most_likely_outcome_and_by_probability(audit, exact):
    for expected in (False, True):
        table, cells = audit.outcome_table(expected=expected), exact.table(expected=expected)
        assert list(table.index) == list(table.columns) == list(cells.index)
        np.testing.assert_allclose(table, cells, rtol=1e-14)


def test_a_cell_has_the_mean_difference_of_its_episodes(exact):
    table = decompose(exact.outcome_names, pieces_of(exact))
    mine = (exact.episodes.outcome == 0) & (exact.most_likely == 1)
    cell = table[(table["observed"] == "died") & (table["counterfactual"] == "discharged")].iloc[0]
    assert cell["episodes"] == mine.sum()
    np.testing.assert_allclose(cell["difference"], exact.difference[mine].mean())
    np.testing.assert_allclose(cell["contribution"], exact.difference[mine].sum() / len(mine))


def test_differences_by_first_state_are_conditional_means(exact):
    table = decompose(exact.outcome_names, pieces_of(exact))
    by_state = table[table["by"] == "first state"].set_index("first_state")
    for state in np.unique(exact.episodes.first_state)[:5]:
        mine = exact.episodes.first_state == state
        np.testing.assert_allclose(by_state.loc[state, "difference"], exact.difference[mine].mean())


def test_pieces_that_do_not_add_up_are_an_error(exact):
    table = decompose(exact.outcome_names, pieces_of(exact))
    difference = exact.difference.mean()
    assert check_decomposition(table, difference) < 1e-12
    with pytest.raises(ArithmeticError, match="1e-06"):
        check_decomposition(table, difference + 1e-6)


def test_pieces_of_large_returns_may_be_as_far_apart_as_their_rounding(exact):
    table = decompose(exact.outcome_names, pieces_of(exact))
    returns = ["observed_mean", "counterfactual_mean", "contribution"]
    table[returns] *= 1e6
    difference = 1e6 * exact.difference.mean()
    check_decomposition(table, difference + 1e-9)
    with pytest.raises(ArithmeticError, match="differ from the whole by 1"):
        check_decomposition(table, difference + 1)


# --------------------------------------------------------------------------------------- flags


def small_result(difference, outcome, likely):
    """A result of four one-step episodes with two outcomes."""
    log = bf.Episodes.from_arrays(
        [0] * 4,
        [0] * 4,
        [0] * 4,
        offsets=range(5),
        outcome=outcome,
        outcomes=[bf.Outcome("died", -1, bad=True), bf.Outcome("home", 1)],
        states=1,
        actions=2,
    )
    probability = np.eye(3)[likely]
    none = np.zeros(4)
    usual = {"usual_return": none, "usual_outcome": log.outcome}
    return Counterfactuals(log, probability, np.array(difference), none, 1, 1.0, "shared", **usual)


def test_flags_are_the_largest_differences_first_of_those_whose_outcomes_differ():
    # episode 2 has the largest difference, but its likeliest outcome is what happened
    result = small_result([0.5, -1.5, 9.0, 0.5], outcome=[0, 1, 1, 0], likely=[1, 0, 1, 1])
    assert rank_flags(result, 60).tolist() == [2, 1, 4, 3]  # a tie goes to the earlier one
    assert rank_flags(result, 3).tolist() == [2, 1, 0, 3]
    assert rank_flags(result, 1).tolist() == [0, 1, 0, 0]
    assert rank_flags(result, 0).tolist() == [0, 0, 0, 0]


def test_without_another_outcome_a_flag_takes_a_tenth_of_the_spread_of_returns():
    result = small_result([0.05, -0.3, 0.0, 0.2], outcome=[0, 1, 1, 0], likely=[0, 1, 1, 0])
    observed = np.array([-1.0, 1.0, 1.0, -1.0])
    spread = replace(
        result, usual_return=observed, expected_return=observed + result.expected_return
    )
    assert rank_flags(spread, 60).tolist() == [0, 1, 0, 2]


def test_the_first_change_is_where_the_policy_would_act_otherwise(problem):
    log, _, target = problem
    first = first_changes(log, bf.Replay(*problem).repeats())
    best = target.argmax(axis=1)
    for episode in range(0, 150, 11):
        rows = range(log.offsets[episode], log.offsets[episode + 1])
        differs = [best[log.state[i]] != log.action[i] for i in rows]
        assert first[episode] == (differs.index(True) if any(differs) else -1)


def test_a_target_that_acts_like_the_behavior_here_makes_no_difference_here():
    # in state 0 both choose action 0 with .55: whoever was given action 1 would get it again, and
    # the first difference comes in state 1
    log = bf.Episodes.from_arrays(
        [0, 1], [1, 0], [1, 0], offsets=[0, 2], states=2, actions=2, outcomes=[]
    )
    behavior = np.array([[0.55, 0.45], [0.9, 0.1]])
    target = np.array([[0.55, 0.45], [0.0, 1.0]])
    model = bf.TabularMDP.from_arrays(np.full((2, 2, 2), 0.5))
    shared = bf.Replay(log, model, target, behavior=behavior)
    np.testing.assert_allclose(shared.actions(), [[0.0, 1.0], [0.0, 1.0]])
    np.testing.assert_allclose(shared.repeats(), [1.0, 0.0])
    assert first_changes(log, shared.repeats()).tolist() == [1]
    fresh = bf.Replay(log, model, target, behavior=behavior, action_noise="fresh")
    np.testing.assert_array_equal(fresh.actions(), target[log.state])
    assert first_changes(log, fresh.repeats()).tolist() == [0]


def test_the_step_that_matters_is_judged_in_its_own_units():
    # discounted contributions .5 and .4 at discount .5: in its own units the second is .8
    assert heaviest_step(np.array([0.5, 0.4]), np.ones(2)) == 0
    assert heaviest_step(np.array([0.5, 0.4]), np.array([1.0, 0.5])) == 1


def test_a_reason_tells_outcome_chances_first_change_and_the_step_that_matters():
    # One state; action 0 keeps the patient, action 1 ends at home. Observed: 0, then death.
    rows = np.array([[[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]])
    outcomes = [bf.Outcome("died", -1, bad=True), bf.Outcome("home", 1)]
    model = bf.TabularMDP.from_arrays(rows, outcomes=outcomes)
    log = bf.Episodes.from_arrays(
        [0, 0], [0, 0], [0, 0], offsets=[0, 2], outcome=[0], outcomes=outcomes, states=1, actions=2
    )
    target = np.array([[0.0, 1.0]])
    # the whole log has one more stay, in which action 1 was given once
    behavior, counts = np.array([[0.5, 0.5]]), [[2, 1]]
    replay = bf.Replay(log, model, target, behavior=behavior, counts=counts)
    contribution = replay.contributions()
    # the policy would send home at once (+1); taking over at step 1 would do so too, so that all of
    # the difference, +2, comes from step 1
    np.testing.assert_allclose(contribution, [0.0, 2.0], atol=1e-15)
    told = (
        "What happened: died after 2 steps. Under the policy the model predicts: home over 99.9%, "
        "died under 0.1%, no outcome under 0.1%. First difference, at step 0 (counted from 0): the "
        "policy would choose action 1 instead of action 0. Step 1 matters most: it contributes "
        "+2.00 to the difference of +2.00. If the model is right, the difference keeps its sign "
        "whatever the mechanism: from +2.00 to +2.00. At its thinnest, the evidence is {} in this "
        "log; over 99.9% of the steps rest on fewer than 10."
    )
    survival = describe_survival(replay.bounds(), 0)
    reason = describe_flag(replay, 0, contribution=contribution, survival=survival)
    assert reason == told.format("1 similar past case")
    # without that stay action 1 was never seen, and a model learned from the log has a rule for it
    unseen = replace(model, unseen=np.array([[False, True]]))
    replay = bf.Replay(log, unseen, target, behavior=behavior)
    survival = describe_survival(replay.bounds(), 0)
    reason = describe_flag(replay, 0, contribution=contribution, survival=survival)
    assert reason == told.format("0 similar past cases") + (
        " With probability over 99.9% the course under the policy reaches a state and action never "
        "seen together; what follows is assumed, not learned from data."
    )


def test_a_flag_says_over_which_mechanisms_it_keeps_its_sign():
    # the first of the mechanisms' classes is any, the second stable; both observed returns are 0
    spans = np.array([[[0.1, 1.0], [-0.2, 1.0], [-0.5, 1.0]], [[0.2, 0.9], [0.1, 0.9], [-0.1, 1]]])
    bounds = Bounds(
        expected_return=spans,
        probability=np.zeros((2, 3, 1, 2)),
        usual_return=np.zeros(3),
        outcome_names=["none"],
    )
    assert bounds.survives.tolist() == ["any", "stable", ""]
    words = [describe_survival(bounds, i) for i in range(3)]
    assert words[0].endswith("whatever the mechanism: from +0.10 to +1.00.")
    assert words[1].endswith(
        "under every stable mechanism, from +0.10 to +0.90, but not under all mechanisms: from "
        "−0.20 to +1.00."
    )
    assert words[2].startswith("The sign of the difference depends on the choice of mechanism")
    assert "from −0.50 to +1.00" in words[2]
    same = Bounds(np.zeros((2, 1, 2)), np.zeros((2, 1, 1, 2)), np.zeros(1), ["none"])
    assert describe_survival(same, 0).endswith("the same whatever the mechanism.")


# ----------------------------------------------------------------- bounds, evidence, courses


def test_the_audit_has_bounds_that_hold_what_it_says(audit, problem):
    table = audit.episodes
    for name in ("any", "stable"):
        assert (table[f"low_{name}"] <= table["expected_return"] + 1e-9).all()
        assert (table[f"high_{name}"] >= table["expected_return"] - 1e-9).all()
        for outcome in ("died", "discharged", "none"):
            assert (table[f"p_{outcome}_low_{name}"] <= table[f"p_{outcome}"] + 1e-9).all()
            assert (table[f"p_{outcome}_high_{name}"] >= table[f"p_{outcome}"] - 1e-9).all()
    assert (table["low_any"] <= table["low_stable"] + 1e-9).all()
    bounds = bf.Replay(*problem).bounds()
    assert table["survives"].tolist() == bounds.survives.tolist()
    for reason, survives in audit.flagged[["reason", "survives"]].itertuples(index=False):
        assert {"any": "whatever", "stable": "every stable", "": "depends on"}[survives] in reason


def test_evidence_stands_beside_every_episode(audit, problem):
    steps = bf.Replay(*problem).steps()
    np.testing.assert_array_equal(audit.episodes["evidence_min"], steps.evidence_min)
    np.testing.assert_array_equal(audit.episodes["thin_share"], steps.thin_share)
    np.testing.assert_array_equal(audit.episodes["influence"], steps.share_about)


def test_each_observed_step_has_the_similar_cases_of_other_episodes(audit, problem):
    log = problem[0]
    steps = audit.steps[audit.steps["action"] >= 0]
    pairs = steps.groupby(["state", "action"])["id"]
    for (state, action), ids in list(pairs)[:40]:
        mine = steps[(steps["state"] == state) & (steps["action"] == action)]
        for identifier, cases in mine[["id", "evidence"]].itertuples(index=False):
            assert cases == (ids != identifier).sum()
    assert (audit.steps.loc[audit.steps["action"] < 0, "evidence"] == -1).all()
    assert len(steps) == len(log.state)


def test_the_mechanism_reaches_every_counterfactual_estimate(problem):
    log, model, target = problem
    log, soft = log.select(np.arange(60)), bf.soften(target, 0.5)
    model = bf.fit_mdp(log)

    def learn(part):
        fitted = bf.fit_mdp(part)
        return fitted, bf.soften(bf.policy_iteration(fitted).table, 0.5)

    names = ["MB (cross-fitted)", "CF", "CF (cross-fitted)"]
    values = [
        run_audit(
            log,
            model,
            soft,
            mechanism=mechanism,
            learn=learn,
            estimators=names,
            flags=0,
            resamples=2,
            intervals=0,
        ).estimates.set_index("estimator")["value"]
        for mechanism in (bf.GumbelMax(), bf.InverseCDF())
    ]
    assert values[0]["MB (cross-fitted)"] == values[1]["MB (cross-fitted)"]
    for name in names[1:]:
        assert values[0][name] != values[1][name]


def test_controls_are_unflagged_and_shown_like_the_flagged(audit):
    control = audit.episodes["control"]
    assert (audit.episodes["rank"] > 0).sum() == 12
    assert control.sum() == 40
    assert not (control & (audit.episodes["rank"] > 0)).any()
    assert set(audit.draws["id"]) == set(
        audit.episodes.loc[control | (audit.episodes["rank"] > 0), "id"]
    )


def test_courses_are_the_exact_probabilities_of_each_level(audit, problem):
    log = problem[0]
    identifier = audit.flagged["id"].iloc[0]
    place = int(np.flatnonzero(log.id == identifier)[0])
    course = audit.courses[audit.courses["id"] == identifier]
    exact = audit.episodes.set_index("id").loc[identifier]
    ends = course[(course["variable"] == "") & (course["step"] == log.horizon)]
    for outcome in ("died", "discharged"):
        found = ends.loc[ends["level"] == outcome, "probability"].sum()
        assert found == pytest.approx(exact[f"p_{outcome}"])
    # at each step the levels of a variable have the mass that has no outcome yet
    mass = audit.course_steps[audit.course_steps["id"] == identifier].set_index("step")["mass"]
    first = log.state_variables[0].name
    levels = course[course["variable"] == first].groupby("step")["probability"].sum()
    np.testing.assert_allclose(levels.loc[mass.index], mass, atol=1e-12)
    start = course[(course["step"] == 0) & (course["variable"] == first)]
    codes = unravel(log.state_variables, log.first_state[[place]])
    assert start["level"].tolist() == [log.state_variables[0].levels[int(codes[first][0])]]


def test_credible_intervals_stand_in_columns_of_their_own(problem):
    log, model, target = problem
    credible = bf.credible_intervals(log, target, models=4)
    audit = run_audit(log, model, target, flags=2, draws=1, intervals=2, credible=credible)
    np.testing.assert_array_equal(
        audit.episodes[["low_credible", "high_credible"]], credible.expected_return
    )
    table = audit.estimates.set_index("estimator")
    known = credible.estimates.set_index("estimator")
    assert table.loc["MB", "low_credible"] == known.loc["MB", "low"]
    # that of CF is about these episodes, not about the policy
    assert table.loc[["CF", "WIS"], "low_credible"].isna().all()
    means = ["mean_credible", "mean_credible_weaker", "mean_credible_stronger"]
    expected = [credible.mean_return, credible.mean_weaker, credible.mean_stronger]
    np.testing.assert_array_equal(audit.episodes[means].T, expected)
    assert audit.meta.parameters.credible.models == 4
    with pytest.raises(ValueError, match="about 150 episodes, but the log has 10"):
        run_audit(log.select(np.arange(10)), model, target, credible=credible)


def test_actions_are_named_by_what_is_on():
    assert describe_action(bf.sepsis.ACTIONS, 0) == "nothing"
    assert describe_action(bf.sepsis.ACTIONS, 5) == "antibiotics and vasopressors"
    doses = [bf.Variable("fluid", ("none", "much")), bf.Variable("drug", ("none", "half", "full"))]
    assert describe_action(doses, 5) == "fluid much, drug full"
    asked = tuple(bf.Variable(name, ("no", "yes")) for name in ("fluid", "pressor", "oxygen"))
    assert [describe_action(asked, a) for a in (0, 2)] == ["nothing", "pressor"]
    assert describe_action(asked, 7) == "fluid, pressor and oxygen"


def test_no_probability_reads_as_certain():
    assert [percent(p) for p in (0.0, 0.5, 1.0)] == ["under 0.1%", "50%", "over 99.9%"]


# -------------------------------------------------------------------------------- the whole audit


def test_tables_hold_what_the_functions_say(audit, problem, exact):
    log, model, target = problem
    assert audit.episodes["id"].tolist() == log.id.tolist()
    np.testing.assert_array_equal(audit.episodes["p_died"], exact.probability[:, 0])
    np.testing.assert_allclose(
        audit.episodes["unsupported"], bf.Replay(log, model, target).support(), atol=1e-15
    )
    assert audit.flagged["rank"].tolist() == list(range(1, 13))
    assert (audit.flagged["reason"].str.len() > 50).all()
    assert (audit.episodes.loc[audit.episodes["rank"] == 0, "reason"] == "").all()
    assert len(audit.steps) == len(log.state) + len(log)
    first = audit.steps[audit.steps["id"] == 0]
    assert first["step"].tolist() == list(range(log.lengths[0] + 1))
    assert first["action"].tolist() == [*log.action[: log.lengths[0]].tolist(), -1]
    assert {"state.heart rate", "action.ventilation", "target.ventilation", "side.glucose"} <= set(
        audit.steps
    )


def test_draws_are_those_of_sample_counterfactuals(audit, problem):
    log, model, target = problem
    identifier = audit.flagged["id"].iloc[3]
    one, draws = audit.trajectory(identifier)
    alone = bf.Replay(log.select([int(identifier)]), model, target, behavior=audit.behavior).draws(
        3, seed=1
    )
    np.testing.assert_array_equal(draws.state, alone.state)
    np.testing.assert_array_equal(draws.action, alone.action)
    np.testing.assert_array_equal(draws.reward, alone.reward)
    assert one.side["glucose"].tolist() == log.select([int(identifier)]).side["glucose"].tolist()


def test_the_digest_depends_on_the_inputs_only(problem, audit):
    again = run_audit(*problem, flags=3, estimators=["Observed"])
    assert again.meta.digest == audit.meta.digest
    log, model, target = problem
    other = target.copy()
    other[5] = np.roll(other[5], 1)
    assert run_audit(log, model, other, flags=0, estimators=["Observed"]).meta.digest != (
        audit.meta.digest
    )


def test_the_same_seed_gives_the_same_audit(problem, audit):
    again = run_audit(*problem, flags=12, draws=3, seed=1, threads=1)
    for name in SCHEMAS:
        pd.testing.assert_frame_equal(getattr(again, name), getattr(audit, name))


def test_censored_episodes_and_unseen_actions_are_counted_and_told(problem):
    log, model, target = problem
    cut = log.truncate(3).truncate(20)  # three steps each, the horizon twenty
    found = run_audit(cut, model, np.roll(target, 1, axis=1), flags=0, estimators=["Observed"])
    assert found.meta.counts.censored == int((cut.outcome < 0).sum())
    assert "stop before the horizon" in found.meta.warnings[0]
    assert "never taken there" in found.meta.warnings[1]


def test_a_random_target_that_may_do_something_never_seen_is_told(problem):
    log, model, target = problem
    found = run_audit(log, model, bf.soften(target, 0.1), flags=0, estimators=["Observed"])
    assert found.meta.counts.visited_states_with_unseen_target_action > 0


def test_what_is_cross_fitted_is_learned_from_whole_episodes(problem):
    log, model, target = problem
    longest = []

    def learn(part):
        longest.append(part.lengths.max())
        fitted = bf.fit_mdp(part)
        return fitted, bf.policy_iteration(fitted).table

    run_audit(log, model, target, learn=learn, horizon=6, flags=0)
    assert max(longest) == log.lengths.max() > 6


def test_episodes_given_twice_come_back_twice(problem, tmp_path):
    log, model, target = problem
    twice = log.select([0, 0, 1, 2])
    found = run_audit(twice, model, target, flags=0, estimators=["Observed"])
    found.save(tmp_path / "audit")
    assert Audit.load(tmp_path / "audit").log().lengths.tolist() == twice.lengths.tolist()


def test_an_audit_without_a_review_has_no_draws(problem):
    found = run_audit(*problem, review_size=0, estimators=["Observed"])
    assert len(found.draws) == 0
    assert len(found.flagged) == 0
    with pytest.raises(ValueError, match="no drawn trajectories"):
        found.trajectory(5)


# ------------------------------------------------------------------------------------- the folder


def test_an_audit_comes_back_from_its_folder(audit, problem, tmp_path):
    folder = audit.save(tmp_path / "audit")
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["meta.json", "model.npz", *(f"{name}.parquet" for name in SCHEMAS)]
    )
    loaded = Audit.load(folder)
    assert loaded.meta == audit.meta
    for name in SCHEMAS:
        pd.testing.assert_frame_equal(
            getattr(loaded, name), getattr(audit, name), check_dtype=False, check_categorical=False
        )
    np.testing.assert_array_equal(loaded.model.probability, audit.model.probability)
    assert loaded.model.outcomes == audit.model.outcomes
    log = problem[0]
    columns = ("state", "action", "next_state", "reward", "offsets", "outcome", "final_key")
    for column in columns:
        np.testing.assert_array_equal(getattr(loaded.log(), column), getattr(log, column))
    pd.testing.assert_frame_equal(loaded.log().side, log.side)
    assert loaded.log().state_variables == log.state_variables


def test_identifiers_and_labels_stay_text(tmp_path):
    names = ["=1+1", '<script>"x"</script>', "ü" * 50]
    log = bf.Episodes.from_arrays(
        [0, 1, 0],
        [0, 1, 1],
        [1, 0, 1],
        offsets=[0, 1, 2, 3],
        outcome=[0, 1, 0],
        outcomes=[bf.Outcome("<b>died</b>", -1), bf.Outcome("home", 1)],
        states=[bf.Variable("a'b", ("<x>", "=y"))],
        actions=2,
        id=names,
    )
    model = bf.fit_mdp(log)
    run_audit(log, model, bf.policy_iteration(model).table, draws=1).save(tmp_path / "audit")
    loaded = Audit.load(tmp_path / "audit")
    assert loaded.episodes["id"].tolist() == names
    assert loaded.episodes["observed_outcome"].tolist() == ["<b>died</b>", "home", "<b>died</b>"]
    assert loaded.steps["state.a'b"].tolist()[:2] == ["<x>", "=y"]


def test_an_audit_is_not_overwritten_unless_asked_and_reviews_stay(audit, tmp_path):
    folder = audit.save(tmp_path / "audit")
    (folder / "reviews.sqlite").write_bytes(b"verdicts")
    with pytest.raises(FileExistsError, match="already exists"):
        audit.save(folder)
    audit.save(folder, overwrite=True)
    assert (folder / "reviews.sqlite").read_bytes() == b"verdicts"
    assert [path.name for path in tmp_path.iterdir()] == ["audit"]


def test_a_folder_that_is_no_audit_is_never_replaced(audit, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"it has no meta\.json"):
        audit.save(tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis" / "chapter.txt").exists()


def test_loading_says_what_is_missing(audit, tmp_path):
    folder = audit.save(tmp_path / "audit")
    os.remove(folder / "draws.parquet")
    with pytest.raises(FileNotFoundError, match=r"no draws\.parquet"):
        Audit.load(folder)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        Audit.load(tmp_path / "nowhere")


@pytest.mark.parametrize("pieces", few([7, 100], 1))
def test_the_same_rows_give_the_same_bytes_however_they_come(pieces, tmp_path):
    count = 2 * ROW_GROUP + 1000
    row = np.arange(count)
    frame = pd.DataFrame(
        {
            "id": [f"stay {number}" for number in row],
            "state": (row % 7).astype(np.int32),
            "reward": np.where(row % 5, row / 3, np.nan),
            "survives": np.where(row < count - 500, "every mechanism", None),  # null late only
            "level": pd.Categorical.from_codes(row % 3 - 1, ["low", "high"], ordered=True),
        }
    )
    write_table(tmp_path / "whole.parquet", "steps", frame)
    schema = as_arrow("steps", frame).schema
    cuts = np.linspace(0, count, pieces + 1).astype(int)
    with TableWriter(tmp_path / "pieces.parquet", schema) as file:
        for start, stop in pairwise(cuts):
            file.write(as_arrow("steps", frame.iloc[start:stop]))
    written = (tmp_path / "whole.parquet").read_bytes()
    assert written == (tmp_path / "pieces.parquet").read_bytes()
    metadata = pa.parquet.read_metadata(tmp_path / "whole.parquet")
    sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert sizes == [ROW_GROUP, ROW_GROUP, 1000]


@pytest.mark.parametrize("name", SCHEMAS)
def test_tables_have_the_declared_types_whatever_their_cells(audit, name, tmp_path):
    for frame in (getattr(audit, name), getattr(audit, name)[:0]):
        write_table(tmp_path / "table.parquet", name, frame)
        found = pa.parquet.read_schema(tmp_path / "table.parquet")
        for field in SCHEMAS[name]:
            assert found.field(field.name).type == field.type, field.name
        again = pd.read_parquet(tmp_path / "table.parquet")
        if len(frame):
            expected = frame.reset_index(drop=True)
            pd.testing.assert_frame_equal(
                again, expected, check_dtype=False, check_frame_type=False
            )


def test_rows_of_another_type_are_refused_and_the_file_is_closed(tmp_path):
    path = tmp_path / "some.parquet"
    with (
        pytest.raises(pa.ArrowInvalid, match="Failed to parse"),
        TableWriter(path, pa.schema({"id": pa.int64()})) as file,
    ):
        file.write(pa.table({"id": ["a"]}))
    assert pa.parquet.read_metadata(path).num_rows == 0


def test_meta_is_plain_json(audit):
    assert Meta.model_validate_json(audit.meta.content({})) == audit.meta


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"flags": -1}, "flags -1"),
        ({"seed": -1}, "seed -1"),
        ({"estimators": ["magic wand"]}, "magic wand"),
        ({"target": np.ones((3, 8))}, r"\(3, 8\), expected \(144, 8\)"),
        ({"behavior": np.full((144, 8), 0.5)}, "behavior: state 0 sums to 4"),
        ({"draws": -2}, "draws -2"),
        ({"learn": bf.fit_mdp}, "learn returned TabularMDP; it must take episodes"),
    ],
)
def test_bad_requests_are_refused(problem, arguments, message):
    log, model, target = problem
    with pytest.raises(ValueError, match=message):
        run_audit(log, model, **({"target": target} | arguments))
