"""Like for like: a policy that changes nothing differs from no episode, censored or not."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

import butfor as bf
from butfor.audit.settings import AuditSettings
from butfor.audit.source import audit_into
from butfor.evaluate.bootstrap import resample_weights
from butfor.models.planning import state_values
from butfor.replay.outcomes import rank_flags
from tests import clinic, factored, support, wide

SHARE = 0.4  # of the episodes are cut off


def lose(log: bf.Episodes, seed: int = 0) -> bf.Episodes:
    """Cut off a share of the episodes after any of their steps but the last."""
    rng = np.random.default_rng(seed)
    long = rng.permutation(np.flatnonzero(log.lengths > 1))[: round(SHARE * len(log))]
    steps = np.full(len(log), log.horizon)
    steps[long] = 1 + rng.integers(0, log.lengths[long] - 1)
    return log.cut(steps)


def tabular_case():
    rng = np.random.default_rng(0)
    model = support.random_model(rng)
    behavior = support.random_policy(rng, model)
    log = support.simulate_log(rng, model, behavior, 60, 8)
    return support.vary_rewards(log), model, behavior


def factored_case():
    model = factored.clinic_model(np.random.default_rng(1))
    rng = np.random.default_rng(2)
    behavior = rng.dirichlet(np.ones(model.n_actions), size=model.n_states)
    log = factored.simulate_factored(rng, model, behavior, 60, 8)
    return support.vary_rewards(log), model, behavior


def hidden_case():
    model = replace(clinic.clinic().model(), reward_seen=False)
    behavior = bf.hidden.LatentPolicy(clinic.clinician(model))
    log = clinic.simulate(model, behavior.table, 60, horizon=6)
    return support.vary_rewards(log), model, behavior


CASES = {"tabular": tabular_case, "factored": factored_case, "hidden": hidden_case}


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("censored", ["continue", "cut"])
def test_a_policy_that_changes_nothing_differs_from_no_episode(kind, censored):
    log, model, behavior = CASES[kind]()
    lost = lose(log)
    replay = bf.Replay(lost, model, behavior, behavior=behavior, censored=censored)
    assert replay.stopped.mean() == pytest.approx(SHARE)
    found = replay.outcomes()
    assert np.abs(found.difference).max() < 1e-12
    assert (found.most_likely == found.usual_outcome).all()
    assert not rank_flags(found, 10).any()


def test_a_policy_estimated_from_the_log_differs_from_no_episode_of_it_either():
    log, model, _ = tabular_case()
    lost = lose(log)
    found = bf.Replay(lost, model, bf.estimate_behavior(lost)).outcomes()
    assert np.abs(found.difference).max() < 1e-12


def test_a_wide_log_whose_policy_changes_nothing_stays_as_it_is():
    lost = support.vary_rewards(lose(wide.simulate(0, 40).log))
    model = bf.fit_factored(lost)
    found = bf.Replay(lost, model, wide_policy, behavior=wide_policy).outcomes()
    assert np.abs(found.difference).max() < 1e-12


def wide_policy(codes):
    return wide.cautious(np.asarray(codes))


def test_what_is_compared_is_the_record_and_then_the_behavior_in_the_model():
    log, model, behavior = tabular_case()
    lost = lose(log)
    replay = bf.Replay(lost, model, behavior[:, ::-1].copy(), behavior=behavior)
    for episode in range(len(lost)):
        one = lost.select([episode])
        length, expected = int(one.lengths[0]), one.returns(1.0)[0]
        if replay.stopped[episode]:
            left = state_values(model, behavior, horizon=log.horizon - length)
            expected += left[one.next_state[-1]]
        assert replay.usual_return[episode] == pytest.approx(expected, abs=1e-12)


def test_the_hazard_is_the_share_of_those_who_come_to_a_state_and_are_lost_there():
    log = lose(tabular_case()[0])
    came, went = np.zeros((2, log.n_states))
    for first, last, outcome in zip(log.offsets[:-1], log.offsets[1:], log.outcome, strict=True):
        for row in range(first + 1, last):
            came[log.state[row]] += 1
        if outcome < 0 and last - first < log.horizon:
            came[log.next_state[last - 1]] += 1
            went[log.next_state[last - 1]] += 1
    expected = went / np.maximum(came, 1)
    np.testing.assert_allclose(bf.censoring_hazard(log), expected, atol=1e-15)


@pytest.mark.parametrize(
    ("hazard", "message"),
    [([0.1], "hazard has shape"), ([0.1, 0.2, 0.3, 1.4], "from 0 to 1")],
)
def test_hazards_that_fit_no_state_are_refused(hazard, message):
    log, model, behavior = tabular_case()
    with pytest.raises(ValueError, match=message):
        bf.Replay(log, model, behavior, behavior=behavior, hazard=hazard)


# ------------------------------------------------------------------------------ the study file


@pytest.fixture
def files(tmp_path):
    """A log with lost patients, its study file, and a function that changes the latter."""
    bf.write_episodes(lose(tabular_case()[0]), tmp_path / "log.csv", tmp_path / "study.toml")
    study = (tmp_path / "study.toml").read_text()

    def choose(words):
        (tmp_path / "study.toml").write_text(
            study.replace("[evaluation]", f"[evaluation]\n{words}")
        )
        return tmp_path / "log.csv", tmp_path / "study.toml"

    return choose


def test_being_lost_can_be_an_outcome_of_its_own(files):
    paths = files('censored = "outcome"')
    log = bf.read_episodes(*paths)
    assert [outcome.name for outcome in log.outcomes][-1] == "lost to follow-up"
    assert (log.outcome == len(log.outcomes) - 1).mean() == pytest.approx(SHARE)
    assert not ((log.outcome < 0) & (log.lengths < log.horizon)).any()


@pytest.mark.parametrize("words", ['censored = "cut"', 'censoring = "ipcw"', ""])
def test_an_audit_in_shards_treats_the_lost_as_one_in_memory_does(files, words, tmp_path):
    paths = files(words)
    found = {}
    for detail in ("full", "summary"):
        found[detail] = audit_into(
            *paths,
            tmp_path / detail,
            AuditSettings(models=0, detail=detail, intervals=10, rehearsal=False),
        )
    full, summary = found.values()
    assert full.meta.parameters == summary.meta.parameters
    shared = ("observed_return", "difference", "usual_outcome", "rank")
    continued = () if "cut" in words else ("usual_return", "recorded_share")
    assert ("usual_return" in found["full"].episodes) == bool(continued)
    for name in (*shared, *continued):
        ours, theirs = full.episodes[name], summary.episodes[name]
        assert (ours == theirs).all() or np.allclose(ours, theirs, rtol=0, atol=1e-12), name
    ours, theirs = (a.estimates.set_index("estimator")["value"] for a in (full, summary))
    rows = () if "cut" in words else ("Observed, continued",)
    assert ours.index.isin(["Observed, continued"]).sum() == len(rows)
    for name in ("Observed", *rows, "IS", "PDIS", "DR", "CF"):
        assert ours[name] == pytest.approx(theirs[name], abs=1e-12), name
    if rows:
        assert full.meta.usual_chances == pytest.approx(summary.meta.usual_chances, abs=1e-12)
        assert (
            full.conclusion.sentence.partition(" of ")[0]
            == (summary.conclusion.sentence.partition(" of ")[0])
        )
        both = [
            a.estimates.set_index("estimator").loc[["Observed", *rows]] for a in (full, summary)
        ]
        assert both[0]["warning"].tolist() == both[1]["warning"].tolist()
        for table in both:  # their groups of episodes differ, so the intervals do
            width = table["high"] - table["low"]
            assert width[rows[0]] > width["Observed"]
            assert (table["low"] < table["value"]).all()
            assert (table["value"] < table["high"]).all()
    checks = full.diagnostics.set_index("check")
    assert checks.loc["null check", "light"] == "green"


def test_weights_for_the_lost_need_states_that_occur_more_than_once(tmp_path):
    bf.write_episodes(lose(wide.simulate(0, 40).log), tmp_path / "log.csv", tmp_path / "s.toml")
    text = (tmp_path / "s.toml").read_text()
    (tmp_path / "s.toml").write_text(
        text.replace("[evaluation]", '[evaluation]\ncensoring = "ipcw"')
    )
    with pytest.raises(ValueError, match="hardly a state of this log occurs twice"):
        bf.audit_log(tmp_path / "log.csv", tmp_path / "s.toml")


# ------------------------------------------------------------------------ intervals of what goes on

LOGS, PATIENTS = 80, 200
COVERAGE = 0.93


def test_the_interval_of_continued_records_holds_what_the_behavior_earns():
    rng = np.random.default_rng(1)
    model = support.random_model(rng)
    behavior = 0.5 * support.random_policy(rng, model) + 0.5 / model.n_actions
    first = np.bincount(
        support.simulate_log(rng, model, behavior, 20_000, 8).first_state, minlength=model.n_states
    )
    true = float(first @ state_values(model, behavior, horizon=8) / first.sum())
    held = bootstrapped = 0
    for _ in range(LOGS):
        log = support.simulate_log(rng, model, behavior, PATIENTS, 8)
        lost = rng.random((PATIENTS, 8)) < 0.4
        lost = log.cut(np.where(lost.any(axis=1), lost.argmax(axis=1) + 1, 8))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rewards vary
            replay = bf.Replay(lost, bf.fit_mdp(lost), bf.estimate_behavior(lost))
        table = bf.estimate_values(replay, estimators=["Observed, continued"])
        held += float(table["low"].iloc[0]) <= true <= float(table["high"].iloc[0])
        resampled = resample_weights(PATIENTS, 300, 0) @ replay.usual_return / PATIENTS
        low, high = np.quantile(resampled, [0.025, 0.975])
        bootstrapped += low <= true <= high
    assert binom.cdf(held, LOGS, COVERAGE) > 0.001, held
    assert binom.cdf(bootstrapped, LOGS, COVERAGE) < 0.01, bootstrapped  # the model held fixed
