"""Which column of a log has which role: the episode, time, outcome, reward, state and action."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from butfor.log.coding import Codes, identify
from butfor.log.guess.future import looks_ahead, repeats_next
from butfor.log.guess.profile import FEW, MOST_LEVELS, Profile, Rows, dose_cuts, profile_column
from butfor.log.guess.words import flag, meaning, names_episode, rank, sounds
from butfor.log.sources import Log

CHECK = "CHECK THIS:"
MOST_ACTIONS = 100  # combinations of several treatments, or levels of a text
MOST_NUMBERED = 10_000  # ready-made states or actions
MOST_EMPTY = 0.3  # share of rows without a value, above which a column is not part of the state
LEFT_OUT = "left out"


@dataclass(frozen=True)
class Finding:
    """What a column was taken for, and why."""

    column: str
    role: str
    why: str


@dataclass
class Roles:
    """The columns of a log by role; those in `left` have none yet."""

    log: Log
    left: dict[str, Profile]
    rows: Rows
    found: dict[str, Finding] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)  # [columns] of the study, by key
    action: dict[str, dict[str, Any]] = field(default_factory=dict)  # sections by column
    profiles: dict[str, Profile] = field(default_factory=dict)  # of all columns
    notes: list[str] = field(default_factory=list)
    rising: bool = False  # whether the outcome is no until the last row

    def take(self, name: str, role: str, why: str) -> None:
        """Give a column its role."""
        self.left.pop(name)
        self.found[name] = Finding(name, role, why)

    def fill(self, key: str, name: str, why: str) -> None:
        """Name a column in [columns]."""
        self.columns[key] = name
        self.take(name, key, why)

    def named(self, role: str, among: dict[str, Profile]) -> list[str]:
        """Return the columns whose names have a word of a role, the most telling first."""
        ranks = {name: rank(name, role) for name in among}
        return sorted((n for n in among if ranks[n] is not None), key=lambda n: ranks[n] or 0)

    @property
    def single(self) -> bool:
        """Whether each episode is one row, as in the log of a bandit."""
        return len(self.rows.earlier) == 0


def recognize(log: Log) -> Roles:
    """Tell what each column is, by its name, its values, and how it changes in episodes."""
    profiles = {name: profile_column(log, name) for name in log.table.column_names}
    number = np.zeros(log.table.num_rows, dtype=np.int64)
    roles = Roles(log, dict(profiles), Rows.of(number), profiles=profiles)
    _leave_out_empty(roles)
    _episode(roles)
    _row_numbers(roles)
    _time(roles)
    _identifiers(roles)
    _rewards_and_ends(roles)
    _future(roles)
    _ready(roles, "action")
    if "action" not in roles.columns:
        _actions(roles)
    _ready(roles, "state")
    return roles


def _leave_out_empty(roles: Roles) -> None:
    for name, profile in list(roles.left.items()):
        needed = sounds(name, "outcome") or sounds(name, "end") or len(roles.left) == 1
        if profile.kind == "empty" and len(roles.left) > 1:
            roles.take(name, LEFT_OUT, "it is empty")
        elif profile.constant and not needed and len(profile.codes) > 1:
            roles.take(name, LEFT_OUT, "every row has the same value")


def _episode(roles: Roles) -> None:
    """Find the episode: by its name, or a column whose equal values stand together."""
    usable = {
        name: profile
        for name, profile in roles.left.items()
        if profile.kind == "text" or profile.whole
    }
    repeated = {n: p for n, p in usable.items() if p.distinct < len(p.codes)}
    unique = {n: p for n, p in usable.items() if n not in repeated}

    def order(name: str) -> tuple[Any, ...]:
        profile = usable[name]
        told = sounds(name, "identifier")
        return not _stands_together(profile), rank(name, "episode"), not told, -profile.distinct

    named = sorted(filter(names_episode, repeated), key=order)
    together = [n for n, p in repeated.items() if _stands_together(p) and p.distinct > 1]
    alone = list(filter(names_episode, unique)) + [n for n, p in unique.items() if is_row_number(p)]
    if named:
        name, why = named[0], "its name, and rows share its values"
    elif alone:
        name, why = alone[0], "it numbers the rows: each is an episode of one decision"
    elif together:
        name = max(together, key=lambda n: usable[n].distinct)
        why = "equal values stand together"
        roles.notes.append(f"{CHECK} no column is named like an episode; {name!r} is a guess")
    else:
        name, why = next(iter(repeated or roles.left)), "nothing else looks like an episode"
        roles.notes.append(
            f"{CHECK} no column looks like an episode; this is the first one. If each row is a\n"
            "decision of its own, add a column that numbers the rows."
        )
    roles.fill("episode", name, why)
    roles.rows = Rows.of(identify(roles.log.table[name], text=None)[0])


def _stands_together(profile: Profile) -> bool:
    """Whether rows with equal values follow one another."""
    return int((np.diff(profile.codes) != 0).sum()) + 1 == len(np.unique(profile.codes))


def is_row_number(profile: Profile) -> bool:
    """Whether a column counts the rows of the log."""
    return (
        profile.kind == "number"
        and len(profile.numbers) > 1
        and bool((np.diff(profile.numbers) == 1).all())
    )


def _row_numbers(roles: Roles) -> None:
    several = len(roles.rows.first) > 1
    for name, profile in list(roles.left.items()):
        if several and is_row_number(profile):
            roles.take(name, LEFT_OUT, "it numbers the rows")
        elif sounds(name, "row") and profile.whole and profile.distinct == len(profile.codes):
            roles.take(name, LEFT_OUT, "it numbers the rows, by its name")


def _time(roles: Roles) -> None:
    """Find the time: by its name, or because it grows within episodes."""
    rows = roles.rows
    usable = {
        name: profile
        for name, profile in roles.left.items()
        if profile.kind in ("number", "time") and not rows.is_static(profile)
    }
    growing = [
        n for n, p in usable.items() if rows.is_increasing(p) and (p.whole or p.kind == "time")
    ]
    named = [n for n in roles.named("time", usable) if not sounds(n, "future")]
    dated = [n for n in growing if usable[n].kind == "time"]
    for name in [*named, *dated, *(growing if len(rows.earlier) >= 20 else [])]:
        profile = usable[name]
        moves = profile.numbers[rows.later] - profile.numbers[rows.earlier]
        if (moves == 0).any() and not (moves < 0).any():
            roles.take(
                name,
                "side",
                "a time, but rows of an episode share it; the order of the log is used",
            )
            break
        why = (
            "its name, and it changes within episodes" if name in named else "it grows in episodes"
        )
        roles.fill("time", name, why)
        roles.rows = Rows.of(rows.episode, profile.numbers)
        for other in growing:
            if other in roles.left and not sounds(other, "drug"):
                roles.take(other, LEFT_OUT, f"it grows within every episode, like {name}")
        return
    roles.notes.append(
        f"{CHECK} no column looks like a time; rows are read in the order of the log"
    )


def _identifiers(roles: Roles) -> None:
    """Leave out columns that identify rows, or episodes once more."""
    episodes = len(roles.rows.first)
    for name, profile in list(roles.left.items()):
        known = int((~profile.empty).sum())
        told = sounds(name, "identifier")
        many = profile.distinct > max(MOST_LEVELS, 0.5 * episodes)
        if (
            profile.distinct == known
            and known > MOST_LEVELS
            and told
            and (profile.whole or profile.kind == "text")
        ):
            roles.take(name, LEFT_OUT, "it identifies the rows")
        elif (
            many
            and (profile.whole or profile.kind == "text")
            and (told or names_episode(name))
            and (roles.single or roles.rows.is_static(profile))
        ):
            roles.take(name, LEFT_OUT, "it identifies episodes, or whose they are")


def _rewards_and_ends(roles: Roles) -> None:
    """Find the reward, the probability of the action, and the outcome."""
    rows, left = roles.rows, roles.left
    numbers = {n: p for n, p in left.items() if p.kind == "number" and p.distinct > 1}
    likely = {n: p for n, p in numbers.items() if p.known.min() >= 0 and p.known.max() <= 1}
    for key, among in (("behavior_probability", likely), ("reward", numbers)):
        names = [n for n in roles.named(key, among) if n in left]
        if names:
            roles.fill(key, names[0], "its name")
    keys = [n for n, p in left.items() if sounds(n, "final_key") and p.whole]
    if keys:
        roles.fill("final_key", keys[0], "its name")
    few = {
        n: p for n, p in left.items() if p.kind in ("text", "number") and p.distinct <= MOST_LEVELS
    }
    endings = {n: p for n, p in few.items() if rows.only_last(p) or rows.is_static(p)}
    rising = {n: p for n, p in few.items() if n not in endings and is_rising(rows, p)}
    named = roles.named("outcome", endings) + roles.named("outcome", rising)
    unnamed = [n for n, p in endings.items() if not roles.single and rows.only_last(p)]
    for names, why in (
        (named, "its name, and one value per episode"),
        (unnamed, "only last rows have a value"),
        (roles.named("end", endings | rising), "it marks the last row"),
    ):
        if names:
            roles.rising = names[0] in rising
            roles.fill("outcome", names[0], why)
            break
    if roles.single and "outcome" not in roles.columns:
        _outcome_of_one_row(roles)
    for name in roles.named("end", rising | endings):
        if name in roles.left:
            roles.take(name, LEFT_OUT, "it marks the last row")
    costs = [name for name in numbers if name in left and sounds(name, "cost")]
    if "outcome" not in roles.columns and "reward" not in roles.columns:
        remedy = f"; rewards could be minus {costs[0]!r}, as a column" if costs else ""
        roles.notes.append(
            f"{CHECK} no column looks like an outcome or a reward. Name it here: one value per\n"
            f"episode for an outcome, a number per row for a reward{remedy}"
        )


def is_rising(rows: Rows, profile: Profile) -> bool:
    """Whether a column is no until the last row of an episode, and yes there in some."""
    flags = [flag(value) for value in profile.values]
    if sorted(map(str, flags)) != ["False", "True"]:
        return False
    yes = profile.rows_with(profile.values[flags.index(True)])
    return not bool(yes[rows.earlier].any())


def _outcome_of_one_row(roles: Roles) -> None:
    """Find the outcome of episodes of one row: a reward of few values, or what all have."""
    reward = roles.columns.get("reward")
    if reward and roles.profiles[reward].distinct <= FEW:
        del roles.columns["reward"]
        roles.columns["outcome"] = reward
        roles.found[reward] = Finding(reward, "outcome", "its name; each episode is one decision")
        return
    constant = [n for n, p in roles.profiles.items() if p.constant and len(p.values) == 1]
    if reward and constant:
        roles.columns["outcome"] = constant[0]
        why = "every row has it: it says that the episode ends there"
        roles.found[constant[0]] = Finding(constant[0], "outcome", why)
    elif reward:
        roles.notes.append(
            f"{CHECK} each row is an episode of its own, so each needs an outcome besides its\n"
            "reward: add a column with the same word in every row, and name it as outcome"
        )


def _future(roles: Roles) -> None:
    """Leave out what is known only once an episode has ended, or after the decision."""
    rows = roles.rows
    outcome = roles.profiles.get(roles.columns.get("outcome", ""))
    time = roles.profiles.get(roles.columns.get("time", ""))
    states = [p for p in roles.profiles.values() if p.numbered and p.distinct > FEW]
    for name, profile in list(roles.left.items()):
        why = looks_ahead(rows, profile, time, outcome)
        if why is None and profile.numbered and not (roles.single or rows.is_static(profile)):
            why = repeats_next(rows, profile, states)
        ends = not roles.single and (rows.is_static(profile) or rows.only_last(profile))
        if why is None and outcome is not None and ends and meaning(name):
            why = "another outcome, by its name"
        if why is not None:
            roles.take(name, LEFT_OUT, f"it looks into the future: {why}")


def _ready(roles: Roles, group: str) -> None:
    """Find ready-made states or actions: whole numbers that are names."""
    codes = {
        name: profile
        for name, profile in roles.left.items()
        if profile.numbered and profile.distinct > FEW and profile.known.max() < MOST_NUMBERED
    }
    named = roles.named(group, codes)
    if group == "action" and not named and "behavior_probability" in roles.columns:
        named = roles.named("offered", codes)
    why = "its name, and whole numbers from 0"
    if not named and group == "state":
        others = [n for n in roles.left if n not in codes]
        found = [n for n, p in codes.items() if p.distinct > MOST_LEVELS and roles.rows.is_code(p)]
        named = found if len(found) == 1 and len(others) <= 3 else []
        why = "whole numbers from 0 that move like names, not like amounts"
    if named:
        roles.fill(group, named[0], f"{why}: ready-made {group}s")


def _actions(roles: Roles) -> None:
    """Find the columns that are actions, with their levels."""
    rows = roles.rows
    usable = {
        name: profile
        for name, profile in roles.left.items()
        if (profile.kind == "number" and (profile.cuts or 1 < profile.distinct <= MOST_LEVELS))
        or (profile.kind == "text" and 1 < profile.distinct <= MOST_ACTIONS)
    }
    no_last = [n for n, p in usable.items() if p.empty.any() and not p.empty[rows.earlier].any()]
    changing = [n for n, p in usable.items() if not rows.is_static(p)]
    offered = roles.named("offered", usable) if "behavior_probability" in roles.columns else []
    for names, why in (
        (roles.named("action", usable), "its name"),
        (offered[:1], "its name; probabilities of actions are logged"),
        ([] if roles.single else no_last, "only last rows have none"),
        ([n for n in usable if sounds(n, "drug")], "its name: a treatment"),
        (changing[-1:] or [*usable][-1:], f"{CHECK} no column looks like an action; a guess"),
    ):
        if names:
            _take_actions(roles, names, why)
            return
    roles.notes.append(f"{CHECK} no column can be an action; add one with at least two values")


def _take_actions(roles: Roles, names: list[str], why: str) -> None:
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
