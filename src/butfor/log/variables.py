"""Variables, levels and outcomes: the meaning of the numbers in a log."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.checks import MOST_NUMBERED, REWARDS, find_absurd
from butfor.printed import Printed, describe
from butfor.types import Integers

NO_OUTCOME = "no outcome"  # what the end of an episode without an outcome is called
SWITCHES = (("off", "on"), ("no", "yes"))  # levels of variables that are told by their names alone


@dataclass(frozen=True, repr=False)
class Variable(Printed):
    """One named variable of a state or an action, with its levels in order."""

    name: str
    levels: tuple[str, ...]
    normal: tuple[str, ...] = ()  # the levels that count as normal, for charts
    static: bool = False  # constant within an episode, so not part of "the final state"
    # how long before it the previous decision was made, by level, in the study's unit of time
    durations: tuple[float, ...] = ()
    clock: bool = False  # counts the steps of an episode; its last level is the horizon

    def _title(self) -> str:
        return f"Variable {self.name}: {describe(self.levels)}"

    def _facts(self) -> dict[str, object]:
        return {}


@dataclass(frozen=True)
class Outcome:
    """One way in which an episode can end."""

    name: str
    reward: float
    bad: bool = False


def step_variable(horizon: int, name: str = "step") -> Variable:
    """Return the variable that counts the steps of an episode, up to the horizon."""
    return Variable(name, tuple(map(str, range(horizon + 1))), clock=True)


def count_levels(variables: Sequence[Variable]) -> int:
    """Number of combinations of levels."""
    return math.prod(len(variable.levels) for variable in variables)


def ravel(variables: Sequence[Variable], codes: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Mixed-radix index of level codes, the first variable most significant."""
    index = np.zeros(len(codes[0]), dtype=np.int64)
    for variable, code in zip(variables, codes, strict=True):
        index = index * len(variable.levels) + code
    return index


def unravel(variables: Sequence[Variable], index: NDArray[Any]) -> dict[str, NDArray[np.intp]]:
    """Level code of each variable, by name."""
    sizes = tuple(len(variable.levels) for variable in variables)
    names = (variable.name for variable in variables)
    return dict(zip(names, np.unravel_index(index, sizes), strict=True))


def decided_by_nature(state: Sequence[Variable], actions: Sequence[Variable]) -> tuple[str, ...]:
    """Names of the state variables that do not share their name with an action variable."""
    decided = {variable.name for variable in actions}
    names = tuple(variable.name for variable in state if variable.name not in decided)
    if not names:
        raise ValueError(
            "every state variable has the name of an action variable "
            f"({', '.join(repr(variable.name) for variable in state)}), which leaves nothing "
            "for nature to decide; name the variables whose noise carries over"
        )
    return names


def project(variables: Sequence[Variable], *names: str) -> Integers:
    """Map each index over `variables` to the index over the named ones, which keep their order."""
    known = [variable.name for variable in variables]
    for name in names:
        if name not in known:
            raise ValueError(f"no variable {name!r}; there are {', '.join(map(repr, known))}")
    kept = [variable for variable in variables if variable.name in names]
    codes = unravel(variables, np.arange(count_levels(variables)))
    return ravel(kept, [codes[variable.name] for variable in kept]).astype(np.int32)


def check_variables(given: int | Sequence[Variable], name: str) -> tuple[Variable, ...]:
    """Return variables; a number stands for one variable with that many levels."""
    if isinstance(given, int | np.integer):
        if given < 1:
            raise ValueError(f"{given} {name}s: give at least one")
        if given > MOST_NUMBERED:
            raise ValueError(
                f"{given} {name}s: give at most {MOST_NUMBERED:,}, or several variables whose "
                "combinations they are"
            )
        return (Variable(name, tuple(str(level) for level in range(int(given)))),)
    variables = tuple(given)
    if not variables or any(len(variable.levels) == 0 for variable in variables):
        raise ValueError(f"{name} variables: at least one, each with at least one level")
    check_distinct([variable.name for variable in variables], f"{name} variables")
    for variable in variables:
        check_distinct(variable.levels, f"levels of {name} variable {variable.name!r}")
    check_durations(variables, name)
    return variables


def check_durations(variables: Sequence[Variable], name: str) -> None:
    """Refuse durations of two variables, and those that are not positive, one per level."""
    timed = [variable for variable in variables if variable.durations]
    if len(timed) > 1:
        raise ValueError(
            f"{name} variables {timed[0].name!r} and {timed[1].name!r} both have durations; give "
            "those of one"
        )
    for variable in timed:
        right = all(math.isfinite(duration) and duration > 0 for duration in variable.durations)
        if len(variable.durations) != len(variable.levels) or not right:
            raise ValueError(
                f"durations of {name} variable {variable.name!r}: {variable.durations}; give a "
                f"number above 0 for each of its {len(variable.levels)} levels"
            )


def check_outcomes(outcomes: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """Return outcomes with distinct names and rewards that can be added up."""
    for outcome in outcomes:
        if not isinstance(outcome, Outcome):
            raise ValueError(
                f"outcome {outcome!r} has no reward: give Outcome({outcome!r}, reward)"
            )
        if len(find_absurd([outcome.reward])):
            raise ValueError(
                f"outcome {outcome.name!r} has the reward {outcome.reward}; give {REWARDS}"
            )
    check_distinct([outcome.name for outcome in outcomes], "outcomes")
    return tuple(outcomes)


def check_distinct(names: Iterable[Any], what: str) -> None:
    """Refuse names of which one appears twice."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"{what}: {twice[0]!r} appears twice; give different names")


def is_switch(variable: Variable) -> bool:
    """Return whether a variable is on or off, or yes or no."""
    return tuple(variable.levels) in SWITCHES


def describe_states(
    variables: Sequence[Variable], codes: Mapping[str, NDArray[np.integer]]
) -> list[str]:
    """Describe states, given by the codes of their levels [m], by the level of each variable."""
    words = ([f"{v.name} {v.levels[code]}" for code in codes[v.name].tolist()] for v in variables)
    return [", ".join(parts) for parts in zip(*words, strict=True)]


def describe_action(variables: Sequence[Variable], action: int) -> str:
    """Describe an action: the switches that are on, or the level of each variable."""
    codes = unravel(variables, np.array([action]))
    levels = [(v.name, v.levels[int(codes[v.name][0])]) for v in variables]
    if all(is_switch(variable) for variable in variables):
        *others, last = [name for name, level in levels if level in ("on", "yes")] or ["nothing"]
        return f"{', '.join(others)} and {last}" if others else last
    if len(levels) == 1:
        return f"{levels[0][0]} {levels[0][1]}"
    return ", ".join(f"{name} {level}" for name, level in levels)
