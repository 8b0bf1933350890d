"""From a log on disk and its study file to an audit or a comparison: what the commands run."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.audit import Audit, run_audit
from butfor.checks import check_choice
from butfor.episodes import Episodes
from butfor.fit import fit_mdp
from butfor.io.cluster import Clusters, fit_clusters
from butfor.io.read import Clusterer, Reading, read_log
from butfor.io.sections import Study
from butfor.io.study import read_study
from butfor.labels import LabelComparison, compare_labels, nature_labels, nature_variables
from butfor.mdp import TabularMDP
from butfor.ope.crossfit import Learn
from butfor.planning import policy_iteration
from butfor.policy import estimate_behavior
from butfor.posterior import PRIOR, credible_intervals
from butfor.scm.gumbel_max import GumbelMax
from butfor.scm.independent import Independent
from butfor.scm.inverse_cdf import InverseCDF
from butfor.scm.maximal import MaximalCoupling
from butfor.scm.mechanism import Mechanism
from butfor.streams import Progress
from butfor.targets import target_from_table
from butfor.variables import Floats, Integers

LEARN = "learn"
MECHANISMS: dict[str, Mechanism] = {
    "gumbel-max": GumbelMax(),
    "maximal": MaximalCoupling(),
    "inverse-cdf": InverseCDF(),
    "independent": Independent(),
}
CREDIBLE = (
    "Noise belongs to what nature decides, but in the credible intervals of single episodes to "
    "next states: the prior of the models drawn puts next states of all actions into one row."
)


def audit_log(
    source: Any,
    study: str | Path,
    *,
    target: str | Path = LEARN,
    missing: str = "error",
    unseen: str | None = None,
    prior: float = 0.0,
    smoothing: float = 0.0,
    mechanism: str = "gumbel-max",
    noise_on: Sequence[str] | None = None,
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
    mechanism
        How transitions come about: the name of one of `MECHANISMS`.
    noise_on : optional
        State variables to whose levels the noise of transitions belongs (`nature_labels`); by
        default what the study's [noise] says, and without it the next state as a whole.
    models : int
        Models to draw for credible intervals (`credible_intervals`); 0 for none. Their prior is
        `prior`, or where that is 0 the default of `credible_intervals`.
    """
    chosen = MECHANISMS[check_choice(mechanism, "mechanism", tuple(MECHANISMS))]
    checked = read_study(study)
    names = checked.noise_variables() if noise_on is None else tuple(noise_on)
    reading, clusters = _read(source, checked, smoothing, seed)
    log, evaluation = reading.episodes, checked.evaluation
    learn = _learner(checked, unseen, prior, nature_labels(log, *names) if names else None)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model, policy = learn(log)
    if target != LEARN:
        policy = _given_target(target, log, missing)
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
                mechanism=chosen,
                horizon=evaluation.horizon,
                discount=evaluation.discount,
                progress=progress,
            )
        return run_audit(
            log,
            model,
            policy,
            behavior=behavior,
            mechanism=chosen,
            credible=credible,
            horizon=evaluation.horizon,
            discount=evaluation.discount,
            behavior_probability=reading.behavior_probability,
            flags=flags,
            draws=draws,
            seed=seed,
            learn=learn if target == LEARN else None,
            clusters=clusters,
            record={
                "words": checked.words.model_dump(),
                "problems": reading.done,
                "warnings": [str(warning.message) for warning in told]
                + [CREDIBLE] * bool(names and models),
                "target": "learned from this log" if target == LEARN else Path(target).name,
                "made_by": {
                    "source": [str(path) for path in _paths(source)],
                    "study": Path(study).read_text(encoding="utf-8"),
                    "unseen": unseen,
                    "prior": prior,
                    "smoothing": smoothing,
                    "noise_on": list(names) or None,
                    "planning_discount": evaluation.planning_discount,
                    "behavior_probability": reading.behavior_probability is not None,
                },
            },
            progress=progress,
        )


def compare_log(
    source: Any,
    study: str | Path,
    *,
    target: str | Path = LEARN,
    missing: str = "error",
    unseen: str | None = None,
    prior: float = 0.0,
    smoothing: float = 0.0,
    noise_on: Sequence[str] | None = None,
    flags: int = 60,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[LabelComparison, tuple[str, ...]]:
    """Read a log, and compute its counterfactuals with noise on states and on what nature decides.

    Returns the comparison and the variables whose levels are the labels: those given, or those of
    the study's [noise], or all state variables that are not called like an action variable. For the
    other parameters see `audit_log`.
    """
    checked = read_study(study)
    reading, _ = _read(source, checked, smoothing, seed)
    log = reading.episodes
    names = checked.noise_variables() if noise_on is None else tuple(noise_on)
    if not names:
        names = nature_variables(log)
        if len(names) == len(log.state_variables):
            raise ValueError(
                "no state variable is called like an action variable, so that there is none to "
                "leave out; name those that nature decides with --noise-on, or in [noise]"
            )
    model, policy = _learner(checked, unseen, prior, nature_labels(log, *names))(log)
    if target != LEARN:
        policy = _given_target(target, log, missing)
    compared = compare_labels(
        log,
        model,
        policy,
        model.labels,
        behavior=estimate_behavior(log, prior=smoothing),
        horizon=checked.evaluation.horizon,
        discount=checked.evaluation.discount,
        flags=flags,
        progress=progress,
    )
    return compared, names


def _read(
    source: Any, study: Study, smoothing: float, seed: int
) -> tuple[Reading, Clusters | None]:
    if not np.isfinite(smoothing) or smoothing < 0:
        raise ValueError(f"smoothing {smoothing}: give a number, 0 or more")
    clusters: list[Clusters] = []
    reading = read_log(source, study, clusterer=_clusterer(clusters, seed))
    return reading, clusters[0] if clusters else None


def _learner(study: Study, unseen: str | None, prior: float, labels: Integers | None) -> Learn:
    """Return what learns a model of a log, and plans a policy that does not hang on its labels."""

    def learn(log: Episodes) -> tuple[TabularMDP, Floats]:
        model = fit_mdp(log, unseen=unseen, prior=prior, labels=labels)
        plain = model.with_labels(None)
        return model, policy_iteration(plain, discount=study.evaluation.planning_discount)

    return learn


def _given_target(target: str | Path, log: Episodes, missing: str) -> Floats:
    if not Path(target).is_file():
        raise FileNotFoundError(
            f"--target {target}: there is no such file; give a table, or {LEARN!r}"
        )
    return target_from_table(target, log, missing=missing)


def _paths(source: Any) -> list[Any]:
    return list(source) if isinstance(source, list | tuple) else [source]


def _clusterer(found: list[Clusters], seed: int) -> Clusterer:
    """Return what clusters the rows of a log; the clusters end up in `found`."""

    def cluster(values: Floats, columns: Sequence[str], count: int) -> NDArray[np.int64]:
        found.append(fit_clusters(values, columns, count, seed=seed))
        return found[-1].assign(values)

    return cluster
