"""What judging a shard needs: the models learned from all counts, and the question."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.audit.model import hash_arrays
from butfor.audit.settings import AuditSettings
from butfor.audit.shards.count import Counts
from butfor.audit.shards.learn import BOTH, Half, Tally, fit_of, learn_halves, plan_of
from butfor.evaluate.diagnostics.calibration import GROUPS, bad_outcomes
from butfor.log.sections import Study
from butfor.models.factored import tabular
from butfor.models.mdp import TabularMDP
from butfor.models.policies import behavior_of
from butfor.models.row_policy import RowPolicy
from butfor.replay.observed import unsupported_by_state
from butfor.replay.replay import Replay
from butfor.types import Floats, Keys


@dataclass(frozen=True, eq=False)
class Setting:
    """What judging a shard needs, all of it determined by the counts and the settings."""

    study: Study
    seed: int
    digest: Keys  # [2] of the whole log
    question: Replay  # about a small example of the log with the same variables
    unsupported: Floats  # [S] probability that the target ever uses a pair never seen
    learned: bool  # whether the target was learned from this log
    continued: bool  # whether the model continues any records
    halves: tuple[Half, ...]  # two, or none if a half would be empty
    cuts: Floats  # between groups of decisions, by predicted probability of a bad outcome
    bad: NDArray[np.bool_]  # [O]
    key: str  # identifies the setting
    # what questions about shards share, of the whole log and of each half: see `Replay.share`
    shared: tuple[dict[str, Any], ...] = field(default_factory=lambda: ({}, {}, {}))

    @property
    def model(self) -> TabularMDP:
        """The model of the whole log."""
        return self.question.mdp


def make_setting(tally: Tally, chosen: AuditSettings) -> Setting:
    """Learn the models, plan or read the target, and collect all that judging needs."""
    study, counts = tally.study, tally.counts
    evaluation = study.evaluation
    fit, make = fit_of(tally, chosen), plan_of(tally, chosen)
    model = fit(tally.transitions(*BOTH))
    rows = tabular(model)
    horizon = counts.longest if evaluation.horizon is None else evaluation.horizon
    given = None if chosen.learned else chosen.given_target(tally.example())
    policy = make(model) if given is None else given
    target = policy.table if isinstance(policy, RowPolicy) else np.asarray(policy)
    halves = learn_halves(tally, fit, make, horizon=horizon)
    context = asdict(chosen) | {
        "study": study.model_dump(mode="json"),
        **dict.fromkeys(("flags", "review_size", "draws", "checksums")),
    }
    behavior = behavior_of(rows.counts, prior=chosen.smoothing)
    return Setting(
        study=study,
        seed=chosen.seed,
        digest=counts.digest,
        question=chosen.ask(
            tally.example(),
            model,
            policy,
            behavior,
            evaluation,
            horizon=horizon,
            hazard=tally.hazard(horizon) if evaluation.censoring == "ipcw" else None,
        ),
        unsupported=unsupported_by_state(rows, target, horizon=horizon),
        learned=chosen.learned,
        continued=bool((counts.stops.second < horizon).any()) and evaluation.censored != "cut",
        halves=halves,
        cuts=find_cuts(halves),
        bad=bad_outcomes(tally.outcomes),
        key=key_of(counts, target, context),
    )


def find_cuts(halves: tuple[Half, ...]) -> Floats:
    """Cut decisions into about ten groups of similar size, by the probability of a bad outcome.

    The probability is that predicted by the other half for the state with all steps left; states
    are weighted by their visits.
    """
    if not halves:
        return np.empty(0)
    chance = np.concatenate([halves[1 - h].chance[-1] for h in BOTH])
    weight = np.concatenate(
        [np.where(halves[1 - h].seen, tabular(halves[h].model).counts.sum(axis=1), 0) for h in BOTH]
    )
    order = np.argsort(chance, kind="stable")
    passed = np.cumsum(weight[order])
    if passed[-1] == 0:
        return np.empty(0)
    at = np.searchsorted(passed, passed[-1] * np.arange(1, GROUPS) / GROUPS)
    return np.unique(chance[order][at])


def key_of(counts: Counts, target: Floats, chosen: Mapping[str, Any]) -> str:
    """Hash all that the second pass depends on."""
    arrays = [*counts.arrays().values(), target]
    return hash_arrays(arrays, json.dumps(chosen, sort_keys=True, default=str))
