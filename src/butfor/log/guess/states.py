"""Which remaining columns make the state, which are only shown, and what fills their gaps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from butfor.log.coding import Codes, bins_of, text_of
from butfor.log.column_rules import NOTHING
from butfor.log.combinations import MOST_TRANSITIONS
from butfor.log.guess.actions import action_codes, count_section
from butfor.log.guess.findings import Roles
from butfor.log.guess.profile import MOST_LEVELS, Profile
from butfor.log.guess.words import sounds

MOST_EMPTY = 0.3  # share of rows without a value, above which a column is not part of the state
LITTLE = 0.05  # share that may be chance in a short log
MUCH = 0.2  # share of the action from which on a column may be the decision itself
MOST_STATES = 5000  # few logs visit more; further columns become side columns
LASTS = 0.8  # share of rows whose treatment is that of the row before, from which on it goes on
SAME = 0.5  # share of its entropy that a column has in common with one it repeats
TABLE = 1_000_000  # codes that are counted in a table


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


def missing_states(roles: Roles, sections: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return [missing] of the state: values are carried forward, before the first a usual one."""
    decided = action_codes(roles) >= 0
    found: dict[str, dict[str, Any]] = {}
    for name, section in sections.items():
        profile = roles.profiles[name]
        if not (profile.empty & decided).any():
            continue
        found[name] = {"carry": True}
        if (_before_first(roles, profile) & decided).any():
            found[name]["fill"] = _usual(profile, section)
    return found


def _before_first(roles: Roles, profile: Profile) -> Any:
    """Mark the rows of an episode before its first value, [R]."""
    order = roles.rows.order
    known = pd.Series(~profile.empty[order]).groupby(roles.rows.episode[order]).cummax()
    before = np.zeros(len(profile.empty), dtype=bool)
    before[order] = ~known.to_numpy()
    return before


def _usual(profile: Profile, section: dict[str, Any]) -> float | str:
    """Return the median of a column of numbers, and otherwise the most frequent level."""
    if "cuts" in section:
        return float(np.median(profile.known))
    codes = profile.codes[~profile.empty]
    return text_of(profile.texts[int(np.bincount(codes).argmax())])


def lasting_actions(roles: Roles) -> dict[str, dict[str, Any]]:
    """Return [missing] of actions on a grid: those that go on until they are changed."""
    names = [*roles.action] or [roles.columns["action"]]
    return {name: {"carry": True} for name in names if _goes_on(roles, name)}


def _goes_on(roles: Roles, name: str) -> bool:
    """Whether a treatment mostly stays as it was, or has no level that means none."""
    profile, section = roles.profiles[name], roles.action.get(name, {})
    levels = section.get("levels", ())
    none = "cuts" in section or sum(level.lower() in NOTHING for level in levels) == 1
    both = roles.rows.within(profile)
    same = profile.codes[roles.rows.earlier] == profile.codes[roles.rows.later]
    return not none or bool(both.any() and same[both].mean() >= LASTS)


def mutual_information(one: Codes, other: Codes) -> float:
    """Return the mutual information of two columns of codes, in bits; negative codes are left out.

    The bias of a finite sample, (k - 1)(m - 1) / 2n nats for k and m levels, is subtracted.
    """
    both = (one >= 0) & (other >= 0)
    n = int(both.sum())
    if n == 0:
        return 0.0
    left, right = (pd.factorize(codes[both])[0].astype(np.int64) for codes in (one, other))
    k, m = int(left.max()) + 1, int(right.max()) + 1
    pairs, counts = _count(left * m + right, k * m)
    shares = counts / n
    expected = (np.bincount(left) / n)[pairs // m] * (np.bincount(right) / n)[pairs % m]
    found = float((shares * np.log(shares / expected)).sum())
    return (found - (k - 1) * (m - 1) / (2 * n)) / math.log(2)


def _count(codes: Codes, levels: int) -> tuple[Codes, Codes]:
    """Return the codes that occur, and how often each does."""
    if levels > TABLE:
        return np.unique(codes, return_counts=True)
    counts = np.bincount(codes, minlength=levels)
    found = np.flatnonzero(counts)
    return found, counts[found]


def entropy(codes: Codes) -> float:
    """Return the entropy of a column of codes, in bits; negative codes are left out."""
    counts = pd.Series(codes[codes >= 0]).value_counts().to_numpy()
    shares = counts / max(1, counts.sum())
    return float(-(shares * np.log2(shares)).sum())


def says_the_same(one: Codes, other: Codes) -> bool:
    """Whether two columns have most of what either tells in common."""
    least = min(entropy(one), entropy(other))
    return least > 0 and mutual_information(one, other) > SAME * least


def share_told(column: Codes, about: Codes) -> float:
    """Return the share of a column's entropy that another one tells, 0 if it has none."""
    whole = entropy(about)
    return mutual_information(column, about) / whole if whole > 0 else 0.0
