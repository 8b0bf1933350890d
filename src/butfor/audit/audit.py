"""Audit: all results about a policy on a log, in one object and one folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.audit.arrays import write_arrays
from butfor.audit.files import OPTIONAL, SCHEMAS, TARGET, write_table
from butfor.audit.folders import Kind, read_settled, whole_folder
from butfor.audit.meta import META, SIGN, Meta, read_meta
from butfor.audit.model import CLUSTERS, MODEL, read_clusters, read_model
from butfor.audit.policy import PolicyView, share_changed
from butfor.audit.reading import check_digests, count_decisions, read_rehearsal, read_tables
from butfor.evaluate.conclusion import Conclusion, conclude
from butfor.evaluate.diagnostics.lights import ALARMS
from butfor.evaluate.estimators.table import CONTINUED, CROSS_FITTED, OBSERVED, RECORDS
from butfor.evaluate.finding import FRESH, REPLAYED, Reviewed, Scale, told_digits
from butfor.evaluate.rehearsal import Rehearsal
from butfor.evaluate.wording import counted, digits_for, in_words, share, visible
from butfor.log.checksums import sha256_of
from butfor.log.clusters import CLUSTER, Clusters
from butfor.log.combinations import Combinations, state_codes
from butfor.log.episodes import Episodes
from butfor.log.fields import LOST
from butfor.log.recorded import FILLED, RAW, TIME
from butfor.log.variables import Variable
from butfor.printed import Printed
from butfor.replay.draws import Draws
from butfor.replay.engine import Model
from butfor.types import Floats

REVIEWS = "reviews.sqlite"  # written by reviewers; no file of AUDIT, so it is never replaced
AUDIT = Kind(
    META, SIGN, (META, MODEL, CLUSTERS, *(f"{table}.parquet" for table in SCHEMAS | OPTIONAL))
)
NAMED = 3  # flagged episodes that `print(audit)` names
SAME = 1e-9  # shares that are no larger are none
RARE = 0.001  # chances below which an end without an outcome is not worth a column
MOST_LOADED = 100_000  # episodes; of larger audits only the episodes shown are loaded


@dataclass(frozen=True, eq=False, repr=False)
class Audit(Printed):
    """Estimates, outcomes of every episode, decomposition and flags of a target policy."""

    meta: Meta  # version, parameters, seed, digest of the inputs, counts, timings
    estimates: pd.DataFrame  # one row per estimator
    diagnostics: pd.DataFrame  # one row per check
    episodes: pd.DataFrame  # one row per episode
    decomposition: pd.DataFrame  # pieces that add up to the difference
    steps: pd.DataFrame  # one row per observed step, and one per final state
    draws: pd.DataFrame  # steps of drawn trajectories of flagged episodes and controls
    courses: pd.DataFrame  # their exact courses: probability of each level at each step
    course_steps: pd.DataFrame  # the evidence for these courses
    model: Model
    behavior: Floats  # [S, A]; with a hidden state, by observation
    target: Floats  # [S, A]
    clusters: Clusters | None = None  # the states, if they are clusters
    latent_behavior: Floats | None = None  # [H, A] of a behavior that depended on a hidden state
    decisions: NDArray[np.int64] | None = None  # [S, A] in the log, if only a part was read
    combinations: Combinations | None = None  # of the states of a wide log, then of drawn ones
    rehearsal: Rehearsal | None = None  # of the method that learned the target

    def _title(self) -> str:
        counts, kind = self.meta.counts, "factored" if self.meta.parameters.factors else "tabular"
        size = f"{counted(counts.states, 'state')} and {counted(counts.actions, 'action')}"
        title = (
            f"Audit of {counted(counts.episodes, self.noun)} with "
            f"{counted(counts.steps, 'decision')}; "
            f"{'hidden-state' if self.meta.parameters.hidden else kind} model of {size}"
        )
        return visible(in_words(title, self.noun))

    def _facts(self) -> Mapping[str, str]:
        return self._summary

    def prepared(self) -> Audit:
        """Return the audit after working out what printing it shows."""
        assert self._summary
        return self

    @cached_property
    def _summary(self) -> dict[str, str]:
        flagged = self.flagged["id"].astype(str)
        alarms = self.diagnostics.loc[self.diagnostics["light"].isin(ALARMS), "check"]
        named = ", ".join(flagged.head(NAMED)) + " …" * (len(flagged) > NAMED)
        facts = {
            "policy": f"{self.meta.target}; it would change {share(self.policy.changed)} of the "
            "decisions",
            "finding": self.conclusion.sentence,
            **self._headlines(),
            "look at": ", ".join(alarms) or "no check has a problem",
            "flagged": f"{counted(len(flagged), self.noun)}{f' ({named})' * bool(named)}",
            "more": ".estimates, .diagnostics, .flagged, .policy_table(); write_report",
        }
        return {name: visible(in_words(said, self.noun)) for name, said in facts.items()}

    def _headlines(self) -> dict[str, str]:
        """Return what was observed and up to three estimates, cross-fitted if there are any."""
        found = self.estimates.set_index("estimator")
        fresh = [name for name in CROSS_FITTED if name in found.index] or ["MB", "CF"]
        weighted = () if CONTINUED in found.index else ("WIS",)
        rows = found.loc[[n for n in (*RECORDS, *weighted, *fresh) if n in found.index]]
        digits = digits_for(rows["value"], rate=self.is_rate)
        return {
            str(row.Index): digits.estimate(row.value, row.low, row.high)
            for row in rows.itertuples()
        }

    @property
    def conclusion(self) -> Conclusion:
        """What the estimates say, and what follows from all checks together."""
        return self.conclude()

    def conclude(self, reviewed: Reviewed | None = None) -> Conclusion:
        """Return the conclusion, which also depends on what reviewers expect, if that is given."""
        return conclude(
            self.estimates,
            self.diagnostics,
            self.scale(),
            changed=self.policy.changed,
            reviewed=reviewed,
        )

    def scale(self) -> Scale:
        """Return how findings are told: per 100 episodes if their ends are known or expected."""
        digits = told_digits(self.estimates, rate=self.is_rate)
        every, continued = self.meta.outcome_details, self.meta.usual_chances
        # that a record ends is no result
        results = (outcome for outcome in every if outcome.name != LOST)
        outcomes = sorted(results, key=lambda outcome: outcome.reward)
        censored = self.meta.counts.censored and continued is None
        if censored or not outcomes or not self.meta.counts.episodes:
            return Scale(digits)
        table = self.outcome_table(expected=True) / self.meta.counts.episodes
        shares = {REPLAYED: table.sum(axis=0), OBSERVED: table.sum(axis=1)}
        for source, known in ((CONTINUED, continued), (FRESH, self.meta.fresh_chances)):
            if known is not None:
                shares[source] = pd.Series(known, self.meta.outcome_names)
        ends = shares.keys() - ({OBSERVED} if continued else ())  # what is recorded may have none
        named = [outcomes[0].name, outcomes[-1].name]
        if len(every) <= 2 and max(shares[source][self.meta.none] for source in ends) < SAME:
            bad = [outcome.name for outcome in outcomes if outcome.bad]
            named = bad[:1] or named[1:]  # the other one is the rest
        named = list(dict.fromkeys(named))
        chances = {source: share[named].tolist() for source, share in shares.items()}
        return Scale(digits, named, chances)

    @property
    def noun(self) -> str:
        """What an episode is called in the study file."""
        return self.meta.words.get("episode", "episode")

    @property
    def all_end(self) -> bool:
        """Whether every episode has an outcome, in the log and in the model."""
        table = self.episodes
        observed = (table["observed_outcome"] != self.meta.none).all()
        return bool(observed and (table["p_none"] < RARE).all())

    @property
    def partial(self) -> bool:
        """Whether only some of the episodes were read."""
        return len(self.episodes) < self.meta.counts.episodes

    @cached_property
    def is_rate(self) -> bool:
        """Whether a return is 1 or 0, so that its mean is a rate."""
        rewards = {outcome.reward for outcome in self.meta.outcome_details}
        once = self.meta.parameters.horizon == 1 or self.only_outcomes_count
        return once and rewards.union(self.episodes["observed_return"].unique()) <= {0.0, 1.0}

    @cached_property
    def only_outcomes_count(self) -> bool:
        """Whether each return is the reward of the outcome, and 0 without one."""
        rewards = {outcome.name: outcome.reward for outcome in self.meta.outcome_details}
        ends = self.episodes["observed_outcome"].map(rewards).fillna(0.0)
        return bool((ends == self.episodes["observed_return"]).all())

    @property
    def named_states(self) -> tuple[Variable, ...]:
        """The variables of the state; clusters are named by their typical values."""
        names = () if self.clusters is None else tuple(self.clusters.names())
        return tuple(
            replace(v, levels=names) if v.name == CLUSTER and len(v.levels) == len(names) else v
            for v in self.meta.variables.state
        )

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Number of times each action was taken in each state of the log, [S, A]."""
        if self.decisions is not None:
            return self.decisions
        counts = np.zeros(self.target.shape, dtype=np.int64)
        decided = self.steps[self.steps["action"] >= 0]
        np.add.at(counts, (decided["state"].to_numpy(), decided["action"].to_numpy()), 1)
        return counts

    @cached_property
    def policy(self) -> PolicyView:
        """The target in the situations of the log, beside what was done there."""
        usual = self.behavior  # of a wide log, in which hardly a state occurs twice
        if self.combinations is None:
            usual = self.counts / np.maximum(self.counts.sum(axis=1), 1)[:, None]
        variables = self.meta.variables
        states = np.arange(len(self.target))
        return PolicyView(
            counts=self.counts,
            target=self.target,
            differs=self._differs_by_row()
            if self.meta.parameters.by_row and not self.partial
            else share_changed(self.target, usual),
            codes=state_codes(variables.state, self.combinations, states),
            state=variables.state,
            named=self.named_states,
            action=variables.action,
        )

    def _differs_by_row(self) -> Floats:
        """Mean probability of another action than the one taken, of a target by row, [S]."""
        decided = self.steps[self.steps["action"] >= 0]
        chances = decided[[name for name in decided if name.startswith(TARGET)]].to_numpy()
        other = 1.0 - chances[np.arange(len(decided)), decided["action"].to_numpy()]
        total = np.bincount(decided["state"], weights=other, minlength=len(self.target))
        return total / np.maximum(self.counts.sum(axis=1), 1)

    def policy_table(self, by: str = "state") -> pd.DataFrame:
        """Return what the target does in the situations of the log, beside what was done there.

        Parameters
        ----------
        by : "state", "variable" or "action"
            One row per state of the log, those with the most decisions first; per level of each
            state variable; or per action.

        Returns
        -------
        DataFrame
            By state or variable: decisions in the log and their share of all; policy (the likeliest
            action of the target, averaged over the decisions) and usual (the most common action of
            the log), each with its share; differs, the least share of the decisions that would have
            to change (of a target known by row, the mean probability of another action). Each
            state is described by `situation` and by the columns `state.<name>`. By action: its
            share of all decisions, as logged (usual) and under the target (policy). By variable,
            `shifts` is how far the target at that level is from its average over all decisions (a
            total variation distance): large where it depends on the variable.
        """
        return self.policy.table(by)

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
        """Reconstruct the audited log from the table of steps."""
        codes = self.steps["episode"].to_numpy()
        final = (self.steps["action"] < 0).to_numpy()
        rows = np.flatnonzero(~final)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(codes[rows]))])
        variables = self.meta.variables
        order = np.concatenate([rows, np.flatnonzero(final)])
        ordered = self.steps.iloc[order].reset_index(drop=True)
        frame = ordered[[name for name in ordered if name.startswith("side.")]]
        frame = frame.rename(columns=lambda name: name.removeprefix("side."))
        recorded = [name for name in ordered if name == TIME or name.startswith((RAW, FILLED))]
        for variable in variables.side:
            frame[variable.name] = pd.Categorical(
                frame[variable.name], list(variable.levels), ordered=True
            )
        names = self.meta.outcome_names
        state = self.steps["state"].to_numpy(dtype=np.int32)
        outcome = self.episodes["observed_outcome"].map({n: i for i, n in enumerate(names)})
        taken = self.steps.get("behavior_probability")
        chances = [name for name in self.steps if name.startswith(TARGET)]
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
            side_given=variables.side_given,
            recorded=ordered[recorded] if recorded else None,
            combinations=None
            if self.combinations is None
            else self.combinations[: len(self.target)],
            behavior_probability=None if taken is None else taken.to_numpy()[rows],
            target_probability=self.steps[chances].to_numpy()[rows] if chances else None,
        )

    def trajectory(self, identifier: Any) -> tuple[Episodes, Draws]:
        """Return one flagged episode and its drawn trajectories."""
        mine = self.draws[self.draws["id"] == identifier]
        if len(mine) == 0:
            raise ValueError(
                f"episode {identifier!r} has no drawn trajectories; choose a flagged episode: "
                f"{', '.join(map(str, self.flagged['id'].tolist()[:8]))} …"
            )
        log = replace(self.log(), combinations=self.combinations)
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
        """Write the audit as a folder, completely or not at all.

        An existing audit is replaced only with `overwrite`; its reviews are kept. A model with
        distributions that a classifier predicts on demand cannot be written.
        """
        if self.partial:
            raise ValueError(
                "only some of the episodes were loaded; use Audit.load without shown=True to save "
                "the audit"
            )
        with whole_folder(folder, AUDIT, overwrite=overwrite) as new:
            self.write_files(new)
        return Path(folder)

    def write_files(self, folder: Path) -> None:
        """Write the files of the audit into a new folder."""
        tables = {name: getattr(self, name) for name in SCHEMAS}
        if self.rehearsal is not None:
            tables["rehearsal"] = self.rehearsal.table
        policies: dict[str, NDArray[Any]] = {"behavior": self.behavior, "target": self.target}
        if self.latent_behavior is not None:
            policies["latent_behavior"] = self.latent_behavior
        if self.combinations is not None:
            policies["combinations"] = self.combinations
        if self.clusters is not None:
            write_arrays(folder / CLUSTERS, self.clusters.arrays())
        write_audit(folder, tables, self.model, policies, self.meta)

    @classmethod
    def load(cls, folder: str | Path, *, shown: bool = False) -> Audit:
        """Read an audit folder; if it is damaged, the error names the file and the problem.

        With `shown` only the flagged episodes, the controls and their steps are read, and the
        column `episode` of the steps counts the episodes read: enough for a report and a review,
        whatever the size of the log. `meta.counts` and `decisions` are about all episodes.
        """
        path = Path(folder)
        return read_settled(path, META, lambda: cls._read(path, shown))

    @classmethod
    def _read(cls, path: Path, shown: bool) -> Audit:
        meta, digests = _read_meta(path)
        check_digests(path, digests, AUDIT.files)
        stored = read_model(path / MODEL, meta)
        states = None if stored.combinations is None else len(stored.combinations)
        clusters = read_clusters(path / CLUSTERS) if (path / CLUSTERS).is_file() else None
        found = cls(
            meta=meta,
            **read_tables(path, meta, states, shown=shown),
            **stored._asdict(),
            clusters=clusters,
            rehearsal=read_rehearsal(path / "rehearsal.parquet", meta),
            decisions=count_decisions(path, meta) if shown else None,
        )
        return found.prepared()


def load_for_readers(folder: str | Path) -> Audit:
    """Read an audit folder for a report or review; of a large one only the episodes shown."""
    path = Path(folder)
    count = read_settled(path, META, lambda: _read_meta(path))[0].counts.episodes
    return Audit.load(folder, shown=count > MOST_LOADED)


def _read_meta(folder: Path) -> tuple[Meta, dict[str, str]]:
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; give one written by `butfor audit`")
    missing = [
        name
        for name in (META, MODEL, *(f"{table}.parquet" for table in SCHEMAS))
        if not (folder / name).is_file()
    ]
    if missing:
        raise FileNotFoundError(
            f"{folder} is not an audit folder: it has no {', '.join(missing)}; "
            "give a folder written by Audit.save or `butfor audit`"
        )
    return read_meta(folder / META)


def write_audit(
    folder: Path,
    tables: Mapping[str, pd.DataFrame],
    model: Model,
    policies: Mapping[str, NDArray[Any]],
    meta: Meta,
) -> None:
    """Write the files of an audit into a new folder, in which there may be some; the meta last."""
    for name, table in tables.items():
        write_table(folder / f"{name}.parquet", name, table)
    write_arrays(folder / MODEL, model.stored_arrays() | dict(policies))
    digests = {path.name: sha256_of(path) for path in sorted(folder.iterdir())}
    (folder / META).write_bytes(meta.content(digests))
