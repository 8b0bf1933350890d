"""The audit: everything that is known about a policy on a log, in one object and one folder."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

import butfor
from butfor.audit.arrays import write_arrays
from butfor.audit.flags import target_actions
from butfor.audit.folders import whole_folder
from butfor.audit.meta import META, Counts, CredibleSettings, Meta, Parameters, Variables, read_meta
from butfor.audit.model import digest_of, model_arrays, model_variables
from butfor.audit.reading import (
    CLUSTERS,
    MODEL,
    TABLES,
    count_decisions,
    read_clusters,
    read_model,
    read_tables,
)
from butfor.audit.tables import (
    check_credible,
    choose_controls,
    count_all,
    course_tables,
    draw_table,
    episode_table,
    judged_table,
    shown_table,
    step_table,
    warnings_of,
    with_credible,
)
from butfor.audit.writing import write_frame
from butfor.checks import check_policy, check_whole
from butfor.evaluate.crossfit import Learn
from butfor.evaluate.decomposition import check_decomposition, decompose
from butfor.evaluate.diagnostics import diagnose, diagnose_hidden
from butfor.evaluate.estimate import estimate_values
from butfor.evaluate.hidden import refuse_given
from butfor.evaluate.support import judge_with_support
from butfor.hidden.chain import first_values
from butfor.hidden.latent import latent_posterior
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.policies import (
    BeliefPolicy,
    FiniteController,
    LatentPolicy,
    Policy,
    as_array,
)
from butfor.hidden.task import prepare_hidden_task
from butfor.log.clusters import Clusters
from butfor.log.episodes import Episodes
from butfor.mechanisms.gumbel_max import GumbelMax
from butfor.mechanisms.protocol import Mechanism
from butfor.models.mdp import TabularMDP
from butfor.models.policies import action_counts, estimate_behavior
from butfor.random import check_seed
from butfor.replay.bounds import counterfactual_bounds
from butfor.replay.outcomes import Draws, rank_flags
from butfor.replay.posterior import Credible
from butfor.replay.steps import walk_and_judge
from butfor.types import Floats, Progress

REVIEWS = "reviews.sqlite"  # written by reviewers: survives when an audit is written again
REVIEW_FILES = (REVIEWS, f"{REVIEWS}-wal", f"{REVIEWS}-shm")  # the last verdicts may be in these
MOST_LOADED = 100_000  # episodes: of larger audits pages read those that they show


@dataclass(frozen=True, eq=False)
class Audit:
    """Estimates, outcomes of every episode, decomposition and flags of a target policy."""

    meta: Meta  # version, parameters, seed, digest of the inputs, counts, timings
    estimates: pd.DataFrame  # a row an estimator
    diagnostics: pd.DataFrame  # a row a check: what to know before believing any of it
    episodes: pd.DataFrame  # a row an episode
    decomposition: pd.DataFrame  # pieces that add up to the difference
    steps: pd.DataFrame  # a row an observed step, and one for each final state
    draws: pd.DataFrame  # steps of drawn trajectories of flagged episodes and controls
    courses: pd.DataFrame  # theirs exactly: probability of each level at each step
    course_steps: pd.DataFrame  # and what that rests on
    model: TabularMDP | TabularPOMDP
    behavior: Floats  # [S, A]; where the state is hidden, by what was seen
    target: Floats  # [S, A]
    clusters: Clusters | None = None  # what the states are made of, if they are clusters
    latent_behavior: Floats | None = None  # [H, A] of a behaviour that saw the hidden state
    decisions: NDArray[np.int64] | None = None  # [S, A] in the log, where not all of it was read

    @property
    def partial(self) -> bool:
        """Whether there are episodes that were not read."""
        return len(self.episodes) < self.meta.counts.episodes

    @property
    def flagged(self) -> pd.DataFrame:
        """The flagged episodes, by rank."""
        return self.episodes[self.episodes["rank"] > 0].sort_values("rank")

    def outcome_table(self, *, expected: bool = False) -> pd.DataFrame:
        """Episodes by observed (rows) and counterfactual outcome (columns), none last."""
        cells = self.decomposition[self.decomposition["by"] == "outcome"]
        names = self.meta.outcome_names
        value = "expected_episodes" if expected else "episodes"
        table = cells.pivot(index="observed", columns="counterfactual", values=value)
        return table.loc[names, names].rename_axis(index="observed", columns="under the target")

    def log(self) -> Episodes:
        """Return the log that was audited, from the table of steps."""
        codes = self.steps["episode"].to_numpy()
        final = (self.steps["action"] < 0).to_numpy()
        rows = np.flatnonzero(~final)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(codes[rows]))])
        columns = [name for name in self.steps if name.startswith("side.")]
        side = self.steps[columns].rename(columns=lambda name: name.removeprefix("side."))
        variables = self.meta.variables
        order = np.concatenate([rows, np.flatnonzero(final)])
        frame = side.iloc[order].reset_index(drop=True)
        for variable in variables.side:
            frame[variable.name] = pd.Categorical(
                frame[variable.name], list(variable.levels), ordered=True
            )
        names = self.meta.outcome_names
        state = self.steps["state"].to_numpy(dtype=np.int32)
        outcome = self.episodes["observed_outcome"].map({n: i for i, n in enumerate(names)})
        return Episodes(
            state=state[rows],
            action=self.steps["action"].to_numpy(dtype=np.int32)[rows],
            next_state=state[rows + 1],
            reward=self.steps["reward"].to_numpy(dtype=np.float64)[rows],
            offsets=offsets,
            outcome=np.where(outcome == len(names) - 1, -1, outcome).astype(np.int32),
            id=self.episodes["id"].to_numpy(),
            final_key=self.episodes["final_key"].to_numpy(dtype=np.int64),
            horizon=self.meta.parameters.horizon,
            state_variables=variables.state,
            action_variables=variables.action,
            outcomes=self.model.outcomes,
            none_name=self.meta.none,
            side=frame if len(frame.columns) else None,
            side_variables=variables.side,
        )

    def trajectory(self, identifier: Any) -> tuple[Episodes, Draws]:
        """Return one flagged episode and its drawn trajectories, to look at."""
        mine = self.draws[self.draws["id"] == identifier]
        if len(mine) == 0:
            raise ValueError(
                f"episode {identifier!r} has no drawn trajectories; flagged episodes have: "
                f"{', '.join(map(str, self.flagged['id'].tolist()[:8]))} …"
            )
        log = self.log()
        one = log.select([int((log.id == identifier).argmax())])
        count, horizon = int(mine["draw"].max()) + 1, log.horizon
        state = np.full((1, count, horizon + 1), -1, dtype=np.int32)
        action = np.full((1, count, horizon), -1, dtype=np.int32)
        reward = np.zeros((1, count, horizon))
        draw, step = mine["draw"].to_numpy(), mine["step"].to_numpy()
        state[0, draw, step] = mine["state"]
        decided = (mine["action"] >= 0).to_numpy()
        action[0, draw[decided], step[decided]] = mine["action"][decided]
        reward[0, draw[decided], step[decided]] = mine["reward"][decided]
        return one, Draws(episodes=one, state=state, action=action, reward=reward)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the audit as a folder, whole or not at all.

        An existing audit is only replaced with `overwrite`, and its reviews are kept.
        """
        if self.partial:
            raise ValueError("only some of the episodes were read; load all of them to save them")
        with whole_folder(folder, marker=META, overwrite=overwrite, keep=REVIEW_FILES) as new:
            tables = {name: getattr(self, name) for name in TABLES}
            policies = {"behavior": self.behavior, "target": self.target}
            if self.latent_behavior is not None:
                policies["latent_behavior"] = self.latent_behavior
            write_audit(new, tables, self.model, policies, self.meta)
            if self.clusters is not None:
                write_arrays(new / CLUSTERS, self.clusters.arrays())
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path, *, shown: bool = False) -> Audit:
        """Read an audit folder; one that is damaged is refused, with the file and what is wrong.

        With `shown` only the flagged episodes and the controls are read, and their steps, which
        then belong to positions among the episodes read: enough for a report and a review, whatever
        the size of the log. `meta.counts` is about all episodes, and so is `decisions`.
        """
        path = Path(folder)
        meta = _read_meta(path)
        model, behavior, target, latent_behavior = read_model(path / MODEL, meta)
        clusters = read_clusters(path / CLUSTERS) if (path / CLUSTERS).is_file() else None
        return cls(
            meta=meta,
            **read_tables(path, meta, shown=shown),
            model=model,
            behavior=behavior,
            target=target,
            clusters=clusters,
            latent_behavior=latent_behavior,
            decisions=count_decisions(path, meta) if shown else None,
        )


def load_for_readers(folder: str | Path) -> Audit:
    """Read an audit folder for pages: of a large one the episodes that they show."""
    count = _read_meta(Path(folder)).counts.episodes
    return Audit.load(folder, shown=count > MOST_LOADED)


def _read_meta(folder: Path) -> Meta:
    missing = [
        name
        for name in (META, MODEL, *(f"{table}.parquet" for table in TABLES))
        if not (folder / name).is_file()
    ]
    if missing:
        raise FileNotFoundError(
            f"{folder} is no audit: it has no {', '.join(missing)}; "
            "give a folder that Audit.save or `butfor` wrote"
        )
    return read_meta(folder / META)


def write_audit(
    folder: Path,
    tables: Mapping[str, pd.DataFrame],
    model: TabularMDP | TabularPOMDP,
    policies: Mapping[str, Floats],
    meta: Meta,
) -> None:
    """Write files of an audit into a folder that is not yet anybody's."""
    for name, table in tables.items():
        write_frame(folder / f"{name}.parquet", table)
    write_arrays(folder / MODEL, model_arrays(model) | dict(policies))
    (folder / META).write_text(meta.text(), encoding="utf-8")


def run_audit(
    episodes: Episodes,
    model: TabularMDP | TabularPOMDP,
    target: ArrayLike,
    *,
    behavior: Policy | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    discount: float = 1.0,
    estimators: Sequence[str] | None = None,
    flags: int = 60,
    draws: int = 5,
    seed: int = 0,
    learn: Learn | None = None,
    truth: Episodes | float | None = None,
    interval: str = "percentile",
    resamples: int | None = None,
    relearn: bool = False,
    behavior_probability: ArrayLike | None = None,
    clusters: Clusters | None = None,
    credible: Credible | None = None,
    record: Mapping[str, Any] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Judge a target policy on a log: estimates, every episode's outcome, decomposition, flags.

    Parameters
    ----------
    model, target, behavior, mechanism, action_noise, horizon, discount
        See `counterfactual_outcomes`. With a TabularPOMDP the target is one on the last
        observation, and there are no cross-fitted estimates, credible intervals or clusters.
    estimators
        See `estimate_values`.
    flags : int
        How many episodes to flag at most.
    draws : int
        Trajectories to draw for each flagged episode.
    learn : optional
        The function that made model and target of this log, log → (model, target). With it the
        estimates include cross-fitted ones: a target judged on the log that it was learned from
        has picked the luck of its model.
    truth : optional
        Episodes under the target in the world that made the log, or its value there: simulators
        only.
    interval, resamples, relearn
        See `estimate_values`. Without `relearn` intervals keep model and policy as they are, which
        is too narrow for a policy that was learned from the log.
    behavior_probability : [N], optional
        With which each logged action was taken, where the log tells: enters importance weights.
    clusters : optional
        What the states were made of, to be saved with the audit.
    credible : optional
        What `credible_intervals` found for these episodes and this target; its columns
        `low_credible`, … stand beside the bounds, never mixed with them.
    record : optional
        What else should stand in `meta`: words, problems (what was done about them), warnings,
        target (where it is from), made_by (how model and target were made).
    progress : optional
        Called with (done, in all), first of the episodes, then of the resamples.
    """
    started = time.perf_counter()
    check_whole(flags, "flags", 0, "a whole number")
    check_seed(seed)
    hidden = isinstance(model, TabularPOMDP)
    terminal = "visits" if isinstance(model, TabularPOMDP) else model.terminal
    if hidden:
        refuse_given(
            learn=learn,
            relearn=relearn,
            behavior_probability=behavior_probability,
            clusters=clusters,
            credible=credible,
        )
        if isinstance(target, FiniteController | LatentPolicy | BeliefPolicy):
            raise ValueError(
                f"an audit judges a policy on the last observation, not a {type(target).__name__}; "
                "counterfactual_outcomes takes it"
            )
    policy = check_policy(as_array(target), episodes.n_states, model.n_actions, "target")
    if behavior is None or isinstance(behavior, FiniteController | LatentPolicy | BeliefPolicy):
        known = estimate_behavior(episodes, terminal=terminal)
    else:
        known = check_policy(behavior, episodes.n_states, model.n_actions, "behavior")
    given = behavior if hidden else as_array(known if behavior is None else behavior)
    options: dict[str, Any] = {
        "behavior": given,
        "mechanism": mechanism,
        "action_noise": action_noise,
    }
    passing: dict[str, Any] = {
        "horizon": horizon,
        "discount": discount,
        "threads": threads,
        "progress": progress,
    }
    if isinstance(model, TabularPOMDP):
        result, walked = walk_and_judge(episodes, model, policy, **options, **passing)
        unsupported = np.zeros(len(episodes))
    else:
        result, walked, unsupported = judge_with_support(
            episodes, model, policy, **options, **passing
        )
    outcomes_done = time.perf_counter()
    log = result.episodes
    options["horizon"] = result.horizon
    bounds = counterfactual_bounds(
        log,
        model,
        policy,
        behavior=given,
        action_noise=action_noise,
        horizon=result.horizon,
        discount=discount,
        threads=threads,
    )
    rank = rank_flags(result, flags)
    control = choose_controls(rank, log.id, seed)
    actions = target_actions(log, policy, known, shared=action_noise == "shared")
    judged = judged_table(result, actions, unsupported, walked)
    known_of = shown_table(
        result, actions, unsupported, walked, bounds, rank, control, model, policy, options
    )
    table = episode_table(judged, known_of, np.arange(len(log)))
    if credible is not None:
        table = pd.concat([table, check_credible(credible, log).frame()], axis=1)
    estimates = estimate_values(
        episodes,
        model,
        policy,
        estimators=estimators,
        behavior=given,
        behavior_probability=behavior_probability,
        horizon=result.horizon,
        discount=discount,
        interval=interval,
        resamples=resamples,
        seed=seed,
        learn=learn,
        relearn=relearn,
        truth=truth,
        counterfactuals=result,
        progress=progress,
    )
    decomposition = decompose(result)
    whole = result.expected_return.mean() - result.observed_return.mean()
    gap = check_decomposition(decomposition, float(whole))
    counts = count_all(result, model, policy, rank)
    estimated = time.perf_counter()
    shown = np.flatnonzero((rank > 0) | control)
    drawn = draw_table(log, model, policy, shown, draws, seed, options)
    courses, course_steps = course_tables(log, model, policy, shown, walked, options)
    if isinstance(model, TabularPOMDP):
        task = prepare_hidden_task(episodes, model, policy, behavior=given, horizon=result.horizon)
        diagnostics = diagnose_hidden(
            result,
            first_values(task, discount),
            latent_posterior(log, model, behavior=given),
            walked,
            policy,
        )
    else:
        diagnostics = diagnose(
            episodes,
            model,
            policy,
            behavior=known,
            behavior_probability=behavior_probability,
            horizon=result.horizon,
            discount=discount,
            learn=learn,
            seed=seed,
        )
    meta = describe_audit(
        result.episodes,
        model,
        parameters=Parameters(
            action_noise=action_noise,
            mechanism=repr(GumbelMax() if mechanism is None else mechanism),
            horizon=result.horizon,
            discount=float(discount),
            terminal=terminal,
            hidden=hidden,
            latent_behavior=isinstance(behavior, LatentPolicy),
            flags=int(flags),
            draws=int(draws),
            credible=None
            if credible is None
            else CredibleSettings(
                models=credible.models, prior=credible.prior, confidence=credible.confidence
            ),
        ),
        seed=seed,
        digest=digest_of(episodes, model, policy, known, behavior),
        counts=counts,
        gap=gap,
        seconds={
            "outcomes": outcomes_done - started,
            "estimates": estimated - outcomes_done,
            "all": time.perf_counter() - started,
        },
        record=record,
    )
    return Audit(
        meta=meta,
        estimates=with_credible(estimates, credible),
        diagnostics=diagnostics,
        episodes=table,
        decomposition=decomposition,
        steps=step_table(log, policy, action_counts(episodes)),
        draws=drawn,
        courses=courses,
        course_steps=course_steps,
        model=model,
        behavior=known,
        target=policy,
        clusters=clusters,
        latent_behavior=behavior.table if isinstance(behavior, LatentPolicy) else None,
    )


def describe_audit(
    log: Episodes,
    model: TabularMDP | TabularPOMDP,
    *,
    parameters: Parameters,
    seed: int,
    digest: str,
    counts: Mapping[str, int],
    gap: float,
    seconds: Mapping[str, float],
    record: Mapping[str, Any] | None,
) -> Meta:
    """Return the `meta` of an audit, as it is read back from a folder."""
    given = record or {}
    return Meta(
        butfor=butfor.__version__,
        parameters=parameters,
        seed=int(seed),
        digest=digest,
        counts=Counts(**counts),
        outcome_details=model.outcomes,
        none=log.none_name,
        variables=Variables(
            state=log.state_variables,
            action=log.action_variables,
            side=log.side_variables,
            **model_variables(model),
        ),
        warnings=(*warnings_of(counts, parameters.terminal), *given.get("warnings", ())),
        words=dict(given.get("words", {})),
        problems=dict(given.get("problems", {})),
        target=given.get("target", "given"),
        made_by=dict(given.get("made_by", {})),
        decomposition_gap=gap,
        seconds={name: round(time, 4) for name, time in seconds.items()},
    )
