"""Rules: what a learned policy may not do, whatever the log says about it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from butfor.log.variables import Variable, count_levels, unravel
from butfor.printed import Printed

Levels = str | Sequence[str]
GROUPS = ("state", "action")


@dataclass(frozen=True, repr=False)
class Rules(Printed):
    """What a plan must not do; see `policy_iteration`.

    Parameters
    ----------
    never
        Combinations of levels that must not occur together, such as {"pressure": "low", "drug":
        ["half", "full"]}: variables of the state and the action by name, each with a level or
        several. A name that both have is written state.drug or action.drug.
    gradual
        Action variables that change by one level at most, each with the state variable that holds
        its present level: {"drug": "present drug"}. Both need the same levels in the same order.
    """

    never: Sequence[Mapping[str, Levels]] = ()
    gradual: Mapping[str, str] = field(default_factory=dict)

    def allowed(self, states: Sequence[Variable], actions: Sequence[Variable]) -> NDArray[np.bool_]:
        """Mark the actions that may be taken, [S, A]; at least one in each state."""
        codes = {
            "state": _codes(states, (slice(None), None)),
            "action": _codes(actions, (None, slice(None))),
        }
        known = {"state": {v.name: v for v in states}, "action": {v.name: v for v in actions}}
        found = np.ones((count_levels(states), count_levels(actions)), dtype=bool)
        for number, rule in enumerate(self.never, 1):
            forbidden = np.ones_like(found)
            for name, levels in rule.items():
                group, variable = _find(name, known, f"never, rule {number}")
                chosen = [levels] if isinstance(levels, str) else list(levels)
                places = [_level(variable, level, f"never, rule {number}") for level in chosen]
                forbidden &= np.isin(codes[group][variable.name], places)
            found &= ~forbidden
        for name, present in self.gradual.items():
            given = _find(f"action.{name}", known, "gradual")[1]
            held = _find(f"state.{present}", known, "gradual")[1]
            if given.levels != held.levels:
                raise ValueError(
                    f"gradual: {name!r} and {present!r} have different levels; give both the same"
                )
            found &= np.abs(codes["action"][name] - codes["state"][present]) <= 1
        stuck = ~found.any(axis=1)
        if stuck.any():
            first = unravel(states, np.array([int(stuck.argmax())]))
            levels = ", ".join(f"{v.name}={v.levels[int(first[v.name][0])]}" for v in states)
            raise ValueError(
                f"the rules allow no action in {stuck.sum()} of {len(found)} states, first with "
                f"{levels}; leave one open"
            )
        return found

    def without(self, hidden: Collection[str]) -> Rules:
        """Return the rules that can be followed without some state variables."""
        return Rules(
            [
                rule
                for rule in self.never
                if not any(name.removeprefix("state.") in hidden for name in rule)
            ],
            {name: present for name, present in self.gradual.items() if present not in hidden},
        )

    def __bool__(self) -> bool:
        return bool(self.never or self.gradual)


def _codes(
    variables: Sequence[Variable], shape: tuple[slice | None, slice | None]
) -> dict[str, NDArray[np.intp]]:
    """Return the level codes of all states or actions, as columns or rows of a table [S, A]."""
    codes = unravel(variables, np.arange(count_levels(variables)))
    return {name: code[shape] for name, code in codes.items()}


def _find(
    name: str, known: Mapping[str, Mapping[str, Variable]], where: str
) -> tuple[str, Variable]:
    """Return the variable of a name, and whether it is of the state or the action."""
    group, dot, bare = name.partition(".")
    if dot and group in GROUPS and bare in known[group]:
        return group, known[group][bare]
    found = [group for group in GROUPS if name in known[group]]
    if len(found) == 2:
        raise ValueError(
            f"{where}: {name!r} is in the state and the action; write state.{name} or action.{name}"
        )
    if not found:
        there = ", ".join(repr(name) for group in GROUPS for name in known[group])
        raise ValueError(f"{where}: no variable {name!r}; there are {there}")
    return found[0], known[found[0]][name]


def _level(variable: Variable, level: str, where: str) -> int:
    if level not in variable.levels:
        raise ValueError(
            f"{where}: {level!r} is not a level of {variable.name}; there are "
            f"{', '.join(map(repr, variable.levels))}"
        )
    return variable.levels.index(level)
