"""Comparing audits: several policies on the same episodes, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from butfor.audit.audit import Audit
from butfor.audit.settings import MECHANISMS
from butfor.evaluate.compare import compare_policies
from butfor.evaluate.finding import LEARNED
from butfor.models.mdp import TabularMDP
from butfor.models.row_policy import RowPolicy
from butfor.replay.replay import Replay

COLUMNS = [
    "estimator", "policy", "value", "low", "high", "against", "difference", "low_difference",
    "high_difference", "warning",
]  # fmt: skip


def compare_audits(audits: Mapping[str, Audit]) -> pd.DataFrame:
    """Return the estimates of several policies on one log, and their differences from the first.

    One row per estimator and policy: value, low, high as in each audit; difference, low_difference,
    high_difference as in `compare_policies`; warning (why the difference has no interval).
    """
    replays = {name: replay_of(audit, name) for name, audit in audits.items()}
    learned = [name for name, audit in audits.items() if _was_learned(audit)]
    found = compare_policies(replays, learned=learned)
    found = found.rename(columns={"low": "low_difference", "high": "high_difference"})
    own = pd.concat(
        [audit.estimates.assign(policy=name) for name, audit in audits.items()], ignore_index=True
    )[["estimator", "policy", "low", "high"]]
    return found.merge(own, on=["estimator", "policy"], how="left")[COLUMNS]


def replay_of(audit: Audit, name: str = "this audit") -> Replay:
    """Return the question of an audit of observed states, from what its folder holds."""
    asked = audit.meta.parameters
    known = {repr(mechanism): mechanism for mechanism in MECHANISMS.values()}
    if audit.partial:
        raise ValueError(f"{name}: only some of its episodes were loaded; load all of them")
    if asked.hidden or asked.sampled or asked.mechanism not in known:
        raise ValueError(
            f"{name} cannot be compared: its state is hidden or cannot be enumerated, or its "
            "mechanism is not one of butfor's"
        )
    model = audit.model
    if isinstance(model, TabularMDP):  # whether it was counted so is checked before it is refitted
        model = replace(model, prior=float(audit.meta.made_by.get("prior", 0.0)))
    return Replay(
        audit.log(),
        model,
        RowPolicy(audit.target) if asked.by_row else audit.target,
        behavior=audit.behavior,
        mechanism=known[asked.mechanism],
        action_noise=asked.action_noise,
        horizon=asked.horizon,
        discount=asked.discount,
        noise=asked.noise,
        seed=audit.meta.seed,
    )


def _was_learned(audit: Audit) -> bool:
    """Whether the target was learned from the episodes of the audit."""
    return bool(audit.estimates["warning"].str.contains(LEARNED, regex=False).any())
