"""The demonstration: a simulated sepsis log, a policy learned from it, and what it would change."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from butfor import sepsis
from butfor.counterfactual import Counterfactuals, counterfactual_outcomes
from butfor.episodes import Episodes
from butfor.fit import fit_mdp
from butfor.mdp import TabularMDP
from butfor.planning import policy_iteration, policy_value
from butfor.streams import Progress
from butfor.variables import Floats

VERSION = "icml2019"  # the simulator of the paper, whose failure the demonstration shows


@dataclass(frozen=True, eq=False)
class Demonstration:
    """A log in which glucose and diabetes are hidden, its model, the target and the result."""

    log: Episodes
    model: TabularMDP
    target: Floats
    result: Counterfactuals
    estimates: pd.DataFrame  # estimator, value, what it says

    def largest_differences(self, count: int = 10) -> pd.DataFrame:
        """Return the episodes that the target would have changed most, in either direction."""
        frame = self.result.frame()
        order = frame["difference"].abs().sort_values(ascending=False, kind="stable").index
        chosen = frame.loc[order[:count]].copy()
        chosen["first_change"] = first_changes(self.log, self.target)[order[:count]]
        return chosen


def run_demonstration(
    *, episodes: int = 1000, seed: int = 0, progress: Progress | None = None
) -> Demonstration:
    """Simulate, hide, learn, plan, and ask what would have happened to each patient."""
    behavior = sepsis.behavior_policy(VERSION)
    full = sepsis.simulate(behavior, episodes, seed=seed, version=VERSION)
    log = full.hide("glucose", "diabetes")
    model = fit_mdp(log)
    target = policy_iteration(model, discount=0.99)
    result = counterfactual_outcomes(log, model, target, progress=progress)
    truth = policy_value(sepsis.model(VERSION), sepsis.full_policy(target), horizon=result.horizon)
    estimates = pd.DataFrame(
        [
            ("Observed", log.returns().mean(), "mean of the log"),
            (
                "Model-based",
                policy_value(model, target, horizon=result.horizon),
                "new patients in the model",
            ),
            ("Counterfactual", result.expected_return.mean(), "mean over these patients, exact"),
            ("True", truth, "known only because this is a simulator"),
        ],
        columns=["estimator", "value", "note"],
    )
    return Demonstration(log, model, target, result, estimates)


def first_changes(log: Episodes, target: Floats) -> pd.Series[int]:
    """Return the first step at which the target would not surely have done what was done; -1: none.

    Counted from 1.
    """
    differs = target[log.state, log.action] < 1
    steps = pd.Series(log.time + 1).where(differs)
    first = steps.groupby(pd.Series(range(len(log))).repeat(log.lengths).to_numpy()).min()
    return first.fillna(-1).astype(int)
