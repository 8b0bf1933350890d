"""Audit: all results about a policy on a log, in one object and one folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.audit.arrays import write_arrays
from butfor.audit.files import SCHEMAS, TARGET, write_table
from butfor.audit.folders import whole_folder
from butfor.audit.meta import META, Meta, read_meta
from butfor.audit.model import CLUSTERS, MODEL, read_clusters, read_model
from butfor.audit.reading import count_decisions, read_rehearsal, read_tables
from butfor.evaluate.conclusion import Conclusion, conclude
from butfor.evaluate.rehearsal import Rehearsal
from butfor.log.clusters import Clusters
from butfor.log.combinations import Combinations
from butfor.log.episodes import Episodes
from butfor.log.recorded import FILLED, RAW, TIME
from butfor.replay.draws import Draws
from butfor.replay.engine import Model
from butfor.types import Floats

REVIEWS = "reviews.sqlite"  # written by reviewers; kept when an audit is overwritten
REVIEW_FILES = (REVIEWS, f"{REVIEWS}-wal", f"{REVIEWS}-shm")  # SQLite may keep recent rows in these
MOST_LOADED = 100_000  # episodes; of larger audits only the episodes shown are loaded


@dataclass(frozen=True, eq=False)
class Audit:
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

    @property
    def conclusion(self) -> Conclusion:
        """What follows from all checks together, in one sentence."""
        return conclude(self.estimates, self.diagnostics)

    @property
    def partial(self) -> bool:
        """Whether only some of the episodes were read."""
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
        with whole_folder(folder, marker=META, overwrite=overwrite, keep=REVIEW_FILES) as new:
            tables = {name: getattr(self, name) for name in SCHEMAS}
            if self.rehearsal is not None:
                tables["rehearsal"] = self.rehearsal.table
            policies: dict[str, NDArray[Any]] = {"behavior": self.behavior, "target": self.target}
            if self.latent_behavior is not None:
                policies["latent_behavior"] = self.latent_behavior
            if self.combinations is not None:
                policies["combinations"] = self.combinations
            write_audit(new, tables, self.model, policies, self.meta)
            if self.clusters is not None:
                write_arrays(new / CLUSTERS, self.clusters.arrays())
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path, *, shown: bool = False) -> Audit:
        """Read an audit folder; if it is damaged, the error names the file and the problem.

        With `shown` only the flagged episodes, the controls and their steps are read, and the
        column `episode` of the steps counts the episodes read: enough for a report and a review,
        whatever the size of the log. `meta.counts` and `decisions` are about all episodes.
        """
        path = Path(folder)
        meta = _read_meta(path)
        stored = read_model(path / MODEL, meta)
        states = None if stored.combinations is None else len(stored.combinations)
        clusters = read_clusters(path / CLUSTERS) if (path / CLUSTERS).is_file() else None
        return cls(
            meta=meta,
            **read_tables(path, meta, states, shown=shown),
            **stored._asdict(),
            clusters=clusters,
            rehearsal=read_rehearsal(path / "rehearsal.parquet", meta),
            decisions=count_decisions(path, meta) if shown else None,
        )


def load_for_readers(folder: str | Path) -> Audit:
    """Read an audit folder for a report or review; of a large one only the episodes shown."""
    count = _read_meta(Path(folder)).counts.episodes
    return Audit.load(folder, shown=count > MOST_LOADED)


def _read_meta(folder: Path) -> Meta:
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
    """Write the files of an audit into a new folder."""
    for name, table in tables.items():
        write_table(folder / f"{name}.parquet", name, table)
    write_arrays(folder / MODEL, model.stored_arrays() | dict(policies))
    (folder / META).write_text(meta.text(), encoding="utf-8")
