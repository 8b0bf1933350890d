"""Every episode of an audit as readers see it: words, rows of its chart, side information."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.audit.audit import Audit
from butfor.audit.files import SCHEMAS
from butfor.evaluate.wording import percent, plural, share, signed
from butfor.log.variables import describe_action
from butfor.present.charts.trajectory.layout import TrajectoryLayout
from butfor.present.charts.trajectory.rows import (
    FAINT,
    Datasets,
    split_worlds,
    trajectory_datasets,
    trajectory_table,
)
from butfor.present.charts.trajectory.template import trajectory_size, trajectory_template
from butfor.present.text import ESTIMATE, HOLDS, SIMILAR_CASES, TREATED_ALIKE, capitalized, ending
from butfor.present.treatments import list_treatments, policy_chances, treatment_rows
from butfor.replay.steps import THIN

CREDIBLE = (
    "low_credible",
    "high_credible",
    "mean_credible",
    "mean_credible_weaker",
    "mean_credible_stronger",
)
SENSITIVE = 0.25  # of the width of an interval: a shift of the mean with the prior that is told


@dataclass(frozen=True, eq=False)
class Stays:
    """The episodes of an audit, to be shown; with `redact`, without what only carers may see."""

    audit: Audit
    redact: bool = False

    def __post_init__(self) -> None:
        needed = ("id", *SCHEMAS["episodes"].names)
        missing = [name for name in needed if name not in self.audit.episodes]
        if missing:
            raise ValueError(
                f"the audit's episodes have no column {missing[0]!r}: it was made by butfor "
                f"{self.audit.meta.butfor}; run it again with this version"
            )

    @property
    def noun(self) -> str:
        """What an episode is called."""
        return str(self.audit.meta.words.get("episode", "episode"))

    @property
    def nouns(self) -> str:
        """What episodes are called."""
        return plural(self.noun)

    @property
    def scope(self) -> str:
        """Which episodes are shown if the audit was too large to read all of them, else ""."""
        if not self.audit.partial:
            return ""
        shown, count = len(self.audit.episodes), self.audit.meta.counts.episodes
        return f"the {shown} {self.nouns} that are flagged or controls, of {count:,} in all"

    @property
    def names(self) -> list[str]:
        """Names of the outcomes, that of none last."""
        return self.audit.meta.outcome_names

    @cached_property
    def layout(self) -> TrajectoryLayout:
        """The plane on which each episode is drawn."""
        meta = self.audit.meta
        variables = meta.variables
        return TrajectoryLayout(
            state=variables.state,
            action=variables.action,
            side=() if self.redact else variables.side,
            outcomes=self.audit.model.outcomes,
            none=meta.none,
            horizon=meta.parameters.horizon,
            hidden=variables.hidden,
            combinations=self.audit.combinations,
        )

    def template(self, *, model: bool = True) -> dict[str, Any]:
        """Return the Vega-Lite specification of each episode's chart, with or without the model."""
        return trajectory_template(self.layout if model else self._layout_without_model)

    def size(self, *, model: bool = True) -> tuple[int, int]:
        """Return width and height of each episode's chart in pixels, to reserve its place."""
        return trajectory_size(self.layout if model else self._layout_without_model)

    @cached_property
    def _layout_without_model(self) -> TrajectoryLayout:
        return replace(self.layout, with_model=False, with_policy=True)

    def hidden(self) -> list[str]:
        """Names of the variables that the model was never given."""
        columns = [] if self.redact else list(self.audit.steps.columns)
        return [name.removeprefix("side.") for name in columns if name.startswith("side.")]

    def inferred(self) -> list[str]:
        """Names of the hidden variables, which the model infers from the log."""
        return [variable.name for variable in self.layout.hidden]

    def order(self) -> list[Any]:
        """Return all ids: flagged ones by rank, then the others by the size of their difference."""
        table = self.audit.episodes
        rank = table["rank"].to_numpy()
        size = np.round(table["difference"].abs().to_numpy(), 9)
        first = np.where(rank > 0, rank, np.iinfo(np.int64).max)
        return table["id"].iloc[np.lexsort([-size, first])].tolist()

    # ------------------------------------------------------------------------------- one episode

    def one(self, identifier: Any) -> dict[str, Any]:
        """Return everything that is shown of an episode, as plain values for JSON."""
        if identifier not in self._position:
            raise ValueError(f"this audit has no {self.noun} {identifier!r}")
        position = self._position[identifier]
        row = self.audit.episodes.iloc[position]
        steps = self._steps(position)
        datasets = self.datasets(identifier)
        outcome = str(row["observed_outcome"])
        ended = outcome in self.audit.meta.outcomes
        end = ending(outcome, int(row["length"]), ended=ended)
        title = f"{capitalized(self.noun)} {identifier}: {end}"
        inferred = self._inferred(identifier)
        listed = ", ".join(name for name, _ in inferred)
        also = f" Inferred by the model from the whole record: {listed}." if inferred else ""
        return {
            "id": str(identifier),
            "title": title,
            "says": self._says(row),
            "caveat": caveat(row),
            "range": f"{worst_to_best(row)} {learned_again(row)}".rstrip(),
            "first": self._first(row, steps),
            "first_change": int(row["first_change"]),
            "flagged": int(row["rank"]),
            "reason": str(row["reason"]),
            "course": bool(datasets["shade"]),
            "description": f"{title}. {self._says(row)} {caveat(row)}{also}",
            "given": [
                [v.name, str(steps[f"state.{v.name}"].iloc[0])]
                for v in self.layout.state
                if v.static
            ],
            "inferred": inferred,
            **self._side(steps),
            "datasets": datasets,
            "table": trajectory_table(self.layout, datasets),
        }

    def datasets(self, identifier: Any) -> Datasets:
        """Return the rows of an episode's chart, for the template."""
        return trajectory_datasets(
            self.layout,
            self._steps(self._position[identifier]),
            outcome=self._outcome(identifier),
            first=int(self.audit.episodes["first_change"].iat[self._position[identifier]]),
            courses=self._part("courses", identifier),
            course_steps=self._part("course_steps", identifier),
            draws=self._part("draws", identifier),
        )

    def record(self, identifier: Any) -> dict[str, Any]:
        """Return what happened and what the policy gives, without the model: rows and a table."""
        layout = self._layout_without_model
        steps = self._steps(self._position[identifier])
        datasets = trajectory_datasets(layout, steps, outcome=self._outcome(identifier))
        datasets["treatments"] = treatment_rows(layout, self.audit, steps)
        return {"datasets": datasets, "table": trajectory_table(layout, datasets), "inferred": []}

    def treatments(self, identifier: Any) -> list[dict[str, Any]]:
        """Return what was given at each step and what the policy gives in the recorded states."""
        steps = self._steps(self._position[identifier])
        return list_treatments(self.audit, self.layout.action, steps)

    def _outcome(self, identifier: Any) -> int:
        """Return the number of an episode's outcome; -1: none."""
        names = self.audit.meta.outcomes
        outcome = str(self.audit.episodes["observed_outcome"].iat[self._position[identifier]])
        return names.index(outcome) if outcome in names else -1

    @cached_property
    def _position(self) -> dict[Any, int]:
        return {name: place for place, name in enumerate(self.audit.episodes["id"].tolist())}

    def _steps(self, position: int) -> pd.DataFrame:
        episode = self.audit.steps["episode"].to_numpy()  # sorted
        start, stop = np.searchsorted(episode, [position, position + 1])
        return self.audit.steps.iloc[start:stop]

    @cached_property
    def _groups(self) -> dict[str, dict[Any, NDArray[np.int64]]]:
        return {
            name: getattr(self.audit, name).groupby("id", sort=False).indices
            for name in ("courses", "course_steps", "draws")
        }

    def _part(self, table: str, identifier: Any) -> pd.DataFrame | None:
        rows = self._groups[table].get(identifier)
        return None if rows is None else getattr(self.audit, table).iloc[rows]

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Number of times each action was taken in each state of the log, [S, A]."""
        if self.audit.decisions is not None:
            return self.audit.decisions
        steps = self.audit.steps
        known = (steps["action"] >= 0).to_numpy()
        counts = np.zeros(self.audit.target.shape, dtype=np.int64)
        np.add.at(counts, (steps["state"].to_numpy()[known], steps["action"].to_numpy()[known]), 1)
        return counts

    def _says(self, row: pd.Series) -> str:
        chances = sorted(outcome_chances(row, self.names), key=lambda pair: -pair[1])
        words = ", ".join(f"{name} {percent(p)}" for name, p in chances)
        draws = self.audit.meta.parameters.sampled
        if not draws:
            return f"Under the policy the model says: {words}."
        error = max((p * (1 - p) / draws) ** 0.5 for _, p in chances)
        return (
            f"Under the policy the model says: {words} (shares of {draws} draws; standard error "
            f"{100 * error:.1f} percentage points or less)."
        )

    def _first(self, row: pd.Series, steps: pd.DataFrame) -> str:
        """Say where the policy first treats differently, and what it would give."""
        first = int(row["first_change"])
        if first < 0:
            return TREATED_ALIKE
        state, given = int(steps["state"].iloc[first]), int(steps["action"].iloc[first])
        chances = policy_chances(self.audit, state, given)
        policy = int(np.argmax(chances))
        own = ((steps["state"] == state) & (steps["action"] == policy)).sum()
        alike = f"{SIMILAR_CASES} for that decision"
        if self.layout.hidden:
            alike = "Past cases of that decision that look the same in the record"
        alike = f" {alike}: {int(self.counts[state, policy] - own)}."
        if self.audit.combinations is not None:  # hardly a state occurs twice
            alike = ""
        sure = "" if chances[policy] > 0.999 else f" (probability {percent(chances[policy])})"
        instead = describe_action(self.layout.action, given)
        return (
            f"First difference, decided at step {first}, seen at step {first + 1}: the policy "
            f"gives {describe_action(self.layout.action, policy)}{sure} instead of {instead}."
            f"{alike}"
        )

    def _inferred(self, identifier: Any) -> list[list[str]]:
        """Return each hidden variable with the probability of its levels if it never changes."""
        courses = self._part("courses", identifier)
        rows = None if courses is None else split_worlds(courses)[1]
        if rows is None or not len(rows):
            return []
        start = rows[rows["step"] == 0].sort_values("probability", ascending=False, kind="stable")
        found = []
        for variable in self.layout.hidden:
            mine = start[(start["variable"] == variable.name) & (start["probability"] >= FAINT)]
            levels = zip(mine["level"].tolist(), mine["probability"].tolist(), strict=True)
            words = ", ".join(f"{level}: {percent(p)}" for level, p in levels)
            found.append(
                [variable.name, words if variable.static else "the violet row of the chart"]
            )
        return found

    def _side(self, steps: pd.DataFrame) -> dict[str, Any]:
        """Return side information: what always holds, and by step what was recorded at times."""
        drawn = {v.name for v in self.layout.side if not v.static}
        static = {v.name for v in self.layout.side if v.static}
        decided = (steps["action"] >= 0).to_numpy()
        fixed: list[list[str]] = []
        notes: list[dict[str, Any]] = []
        for name in self.hidden():
            values = steps[f"side.{name}"]
            known = values.notna().to_numpy()
            if name in drawn:
                fixed.append([name, "the yellow row of the chart"])
            elif not known.any():
                fixed.append([name, "not recorded"])
            elif values[known].nunique() == 1 and (name in static or known[decided].all()):
                fixed.append([name, _value(values[known].iloc[0])])
            else:
                at = steps["step"].to_numpy()[known].tolist()
                entries = [[s, _value(v)] for s, v in zip(at, values[known], strict=True)]
                notes.append({"name": name, "entries": entries})
        return {"side": fixed, "notes": notes}


def outcome_chances(row: pd.Series, names: list[str]) -> list[tuple[str, float]]:
    """Return the probability of each outcome under the policy; that of none is the last."""
    columns = [*(f"p_{name}" for name in names[:-1]), "p_none"]
    return [(name, float(row[column])) for name, column in zip(names, columns, strict=True)]


def caveat(row: pd.Series) -> str:
    """Return the words beside every number of a model."""
    part = capitalized(share(float(row["thin_share"])))
    return f"{ESTIMATE} {part} of its steps rest on fewer than {THIN} similar past cases."


def worst_to_best(row: pd.Series) -> str:
    """Say how far the expected return could move, and under what assumption."""
    expected = f"Expected return under the policy {signed(float(row['expected_return']))}"
    low, high = float(row["low_any"]), float(row["high_any"])
    if np.isnan(low) or np.isnan(high):
        return f"{expected}; its worst and best case were not computed. {HOLDS}"
    return f"{expected}, worst to best case {signed(low)} to {signed(high)}. {HOLDS}"


def learned_again(row: pd.Series) -> str:
    """Say what other models say that the records allow, and whether that is mostly assumed."""
    low, high, mean, weaker, stronger = (float(row.get(name, np.nan)) for name in CREDIBLE)
    if np.isnan(low):
        return ""
    sentence = f"Other models that these records allow say {signed(low)} to {signed(high)}"
    if not max(abs(weaker - mean), abs(stronger - mean)) > SENSITIVE * (high - low):
        return f"{sentence}."
    return (
        f"{sentence}; what is assumed about rare treatments matters here: {signed(mean)} on "
        f"average, {signed(weaker)} if the assumption weighs a quarter, {signed(stronger)} if it "
        "weighs four times as much."
    )


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
