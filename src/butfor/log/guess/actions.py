"""Which columns of a log are actions or ready-made states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from butfor.log.coding import Codes
from butfor.log.guess.findings import LEFT_OUT, Roles
from butfor.log.guess.profile import FEW, MOST_LEVELS, Profile, dose_cuts
from butfor.log.guess.words import WORDS, parts, sounds

MOST_ACTIONS = 100  # combinations of several treatments, or levels of a text
MOST_NUMBERED = 10_000  # ready-made states or actions


def find_actions(roles: Roles, given: Sequence[str] = ()) -> None:
    """Find ready-made actions, or the columns that are actions with their levels.

    If some are `given`, it is these.
    """
    if given:
        _take_actions(roles, given, "named as an action")
        return
    offered = "behavior_probability" in roles.columns
    codes = _numbered(roles)
    named = roles.named("action", codes) or (roles.named("offered", codes) if offered else [])
    if named:
        roles.fill("action", named[0], "its name, and whole numbers from 0: ready-made actions")
        return
    usable = {
        name: profile
        for name, profile in roles.left.items()
        if (profile.kind == "number" and (profile.cuts or 1 < profile.distinct <= MOST_LEVELS))
        or (profile.kind == "text" and 1 < profile.distinct <= MOST_ACTIONS)
    }
    for names, why in (
        (roles.named("action", usable), "its name"),
        (roles.named("offered", usable)[:1] if offered else [], "its name; its odds are logged"),
        (_none_at_the_end(roles, usable), "only last rows have none"),
        (_treatments(roles, usable), "its name: a treatment"),
    ):
        if names:
            _take_actions(roles, names, why)
            return
    _guess_action(roles, usable)


def find_targets(roles: Roles, among: dict[str, Profile]) -> None:
    """Find what a policy would do, by name: columns with the levels of each action, or its codes.

    `among` are columns that are named like a policy; those that are none are left.
    """
    roles.left |= among
    actions = [*roles.action] or [roles.columns.get("action", "")]
    found = {}
    for action in actions:
        taken = {*roles.profiles[action].texts} if action in roles.profiles else set()
        like = [n for n, p in among.items() if {p.texts[c] for c in p.codes[~p.empty]} <= taken]
        named = [name for name in like if action.lower() in name.lower()]
        if named or (len(actions) == 1 and like):
            found[action] = (named or like)[0]
    if len(found) < len(actions) or not taken:
        for name in [name for name, profile in among.items() if profile.constant]:
            roles.take(name, LEFT_OUT, "every row has the same value")
        return
    if len(found) == 1:
        roles.columns["target_action"] = next(iter(found.values()))
    else:
        roles.targets = found
    for action, name in found.items():
        roles.take(name, "target_action", f"its name, and levels of {action}: what a policy does")


def find_ready_states(roles: Roles) -> None:
    """Find ready-made states: whole numbers that are names."""
    codes = _numbered(roles)
    named = roles.named("state", codes)
    if named:
        roles.fill("state", named[0], "its name, and whole numbers from 0: ready-made states")
        return
    found = _coded(roles, codes)
    # with other columns, these may matter as much
    if len(found) == 1 and len(roles.left) <= 4 and not roles.worth:
        why = "whole numbers from 0 that move like names, not like amounts: ready-made states"
        roles.fill("state", found[0], why)


def _numbered(roles: Roles) -> dict[str, Profile]:
    """Return the columns that could number states or actions."""
    return {
        name: profile
        for name, profile in roles.left.items()
        if profile.numbered and profile.distinct > FEW and profile.known.max() < MOST_NUMBERED
    }


def _coded(roles: Roles, among: dict[str, Profile]) -> list[str]:
    """Return the columns whose whole numbers are names, those with few values first."""
    found = [name for name, profile in among.items() if roles.rows.is_code(profile)]
    return sorted(found, key=lambda name: among[name].distinct)


def _none_at_the_end(roles: Roles, usable: dict[str, Profile]) -> list[str]:
    """Return the columns that only last rows lack."""
    if roles.single:
        return []
    before = roles.rows.earlier
    return [n for n, p in usable.items() if p.empty.any() and not p.empty[before].any()]


def _treatments(roles: Roles, usable: dict[str, Profile]) -> list[str]:
    """Return the treatments; of one that is logged as a level and as an amount, the level."""
    names = [
        name
        for name, profile in usable.items()
        if sounds(name, "drug") or (sounds(name, "amount") and "cuts" in profile.section())
    ]
    names = [name for name in names if not sounds(name, "past")] or names
    levels = [name for name in names if "levels" in usable[name].section()]
    for name in [name for name in names if name not in levels]:
        same = [level for level in levels if _stems(level) & _stems(name)]
        if same:
            names.remove(name)
            roles.take(name, LEFT_OUT, f"the amount behind the action {same[0]}")
    return names


def _stems(name: str) -> set[str]:
    """Return the beginnings of the words that name a treatment, such as vaso."""
    named = set(parts(name)) & set(WORDS["drug"].split()) - set(WORDS["any drug"].split())
    groups = {group for group in ("fluid", "pressor") if sounds(name, group)}
    return groups or {word[:4] for word in named}


def _guess_action(roles: Roles, usable: dict[str, Profile]) -> None:
    """Take a column for the action of which nothing says that it is one."""
    # what never changes within an episode was not decided in its steps
    usable = {n: p for n, p in usable.items() if roles.single or not roles.rows.is_static(p)}
    numbered = {name: profile for name, profile in _numbered(roles).items() if name in usable}
    states = _coded(roles, numbered)[-1:]
    others = [name for name in numbered if name not in states and not numbered[name].known.min()]
    if states and others:
        action = min(others, key=lambda name: numbered[name].distinct)
        roles.fill("action", action, f"whole numbers from 0, fewer than {states[0]} has; a guess")
        return
    raise ValueError(
        f"{roles.log.name}: no column looks like an action; name the one that has it with --action "
        "COLUMN, or add one to the log"
    )


def _take_actions(roles: Roles, names: Sequence[str], why: str) -> None:
    """Take these actions, as long as their combinations are not too many."""
    # those that change within episodes first
    static = {name: roles.rows.is_static(roles.left[name]) for name in names}
    total = 1
    for name in sorted(names, key=lambda n: static[n]):
        section = dose_cuts(roles.left[name])
        size = count_section(section)
        if total > 1 and total * size > MOST_ACTIONS:
            roles.take(
                name, "side", f"a treatment, but more than {MOST_ACTIONS} actions are too many"
            )
            continue
        total *= size
        roles.action[name] = section
        roles.take(name, "action", why)
    roles.action = {name: roles.action[name] for name in names if name in roles.action}


def count_section(section: dict[str, Any]) -> int:
    """Return the number of levels of a drafted variable."""
    return len(section["levels"]) if "levels" in section else len(section.get("cuts", ())) + 1


def action_codes(roles: Roles) -> Codes:
    """Return a number for the action of each row, equal for equal actions; -1 without one."""
    if "action" in roles.columns:
        return roles.profiles[roles.columns["action"]].codes
    bins = [roles.profiles[name].bins(section) for name, section in roles.action.items()]
    if not bins:
        return np.full(len(roles.rows.episode), -1)
    stacked = np.stack(bins, axis=1)
    joint = np.unique(stacked, axis=0, return_inverse=True)[1].reshape(-1)
    return np.where((stacked < 0).any(axis=1), -1, joint)
