"""Which of the remaining columns make the state, and which are only shown."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from butfor.log.coding import Codes, bins_of
from butfor.log.combinations import MOST_TRANSITIONS
from butfor.log.guess.actions import action_codes, count_section
from butfor.log.guess.findings import Roles
from butfor.log.guess.information import says_the_same, share_told
from butfor.log.guess.profile import MOST_LEVELS, Profile
from butfor.log.guess.words import sounds

MOST_EMPTY = 0.3  # share of rows without a value, above which a column is not part of the state
LITTLE = 0.05  # share that may be chance in a short log
MUCH = 0.2  # share of the action from which on a column may be the decision itself
MOST_STATES = 5000  # few logs visit more; further columns become side columns


@dataclass
class States:
    """The drafted sections of the state by column, what had no room, and what is only shown."""

    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    no_room: dict[str, dict[str, Any]] = field(default_factory=dict)
    side: list[str] = field(default_factory=list)
    suspected: list[str] = field(default_factory=list)  # may be the decision itself


@dataclass(frozen=True, eq=False)
class Candidate:
    """A column that could be part of the state."""

    profile: Profile
    section: dict[str, Any]
    bins: Codes  # [R]
    action: float  # share of the action's entropy that it tells
    end: float  # share of the entropy of ends that its last row tells

    @property
    def told(self) -> str:
        """Say how much it tells."""
        action, end = max(0.0, self.action), max(0.0, self.end)
        return f"tells {action:.0%} of the action, {end:.0%} of the end"


def choose_states(roles: Roles) -> States:
    """Divide the columns without a role into states and side columns.

    Columns that tell more about the action and the end of the episode come first, as long as the
    transitions of a factored model can still be enumerated.
    """
    ready = "state" in roles.columns
    states, chosen = States(), list[Candidate]()
    total, moving, actions = 1, 1, _count_actions(roles)
    for candidate in [] if ready else _candidates(roles):
        name, size = candidate.profile.name, count_section(candidate.section)
        static = roles.rows.is_static(candidate.profile)
        goals = moving if static else moving * size
        if total * size > MOST_STATES or total * size * actions * goals > MOST_TRANSITIONS:
            against = "too many states"
        elif roles.single and total * size * actions > len(roles.rows.order):
            against = "too few rows for each state and action"
        elif candidate.action > MUCH and sounds(name, "cost"):
            against = "a cost that the action tells, so it was not known before"
        else:
            same = (c.profile.name for c in chosen if says_the_same(c.bins, candidate.bins))
            against = next((f"it says nearly the same as {other}" for other in same), "")
        if against:
            states.no_room[name] = candidate.section
            roles.take(name, "side", f"{against}; {candidate.told}")
            continue
        total, moving = total * size, goals
        chosen.append(candidate)
        if candidate.action > MUCH:
            states.suspected.append(name)
        candidate.section.update({"static": True} if static else {})
        changes = "constant in each episode; " if static else "changes within episodes; "
        roles.take(name, "state", f"{'' if roles.single else changes}{candidate.told}")
    for name in list(roles.left):
        roles.take(name, "side", "the state is ready-made" if ready else "it has many values")
    kept = {candidate.profile.name: candidate.section for candidate in chosen}
    states.sections = {name: kept[name] for name in roles.profiles if name in kept}
    states.side = [name for name in roles.profiles if roles.found[name].role == "side"]
    return states


def _candidates(roles: Roles) -> list[Candidate]:
    """Return the columns with levels, the most telling first; many empty cells are put aside."""
    decided = action_codes(roles)
    ends = _ends(roles)
    found = []
    for name, profile in list(roles.left.items()):
        section = _section(roles, profile)
        if profile.kind in ("empty", "time") or not 1 < count_section(section) <= MOST_LEVELS:
            continue
        missing = float(profile.empty[decided >= 0].mean()) if (decided >= 0).any() else 0.0
        if missing > MOST_EMPTY:
            roles.take(name, "side", f"empty in {missing:.0%} of the rows")
            continue
        bins = profile.bins(section)
        action = share_told(bins, decided)
        end = share_told(bins[roles.rows.last], ends)
        found.append(Candidate(profile, section, bins, action, end))
    # a column that tells most of the action and one that tells most of the end count alike
    action = max([LITTLE, *(candidate.action for candidate in found)])
    end = max([LITTLE, *(candidate.end for candidate in found)])
    return sorted(found, key=lambda candidate: -candidate.action / action - candidate.end / end)


def _section(roles: Roles, profile: Profile) -> dict[str, Any]:
    """Return the levels or cuts of a column; numbers that are names are levels."""
    if profile.values and roles.rows.is_code(profile):
        return {"levels": list(profile.values)}
    return profile.section()


def _ends(roles: Roles) -> Codes:
    """Return how each episode ends, as a code: its outcome, or the quarter of its total reward."""
    rows = roles.rows
    if "outcome" in roles.columns:
        profile = roles.profiles[roles.columns["outcome"]]
        return np.where(profile.empty, -1, profile.codes)[rows.last]
    if "reward" not in roles.columns:
        return np.full(len(rows.last), -1)
    reward = np.nan_to_num(roles.profiles[roles.columns["reward"]].numbers[rows.order])
    total = np.bincount(rows.episode[rows.order], reward)[rows.episode[rows.last]]
    return bins_of(
        total.astype(np.float64), np.unique(np.quantile(total, [0.25, 0.5, 0.75])).tolist()
    )


def _count_actions(roles: Roles) -> int:
    if "action" in roles.columns:
        return int(roles.profiles[roles.columns["action"]].known.max()) + 1
    return math.prod(count_section(section) for section in roles.action.values())
