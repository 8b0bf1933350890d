"""run_audit: evaluate a target policy on a log in memory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

import butfor
from butfor.audit.audit import Audit
from butfor.audit.drawing import drawing_order, log_digest
from butfor.audit.meta import (
    Counts,
    CredibleSettings,
    FactorSettings,
    Meta,
    Parameters,
    RehearsalSettings,
    SamplingDesign,
    Variables,
)
from butfor.audit.model import digest_of
from butfor.audit.numbers import Numbers, numbers_of
from butfor.audit.observed_steps import step_table
from butfor.audit.sampling import FLAGS, check_sizes, flag_notes, select
from butfor.audit.settings import LEARNED_HERE
from butfor.audit.show import show
from butfor.audit.tables import (
    count_pairs,
    end_notes,
    episode_table,
    interval_notes,
    judged_table,
    row_notes,
    sampling_notes,
    warnings_of,
    with_credible,
)
from butfor.evaluate.crossfit import Learn
from butfor.evaluate.diagnostics.table import check_model
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimate import estimate_episodes
from butfor.evaluate.rehearsal import Rehearsal
from butfor.evaluate.wording import counted
from butfor.hidden.policies import LatentPolicy, Policy
from butfor.log.clusters import Clusters
from butfor.log.episodes import Episodes
from butfor.mechanisms.protocol import Mechanism
from butfor.models.factored import AnyFactor
from butfor.models.policies import action_counts
from butfor.models.row_policy import RowPolicy
from butfor.random import check_seed
from butfor.replay.credible import Credible, credible_intervals
from butfor.replay.engine import Model
from butfor.replay.outcomes import DRAWS
from butfor.replay.replay import Replay, as_replay, refuse_hidden
from butfor.types import Progress, enter_stage


def run_audit(
    episodes: Episodes | Replay,
    model: Model | None = None,
    target: Policy | RowPolicy | None = None,
    *,
    behavior: Policy | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    discount: float = 1.0,
    censored: str = "continue",
    hazard: ArrayLike | None = None,
    estimators: Sequence[str] | None = None,
    flags: int = FLAGS,
    review_size: int | None = None,
    draws: int = 5,
    intervals: int | None = None,
    seed: int = 0,
    learn: Learn | None = None,
    truth: Episodes | float | None = None,
    interval: str = "percentile",
    resamples: int | None = None,
    relearn: bool = False,
    behavior_probability: ArrayLike | None = None,
    clusters: Clusters | None = None,
    credible: Credible | None = None,
    models: int = 0,
    rehearsal: Rehearsal | None = None,
    record: Mapping[str, Any] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Evaluate a target policy on a log: estimates, every episode's outcome, checks and flags.

    Parameters
    ----------
    episodes, model, target
        The question: a `Replay` alone, or a log, its model and the target. With a `TabularPOMDP`
        the target must be a policy on the last observation, and there are no cross-fitted
        estimates, credible intervals or clusters. Where states cannot be enumerated, results are
        shares of 200 draws per episode, and there are no bounds and no credible intervals.
    behavior, behavior_probability, mechanism, action_noise, horizon, discount, censored, hazard
        See `Replay`. A behavior that is not given is estimated once, from the whole log.
    estimators
        See `estimate_values`.
    flags : int
        Maximum number of episodes to flag; at most half of the review is flagged.
    review_size : int, optional
        Number of episodes to review: the flagged ones, and controls drawn at random from strata of
        the others. By default there are as many controls as flags, and at least 40.
    draws : int
        Number of trajectories to draw for each flagged episode and control.
    intervals : int, optional
        Number of episodes drawn at random whose bounds and credible intervals are computed besides
        those to review; of all others they are nan. By default all of up to 1000 episodes, and 500
        of a larger log.
    learn : optional
        The function that made model and target from this log, log → (model, target). With it the
        estimates include cross-fitted ones: a target evaluated in the model that it was learned
        from looks too good. `factored_learner` makes one, for logs of any width. By default the
        recipe of a target that is a `Plan` taught by episodes of this log.
    truth : optional
        Episodes under the target in the world that produced the log, or its value there (for
        simulators).
    interval, resamples, relearn
        See `estimate_values`.
    clusters : optional
        The clusters that are the states, to be saved with the audit.
    credible : optional
        The result of `credible_intervals` for these episodes and this target; it adds the columns
        `low_credible`, `mean_credible_weaker`, ….
    models : int
        Number of models to draw for credible intervals, if these are not given; 0 for none.
    rehearsal : optional
        The result of `rehearse` for this log and `learn`; it adds a check.
    record : optional
        Additional entries of `meta`: words, time_step, problems (how they were handled), warnings,
        target (where it comes from), made_by (how model and target were made).
    progress : optional
        Called with (done, total) in each stage; a `Stages` is also told their names.
    """
    started = time.perf_counter()
    check_sizes(flags, review_size, intervals)
    check_seed(seed)
    asked = as_replay(
        episodes,
        model,
        target,
        behavior=behavior,
        behavior_probability=behavior_probability,
        mechanism=mechanism,
        action_noise=action_noise,
        horizon=horizon,
        discount=discount,
        censored=censored,
        hazard=hazard,
    )
    refuse_hidden(asked, learn=learn, relearn=relearn, clusters=clusters, credible=credible)
    if not (asked.sampled or isinstance(asked.target, np.ndarray)):
        raise ValueError(
            "an audit evaluates a policy on the last observation, not a "
            f"{type(asked.target).__name__}; Replay.outcomes accepts it"
        )
    if credible is not None and len(credible.expected_return) != len(asked):
        raise ValueError(
            f"credible is about {len(credible.expected_return)} episodes, but the log has "
            f"{len(asked)}; compute it for these episodes"
        )
    if asked.sampled and asked.seed != seed:
        asked = asked.ask(seed=seed)
    noun = (record or {}).get("words", {}).get("episode", "episode")
    enter_stage(progress, f"Replaying {counted(len(asked), noun)}")
    replay = asked.pin_behavior().compute(threads=threads, progress=progress)
    computed = time.perf_counter()
    chosen = select(
        replay.outcomes(),
        drawing_order(replay.log.id, log_digest(replay.episodes, seed), seed),
        flags=flags,
        review_size=review_size,
        intervals=intervals,
        seed=seed,
    )
    enter_stage(progress, f"Bounds of {counted(len(chosen.known), noun)}")
    shown = show(
        replay,
        chosen.rank,
        chosen.control,
        chosen.known,
        draws=draws,
        seed=seed,
        threads=threads,
        progress=progress,
    )
    judged = judged_table(replay, continued=bool(replay.continues.any()))
    table = episode_table(judged, shown.table, chosen.known, chosen.design)
    if models and credible is None:
        refuse_hidden(asked, models=models)
        enter_stage(progress, f"Credible intervals from {models} models")
        everyone = len(chosen.known) == len(replay)
        credible = credible_intervals(
            replay,
            models=models,
            seed=seed,
            only=None if everyone else chosen.known,
            sample=None if everyone else chosen.drawn,
            threads=threads,
            progress=progress,
        )
    if credible is not None:
        table = pd.concat([table, credible.frame()], axis=1)
    enter_stage(progress, "Estimating the value of the policy")
    sample = EpisodeColumns(replay, seed)
    estimates, crossed = estimate_episodes(
        sample,
        estimators=estimators,
        interval=interval,
        resamples=resamples,
        learn=learn,
        relearn=relearn,
        truth=truth,
        progress=progress,
    )
    enter_stage(progress, "Checking the model")
    checks = check_model(replay, learn, seed)
    if rehearsal is not None:
        rehearsal = replace(rehearsal, observed=float(replay.usual_return.mean()))
        checks.append(rehearsal.row())
    numbers = numbers_of(sample, estimates, checks, crossed)
    done = time.perf_counter()
    meta = describe_audit(
        replay,
        numbers,
        log=replay.log,
        flags=flags,
        design=chosen.design,
        draws=draws,
        drawn=len(chosen.drawn),
        seed=seed,
        digest=digest_of(replay),
        credible=credible,
        rehearsal=rehearsal,
        seconds={
            "outcomes": computed - started,
            "estimates": done - computed,
            "all": done - started,
        },
        record=record,
    )
    return Audit(
        meta=meta,
        estimates=with_credible(numbers.estimates, credible),
        diagnostics=numbers.diagnostics,
        episodes=table,
        decomposition=numbers.decomposition,
        steps=step_table(replay.log, replay.target_table, replay.step_cases()),
        **shown.drawn,
        model=replay.model,
        behavior=replay.behavior_table,
        target=replay.target_table,
        clusters=clusters,
        latent_behavior=_latent_table(replay),
        combinations=shown.combinations,
        rehearsal=rehearsal,
    ).prepared()


def _latent_table(replay: Replay) -> Any:
    """The behavior on hidden states [H, A], if it depended on them."""
    return replay.behavior.table if isinstance(replay.behavior, LatentPolicy) else None


def _source_of(replay: Replay) -> str:
    """Say where the target comes from, as far as that is known."""
    if replay.learned_here:
        return LEARNED_HERE
    if replay.plan is not None and replay.plan.recipe.taught is not None:
        return "learned from other episodes"
    return "given, fixed before this log was seen as far as butfor can know"


def _describe_factor(factor: AnyFactor) -> FactorSettings:
    known = {
        name: value
        for name in ("strength", "score")
        if np.isfinite(value := float(getattr(factor, name)))
    }
    return FactorSettings(
        variable=factor.variable,
        parents=factor.parents,
        source=factor.source,
        every=factor.every,
        **known,
    )


def describe_audit(
    replay: Replay,
    numbers: Numbers,
    *,
    log: Episodes,
    flags: int,
    design: SamplingDesign,
    draws: int,
    drawn: int,
    seed: int,
    digest: str,
    credible: Credible | None,
    rehearsal: Rehearsal | None = None,
    seconds: Mapping[str, float],
    record: Mapping[str, Any] | None,
) -> Meta:
    """Return the `meta` of an audit.

    `log` has the variables of the whole log; `replay` may be about a small example of it. `drawn`
    is the size of the random sample.
    """
    given = record or {}
    model = replay.model
    decisions = action_counts(replay.log) if replay.hidden else replay.learned.counts
    counts = Counts(
        episodes=numbers.episodes,
        steps=numbers.steps,
        censored=numbers.censored,
        flagged=design.strata[0].episodes,
        **count_pairs(model, replay.target_table, decisions),
    )
    return Meta(
        butfor=butfor.__version__,
        parameters=Parameters(
            action_noise=replay.action_noise,
            mechanism=repr(replay.mechanism),
            horizon=replay.horizon,
            discount=replay.discount,
            terminal=replay.terminal,
            hidden=replay.hidden,
            latent_behavior=isinstance(replay.behavior, LatentPolicy),
            noise=replay.noise,
            factors=tuple(map(_describe_factor, replay.factors)),
            reward_parents=replay.factored.rewards.parents if replay.factors else (),
            flags=int(flags),
            draws=int(draws),
            intervals=int(drawn),
            credible=None
            if credible is None
            else CredibleSettings(
                models=credible.models,
                prior=credible.prior,
                confidence=credible.confidence,
                these=credible.these,
            ),
            censored=replay.censored,
            censoring=None if replay.hazard is None else "ipcw",
            by_row=replay.by_row,
            sampled=DRAWS if replay.sampled else 0,
        ),
        seed=int(seed),
        digest=digest,
        counts=counts,
        outcome_details=model.outcomes,
        none=log.none_name,
        variables=Variables(
            state=log.state_variables,
            action=log.action_variables,
            side=log.side_variables,
            side_given=log.side_given,
            hidden=replay.pomdp.hidden_variables if replay.hidden else (),
            latent=replay.pomdp.state_variables if replay.hidden else (),
        ),
        warnings=(
            *warnings_of(counts, replay.terminal),
            *end_notes(replay, log, numbers),
            *sampling_notes(replay),
            *interval_notes(replay, counts.episodes, drawn),
            *row_notes(replay),
            *flag_notes(int(flags), design),
            *given.get("warnings", ()),
        ),
        words=dict(given.get("words", {})),
        time_step=given.get("time_step"),
        problems=dict(given.get("problems", {})),
        target=given.get("target", _source_of(replay)),
        made_by=dict(given.get("made_by", {})),
        decomposition_gap=numbers.gap,
        rehearsal=None
        if rehearsal is None
        else RehearsalSettings(value=rehearsal.value, observed=rehearsal.observed),
        design=design,
        fresh_chances=numbers.fresh_chances,
        usual_chances=numbers.usual_chances,
        date=datetime.now(UTC).date().isoformat(),
        seconds={name: round(passed, 4) for name, passed in seconds.items()},
    )
