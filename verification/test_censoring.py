"""Patients of the sepsis simulator who are lost to follow-up: what that does to each estimate.

Lost after any step at random, or more often if more vital signs are abnormal. The target follows
the physician three times out of four, so that weights are moderate; model and behavior are the
true ones, so that what is left is due to losing patients. `ipcw` weights by the probability of not
being lost, by state, which is estimated from each log.
"""

import numpy as np
import pandas as pd
import pytest

import butfor as bf
from butfor import sepsis
from butfor.evaluate.estimators.table import CONTINUED

LOGS, PATIENTS, HORIZON = 200, 1000, 6
SHOWN = ("Observed", CONTINUED, "IS", "WIS", "PDIS", "PDWIS", "DR", "WDR", "MB", "CF")
WEIGHTED = ("IS", "WIS", "PDIS", "PDWIS")
ERRORS = 4.0  # standard errors of the mean over logs by which bias may differ from 0


@pytest.fixture(scope="module")
def question():
    model = sepsis.model("corrected")
    behavior = sepsis.full_policy(sepsis.behavior_policy("corrected"))
    target = 0.75 * behavior + 0.25 * bf.policy_iteration(model, discount=0.99)
    return model, behavior, target


def lose(log: bf.Episodes, kind: str, rng: np.random.Generator) -> bf.Episodes:
    """Lose each patient after each step but the last with a probability of the state reached."""
    levels = log.codes(log.next_state)
    off = sum((levels[name] != 1).astype(int) for name in ("heart rate", "blood pressure"))
    hazard = {"nobody": 0.0, "random": 0.1, "by state": np.where(off > 0, 0.2, 0.02)}[kind]
    lost = rng.random(len(log.state)) < hazard
    lost[log.offsets[1:] - 1] = False
    first = np.where(lost, log.time + 1, log.horizon)
    return log.cut(np.minimum.reduceat(first, log.offsets[:-1]))


def evaluate(question, kind: str, seed: int) -> dict[tuple[str, str], tuple[float, float, float]]:
    model, behavior, target = question
    log = sepsis.simulate(behavior, PATIENTS, seed=seed, version="corrected", horizon=HORIZON)
    log = lose(log, kind, np.random.default_rng(seed))
    found = {}
    for rule in ("plain", "ipcw"):
        hazard = bf.censoring_hazard(log) if rule == "ipcw" else None
        replay = bf.Replay(log, model, target, behavior=behavior, hazard=hazard)
        shown = [name for name in SHOWN if name != CONTINUED or replay.continues.any()]
        names = shown if rule == "plain" else (*WEIGHTED, "DR", "WDR")
        frame = bf.estimate_values(replay, estimators=names, resamples=200, seed=seed)
        for row in frame.itertuples():
            found[rule, row.estimator] = (row.value, row.low, row.high)
    return found


@pytest.fixture(scope="module")
def table(question):
    model, behavior, target = question
    truth = bf.policy_value(model, target, horizon=HORIZON)
    usual = bf.policy_value(model, behavior, horizon=HORIZON)
    rows = []
    for kind in ("nobody", "random", "by state"):
        logs = [evaluate(question, kind, seed) for seed in range(LOGS)]
        for rule, name in logs[0]:
            value, low, high = np.array([log[rule, name] for log in logs]).T
            true = usual if name in ("Observed", CONTINUED) else truth
            rows.append(
                {
                    "lost": kind,
                    "rule": rule,
                    "estimator": name,
                    "bias": value.mean() - true,
                    "error": value.std(ddof=1) / LOGS**0.5,
                    "covers": ((low <= true) & (true <= high)).mean(),
                }
            )
    found = pd.DataFrame(rows).set_index(["lost", "rule", "estimator"])
    print(f"\n{found.round(3).to_string()}")
    return found


@pytest.mark.parametrize("kind", ["random", "by state"])
def test_what_continues_the_records_is_without_bias_and_what_was_recorded_is_not(table, kind):
    row, recorded = (table.loc[kind, "plain", name] for name in (CONTINUED, "Observed"))
    assert abs(row["bias"]) < ERRORS * row["error"]
    assert abs(recorded["bias"]) > ERRORS * recorded["error"]


@pytest.mark.parametrize("kind", ["random", "by state"])
@pytest.mark.parametrize("name", ["IS", "PDIS", "DR"])
def test_weights_make_up_for_those_who_were_lost(table, kind, name):
    row = table.loc[kind, "ipcw", name]
    assert abs(row["bias"]) < ERRORS * row["error"]


@pytest.mark.parametrize("name", ["IS", "PDIS"])
def test_without_them_estimates_that_use_logged_rewards_only_are_biased(table, name):
    row = table.loc["by state", "plain", name]
    assert abs(row["bias"]) > ERRORS * row["error"]


@pytest.mark.parametrize("name", WEIGHTED)
def test_intervals_with_weights_cover_where_those_of_a_complete_log_do(table, name):
    complete = table.loc["nobody", "plain", name]["covers"]
    for kind in ("random", "by state"):
        assert table.loc[kind, "ipcw", name]["covers"] > complete - 0.05
