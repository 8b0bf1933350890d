"""A plan knows which episodes taught it, and is not praised by them."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import butfor as bf
from butfor.audit.settings import AuditSettings
from butfor.audit.shards.run import audit_shards
from butfor.audit.source import audit_log
from butfor.evaluate.estimators.table import CROSS_FITTED
from butfor.evaluate.intervals import LEARNED
from butfor.log.write import write_episodes
from butfor.replay.engine import fit_again
from tests.builders import random_log, small_world
from tests.support import simulate_log

NAMES = ["Observed", "WIS", "FQE", "MB", "CF", *CROSS_FITTED]
QUICK = {"estimators": NAMES, "resamples": 20}


def simulate(seed, episodes=60):
    world = small_world()
    behavior = np.full((world.n_states, world.n_actions), 1 / world.n_actions)
    return simulate_log(np.random.default_rng(seed), world, behavior, episodes, 5)


@pytest.fixture(scope="module")
def log():
    return simulate(0)


@pytest.fixture(scope="module")
def model(log):
    return bf.fit_mdp(log)


@pytest.fixture(scope="module")
def plan(model):
    return bf.policy_iteration(model)


def intervals(table):
    """The names of estimates that have an interval."""
    return {row.estimator for row in table.itertuples() if np.isfinite(row.low)}


def test_a_plan_is_not_praised_by_the_episodes_that_taught_it(log, model, plan):
    found = bf.estimate_values(log, model, plan, **QUICK)
    assert intervals(found) == {"Observed", *CROSS_FITTED}
    plain = found.set_index("estimator").loc[["WIS", "FQE", "MB", "CF"]]
    assert plain["warning"].str.startswith(LEARNED).all()
    assert plain[["low_these", "high_these"]].isna().all(axis=None)


def test_it_is_cross_fitted_by_its_own_recipe(log, model, plan):
    def learn(part):
        learned = bf.fit_mdp(part)
        return learned, bf.policy_iteration(learned)

    found = bf.estimate_values(log, model, plan, **QUICK)
    pd.testing.assert_frame_equal(
        found, bf.estimate_values(log, model, plan, learn=learn, **QUICK), check_exact=True
    )
    pd.testing.assert_frame_equal(  # nor does it matter that an array does not know
        found, bf.estimate_values(log, model, plan.table, learn=learn, **QUICK), check_exact=True
    )


def test_a_fixed_policy_has_its_interval(log, model, plan):
    names = NAMES[:-2]
    found = bf.estimate_values(log, model, plan.table, estimators=names, resamples=20)
    assert intervals(found) == set(names)
    assert not bf.Replay(log, model, plan.table).learned_here


def test_what_is_not_asked_for_by_name_is_no_way_around(log, model, plan):
    found = bf.estimate_values(log, model, plan, estimators=["MB"])
    assert intervals(found) == set()
    found = bf.estimate_values(log, model, plan.table, estimators=["MB"], learn=plan.recipe)
    assert intervals(found) == set()


def test_episodes_held_out_are_another_log(log):
    taught, held_out = log.select(np.arange(30)), log.select(np.arange(30, 60))
    plan = bf.policy_iteration(bf.fit_mdp(taught))
    model = bf.fit_mdp(held_out)
    names = NAMES[:-2]
    assert intervals(bf.estimate_values(held_out, model, plan, estimators=names)) >= {"MB", "CF"}
    met = log.select(np.arange(29, 60))  # one of them taught it
    assert intervals(bf.estimate_values(met, model, plan, **QUICK)) == {"Observed", *CROSS_FITTED}


def test_parts_and_views_of_a_log_keep_where_it_comes_from(log, plan):
    parts = (
        log.select([3, 3, 5]),
        log.truncate(2),
        log.cut(np.ones(len(log), int)),
        log.with_step(),
        log.widen(),
        replace(log, reward=log.reward + 1),
        pickle.loads(pickle.dumps(log)),
    )
    assert {part.origin for part in parts} == {log.origin}
    assert all(plan.meets(part) for part in parts)
    wide = random_log(np.random.default_rng(0))
    assert wide.hide(wide.state_variables[0].name).origin == wide.origin


def test_another_log_with_the_same_ids_is_another_log(plan, log):
    other = simulate(1)
    np.testing.assert_array_equal(other.id, log.id)
    assert not plan.meets(other)
    assert plan.meets(simulate(0))  # the same, simulated again
    one, two = (bf.sepsis.simulate(bf.sepsis.behavior_policy(), 9, seed=s) for s in (0, 1))
    assert one.origin != two.origin


@pytest.mark.parametrize(
    "ids", [list("abcd"), pd.date_range("2020-01-01", periods=4), [7, 1, 4, 2]]
)
def test_a_log_that_is_read_again_is_the_same(ids):
    frame = pd.DataFrame(
        {
            "episode": np.repeat(ids, 2),
            "state": list("xyxyyxyy"),
            "action": list("ababbaba"),
            "outcome": [None, "well"] * 4,
        }
    )

    def read(frame):
        return bf.Episodes.from_frame(frame, outcomes=[bf.Outcome("well", 1.0)])

    one, two = read(frame), read(frame)
    assert one.origin == two.origin
    assert read(frame.assign(state=list("xyxyyxyx"))).origin == one.origin  # as by other cuts
    assert read(frame.assign(action=list("ababbabb"))).origin != one.origin
    plan = bf.policy_iteration(bf.fit_mdp(one.select([0, 2])))
    assert [plan.meets(two.select([episode])) for episode in range(4)] == [True, False] * 2


def test_it_is_used_like_an_array(log, model, plan):
    table = plan.table
    assert isinstance(table, np.ndarray)
    for found in (np.asarray(plan), np.array(plan), plan[:], plan + 0, 1.0 * plan):
        assert type(found) is np.ndarray  # which no longer knows where it comes from
        np.testing.assert_array_equal(found, table)
    assert (plan.shape, plan.ndim, len(plan)) == (table.shape, 2, len(table))
    assert plan.argmax(axis=1).tolist() == table.argmax(axis=1).tolist()
    assert (plan == table).all()
    assert np.asarray(plan, dtype=np.float32).dtype == np.float32
    assert [row.tolist() for row in plan] == table.tolist()
    assert bf.policy_value(model, plan, horizon=3) == bf.policy_value(model, table, horizon=3)
    asked = [bf.Replay(log, model, p, behavior=bf.soften(p, 0.3)) for p in (plan, table)]
    np.testing.assert_array_equal(*(one.outcomes().expected_return for one in asked))
    with pytest.raises(TypeError):
        plan += 1
    with pytest.raises(AttributeError):
        plan.nonsense  # noqa: B018


def test_a_question_keeps_its_plan(log, model, plan):
    replay = bf.Replay(log, model, plan)
    for asked in (replay.ask(seed=3), replay.part([1, 2]), replay.pin_behavior()):
        assert asked.plan is plan
        assert asked.learned_here
    assert replay.ask(target=plan.table).plan is None


def test_what_is_made_of_a_plan_stays_a_plan(log, plan):
    softened = bf.soften(bf.soften(plan, 0.1), 0.2)
    assert isinstance(softened, bf.Plan)
    np.testing.assert_array_equal(softened, bf.soften(bf.soften(plan.table, 0.1), 0.2))
    half = log.select(np.arange(30))
    model, again = softened.recipe(half)
    expected = bf.soften(bf.soften(bf.policy_iteration(bf.fit_mdp(half)).table, 0.1), 0.2)
    np.testing.assert_array_equal(again, expected)
    assert again.recipe.model is model
    assert not again.meets(log.select(np.arange(30, 60)))


def test_a_plan_by_step_and_under_rules_is_made_again(log):
    counted = log.with_step()
    rules = bf.Rules(never=[{"step": ["0", "1"], "action": "1"}])
    allowed = rules.allowed(counted.state_variables, counted.action_variables)
    options = {"caution": bf.Caution(least_cases=2), "allowed": allowed, "discount": 0.9}
    plan = bf.policy_iteration(bf.fit_factored(counted), **options)
    assert bf.Replay(counted, bf.fit_factored(counted), plan).learned_here
    part = counted.select(np.arange(20))
    _, again = plan.recipe(part)
    # what is known for certain is that of the whole log
    known = {"step": plan.recipe.model.factor("step")}
    expected = bf.policy_iteration(bf.fit_factored(part, known=known), **options)
    np.testing.assert_array_equal(again, expected)
    assert (np.asarray(again)[~allowed] == 0).all()
    by_step = plan.change(lambda table: table.reshape(6, -1, table.shape[1])[:-1])  # [T, S, A]
    assert bf.Replay(counted, bf.fit_factored(counted), by_step).learned_here


def assert_same_model(one, other):
    assert type(one) is type(other)
    arrays, expected = one.stored_arrays(), other.stored_arrays()
    assert list(arrays) == list(expected)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def elsewhere():
    return bf.fit_factored(random_log(np.random.default_rng(5), episodes=60))


def first_ends(codes):
    return np.array([[0.2, 0.1, 0.7], [0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])[codes["next.pulse"]]


@pytest.mark.parametrize(
    "fit",
    [
        lambda part: bf.fit_mdp(part, unseen="home", prior=0.5),
        lambda part: bf.fit_mdp(part, terminal="icml2019", unseen="self-loop"),
        lambda part: bf.fit_mdp(part, labels=np.arange(12)[::-1]),
        lambda part: bf.fit_factored(
            part,
            parents={"sugar": ["pulse"], "": ["next.pulse"]},
            order=["pulse", "sugar"],
            ends=first_ends,
        ),
        lambda part: bf.fit_factored(
            part, known={"pulse": (("pulse",), np.full((3, 3), 1 / 3))}
        ).tabular(),
        lambda part: bf.fit_factored(part, known={"pulse": elsewhere().factor("pulse")}),
    ],
    ids=["prior", "icml2019", "labels", "ends", "known, tabular", "learned elsewhere"],
)
def test_a_recipe_lacks_nothing_of_what_was_given(fit):
    log = random_log(np.random.default_rng(3), episodes=60)
    half = log.select(np.arange(0, 60, 2))
    plan = bf.policy_iteration(fit(log))
    model, again = plan.recipe(half)
    expected = fit(half)
    assert_same_model(model, expected)
    np.testing.assert_array_equal(again, bf.policy_iteration(expected))


def test_checks_on_half_of_a_log_keep_what_was_learned_elsewhere():
    log, pulse = random_log(np.random.default_rng(3), episodes=60), elsewhere().factor("pulse")
    again = fit_again(bf.fit_factored(log, known={"pulse": pulse}), log.select(np.arange(30)))
    np.testing.assert_array_equal(again.factor("pulse").table, pulse.table)


def test_what_never_changed_in_the_whole_log_is_known_in_its_parts():
    log = random_log(np.random.default_rng(3))  # of which sex never changes
    model = bf.fit_factored(log)
    assert model.factor("sex").source == "static"
    assert bf.policy_iteration(model).recipe(log.select([0]))[0].factor("sex").source == "static"


def test_the_model_in_question_is_learned_again_in_its_own_way():
    log = random_log(np.random.default_rng(4), episodes=60)
    plan = bf.policy_iteration(bf.fit_mdp(log))
    factored = bf.fit_factored(log)

    def learn(part):
        known = {"sex": factored.factor("sex")}
        return bf.fit_factored(part, known=known), bf.policy_iteration(bf.fit_mdp(part))

    asked = {"estimators": ["MB", *CROSS_FITTED]}
    found = bf.estimate_values(log, factored, plan, **asked)
    expected = bf.estimate_values(log, factored, plan, learn=learn, **asked)
    pd.testing.assert_frame_equal(found, expected, check_exact=True)
    given = replace(factored, taught=None, counts=np.zeros_like(factored.counts))
    found = bf.estimate_values(log, given, plan, **asked)
    expected = bf.estimate_values(log, given, plan, learn=lambda part: (given, learn(part)[1]))
    rows = expected["estimator"].isin(CROSS_FITTED)
    assert found["value"].tolist()[1:] == expected["value"][rows].tolist()


def test_a_plan_of_a_model_that_no_log_taught_is_fixed(log, model):
    plan = bf.policy_iteration(small_world())
    assert not bf.Replay(log, model, plan).learned_here
    with pytest.raises(ValueError, match="not learned from a log, as far as butfor can know"):
        plan.recipe(log)


def test_comparisons_know_it_too(log, model, plan):
    fixed = np.full_like(plan.table, 1 / plan.shape[1])
    replays = {"usual": bf.Replay(log, model, fixed), "plan": bf.Replay(log, model, plan)}
    found = bf.compare_policies(replays, resamples=20)
    assert found["low"].isna().all()
    named = LEARNED.replace("no interval", "no interval, because of plan")
    assert (found["warning"][found["policy"] == "plan"] == named).all()
    found = bf.compare_policies(dict(reversed(replays.items())), resamples=20)
    assert (found["warning"][found["policy"] == "usual"] == named).all()  # not because of itself
    replays["plan"] = bf.Replay(log, model, plan.table)
    assert bf.compare_policies(replays, resamples=20)["low"].notna().any()


def test_credible_intervals_of_its_value_are_none_either(log, model, plan):
    for target, known in ((plan, False), (plan.table, True)):
        found = bf.credible_intervals(bf.Replay(log, model, target), models=5)
        ends = found.estimates.set_index("estimator").loc["MB", ["low", "high"]].astype(float)
        assert np.isfinite(ends).all() == known
        assert np.isfinite(found.expected_return).all()  # of single episodes


@pytest.mark.parametrize("seed", [0, 1])
def test_an_audit_says_where_its_policy_comes_from(log, model, seed):
    quick = {"flags": 2, "draws": 1, "resamples": 5, "estimators": ["Observed", "MB"]}
    taught = simulate(seed)
    plan = bf.policy_iteration(bf.fit_mdp(taught))
    audit = bf.run_audit(log, model, plan, **quick)
    here = "learned from this log"
    assert audit.meta.target == (here if seed == 0 else "learned from other episodes")
    assert np.isfinite(audit.estimates["low"]).tolist() == [True, seed == 1]
    audit = bf.run_audit(log, model, plan.table, **quick)
    assert audit.meta.target == "given, fixed before this log was seen as far as butfor can know"


def obvious_log(episodes):
    """Of two treatments one nearly always helps, which every half of the log shows."""
    generator = np.random.default_rng(0)
    action = np.arange(episodes) % 2
    return bf.Episodes.from_arrays(
        np.zeros(episodes, int),
        action,
        np.zeros(episodes, int),
        offsets=np.arange(episodes + 1),
        states=1,
        actions=2,
        outcome=np.where(generator.random(episodes) < 0.9, action, 1 - action),
        outcomes=[bf.Outcome("died", -1.0), bf.Outcome("home", 1.0)],
        id=[f"stay {number:02d}" for number in range(episodes)],
    )


@pytest.mark.parametrize("episodes", [2, 80])
def test_a_learned_target_has_no_interval_in_memory_or_in_shards(episodes, tmp_path):
    path, study = tmp_path / "log.parquet", tmp_path / "study.toml"
    write_episodes(obvious_log(episodes), path, study)
    settings = AuditSettings(flags=2, rehearsal=False, draws=1)
    # two episodes are in the same half of the shards, or in the same half of some split
    shards = bf.Audit.load(audit_shards(path, study, tmp_path / "out", settings))
    full = audit_log(path, study, flags=2, draws=1, models=0)
    for audit in (full, shards):
        table = audit.estimates.set_index("estimator")
        assert table.loc[["WIS", "MB", "CF"], "low"].isna().all()
        assert (audit.meta.target, table.index.isin(CROSS_FITTED).sum()) == (
            "learned from this log",
            2,
        )


def test_it_prints_what_it_is(log, model, plan):
    said = repr(bf.soften(bf.policy_iteration(model, caution=bf.Caution()), 0.1))
    assert said.splitlines() == [
        "Plan: 3 states, 2 actions",
        "  made by    policy_iteration(discount=0.99, caution=Caution(bad_cases=2.0, "
        "least_cases=0, risk=None)), then softened",
        "  model      TabularMDP",
        f"  taught by  60 episodes of log {log.origin[:8]}",
    ]
    allowed = np.ones((3, 2), dtype=bool)
    assert "allowed=array (3, 2)" in repr(bf.policy_iteration(model, allowed=allowed))
    assert repr(pickle.loads(pickle.dumps(plan))) == repr(plan)
    assert "no log that butfor knows" in repr(bf.policy_iteration(small_world()))
