"""How learners do on logs of the ward: what they claim for their plans, and what these are worth.

python examples/ward/compare.py --logs 3
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from make_log import Patients, Policy, physicians, simulate

import butfor as bf
from butfor.models.classifiers import BOOSTING, LOGISTIC, make_classifier

STUDY = Path(__file__).with_name("study.toml")


def compare(patients: int, seed: int, judged: int) -> Iterator[tuple[str, float, float, float]]:
    """Yield learner, log score, value in the model and true value of its plan, for one log."""
    log = bf.read_episodes(simulate(patients, seed), STUDY)
    cut = replace(log, numbers=None)
    yield "physicians", np.nan, np.nan, worth(physicians, judged)
    for name, one, learner in (
        ("counts", cut, "counts"),
        ("logistic, levels", cut, make_classifier(LOGISTIC)),
        ("logistic, numbers", log, make_classifier(LOGISTIC)),
        ("boosting, levels", cut, make_classifier(BOOSTING)),
        ("boosting, numbers", log, make_classifier(BOOSTING)),
    ):
        model = bf.fit_factored(one, learner)
        score = model.describe()["log_score"].sum()
        yield name, score, *promise(model, log, judged)
        if learner == "counts":
            yield f"{name}, caution", score, *promise(model, log, judged, bf.Caution())
    yield "tabular", np.nan, *promise(bf.fit_mdp(log), log, judged)


def promise(
    model: bf.TabularMDP | bf.FactoredModel,
    log: bf.Episodes,
    judged: int,
    caution: bf.Caution | None = None,
) -> tuple[float, float]:
    """Return the value of the model's plan in the model, and in truth."""
    plan = bf.policy_iteration(model, discount=0.99, caution=caution)
    return bf.policy_value(model, plan, horizon=log.horizon), worth(acting(plan, log), judged)


def worth(policy: Policy, judged: int) -> float:
    """Return the mean return of this many new patients who are treated by a policy."""
    ends = simulate(judged, 1_000_000, policy).groupby("patient")["outcome"].last()
    return float((ends == "discharged").mean() - (ends == "died").mean())


def acting(plan: np.ndarray, log: bf.Episodes) -> Policy:
    """Return a policy [states, actions] as the simulator takes it; actions are oxygen first."""
    cuts = {
        name: one.get("cuts") for name, one in tomllib.loads(STUDY.read_text())["state"].items()
    }
    sizes = [len(variable.levels) for variable in log.state_variables]

    def act(now: Patients) -> tuple[np.ndarray, np.ndarray]:
        codes = [
            now[name].astype(int) if own is None else np.searchsorted(own, now[name], side="right")
            for name, own in cuts.items()
        ]
        chance = plan[np.ravel_multi_index(codes, sizes)]
        return chance[:, 2] + chance[:, 3], chance[:, 1] + chance[:, 3]

    return act


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patients", type=int, default=1000)
    parser.add_argument("--logs", type=int, default=3)
    parser.add_argument("--judged", type=int, default=20_000, help="new patients, for the truth")
    given = parser.parse_args()
    logs = [compare(given.patients, seed, given.judged) for seed in range(given.logs)]
    rows = [row for log in logs for row in log]
    table = pd.DataFrame(rows, columns=["learner", "log score", "in the model", "in truth"])
    print(table.groupby("learner", sort=False).mean().round(3).to_string())
