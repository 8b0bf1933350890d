"""Every episode of an audit as readers see it: words, rows of its chart, side information."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.audit.audit import Audit
from butfor.audit.files import SCHEMAS
from butfor.evaluate.wording import Digits, digits_for, percent, plural
from butfor.present.charts.trajectory.layout import TrajectoryLayout
from butfor.present.charts.trajectory.rows import (
    FAINT,
    FITTED,
    Datasets,
    last_step,
    near_step,
    outcomes_by_then,
    split_worlds,
    trajectory_datasets,
    trajectory_table,
)
from butfor.present.charts.trajectory.template import trajectory_size, trajectory_template
from butfor.present.recorded import (
    recorded_table,
    recorded_values,
    value_text,
    without_record,
)
from butfor.present.story import (
    CERTAIN,
    Decision,
    caveat,
    outcome_chances,
    tell_difference,
    tell_evidence,
    tell_expectation,
    tell_range,
    tell_risk,
)
from butfor.present.text import TREATED_ALIKE, Clock, capitalized, clock_of, ending
from butfor.present.treatments import list_treatments, policy_chances, treatment_rows


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
        return self.audit.noun

    @property
    def nouns(self) -> str:
        """What episodes are called."""
        return plural(self.noun)

    def digits(self, values: Iterable[float]) -> Digits:
        """Return how returns that are compared with one another are written."""
        return digits_for(values, rate=self.audit.is_rate)

    @cached_property
    def clock(self) -> Clock:
        """How time is counted."""
        return clock_of(self.audit.meta)

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
            state=self.audit.named_states,
            action=variables.action,
            side=tuple(v for v in variables.side if v.name in self.hidden()),
            outcomes=self.audit.model.outcomes,
            none=meta.none,
            horizon=meta.parameters.horizon,
            hidden=variables.hidden,
            clock=self.clock,
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
        names = [name.removeprefix("side.") for name in columns if name.startswith("side.")]
        return [name for name in names if name not in self.audit.meta.variables.side_given]

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
        meta, row = self.audit.meta, self.audit.episodes.iloc[position]
        steps = self._steps(position)
        chart = self._chart(identifier)
        datasets = trajectory_datasets(self.layout, **chart)
        outcome = str(row["observed_outcome"])
        ended = outcome in meta.outcomes
        end = ending(outcome, int(row["length"]), self.clock, ended=ended)
        title = f"{capitalized(self.noun)} {identifier}: {end}"
        inferred = self._inferred(identifier)
        listed = ", ".join(name for name, _ in inferred)
        also = f" Inferred by the model from the whole record: {listed}." if inferred else ""
        decision = self._decision(row, steps)
        story = self._story(identifier, row, decision, datasets["evidence"])
        return {
            "id": str(identifier),
            "title": title,
            "story": story,
            "says": self._says(row),
            "caveat": caveat(row),
            "risk": tell_risk(row, self.layout.outcomes, self.names),
            "range": tell_range(
                row,
                self.layout.outcomes,
                self.names,
                meta.parameters.credible,
                rate=self.audit.is_rate,
            ),
            "first": self._first(steps, decision),
            "first_change": int(row["first_change"]),
            "flagged": int(row["rank"]),
            "reason": self.clock.retell(str(row["reason"])),
            "course": bool(datasets["shade"]),
            "description": f"{title}. {story} {self._says(row)} {caveat(row)}{also}",
            "given": self._given(steps),
            "recorded": self._recorded(steps),
            "inferred": inferred,
            **self._side(steps),
            "datasets": datasets,
            "near": self._near(self.layout, chart, datasets),
            "table": trajectory_table(self.layout, datasets),
        }

    def _given(self, steps: pd.DataFrame) -> list[list[str]]:
        """Return what never changes in the state, with the number behind it if that is known."""
        values, found = recorded_values(steps), []
        for variable in self.layout.state:
            if variable.static:
                level = str(steps[f"state.{variable.name}"].iloc[0])
                number = values.get(variable.name, [""])[0]
                found.append([variable.name, f"{level}: {number}" if number else level])
        return found

    def _recorded(self, steps: pd.DataFrame) -> dict[str, Any]:
        """Return the record behind the states: a table and its caption."""
        static = {variable.name for variable in self.layout.state if variable.static}
        return recorded_table(steps, self.clock, static)

    def datasets(self, identifier: Any) -> Datasets:
        """Return the rows of an episode's chart, for the template."""
        return trajectory_datasets(self.layout, **self._chart(identifier))

    def _chart(self, identifier: Any) -> dict[str, Any]:
        """Return what the rows of an episode's chart are made from."""
        position = self._position[identifier]
        return {
            "steps": self._steps(position),
            "outcome": self._outcome(identifier),
            "first": int(self.audit.episodes["first_change"].iat[position]),
            **{name: self._part(name, identifier) for name in ("courses", "course_steps", "draws")},
        }

    def record(self, identifier: Any) -> dict[str, Any]:
        """Return what happened and what the policy gives, without the model: rows and a table."""
        layout = self._layout_without_model
        steps = self._steps(self._position[identifier])
        given = {"steps": steps, "outcome": self._outcome(identifier)}
        datasets = trajectory_datasets(layout, **given)
        datasets["treatments"] = treatment_rows(layout, self.audit, steps)
        return {
            "datasets": datasets,
            "near": self._near(layout, given, datasets),
            "table": trajectory_table(layout, datasets),
            "inferred": [],
        }

    def _near(
        self, layout: TrajectoryLayout, given: dict[str, Any], whole: Datasets
    ) -> dict[str, Any] | None:
        """Return the rows that differ if the axis ends where little is left to see; None: none.

        `until` says up to when the whole chart reaches.
        """
        last = near_step(layout, given["steps"], given.get("course_steps"))
        if last >= last_step(whole):
            return None
        near = trajectory_datasets(layout, **(given | {"draws": None}), last=last)
        rows = {name: near[name] for name in FITTED}
        return {"rows": rows, "until": self.clock.at(last_step(whole))}

    def treatments(self, identifier: Any) -> list[dict[str, Any]]:
        """Return what was given at each step and what the policy gives in the recorded states."""
        steps = self._steps(self._position[identifier])
        return list_treatments(self.audit, self.layout.action, steps)

    @property
    def compared(self) -> str:
        """What the differences of the table of episodes are from."""
        continued = "usual_return" in self.audit.episodes
        return "what happened" + ", as the model continues it" * continued

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
        steps = self.audit.steps.iloc[start:stop]
        return without_record(steps) if self.redact else steps

    @cached_property
    def _groups(self) -> dict[str, dict[Any, NDArray[np.int64]]]:
        return {
            name: getattr(self.audit, name).groupby("id", sort=False).indices
            for name in ("courses", "course_steps", "draws")
        }

    def _part(self, table: str, identifier: Any) -> pd.DataFrame | None:
        rows = self._groups[table].get(identifier)
        if rows is None:
            return None
        part = getattr(self.audit, table).iloc[rows]
        return self._named(part) if table == "courses" else part

    def _named(self, courses: pd.DataFrame) -> pd.DataFrame:
        """Return a course with the levels by which readers know them: the names of clusters."""
        for variable, named in zip(self.audit.meta.variables.state, self.layout.state, strict=True):
            if variable != named:
                names = dict(zip(variable.levels, named.levels, strict=True))
                mine = courses["variable"] == variable.name
                level = courses["level"].astype(object)
                courses = courses.assign(level=level.where(~mine, level.map(names)))
        return courses

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

    def _decision(self, row: pd.Series, steps: pd.DataFrame) -> Decision | None:
        """Return the first decision that the policy would take differently, if there is one."""
        first = int(row["first_change"])
        if first < 0:
            return None
        state, given = int(steps["state"].iloc[first]), int(steps["action"].iloc[first])
        chances = policy_chances(self.audit, state, given)
        policy = int(np.argmax(chances))
        return Decision(first, given, policy, float(chances[policy]))

    def _story(
        self,
        identifier: Any,
        row: pd.Series,
        decision: Decision | None,
        cases: list[dict[str, Any]],
    ) -> str:
        """Tell in two sentences where the policy differs and what the model then expects.

        `cases` are the rows of the chart about similar past cases.
        """
        difference = tell_difference(decision, self.layout.action, self.clock)
        chances = outcome_chances(row, self.names)
        horizon = self.audit.meta.parameters.horizon
        observed = str(row["observed_outcome"])
        whole = observed in self.audit.meta.outcomes or int(row["length"]) >= horizon
        if decision is None and whole and dict(chances)[observed] > CERTAIN:
            return f"{difference} So the model expects what happened."
        expectation = tell_expectation(
            chances,
            self._by_then(identifier),
            self.clock,
            horizon=horizon,
            then=decision is not None,
        )
        evidence = tell_evidence(cases, float(row["evidence_min"]))
        return f"{difference} {expectation}{evidence}."

    def _by_then(self, identifier: Any) -> dict[str, NDArray[np.float64]]:
        """Return the probability of each outcome up to each step, [H + 1], if it was kept."""
        courses = self._part("courses", identifier)
        if courses is None:
            return {}
        rows = split_worlds(courses)[0]
        return outcomes_by_then(self.layout, rows, self.audit.meta.parameters.horizon)

    def _first(self, steps: pd.DataFrame, decision: Decision | None) -> str:
        """Say where the first difference shows in the chart, and how often it was done before."""
        if decision is None:
            return TREATED_ALIKE
        state, policy = int(steps["state"].iloc[decision.step]), decision.policy
        own = ((steps["state"] == state) & (steps["action"] == policy)).sum()
        where = "Where the record looks the same" if self.layout.hidden else "In the same state"
        times = int(self.audit.counts[state, policy] - own)
        alike = f" {where}, others were treated so {times} time{'s' * (times != 1)}."
        if self.audit.combinations is not None:  # hardly a state occurs twice
            alike = ""
        decided, seen = self.clock.at(decision.step), self.clock.at(decision.step + 1)
        if self.layout.shows_decisions:
            return f"The first difference is decided at {decided}.{alike}"
        return f"The first difference, decided at {decided}, shows at {seen}.{alike}"

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
                fixed.append([name, value_text(values[known].iloc[0])])
            else:
                at = steps["step"].to_numpy()[known].tolist()
                entries = [[s, value_text(v)] for s, v in zip(at, values[known], strict=True)]
                notes.append({"name": name, "entries": entries})
        return {"side": fixed, "notes": notes}
