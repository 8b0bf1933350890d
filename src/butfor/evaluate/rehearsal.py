"""Rehearsal: what the same method would have promised too much, had a variable not been logged.

Nothing in a log tells of a cause that it does not record. But what a method does with a log that
lacks a cause can be tried, because the causes that were recorded can be hidden from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from butfor.checks import check_horizon, check_whole
from butfor.evaluate.crossfit import Learn, Learned, learn_from, split_halves
from butfor.evaluate.diagnostics.lights import Row
from butfor.evaluate.wording import digits_for
from butfor.hidden.policies import Policy, as_array
from butfor.log.episodes import Episodes
from butfor.log.variables import Variable, project
from butfor.models.planning import state_values
from butfor.models.transitions import Transitions
from butfor.printed import Printed
from butfor.random import numbered_keys
from butfor.types import Floats, Integers, Progress

MOST_HIDDEN = 12  # rehearsals: with more variables, neighbors are hidden together
SPLITS = 4  # with one, the worst error of a log of 1000 episodes varied by a quarter over seeds
COLUMNS = ["hidden", "promised", "judged", "error"]
Part = Episodes | Transitions  # some of a log: its episodes, or what was counted in them


@dataclass(frozen=True, eq=False, repr=False)
class Rehearsal(Printed):
    """What the method promises here, and by how much it would have been wrong without a variable.

    The table has one row per variable, or group of variables, that was hidden: the value that the
    policy learned without it was `promised`, by a model without it; how the model that has it
    `judged` the same policy; and the `error`, promised minus judged. Values are means over both
    halves of each split: a policy is never judged by the half that it was learned from.
    """

    table: pd.DataFrame
    value: float  # of the policy learned with all variables, in the other half's model
    observed: float  # mean return in the log

    @property
    def gain(self) -> float:
        """What is promised here beyond what was observed."""
        return self.value - self.observed

    @property
    def worst(self) -> float:
        """The largest error; 0 if none is positive."""
        return max(0.0, float(self.table["error"].max()))

    @property
    def passed(self) -> bool:
        """Whether the gain is larger than every error. A warning if not, no proof if so."""
        return self.gain > self.worst

    def row(self) -> Row:
        """Return it as a check: by how much the gain exceeds the worst error."""
        light = "green" if self.passed else "red" if self.gain > 0 else "amber"
        verdict = {
            "green": "This is a warning that did not come, not a proof.",
            "amber": "There is no gain that could be due to something unrecorded.",
            "red": "A single variable that was not recorded could account for such a gain.",
        }[light]
        return "rehearsal", self.gain - self.worst, light, f"{self.sentence()} {verdict}"

    def sentence(self) -> str:
        """Say the worst error beside the gain."""
        row = self.table.iloc[int(self.table["error"].argmax())]
        digits = digits_for([self.gain, float(row["error"])])
        gain = f"The gain promised here is {digits.gap(self.gain)}"
        if self.gain <= 0:
            gain = f"Here no gain is promised ({digits.gap(self.gain)})"
        if row["error"] <= 0:
            return f"Without any one variable the same method would not have promised more. {gain}."
        return (
            f"Had {row['hidden']} not been logged, the same method would have promised "
            f"{digits.size(row['error'])} too much. {gain}."
        )


def can_rehearse(log: Part) -> bool:
    """Whether a variable of a log can be hidden: there are several, and all states are known."""
    known = bool((log.next_state >= 0).all())
    return log.combinations is None and len(_hideable(log.state_variables)) > 1 and known


def _hideable(variables: Sequence[Variable]) -> list[str]:
    """Return the names of the variables that can be hidden: all but those that tell the time."""
    return [one.name for one in variables if not (one.durations or one.clock)]


def rehearse(
    log: Episodes,
    learn: Learn,
    *,
    groups: Sequence[Sequence[str]] | None = None,
    horizon: int | None = None,
    discount: float = 1.0,
    splits: int = SPLITS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Rehearsal:
    """Hide each variable in turn, learn on one half of a log, and judge by the other half's models.

    Parameters
    ----------
    learn
        The function that makes model and target, as for `estimate_values`; it is given logs that
        lack variables.
    groups : optional
        State variables to hide together, by default each by itself; with more than 12, neighbors.
    horizon : optional
        Number of steps; by default the longest episode's.
    splits
        Number of times that the log is split into halves at random.
    progress : optional
        Called with (done, total).

    Notes
    -----
    A warning, not a bound: a cause that was never recorded may matter more than all that were.
    """
    check_whole(splits, "splits", 1, "a whole number")
    if log.combinations is not None:
        raise ValueError(
            "a rehearsal needs states that can be enumerated; use fewer variables (hide) or levels"
        )
    steps = int(log.lengths.max()) if horizon is None else horizon
    check_horizon(steps)
    keys = numbered_keys(seed, splits, "rehearsal").tolist()
    return rehearse_halves(
        ([log.select(half) for half in split_halves(log, key)] for key in keys),
        learn,
        splits=splits,
        hidden=hidden_groups(log.state_variables, groups),
        horizon=steps,
        discount=discount,
        observed=float(log.truncate(steps).returns(discount).mean()),
        progress=progress,
    )


def rehearse_halves(
    halves: Iterable[Sequence[Part]],
    learn: Callable[[Any], tuple[Learned, Policy]],  # takes the parts
    *,
    splits: int,
    hidden: Sequence[Sequence[str]],
    horizon: int,
    discount: float,
    observed: float,
    progress: Progress | None = None,
) -> Rehearsal:
    """Rehearse by two halves of a log for each split: their episodes, or transitions counted there.

    `hidden` lists the variables that are hidden together, `observed` is the mean return in the log.
    """
    found, full = np.zeros((len(hidden), 2)), 0.0
    for split, parts in enumerate(halves):
        whole = [_Half(part, learn, horizon, discount) for part in parts]
        full += _crossed(whole, whole)
        for number, names in enumerate(hidden):
            without = [_Half(part.hide(*names), learn, horizon, discount) for part in parts]
            variables = parts[0].state_variables
            place = project(variables, *(v.name for v in variables if v.name not in names))
            found[number] += _crossed(without, without), _crossed(without, whole, place)
            if progress is not None:
                progress(split * len(hidden) + number + 1, splits * len(hidden))
    promised, judged = (found / splits).T
    rows = zip(map(_in_words, hidden), promised, judged, promised - judged, strict=True)
    return Rehearsal(pd.DataFrame(list(rows), columns=COLUMNS), full / splits, observed)


class _Half:
    """Half of a log, with its model and the policy learned from it."""

    def __init__(self, part: Any, learn: Learn, horizon: int, discount: float) -> None:
        self.horizon, self.discount = horizon, discount
        self.model, target = learn_from(learn, part)
        self.target = np.asarray(as_array(target), dtype=np.float64)
        if isinstance(part, Transitions):
            self.first = part.first
        else:
            self.first = np.bincount(part.first_state, minlength=part.n_states)

    def total(self, target: Floats) -> float:
        """Return the value of a target, added up over the first states of this half."""
        values = state_values(self.model, target, horizon=self.horizon, discount=self.discount)
        return float(self.first @ values)


def _crossed(
    learned: Sequence[_Half], judges: Sequence[_Half], place: Integers | None = None
) -> float:
    """Return the mean value of each half's target in the model of the other half's judge.

    `place` maps the states of the judges to those of the targets.
    """
    targets = [half.target if place is None else half.target[place] for half in learned]
    total = judges[0].total(targets[1]) + judges[1].total(targets[0])
    return total / float(sum(judge.first.sum() for judge in judges))


def hidden_groups(
    variables: Sequence[Variable], groups: Sequence[Sequence[str]] | None = None
) -> list[tuple[str, ...]]:
    """Return the names of the variables that are hidden together; with many, neighbors."""
    names = _hideable(variables)
    if len(names) < 2:
        raise ValueError(
            "a rehearsal hides one of several state variables, but there is only "
            f"{', '.join(map(repr, names))}"
        )
    if groups is None:
        count = min(len(names), MOST_HIDDEN)
        return [tuple(part.tolist()) for part in np.array_split(np.array(names), count)]
    for group in groups:
        if isinstance(group, str):
            raise ValueError(f"groups: {group!r} is text; give lists of names")
        if not group:
            raise ValueError("groups: one of them is empty; name at least one variable in each")
    return [tuple(group) for group in groups]


def _in_words(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
