"""From a log on disk and its study file to an audit: what `butfor audit` runs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.audit import Audit, run_audit
from butfor.episodes import Episodes
from butfor.fit import fit_mdp
from butfor.io.cluster import Clusters, fit_clusters
from butfor.io.read import Clusterer, read_log
from butfor.io.study import read_study
from butfor.mdp import TabularMDP
from butfor.planning import policy_iteration
from butfor.policy import estimate_behavior
from butfor.posterior import PRIOR, credible_intervals
from butfor.streams import Progress
from butfor.targets import target_from_table
from butfor.variables import Floats

LEARN = "learn"


def audit_log(
    source: Any,
    study: str | Path,
    *,
    target: str | Path = LEARN,
    missing: str = "error",
    unseen: str | None = None,
    prior: float = 0.0,
    smoothing: float = 0.0,
    flags: int = 60,
    draws: int = 5,
    models: int = 200,
    seed: int = 0,
    progress: Progress | None = None,
) -> Audit:
    """Read a log as its study says, learn the model, and audit a policy on it.

    Parameters
    ----------
    source, study
        See `read_log`.
    target
        "learn" plans the policy on the model of the log; otherwise the path of a table of states,
        actions and probabilities (`target_from_table`).
    missing : "error" or "uniform"
        What to do about states of which that table says nothing.
    unseen, prior
        See `fit_mdp`.
    smoothing
        Added to the count of each action when the behaviour is estimated (`estimate_behavior`).
    models : int
        Models to draw for credible intervals (`credible_intervals`); 0 for none. Their prior is
        `prior`, or where that is 0 the default of `credible_intervals`.
    """
    if not np.isfinite(smoothing) or smoothing < 0:
        raise ValueError(f"smoothing {smoothing}: give a number, 0 or more")
    checked = read_study(study)
    clusters: list[Clusters] = []
    reading = read_log(source, checked, clusterer=_clusterer(clusters, seed))
    log = reading.episodes
    evaluation = checked.evaluation

    def learn(part: Episodes) -> tuple[TabularMDP, Floats]:
        model = fit_mdp(part, unseen=unseen, prior=prior)
        return model, policy_iteration(model, discount=evaluation.planning_discount)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = fit_mdp(log, unseen=unseen, prior=prior)
    if target == LEARN:
        policy = policy_iteration(model, discount=evaluation.planning_discount)
    else:
        if not Path(target).is_file():
            raise FileNotFoundError(
                f"--target {target}: there is no such file; give a table, or {LEARN!r}"
            )
        policy = target_from_table(target, log, missing=missing)
    behavior = estimate_behavior(log, prior=smoothing)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said once above
        credible = None
        if models:
            credible = credible_intervals(
                log,
                policy,
                models=models,
                prior=prior or PRIOR,
                seed=seed,
                unseen=unseen,
                behavior=behavior,
                horizon=evaluation.horizon,
                discount=evaluation.discount,
                progress=progress,
            )
        return run_audit(
            log,
            model,
            policy,
            behavior=behavior,
            credible=credible,
            horizon=evaluation.horizon,
            discount=evaluation.discount,
            behavior_probability=reading.behavior_probability,
            flags=flags,
            draws=draws,
            seed=seed,
            learn=learn if target == LEARN else None,
            clusters=clusters[0] if clusters else None,
            record={
                "words": checked.words.model_dump(),
                "problems": reading.done,
                "warnings": [str(warning.message) for warning in told],
                "target": "learned from this log" if target == LEARN else Path(target).name,
                "made_by": {
                    "source": [str(path) for path in _paths(source)],
                    "study": Path(study).read_text(encoding="utf-8"),
                    "unseen": unseen,
                    "prior": prior,
                    "smoothing": smoothing,
                    "planning_discount": evaluation.planning_discount,
                    "behavior_probability": reading.behavior_probability is not None,
                },
            },
            progress=progress,
        )


def _paths(source: Any) -> list[Any]:
    return list(source) if isinstance(source, list | tuple) else [source]


def _clusterer(found: list[Clusters], seed: int) -> Clusterer:
    """Return what clusters the rows of a log; the clusters end up in `found`."""

    def cluster(values: Floats, columns: Sequence[str], count: int) -> NDArray[np.int64]:
        found.append(fit_clusters(values, columns, count, seed=seed))
        return found[-1].assign(values)

    return cluster
