"""The sections of a study file, declared with pydantic: their keys and the values allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field

from butfor.checks import MOST_STEPS
from butfor.log.coding import listed, text_of
from butfor.log.fields import (
    UNIT_NAMES,
    CellType,
    Count,
    Cuts,
    Discount,
    Level,
    Levels,
    Mistakes,
    Names,
    Reward,
    Section,
    TimeStep,
    Word,
    as_list,
    place,
    split_step,
    step_size,
    unknown_normal,
)
from butfor.log.irregular import (
    MISSING_LEVEL,
    DurationsSection,
    MissingSection,
    TimeSection,
    indicator_name,
)
from butfor.log.meds.section import SourceSection
from butfor.log.variables import NO_OUTCOME, Outcome, Variable, step_variable


class Columns(Section):
    """The role of each column of the log."""

    episode: str
    subject: str | None = None  # whose episodes stay together when a log is divided at random
    time: str | None = None
    time_step: TimeStep | None = None  # in units of the time column, or "4h" if it holds dates
    outcome: str | None = None
    reward: str | None = None
    behavior_probability: str | None = None
    # what your policy does in each row; by action column if there are several
    target_action: str | dict[str, str] | None = None
    target_probability: dict[str, str] | None = None  # columns by action, levels joined by commas
    state: str | None = None  # ready-made: integers from 0
    action: str | None = None
    states: Count | None = None  # how many there are; by default the largest number plus one
    actions: Count | None = None
    final_key: str | None = None  # on the last row: the final state before anything was hidden
    episode_type: CellType | None = None  # "text": 007 and 7 are two episodes

    def mistakes(self, given: Mapping[str, Any]) -> Mistakes:
        """Yield keys that need a column which is not named."""
        if self.target_action is not None and self.target_probability is not None:
            yield "target_action", "given together with target_probability; give one of the two"
        for key, column in (("states", "state"), ("actions", "action"), ("time_step", "time")):
            if getattr(self, key) is not None and column not in given:
                yield key, f"needs a {column} column; add {column} = ..., or remove {key}"

    @property
    def step(self) -> float | None:
        """The time step as a number, in seconds if it has a unit."""
        return None if self.time_step is None else step_size(self.time_step)

    def roles(self) -> dict[str, str]:
        """Return the columns named here, by key."""
        keys = (
            "episode",
            "subject",
            "time",
            "outcome",
            "reward",
            "behavior_probability",
            "state",
            "action",
        )
        named = {key: getattr(self, key) for key in (*keys, "final_key")}
        roles = {key: column for key, column in named.items() if column is not None}
        if isinstance(self.target_action, str):
            roles["target_action"] = self.target_action
        for key in ("target_action", "target_probability"):
            if isinstance(given := getattr(self, key), dict):
                roles |= {f"{key}.{action}": column for action, column in given.items()}
        return roles

    def target_columns(self, actions: Iterable[str]) -> dict[str, str]:
        """Return the column of the target's level for each of these action columns."""
        named, given = list(actions), self.target_action
        if isinstance(given, str):
            given = {named[0]: given} if len(named) == 1 else {}
        if given is None or set(given) != set(named):
            every = ", ".join(f'{name} = "..."' for name in named)
            raise ValueError(
                f"[columns] target_action: name a column for each action: {{ {every} }}"
            )
        return {name: given[name] for name in named}


class VariableSection(Section):
    """A variable of the state or the action: its levels in order, or cut points of a number."""

    levels: Levels | None = None
    cuts: Cuts | None = None
    names: Names | None = None  # of the bins between cuts
    normal: Any = None  # a level or a list of levels; for cuts also the two ends of a range
    static: bool = False  # constant within an episode
    name: str | None = None  # by default the column's

    def mistakes(self, given: Mapping[str, Any]) -> Mistakes:
        """Yield what is wrong between levels, cuts, names and normal."""
        if "levels" in given and "cuts" in given:
            yield "levels", "given together with cuts; give levels for text or cuts for numbers"
            return
        if "levels" not in given and "cuts" not in given:
            text = 'missing; give levels = ["low", "high"], or cuts = [60, 100] for numbers'
            yield "levels", text
        if "names" in given and "cuts" not in given:
            yield "names", "names the bins between cuts; remove it, since levels are names already"
        if self.cuts is not None:
            yield from self._cut_mistakes(self.cuts)
        elif self.levels is not None:
            yield from unknown_normal(self.normal, self.levels)

    def _cut_mistakes(self, cuts: Sequence[float]) -> Mistakes:
        if self.names is not None and len(self.names) != len(cuts) + 1:
            needed = len(cuts) + 1
            yield "names", f"{len(self.names)} names for {needed} bins; give {needed} names"
        elif not self._is_range():
            yield from unknown_normal(self.normal, self.bins())
        elif not (set(self.normal) <= set(cuts) and self.normal[0] < self.normal[1]):
            ends = f"take its ends from {listed(cuts)}, or name the bins"
            yield "normal", f"{self.normal} is not a range between two cuts; {ends}"

    def _is_range(self) -> bool:
        return (
            isinstance(self.normal, list)
            and len(self.normal) == 2
            and all(isinstance(end, int | float) for end in self.normal)
        )

    def bins(self) -> list[str]:
        """Return the levels: those listed, or the names of the bins between cuts."""
        if self.cuts is None:
            return list(self.levels or ())
        if self.names is not None:
            return list(self.names)
        ends = [text_of(cut) for cut in self.cuts]
        between = [f"{low} to {high}" for low, high in pairwise(ends)]
        return [f"below {ends[0]}", *between, f"{ends[-1]} or more"]

    def variable(self, column: str) -> Variable:
        """Return the Variable of an Episodes that this section describes."""
        bins = self.bins()
        if self.cuts is not None and self._is_range():
            low, high = (self.cuts.index(end) for end in self.normal)
            normal = tuple(bins[low + 1 : high + 1])
        else:
            normal = tuple(as_list(self.normal))
        return Variable(self.name or column, tuple(bins), normal=normal, static=self.static)


class StateSection(VariableSection):
    """A variable of the state; its number may enter classifiers uncut."""

    number: bool = False  # what is predicted is its level, what classifiers learn from its number

    def mistakes(self, given: Mapping[str, Any]) -> Mistakes:
        """Yield also a number without cuts."""
        yield from super().mistakes(given)
        if self.number and "cuts" not in given:
            text = "true, but there are no cuts; what is predicted must have levels, so give cuts"
            yield "number", f"{text}, or remove number"


class SideColumn(Section):
    """A column that reviewers see and the model does not."""

    levels: Levels | None = None
    normal: Any = None
    static: bool = False  # constant within an episode
    type: CellType | None = None
    name: str | None = None
    number: bool = False  # refused: see `mistakes`

    def mistakes(self, given: Mapping[str, Any]) -> Mistakes:
        """Yield what is wrong between levels, type, normal and static, and any use as a number."""
        if self.number:
            yield (
                "number",
                (
                    "true, but no model sees a side column, so what would have become of it is "
                    "unknown; move it to [state.<column>] with cuts and number = true, and with "
                    "static = true if it never changes within an episode"
                ),
            )
        if "levels" in given and "type" in given:
            yield "type", "given together with levels; remove it, since levels are text"
        if self.levels is not None:
            yield from unknown_normal(self.normal, self.levels)
        elif "levels" not in given and self.normal is not None:
            yield "levels", "missing; normal needs levels"

    def variable(self, column: str) -> Variable | None:
        """Return the Variable that this section describes, if it has levels."""
        if self.levels is None:
            return None
        normal = tuple(as_list(self.normal))
        return Variable(self.name or column, tuple(self.levels), normal=normal, static=self.static)


class ClusterSection(Section):
    """Columns of numbers that together make the state, as the nearest of `count` clusters."""

    columns: Names
    count: Count


class OutcomeSection(Section):
    """One value of the outcome column."""

    name: Word | None = None
    reward: Reward | None = None
    bad: bool = False


class RewardSection(Section):
    """What the words in the reward column are worth."""

    values: dict[str, Reward]
    added: bool = False  # whether a step that a grid adds earns what its state is worth


class Words(Section):
    """What the readers of the results call things."""

    episode: Word = "episode"
    step: Word = "step"
    time: Word | None = None  # what the time column counts, such as "hour", if it holds numbers
    none: Word = NO_OUTCOME  # the end of an episode without an outcome


class Evaluation(Section):
    """How far ahead to look, how much later rewards count, and what to do about lost episodes."""

    horizon: Annotated[int, Field(ge=1, le=MOST_STEPS)] | None = None
    discount: Discount = 1.0
    planning_discount: Discount = 0.99
    # what an episode that stops without an outcome is compared with
    censored: Literal["continue", "cut", "outcome"] = "continue"
    censoring: Literal["ipcw"] | None = None  # whether weights make up for those that were lost
    by_step: bool = False  # whether policies and rules may differ from step to step

    def mistakes(self, given: Mapping[str, Any]) -> Mistakes:
        """Yield what counting steps needs."""
        if self.by_step and self.horizon is None:
            yield "by_step", "needs the number of steps; add horizon = ..."


class Noise(Section):
    """The columns of the state that carry the noise of transitions: what nature decides."""

    labels: Names


class ModelSection(Section):
    """What kind of model is learned from the log, and how."""

    kind: Literal["factored", "tabular"] | None = None  # by default as `butfor audit` decides
    learner: Literal["counts", "logistic", "boosting"] = "counts"
    parents: dict[str, Names] = Field(
        default_factory=dict
    )  # of a variable, in the order of back-off
    order: Names | None = None  # of variables; each may depend on the next levels of earlier ones

    def mistakes(self, given: Mapping[str, Any]) -> Mistakes:
        """Yield keys that only a factored model has."""
        for key in ("learner", "parents", "order"):
            if self.kind == "tabular" and key in given:
                yield key, 'needs kind = "factored"; change the kind, or remove the key'


class RulesSection(Section):
    """What a learned policy may not do."""

    # levels of variables that must not occur together
    never: list[dict[str, Level | Levels]] = Field(default_factory=list)
    # action variables, each with the state variable of its level now
    gradual: dict[str, str] = Field(default_factory=dict)


class Study(Section):
    """A study file in which no mistake was found."""

    columns: Columns
    source: SourceSection | None = None
    state: dict[str, StateSection] = Field(default_factory=dict)
    cluster: ClusterSection | None = None
    action: dict[str, VariableSection] = Field(default_factory=dict)
    outcome: dict[str, OutcomeSection] = Field(default_factory=dict)
    reward: RewardSection | None = None  # None: the column holds numbers
    side: dict[str, SideColumn] = Field(default_factory=dict)
    problems: dict[str, str] = Field(default_factory=dict)
    drop_at_most: float | None = None  # share of the episodes; None: see `log/left_out.py`
    words: Words = Words()
    evaluation: Evaluation = Evaluation()
    noise: Noise | None = None
    model: ModelSection = ModelSection()
    rules: RulesSection = RulesSection()
    time: TimeSection | None = None
    durations: DurationsSection | None = None
    missing: dict[str, MissingSection] = Field(default_factory=dict)

    def lengths(self) -> dict[str, float | str]:
        """Return the lengths of time that the study names, by place."""
        found = {"[columns] time_step": self.columns.time_step}
        found["[time] every"] = self.time.every if self.time else None
        found["[durations] unit"] = self.durations.unit if self.durations else None
        for column, section in self.missing.items():
            found[f"{place('missing', column)} within"] = section.within
        return {at: length for at, length in found.items() if length is not None}

    def clock(self) -> tuple[str, float] | None:
        """Return the unit of time and how many of it a step takes; None if either is unknown."""
        step = self.columns.time_step if self.time is None else self.time.every
        number, unit = (math.nan, "") if step is None else split_step(step)
        name = UNIT_NAMES.get(unit, self.words.time)
        return None if name is None or math.isnan(number) else (name, number)

    def state_variables(self) -> tuple[Variable, ...]:
        """Return the step, the variables of [state], their indicators, and the duration."""
        variables = []
        for column, section in self.state.items():
            variable, missing = section.variable(column), self.missing.get(column)
            if missing and missing.fill == MISSING_LEVEL and MISSING_LEVEL not in section.bins():
                variable = replace(variable, levels=(*variable.levels, MISSING_LEVEL))
            variables.append(variable)
        names = (self.state[column].name or column for column in self.indicators(self.state))
        told = (Variable(indicator_name(name), ("no", "yes"), ("no",)) for name in names)
        return (*self.counted(), *variables, *told, *self.timed())

    def counted(self) -> tuple[Variable, ...]:
        """Return the variable that counts the steps, if the study has one."""
        return (step_variable(self.evaluation.horizon or 0),) if self.evaluation.by_step else ()

    def timed(self) -> tuple[Variable, ...]:
        """Return the variable of the time since the decision before, if the study has one."""
        return (self.durations.variable(),) if self.durations else ()

    def indicators(self, columns: Iterable[str]) -> list[str]:
        """Return those of some columns that have an indicator of missing values."""
        return [name for name in columns if name in self.missing and self.missing[name].indicator]

    def action_variables(self) -> tuple[Variable, ...]:
        """Return the variables of the [action] sections, in order."""
        return tuple(section.variable(column) for column, section in self.action.items())

    def number_columns(self) -> dict[str, str]:
        """Return the columns whose numbers enter classifiers uncut, with their variables' names."""
        return {column: one.name or column for column, one in self.state.items() if one.number}

    def noise_variables(self) -> tuple[str, ...]:
        """Return the names of the variables in [noise], empty if there is no such section."""
        columns = self.noise.labels if self.noise else []
        names = [self.state[column].name or column for column in columns]
        # nature decides the time to the next decision, too
        return (*names, *(variable.name for variable in self.timed())) if names else ()

    def outcomes(self) -> dict[str, Outcome]:
        """Return the outcomes by their value in the log; a missing reward is nan."""
        found = {}
        for value, section in self.outcome.items():
            reward = math.nan if section.reward is None else section.reward
            found[value] = Outcome(section.name or value, reward, section.bad)
        return found

    def cluster_columns(self) -> list[str]:
        """Return the columns that are clustered, empty if there is no [cluster]."""
        return self.cluster.columns if self.cluster else []

    def places(self) -> dict[str, str]:
        """Return every column that the study names, with the place where it is first named."""
        found: dict[str, str] = {}
        for key, column in self.columns.roles().items():
            found.setdefault(column, f"[columns] {key}")
        for key in ("state", "action", "side"):
            for column in getattr(self, key):
                found.setdefault(column, place(key, column))
        for column in self.cluster_columns():
            found.setdefault(column, "[cluster] columns")
        return found

    def text_columns(self) -> set[str]:
        """Return the columns whose cells are text whatever they look like."""
        variables = {**self.state, **self.action}
        cut = {column for column, section in variables.items() if section.cuts is not None}
        side = {n for n, s in self.side.items() if s.levels is not None or s.type == "text"}
        named = self.columns
        names = {named.episode, named.subject, named.outcome, *variables} - cut - {None}
        if self.columns.target_action is not None and self.action:
            chosen = self.columns.target_columns(self.action)
            names |= {target for column, target in chosen.items() if column not in cut}
        return {str(name) for name in names} | (side - cut - set(self.columns.roles().values()))
