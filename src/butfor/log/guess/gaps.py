"""What stands in for missing values, and for treatments in steps without a record of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from butfor.log.coding import text_of
from butfor.log.column_rules import NOTHING
from butfor.log.guess.actions import action_codes
from butfor.log.guess.findings import Roles
from butfor.log.guess.profile import Profile

LASTS = 0.8  # share of rows whose treatment is that of the row before, from which on it goes on


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
