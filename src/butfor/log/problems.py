"""Problems of a log: the kinds there are, how each may be settled, and what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]

SHOWN = 5  # places and values that a message names

LEAVE_OUT = "leaves these episodes out"
_DROP_EPISODES = {"drop": LEAVE_OUT}
_CARRY = _DROP_EPISODES | {"fill": "carries the episode's last value forward"}
_AS_MISSING = _DROP_EPISODES | {"fill": "treats them as missing, and fills"}
# By kind: how the study may settle it instead of refusing the log, and what that does.
KINDS: dict[str, dict[str, str]] = {
    "missing_episode": {"drop": "leaves the rows out"},
    "missing_time": _DROP_EPISODES,
    "order": {"sort": "sorts each episode by time"},
    "duplicates": {"drop": "keeps the first of each"},
    "gaps": _DROP_EPISODES | {"fill": "repeats the row before the gap, with reward 0"},
    "missing_state": _CARRY,
    "missing_action": _CARRY,
    "missing_reward": {"fill": "counts them as 0"},
    "lost_reward": {"drop": "leaves out these decisions and their rewards"},
    "unknown_levels": _AS_MISSING,
    "not_numbers": _AS_MISSING,
    "after_outcome": {"drop": "leaves out the rows after the first outcome"},
    "differing_outcomes": _DROP_EPISODES | {"last": "takes the last one of each"},
    "no_outcome": _DROP_EPISODES | {"keep": "keeps them as censored episodes"},
    "no_transition": _DROP_EPISODES
    | {"keep": "keeps last decisions that nothing follows, as lost to follow-up"},
    "behavior_probability": _DROP_EPISODES,
    "beyond_horizon": {"cut": "cuts these episodes there, which removes their outcomes"},
}
DONE = {
    "drop": "dropped",
    "fill": "filled",
    "sort": "sorted",
    "keep": "kept",
    "cut": "cut",
    "last": "settled by the last one",
}
SINGULAR = {"have": "has", "follow": "follows", "do": "does", "end": "ends", "are": "is"}


@dataclass
class LogProblems:
    """What was found in a log and how it was settled, by kind."""

    policies: Mapping[str, str]  # kind: how to settle it
    places: Callable[[Sequence[int]], str]  # names rows of the source
    in_study: bool = True  # whether messages offer the choices as a study file has them
    refused: list[str] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)

    def policy(self, kind: str) -> str:
        """Return how a kind of problem is to be settled."""
        return self.policies.get(kind, "refuse")

    def find(self, kind: str, rows: Index, what: str, remedy: str, *, noun: str = "row") -> str:
        """Record a problem of some rows of the source, and return how to settle it.

        If that is "refuse", the caller continues as well as it can, to find other problems.
        `noun` says what is counted: rows, or episodes given by their first rows.
        """
        policy = self.policy(kind)
        if policy == "refuse":
            self.refuse(kind, rows, what, remedy, noun=noun)
        else:
            self.count(f"{kind}: {noun}s {DONE[policy]}", len(rows))
        return policy

    def refuse(self, kind: str, rows: Index, what: str, remedy: str, *, noun: str = "row") -> None:
        """Record a problem for which the log will be refused, whatever the study says."""
        if len(rows) == 0:
            return
        first = np.sort(rows)[:SHOWN].tolist()
        number = f"{len(rows):,} {noun}s"
        if len(rows) == 1:
            verb, _, rest = what.partition(" ")
            number, what = f"1 {noun}", f"{SINGULAR[verb]} {rest}"
        places = self.places(first) + (", …" if len(rows) > SHOWN else "")
        self.refused.append(f"{kind}: {number} {what} ({places}). {remedy}{self._choices(kind)}")

    def count(self, what: str, number: int) -> None:
        """Add to the record of what was done."""
        if number:
            self.done[what] = self.done.get(what, 0) + int(number)

    def check(self, source: str) -> None:
        """Raise one error that lists everything refused, if there is anything."""
        if not self.refused:
            return
        number = len(self.refused)
        head = f"{source}: {number} problem{'s' if number > 1 else ''}, so nothing was read"
        raise ValueError("\n".join([head, *(f"- {text}" for text in self.refused)]))

    def _choices(self, kind: str) -> str:
        where, written = "", 'problems={{"{}": "{}"}}'
        if self.in_study:
            where, written = "in [problems] of the study: ", '{} = "{}"'
        choices = [
            f"{written.format(kind, policy)} ({meaning})"
            for policy, meaning in KINDS[kind].items()
            if self.policies.get(kind) != policy
        ]
        return f"; or {where}{' or '.join(choices)}" if choices else ""
