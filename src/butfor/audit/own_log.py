"""From a log on disk and its study file to an audit or a comparison: what the commands run."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.audit.audit import Audit, run_audit
from butfor.audit.choices import LEARN, MECHANISMS, Choices
from butfor.audit.folders import check_free
from butfor.audit.meta import META
from butfor.audit.shards.log import is_sharded
from butfor.audit.shards.run import audit_shards
from butfor.audit.shards.workers import Cluster, Workers
from butfor.evaluate.crossfit import Learn
from butfor.log.clusters import Clusters, fit_clusters
from butfor.log.episodes import Episodes
from butfor.log.read import Clusterer, Reading, read_log
from butfor.log.sections import Study
from butfor.log.study import read_study
from butfor.models.fit import fit_mdp
from butfor.models.mdp import TabularMDP
from butfor.models.planning import policy_iteration
from butfor.models.policies import estimate_behavior
from butfor.replay.labels import LabelComparison, compare_labels, nature_labels, nature_variables
from butfor.replay.posterior import PRIOR, credible_intervals
from butfor.types import Floats, Integers, Progress

MODELS = 200  # drawn for credible intervals
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
    models: int = MODELS,
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
    choices = Choices(
        target=target,
        missing=missing,
        unseen=unseen,
        prior=prior,
        smoothing=smoothing,
        mechanism=mechanism,
        noise_on=noise_on,
        flags=flags,
        draws=draws,
        seed=seed,
    )
    checked = read_study(study)
    names = choices.noise(checked)
    chosen = MECHANISMS[mechanism]
    reading, clusters = _read(source, checked, seed)
    log, evaluation = reading.episodes, checked.evaluation
    learn = _learner(checked, unseen, prior, nature_labels(log, *names) if names else None)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model, policy = learn(log)
    if not choices.learned:
        policy = choices.given_target(log)
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
            learn=learn if choices.learned else None,
            clusters=clusters,
            record=choices.record(
                source,
                checked,
                Path(study).read_text(encoding="utf-8"),
                probability=reading.behavior_probability is not None,
                problems=reading.done,
                warnings=[str(warning.message) for warning in told]
                + [CREDIBLE] * bool(names and models),
            ),
            progress=progress,
        )


def audit_into(
    source: Any,
    study: str | Path,
    out: str | Path,
    choices: Choices,
    *,
    models: int | None = None,
    workers: Workers | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Audit:
    """Audit a log and write the audit's folder; a folder of Parquet files shard by shard.

    Parameters
    ----------
    choices, models
        See `audit_log`.
    workers, resume, overwrite
        See `audit_shards`. With a Dask cluster or `resume` any Parquet file is a shard.

    Returns
    -------
    Audit
        Of a log in shards, the episodes shown only (`Audit.load(shown=True)`).
    """
    asked = resume or isinstance(workers, Cluster)
    if asked or (is_sharded(source) and read_study(study).cluster is None):
        if models:
            raise ValueError(
                "credible intervals of episodes need the log in memory; leave --models out, or "
                "give the log as one file"
            )
        audit_shards(
            source,
            study,
            out,
            choices,
            workers=workers,
            resume=resume,
            overwrite=overwrite,
            progress=progress,
        )
        return Audit.load(out, shown=True)
    check_free(out, marker=META, overwrite=overwrite)
    audit = audit_log(
        source,
        study,
        **vars(choices),
        models=MODELS if models is None else models,
        progress=progress,
    )
    audit.save(out, overwrite=overwrite)
    return audit


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
    choices = Choices(
        target=target,
        missing=missing,
        unseen=unseen,
        prior=prior,
        smoothing=smoothing,
        noise_on=noise_on,
        flags=flags,
        seed=seed,
    )
    checked = read_study(study)
    reading, _ = _read(source, checked, seed)
    log = reading.episodes
    names = choices.noise(checked)
    if not names:
        names = nature_variables(log)
        if len(names) == len(log.state_variables):
            raise ValueError(
                "no state variable is called like an action variable, so that there is none to "
                "leave out; name those that nature decides with --noise-on, or in [noise]"
            )
    model, policy = _learner(checked, unseen, prior, nature_labels(log, *names))(log)
    if not choices.learned:
        policy = choices.given_target(log)
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


def _read(source: Any, study: Study, seed: int) -> tuple[Reading, Clusters | None]:
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


def _clusterer(found: list[Clusters], seed: int) -> Clusterer:
    """Return what clusters the rows of a log; the clusters end up in `found`."""

    def cluster(values: Floats, columns: Sequence[str], count: int) -> NDArray[np.int64]:
        found.append(fit_clusters(values, columns, count, seed=seed))
        return found[-1].assign(values)

    return cluster
