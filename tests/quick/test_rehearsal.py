"""Rehearsal: what the same method would have promised, had a variable not been logged."""

import numpy as np
import pandas as pd
import pytest

import butfor as bf
from butfor.audit.learning import factored_learner, tabular_learner
from butfor.evaluate.crossfit import split_halves
from butfor.evaluate.rehearsal import Rehearsal, hidden_groups, rehearse, rehearse_halves
from butfor.models.transitions import count_distinct
from butfor.random import numbered_keys
from tests.audits import unseal
from tests.builders import DEATH, HOME
from tests.factored import clinic_model, simulate_factored

SEVERE = bf.Variable("severity", ("mild", "severe"))
PULSE = bf.Variable("pulse", ("low", "high"))
DRUG = [bf.Variable("drug", ("no", "yes"))]


def triage(episodes=4000, seed=0, *, treated=(0.8, 0.2), effect=-0.1):
    """One decision each: the drug goes to mild cases and harms everybody; the pulse is noise.

    P(home) = .9 for mild and .3 for severe cases, .1 less with the drug. Of mild cases 80 percent
    get it, of severe ones 20: without the severity the drug looks better than none.
    """
    rng = np.random.default_rng(seed)
    severe, pulse = rng.integers(2, size=(2, episodes))
    drug = (rng.random(episodes) < np.where(severe, treated[1], treated[0])).astype(int)
    home = rng.random(episodes) < np.where(severe, 0.3, 0.9) + effect * drug
    state = 2 * severe + pulse
    return bf.Episodes.from_arrays(
        state, drug, state, offsets=np.arange(episodes + 1), states=[SEVERE, PULSE], actions=DRUG,
        outcome=home.astype(int), outcomes=[DEATH, HOME],
    )  # fmt: skip


def learn(log):
    model = bf.fit_mdp(log)
    return model, bf.policy_iteration(model, discount=0.9)


def frequencies(log, names):
    """Mean return by the levels of these variables and action, [states, 2]; and each's state."""
    codes = log.codes(log.state)
    state = sum(codes[name] * 2**place for place, name in enumerate(names))
    means = [
        [log.returns()[(state == s) & (log.action == a)].mean() for a in (0, 1)]
        for s in range(2 ** len(names))
    ]
    return np.array(means), state


def test_one_decision_by_frequencies():
    log = triage()
    found = rehearse(log, learn, splits=1, seed=5)
    halves = [
        log.select(half) for half in split_halves(log, int(numbered_keys(5, 1, "rehearsal")[0]))
    ]
    names = ["severity", "pulse"]
    for row, hidden in zip(found.table.itertuples(), names, strict=True):
        kept = [name for name in names if name != hidden]
        promised, judged = [], []
        for mine, other in (halves, halves[::-1]):
            means, state = frequencies(mine, kept)
            best = frequencies(other, kept)[0].argmax(axis=1)
            promised.append(means[state, best[state]])
            full, everything = frequencies(mine, names)
            judged.append(full[everything, best[state]])
        expected = [np.concatenate(values).mean() for values in (promised, judged)]
        assert row.hidden == hidden
        # means of 4000 numbers of size 1
        assert [row.promised, row.judged] == pytest.approx(expected, abs=1e-12)
        assert row.error == row.promised - row.judged


def test_a_confounder_that_is_hidden_makes_the_method_promise_too_much():
    found = rehearse(triage(), learn)
    severity, pulse = found.table["error"]
    # without severity everybody gets the drug: the mean return is 2 (.8 .8 + .2 .2) - 1 = .36 among
    # the treated, and truly 2 (.5 .8 + .5 .2) - 1 = 0. Standard errors are below 1 / sqrt(4000);
    # .08 is five of them
    assert severity == pytest.approx(0.36, abs=0.08)
    assert abs(pulse) < 0.08
    assert found.worst == max(severity, pulse)
    # the best policy gives nobody the drug: 2 (.5 .9 + .5 .3) - 1 = .2, where .1 was observed
    assert found.value == pytest.approx(0.2, abs=0.08)
    assert found.gain == pytest.approx(0.1, abs=0.08)
    assert not found.passed
    assert found.sentence().startswith("Had severity not been logged, the same method would have")


def test_a_drug_that_helps_and_was_given_at_random_passes():
    # everybody treated: 2 (.5 1 + .5 .4) - 1 = .4 where .3 was observed; nothing confounds
    found = rehearse(triage(treated=(0.5, 0.5), effect=0.1), learn)
    assert found.gain == pytest.approx(0.1, abs=0.08)
    assert found.passed


def test_a_method_that_learns_tables_by_variable():
    log = triage()
    learner = factored_learner(
        log, discount=0.9, parents={"": ["severity", "action.drug", "next.pulse"]}
    )
    found = rehearse(log, learner, splits=1)
    assert found.table["error"][0] == pytest.approx(0.36, abs=0.08)


def test_groups_are_hidden_together_and_named():
    third = bf.Variable("age", ("young", "old"))
    log = triage(400)
    state = 2 * log.state + np.arange(400) % 2
    wider = bf.Episodes.from_arrays(
        state, log.action, state, offsets=log.offsets, states=[SEVERE, PULSE, third], actions=DRUG,
        outcome=log.outcome, outcomes=log.outcomes,
    )  # fmt: skip
    found = rehearse(wider, learn, groups=[["severity", "pulse"], ["age"]], splits=1)
    assert found.table["hidden"].tolist() == ["severity and pulse", "age"]


def test_the_seed_decides_the_splits():
    log = triage(300)
    values = [rehearse(log, learn, splits=1, seed=seed).value for seed in (1, 1, 2)]
    assert values[0] == values[1] != values[2]


def test_progress_counts_every_rehearsal():
    calls = []
    rehearse(triage(100), learn, splits=2, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


def make(errors, value=0.5, observed=0.2):
    rows = [(f"x{i}", value, value - error, error) for i, error in enumerate(errors)]
    return Rehearsal(
        pd.DataFrame(rows, columns=["hidden", "promised", "judged", "error"]), value, observed
    )


def test_the_gain_must_exceed_the_worst_error():
    assert make([0.1, 0.29]).passed
    assert not make([0.1, 0.31]).passed
    assert not make([-0.1], value=0.1).passed  # no gain
    assert "would not have promised more" in make([-0.1, -0.2]).sentence()


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["severity"], "'severity' is text; give lists of names"),
        ([[]], "one of them is empty"),
        ([["sugar"]], "no state variable 'sugar'"),
        ([["severity", "pulse"]], "leaves no state"),
    ],
)
def test_bad_groups_are_refused(groups, message):
    with pytest.raises(ValueError, match=message):
        rehearse(triage(20), learn, groups=groups)


def test_one_state_variable_cannot_be_hidden():
    log = triage(20).hide("pulse")
    with pytest.raises(ValueError, match="there is only 'severity'"):
        rehearse(log, learn)


# ------------------------------------------------------------------------------- in an audit


def test_the_check_is_red_only_for_a_gain_that_could_be_made_up():
    for rehearsal, light, words in (
        (make([0.1]), "green", "not a proof"),
        (make([0.4]), "red", "could account for such a gain"),
        (make([0.4], value=0.1), "amber", "no gain is promised (−0.10)"),
    ):
        check, value, found, sentence = rehearsal.row()
        assert (check, found) == ("rehearsal", light)
        assert value == rehearsal.gain - rehearsal.worst
        assert words in sentence


def test_an_audit_keeps_its_rehearsal(tmp_path):
    log = triage(60)
    model, target = learn(log)
    rehearsal = rehearse(log, learn, splits=1)
    audit = bf.run_audit(
        log, model, target, learn=learn, rehearsal=rehearsal, flags=2, draws=1, resamples=2
    )
    assert tuple(audit.diagnostics.set_index("check").loc["rehearsal"]) == rehearsal.row()[1:]
    loaded = bf.Audit.load(audit.save(tmp_path / "audit")).rehearsal
    pd.testing.assert_frame_equal(loaded.table, rehearsal.table)
    assert (loaded.value, loaded.observed) == (rehearsal.value, rehearsal.observed)


def test_a_damaged_rehearsal_is_named(tmp_path):
    log = triage(60)
    model, target = learn(log)
    audit = bf.run_audit(
        log, model, target, rehearsal=rehearse(log, learn, splits=1), flags=0, resamples=2
    )
    unseal(audit.save(tmp_path / "audit"))
    rehearsal = tmp_path / "audit" / "rehearsal.parquet"
    pd.DataFrame({"hidden": ["x"]}).to_parquet(rehearsal)
    with pytest.raises(ValueError, match=r"rehearsal\.parquet: has no column 'promised'"):
        bf.Audit.load(tmp_path / "audit")
    rehearsal.unlink()
    with pytest.raises(FileNotFoundError, match=r"rehearsal\.parquet"):
        bf.Audit.load(tmp_path / "audit")


def counted_halves(log, seed=0):
    """Return two halves of a log, as episodes and as transitions counted in them."""
    halves = split_halves(log, int(numbered_keys(seed, 1, "rehearsal")[0]))
    episodes = [log.select(half) for half in halves]
    return episodes, [count_distinct(half) for half in episodes]


@pytest.mark.filterwarnings("ignore:the reward of")
@pytest.mark.parametrize("kind", ["factored", "tabular"])
def test_counted_transitions_rehearse_as_their_episodes_do(kind):
    log = ward_log()
    learner = {
        "factored": lambda whole: factored_learner(whole, discount=0.9, caution=bf.Caution()),
        "tabular": lambda whole: tabular_learner(discount=0.9, prior=0.5, caution=bf.Caution()),
    }[kind]
    episodes, counted = counted_halves(log)
    asked = {"splits": 1, "hidden": hidden_groups(log.state_variables), "horizon": 5}
    asked |= {"discount": 0.95, "observed": 0.1}
    found = [
        rehearse_halves([halves], learner(whole), **asked)
        for halves, whole in ((episodes, log), (counted, count_distinct(log)))
    ]
    # the same sums of whole numbers, added in another order: rounding only
    pd.testing.assert_frame_equal(found[0].table, found[1].table, rtol=0, atol=1e-12)
    assert found[0].value == pytest.approx(found[1].value, abs=1e-12)
    assert found[0].table["error"].abs().max() > 0.01


def ward_log():
    """Episodes of several steps with four variables."""
    generator = np.random.default_rng(2)
    policy = generator.dirichlet(np.ones(2), 24)
    return simulate_factored(generator, clinic_model(generator), policy, 200, 5)


def test_variables_are_hidden_from_counted_transitions_as_from_episodes():
    log = ward_log()
    hidden, expected = count_distinct(log).hide("sugar"), count_distinct(log.hide("sugar"))
    assert [v.name for v in hidden.state_variables] == ["pulse", "sex", "dose"]
    for name in ("state", "action", "next_state", "end", "weight", "first", "lowest", "highest"):
        np.testing.assert_array_equal(getattr(hidden, name), getattr(expected, name), name)
    np.testing.assert_allclose(hidden.reward, expected.reward, atol=1e-12)
