"""Every stay of an audit as readers see it: words, rows of its picture, side information."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.audit.audit import Audit
from butfor.evaluate.wording import percent, plural, share, signed
from butfor.log.variables import describe_action
from butfor.mechanisms.gumbel_max import counterfactual_distribution
from butfor.present.charts.stay import stay_template
from butfor.present.charts.stay_rows import FAINT, split_worlds, stay_datasets, stay_table
from butfor.present.charts.strips import Layout
from butfor.present.charts.style import ESTIMATE
from butfor.replay.steps import THIN

HOLDS = "Holds only if the model is right."
HIDDEN = "never given to the model"
DRAWN = "the violet row of the picture"
# what the pages need of an audit's table of episodes, beside the columns p_<outcome>
COLUMNS = (
    "id",
    "length",
    "observed_outcome",
    "most_likely",
    "expected_return",
    "difference",
    "low_any",
    "high_any",
    "first_change",
    "thin_share",
    "evidence_min",
    "rank",
    "reason",
)


@dataclass(frozen=True, eq=False)
class Stays:
    """The stays of an audit, to be shown; with `redact`, without what nobody but carers may see."""

    audit: Audit
    redact: bool = False

    def __post_init__(self) -> None:
        missing = [name for name in COLUMNS if name not in self.audit.episodes]
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
        """Which stays are here, where the audit was too large to read all of them, else ""."""
        if not self.audit.partial:
            return ""
        shown, count = len(self.audit.episodes), self.audit.meta.counts.episodes
        return f"the {shown} {self.nouns} that are flagged or controls, of {count:,} in all"

    @property
    def names(self) -> list[str]:
        """Names of the outcomes, that of none last."""
        return self.audit.meta.outcome_names

    @cached_property
    def layout(self) -> Layout:
        """Where everything lies in the picture of a stay."""
        meta = self.audit.meta
        state, action, side, hidden = (
            getattr(meta.variables, kind) for kind in ("state", "action", "side", "hidden")
        )
        return Layout(
            state=state,
            action=action,
            side=() if self.redact else side,
            outcomes=self.audit.model.outcomes,
            none=meta.none,
            horizon=meta.parameters.horizon,
            hidden=hidden,
        )

    def template(self, *, model: bool = True) -> dict[str, Any]:
        """Return the Vega-Lite specification of every stay's picture, with or without the model."""
        return stay_template(self.layout if model else self._layout_without_model)

    @cached_property
    def _layout_without_model(self) -> Layout:
        return replace(self.layout, with_model=False)

    def hidden(self) -> list[str]:
        """Names of what the model was never given."""
        columns = [] if self.redact else list(self.audit.steps.columns)
        return [name.removeprefix("side.") for name in columns if name.startswith("side.")]

    def inferred(self) -> list[str]:
        """Names of what the log does not show and the model infers from it."""
        return [variable.name for variable in self.layout.hidden]

    def order(self) -> list[Any]:
        """Return all ids: flagged ones by rank, then the others by how much the model differs."""
        table = self.audit.episodes
        rank = table["rank"].to_numpy()
        size = np.round(table["difference"].abs().to_numpy(), 9)
        first = np.where(rank > 0, rank, np.iinfo(np.int64).max)
        return table["id"].iloc[np.lexsort([-size, first])].tolist()

    # ---------------------------------------------------------------------------------- one stay

    def one(self, identifier: Any) -> dict[str, Any]:
        """Return all that is shown of a stay, as plain values for JSON."""
        if identifier not in self._position:
            raise ValueError(f"there is no {self.noun} {identifier!r} in this audit")
        position = self._position[identifier]
        row = self.audit.episodes.iloc[position]
        steps = self._steps(position)
        datasets = self.datasets(identifier)
        outcome = str(row["observed_outcome"])
        length = int(row["length"])
        ended = outcome in self.audit.meta.outcomes
        when = f"at step {length}" if ended else f"after {length} step{'s' * (length != 1)}"
        title = f"{_capital(self.noun)} {identifier}: {outcome} {when}"
        inferred = self._inferred(identifier)
        listed = ", ".join(name for name, _ in inferred)
        also = f" Inferred by the model from the whole record: {listed}." if inferred else ""
        return {
            "id": str(identifier),
            "anchor": anchor(identifier),
            "title": title,
            "says": self._says(row),
            "caveat": caveat(row),
            "range": worst_to_best(row),
            "first": self._first(row, steps, position),
            "first_change": int(row["first_change"]),
            "flagged": int(row["rank"]),
            "reason": str(row["reason"]),
            "course": bool(datasets["shade"]),
            "description": f"{title}. {self._says(row)} {caveat(row)}{also}",
            "given": self._fixed(steps),
            "inferred": inferred,
            **self._side(steps),
            "datasets": datasets,
            "table": stay_table(self.layout, datasets),
        }

    def datasets(self, identifier: Any) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of a stay's picture, for the template."""
        position = self._position[identifier]
        row = self.audit.episodes.iloc[position]
        names = self.audit.meta.outcomes
        outcome = str(row["observed_outcome"])
        return stay_datasets(
            self.layout,
            self._steps(position),
            outcome=names.index(outcome) if outcome in names else -1,
            first=int(row["first_change"]),
            courses=self._part("courses", identifier),
            course_steps=self._part("course_steps", identifier),
            draws=self._part("draws", identifier),
        )

    def record(self, identifier: Any) -> dict[str, Any]:
        """Return what happened alone, nothing of the model: rows of the picture and a table."""
        position = self._position[identifier]
        names = self.audit.meta.outcomes
        outcome = str(self.audit.episodes["observed_outcome"].iat[position])
        layout = self._layout_without_model
        datasets = stay_datasets(
            layout,
            self._steps(position),
            outcome=names.index(outcome) if outcome in names else -1,
            first=-1,
            courses=None,
            course_steps=None,
            draws=None,
        )
        return {"datasets": datasets, "table": stay_table(layout, datasets), "inferred": []}

    @cached_property
    def _position(self) -> dict[Any, int]:
        return {name: place for place, name in enumerate(self.audit.episodes["id"].tolist())}

    @cached_property
    def _offsets(self) -> NDArray[np.int64]:
        counts = np.bincount(self.audit.steps["episode"].to_numpy())
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def _steps(self, position: int) -> pd.DataFrame:
        return self.audit.steps.iloc[self._offsets[position] : self._offsets[position + 1]]

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
        """How often each action was taken in each state of the log, [S, A]."""
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
        return f"Under the policy the model says: {words}."

    def _first(self, row: pd.Series, steps: pd.DataFrame, position: int) -> str:
        """Say where the policy first treats otherwise, and what it would give."""
        first = int(row["first_change"])
        if first < 0:
            return "The policy would have treated as was done, at every step."
        state, given = int(steps["state"].iloc[first]), int(steps["action"].iloc[first])
        chances = self.audit.target[state]
        if self.audit.meta.parameters.action_noise == "shared":
            chances = counterfactual_distribution(self.audit.behavior[state], chances, given)
        policy = int(np.argmax(chances))
        own = ((steps["state"] == state) & (steps["action"] == policy)).sum()
        cases = int(self.counts[state, policy] - own)
        alike = (
            "Past cases of that decision that look the same in the record"
            if self.layout.hidden
            else "Similar past cases for that decision"
        )
        sure = "" if chances[policy] > 0.999 else f", with probability {percent(chances[policy])}"
        return (
            f"First difference, decided at step {first}, seen at step {first + 1}: the policy "
            f"gives {describe_action(self.layout.action, policy)}{sure}; given was "
            f"{describe_action(self.layout.action, given)}. "
            f"{alike}: {cases}."
        )

    def _fixed(self, steps: pd.DataFrame) -> list[list[str]]:
        """Name and level of what never changes and the model was given."""
        return [
            [v.name, str(steps[f"state.{v.name}"].iloc[0])] for v in self.layout.state if v.static
        ]

    def _inferred(self, identifier: Any) -> list[list[str]]:
        """Name of each hidden variable, and how likely its levels are if it never changes."""
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
            found.append([variable.name, words if variable.static else DRAWN])
        return found

    def _side(self, steps: pd.DataFrame) -> dict[str, Any]:
        """Side information: what holds throughout, and by step what was recorded now and then."""
        drawn = {v.name for v in self.layout.side if not v.static}
        static = {v.name for v in self.layout.side if v.static}
        decided = (steps["action"] >= 0).to_numpy()
        fixed: list[list[str]] = []
        notes: list[dict[str, Any]] = []
        for name in self.hidden():
            values = steps[f"side.{name}"]
            known = values.notna().to_numpy()
            if name in drawn:
                fixed.append([name, "the yellow row of the picture"])
            elif not known.any():
                fixed.append([name, "not recorded"])
            elif values[known].nunique() == 1 and (name in static or known[decided].all()):
                fixed.append([name, _value(values[known].iloc[0])])
            else:
                at = steps["step"].to_numpy()[known].tolist()
                entries = [[s, _value(v)] for s, v in zip(at, values[known], strict=True)]
                notes.append({"name": name, "entries": entries})
        return {"side": fixed, "notes": notes}


def anchor(identifier: Any) -> str:
    """Return the address of a stay within its page."""
    return f"stay-{quote(str(identifier), safe='')}"


def outcome_chances(row: pd.Series, names: list[str]) -> list[tuple[str, float]]:
    """Return the probability of each outcome under the policy; that of none is the last."""
    columns = [*(f"p_{name}" for name in names[:-1]), "p_none"]
    return [(name, float(row[column])) for name, column in zip(names, columns, strict=True)]


def caveat(row: pd.Series) -> str:
    """Say what stands beside every number of a model."""
    return f"{ESTIMATE} {thin_words(float(row['thin_share']))}"


def thin_words(part: float) -> str:
    """Say which share of the steps rests on thin evidence."""
    words = share(part)
    start = words.capitalize() if words[:1].isalpha() else words
    return f"{start} of its steps rest on fewer than {THIN} similar past cases."


def worst_to_best(row: pd.Series) -> str:
    """Say how far the expected return could move and what that hangs on; beside the caveat."""
    expected = f"Expected return under the policy {signed(float(row['expected_return']))}"
    low, high = float(row["low_any"]), float(row["high_any"])
    if np.isnan(low) or np.isnan(high):
        return f"{expected}; its worst and best case were not worked out. {HOLDS}"
    return f"{expected}, worst to best case {signed(low)} to {signed(high)}. {HOLDS}"


def _capital(noun: str) -> str:
    return noun[:1].upper() + noun[1:]


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
