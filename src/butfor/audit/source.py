"""Audits of a log on disk and its study file: what the command runs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.audit.audit import AUDIT, Audit
from butfor.audit.folders import claimed
from butfor.audit.intervals import CREDIBLE, choose_models
from butfor.audit.learning import factored_learner, mask_of, rules_of, tabular_learner
from butfor.audit.run import run_audit
from butfor.audit.sampling import FLAGS
from butfor.audit.settings import (
    AUTO,
    CAUTION,
    FACTORED,
    FULL,
    LEARN,
    LOG,
    MOST_DECISIONS,
    SUMMARY,
    AuditSettings,
    check_censoring,
    factored_options,
)
from butfor.audit.shards.log import in_order
from butfor.audit.shards.run import audit_shards
from butfor.audit.shards.workers import Cluster, Workers
from butfor.evaluate.crossfit import Learn
from butfor.evaluate.rehearsal import rehearse
from butfor.log.checksums import check_log
from butfor.log.clusters import Clusters, fit_clusters
from butfor.log.episodes import Episodes
from butfor.log.read import Clusterer, Reading, read_log
from butfor.log.sections import Study
from butfor.log.sources import count_decisions
from butfor.models.caution import Caution
from butfor.models.policies import estimate_behavior
from butfor.types import Floats, Progress, enter_stage

NOT_ASKED = (
    "The study names the target's columns in the log, but another target was evaluated; "
    "--target log evaluates that one."
)
UNUSED = (
    "number = true had no effect: only classifiers take numbers uncut, and the model was learned "
    'from levels. Set learner = "logistic" or "boosting" in [model], or remove number.'
)


def audit_log(
    source: Any,
    study: str | Path,
    *,
    target: str | Path = LEARN,
    model: str = AUTO,
    missing: str = "error",
    unseen: str | None = None,
    prior: float = 0.0,
    smoothing: float = 0.0,
    mechanism: str = "gumbel-max",
    action_noise: str = "shared",
    noise_on: Sequence[str] | None = None,
    flags: int = FLAGS,
    review_size: int | None = None,
    draws: int = 5,
    intervals: int | None = None,
    models: int | None = None,
    rehearsal: bool = True,
    caution: Caution | None = CAUTION,
    time_step: float | str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Audit:
    """Read a log with its study file, learn the model, and audit a policy, in full detail.

    The log is read into memory; the episodes of the audit are in the order of their ids. For logs
    that do not fit into memory see `audit_into`.

    Parameters
    ----------
    source, study
        See `read_log`.
    target
        "learn" plans the policy on the model of the log. "log" is the policy whose actions or
        probabilities are columns of the log (target_action or target_probability in the study).
        Otherwise the path of a table of states, actions and probabilities (`target_from_table`).
    model : "auto", "factored" or "tabular"
        The kind of model to learn: one distribution per variable (`fit_factored`), or one per state
        and action (`fit_mdp`). "auto" is decided by `AuditSettings.kind`.
    missing : "error" or "uniform"
        How to treat states that the table leaves out.
    unseen, prior
        See `fit_mdp`.
    smoothing
        Added to the count of each action when the behavior is estimated (`estimate_behavior`).
    mechanism
        The assumed mechanism of transitions: the name of one of `MECHANISMS`.
    action_noise : "shared" or "fresh"
        See `Replay`.
    noise_on : optional
        State variables whose levels have the noise of transitions (`Episodes.state_labels`); by
        default those in the study's [noise], and without that section the next state as a whole.
    flags, review_size, intervals
        See `run_audit`.
    models : int, optional
        Number of models to draw for credible intervals (`credible_intervals`); 0 for none. Their
        prior is that of `credible_intervals`, whatever `prior` and `unseen`. By default 200 tabular
        or 50 factored ones; fewer, or none, of a tabular model with many states and steps.
    rehearsal
        Whether to rehearse the method that learns the target (`rehearse`): with tables or counts,
        and several state variables.
    caution : optional
        How a learned target avoids chasing luck (`policy_iteration`); None to take the model at its
        word.
    time_step : optional
        Takes the place of the study's time step: rows are put on a grid of this step, and the
        study's horizon and discounts are converted to it.
    """
    settings = AuditSettings(
        target=target,
        model=model,
        missing=missing,
        unseen=unseen,
        prior=prior,
        smoothing=smoothing,
        mechanism=mechanism,
        action_noise=action_noise,
        noise_on=noise_on,
        flags=flags,
        review_size=review_size,
        draws=draws,
        intervals=intervals,
        models=models,
        rehearsal=rehearsal,
        caution=caution,
        time_step=time_step,
        seed=seed,
        detail=FULL,
    )
    return _audit_in_memory(source, study, settings, progress)


def audit_into(
    source: Any,
    study: str | Path,
    out: str | Path,
    settings: AuditSettings,
    *,
    workers: Workers | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Audit:
    """Audit a log and write the audit's folder, in full detail or as a summary.

    Parameters
    ----------
    source, study
        See `read_log`. In summary detail each file is a shard, and each episode must be in one
        file only; a large log is best written as a folder of Parquet files.
    settings
        With `detail` "full" the whole log is kept in memory, and the audit is complete. With
        "summary" the files are read one after another and only sums are kept: intervals resample
        groups of episodes, cross-fitting uses one split, and there are no credible intervals, no
        FQE and no clusters. "auto" means "full" for logs of up to a million decisions, and
        "summary" for larger ones, with a Dask cluster and with `resume`.
    workers, resume, overwrite
        See `audit_shards`.

    Returns
    -------
    Audit
        In summary detail with the episodes shown only (`Audit.load(shown=True)`).
    """
    if settings.checksums is not None:
        enter_stage(progress, "Comparing checksums")
        check_log(source, settings.checksums)
    if _choose_detail(source, settings, workers, resume) == FULL:
        with claimed(out, AUDIT, overwrite=overwrite) as claim:
            audit = _audit_in_memory(source, study, settings, progress)
            enter_stage(progress, "Writing the audit")
            with claim.whole() as new:
                audit.write_files(new)
        return audit
    if settings.models:
        raise ValueError(
            "credible intervals need every episode in memory; leave --models out, or use "
            "--detail full"
        )
    audit_shards(
        source,
        study,
        out,
        replace(settings, models=0, detail=SUMMARY),
        workers=workers,
        resume=resume,
        overwrite=overwrite,
        progress=progress,
    )
    return Audit.load(out, shown=True)


def _choose_detail(
    source: Any, settings: AuditSettings, workers: Workers | None, resume: bool
) -> str:
    """Resolve "auto" by the other arguments and the size of the log."""
    in_shards = resume or isinstance(workers, Cluster)
    if settings.detail == FULL and in_shards:
        raise ValueError(
            "--resume, --scheduler and --local-cluster process files one by one; leave them out, "
            "or use --detail summary"
        )
    if settings.detail != AUTO:
        return settings.detail
    if in_shards:
        return SUMMARY
    return FULL if count_decisions(source) <= MOST_DECISIONS else SUMMARY


def _audit_in_memory(
    source: Any, study: str | Path, settings: AuditSettings, progress: Progress | None
) -> Audit:
    checked = settings.read_study(study)
    names = settings.noise(checked)
    enter_stage(progress, "Reading the log")
    reading, clusters = _read(source, checked, settings.seed)
    log = settings.widen(checked, reading.episodes)
    check_censoring(checked.evaluation, log)  # before the model is learned
    wide = log.combinations is not None
    kind = settings.kind(checked, log.state_variables, log.action_variables, wide=wide)
    learn = _learner(checked, settings, log, names, kind)
    enter_stage(progress, "Learning the model")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, planned = learn(log)
    if wide:
        model.stored_arrays()  # refuse early what could not be saved
    replay = settings.ask(
        log,
        model,
        planned if settings.learned else settings.given_target(log),
        # that of a wide log is learned like a variable
        None if wide else estimate_behavior(log, prior=settings.smoothing),
        checked.evaluation,
    )
    models, fewer = choose_models(replay, settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # already recorded above
        rehearsal = None
        if settings.rehearses(checked, log):
            enter_stage(progress, "Rehearsing without each variable")
            rehearsal = rehearse(
                log,
                _learner(checked, settings, log, (), kind),
                horizon=replay.horizon,
                discount=replay.discount,
                seed=settings.seed,
                progress=progress,
            )
        return run_audit(
            replay,
            models=models,
            rehearsal=rehearsal,
            flags=settings.flags,
            review_size=settings.review_size,
            intervals=settings.intervals,
            draws=settings.draws,
            seed=settings.seed,
            learn=learn if settings.learned else None,
            clusters=clusters,
            record=(replace(settings, caution=None) if wide else settings).record(
                source,
                checked,
                Path(study).read_text(encoding="utf-8"),
                probability=log.behavior_probability is not None,
                problems=reading.done,
                warnings=[str(warning.message) for warning in caught]
                + [CREDIBLE] * bool(names and models)
                + [fewer] * bool(fewer)
                + [NOT_ASKED] * (log.target_probability is not None and settings.target != LOG)
                + [UNUSED] * bool(checked.number_columns() and not settings.classifies(checked)),
            ),
            progress=progress,
        )


def _read(source: Any, study: Study, seed: int) -> tuple[Reading, Clusters | None]:
    """Read a log into memory, its episodes in the order of their ids."""
    clusters: list[Clusters] = []
    reading = read_log(source, study, clusterer=_clusterer(clusters, seed))
    return in_order(reading), clusters[0] if clusters else None


def _learner(
    study: Study, settings: AuditSettings, log: Episodes, names: Sequence[str], kind: str
) -> Learn:
    """Return the function that learns this kind of model, with noise on the named variables."""
    discount = study.evaluation.planning_discount
    if kind == FACTORED:
        return factored_learner(
            log,
            discount=discount,
            horizon=study.evaluation.horizon,
            caution=settings.caution,
            mask=mask_of(rules_of(study), log),
            **factored_options(study),
        )
    return tabular_learner(
        discount=discount,
        unseen=settings.unseen,
        prior=settings.prior,
        labels=log.state_labels(*names) if names else None,
        caution=settings.caution,
        mask=mask_of(rules_of(study), log),
    )


def _clusterer(found: list[Clusters], seed: int) -> Clusterer:
    """Return a function that clusters the rows of a log and appends the clusters to `found`."""

    def cluster(values: Floats, columns: Sequence[str], count: int) -> NDArray[np.int64]:
        found.append(fit_clusters(values, columns, count, seed=seed))
        return found[-1].assign(values)

    return cluster
