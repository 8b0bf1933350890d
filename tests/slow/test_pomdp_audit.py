"""Audits where the state is hidden: the same folder, report and tables as any other."""

import numpy as np
import pytest

import butfor as bf
from butfor.evaluate.warn import consistency

VERSION = "icml2019"


@pytest.fixture(scope="module")
def made():
    behavior = bf.hidden.LatentPolicy(bf.sepsis.behavior_policy(VERSION))
    log = bf.sepsis.simulate(behavior.table, 60, seed=3, version=VERSION)
    log = log.hide("glucose", "diabetes")
    model = bf.sepsis.pomdp(VERSION)
    target = bf.policy_iteration(bf.fit_mdp(log), discount=0.99).table
    few = {"flags": 5, "review_size": 10, "intervals": 10, "draws": 3, "resamples": 50}
    audit = bf.run_audit(log, model, target, behavior=behavior, **few)
    return log, model, target, behavior, audit


def test_numbers_of_an_audit_are_those_of_the_functions(made):
    log, model, target, behavior, audit = made
    replay = bf.Replay(log, model, target, behavior=behavior)
    result = replay.outcomes()
    np.testing.assert_array_equal(audit.episodes["expected_return"], result.expected_return)
    value = audit.estimates.set_index("estimator")["value"]
    assert list(value.index) == ["Observed", "MB", "CF"]
    assert value["CF"] == pytest.approx(result.expected_return.mean())
    assert value["MB"] == pytest.approx(replay.engine.first_values().mean())
    checks = audit.diagnostics.set_index("check")["value"]
    assert list(checks.index) == [
        "overlap",
        "consistency",
        "hidden state",
        "rows in common",
        "influence",
        "null check",
        "hidden causes",
    ]
    assert checks["consistency"] == pytest.approx(abs(consistency(replay)))
    posterior = bf.hidden.latent_posterior(log, model, behavior=behavior)
    assert checks["hidden state"] == pytest.approx(posterior.entropy.mean())
    assert abs(audit.meta.decomposition_gap) < 1e-9


def test_an_audit_comes_back_from_its_folder(made, tmp_path):
    _, model, _, _, audit = made
    again = bf.Audit.load(audit.save(tmp_path / "audit"))
    assert isinstance(again.model, bf.hidden.TabularPOMDP)
    assert again.meta == audit.meta
    for name in ("start", "next_state", "probability", "reward", "labels", "initial"):
        expected = getattr(model.dynamics, name)
        np.testing.assert_array_equal(getattr(again.model.dynamics, name), expected)
    assert (again.model.emission != model.emission).nnz == 0
    np.testing.assert_array_equal(again.model.outcome, model.outcome)
    assert again.model.state_variables == model.state_variables
    for name in ("episodes", "courses", "steps", "estimates", "diagnostics"):
        assert getattr(again, name).equals(getattr(audit, name)), name


def test_courses_tell_what_was_hidden_in_both_worlds(made):
    log, model, target, behavior, audit = made
    hidden = audit.courses[audit.courses["variable"].isin(["glucose", "diabetes"])]
    happened = hidden[hidden["world"] == "observed"]
    totals = happened.groupby(["id", "step", "variable"])["probability"].sum()
    np.testing.assert_allclose(totals, 1.0, atol=1e-12)
    under = hidden[hidden["world"] == "target"].groupby(["id", "step", "variable"])
    mass = audit.course_steps.set_index(["id", "step"])["mass"]
    for (name, step, _), probability in under["probability"].sum().items():
        if (name, step) in mass:
            assert probability == pytest.approx(mass[name, step], abs=1e-12)
    # at the start both worlds are one
    first = hidden[hidden["step"] == 0].pivot(
        index=["id", "variable", "level"], columns="world", values="probability"
    )
    np.testing.assert_allclose(first["observed"], first["target"], atol=1e-12)
    one = int(np.flatnonzero(audit.episodes["rank"] == 1)[0])
    walked = bf.Replay(log.select([one]), model, target, behavior=behavior).steps(probability=True)
    assert walked.latent.shape == (1, log.horizon + 1, model.n_states)
    np.testing.assert_allclose(walked.probability.sum(axis=2), 1.0, atol=1e-12)


def test_the_report_of_a_hidden_state_is_written_as_any_other(made, tmp_path):
    audit = made[-1]
    path = tmp_path / "report.html"
    bf.write_report(audit, path)
    assert "glucose" in path.read_text()


def test_only_targets_on_the_last_observation_are_audited(made):
    log, model, _, behavior, _ = made
    with pytest.raises(ValueError, match="an audit evaluates a policy on the last observation"):
        bf.run_audit(log, model, behavior, behavior=behavior)


def test_the_behavior_that_was_given_is_kept_and_counts_in_the_digest(made, tmp_path):
    log, model, target, behavior, audit = made
    again = bf.Audit.load(audit.save(tmp_path / "audit"))
    np.testing.assert_allclose(again.latent_behavior, behavior.table, rtol=1e-15)
    result = bf.Replay(
        again.log(),
        again.model,
        again.target,
        behavior=bf.hidden.LatentPolicy(again.latent_behavior),
    ).outcomes()
    np.testing.assert_array_equal(result.expected_return, audit.episodes["expected_return"])
    few = log.select(np.arange(2))
    seen = bf.soften(bf.estimate_behavior(log), 0.3)
    least = {"flags": 1, "review_size": 1, "intervals": 1, "draws": 0, "resamples": 5}
    digests = set()
    for given in (None, seen, behavior, bf.hidden.LatentPolicy(bf.soften(behavior.table, 0.1))):
        small = bf.run_audit(few, model, target, behavior=given, **least)
        digests.add(small.meta.digest)
        if given is seen:
            np.testing.assert_allclose(small.behavior, seen, atol=1e-15)
    assert len(digests) == 4


def test_values_from_first_observations_average_to_the_value_of_the_model(made):
    log, model, target, _, _ = made
    value = bf.hidden.pomdp_value(model, target, horizon=log.horizon)
    seen = model.initial @ model.emission.toarray()
    shown = np.flatnonzero(seen)
    one_each = bf.Episodes.from_arrays(
        shown,
        np.zeros(len(shown), int),
        shown,
        offsets=np.arange(len(shown) + 1),
        states=log.state_variables,
        actions=log.action_variables,
        outcomes=log.outcomes,
        horizon=log.horizon,
    )
    of_each = bf.Replay(one_each, model, target, action_noise="fresh").engine.first_values()
    assert seen[shown] @ of_each == pytest.approx(value, abs=1e-12)
