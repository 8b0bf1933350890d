"""Which column of a log has which role: the episode, time, outcome, reward, state and action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from butfor.log.coding import identify
from butfor.log.guess.actions import find_actions, find_ready_states, find_targets
from butfor.log.guess.findings import CHECK, LEFT_OUT, Finding, Roles
from butfor.log.guess.future import looks_ahead, repeats_next
from butfor.log.guess.profile import FEW, MOST_LEVELS, Profile, Rows, find_spacing, profile_column
from butfor.log.guess.words import flag, meaning, names_episode, rank, sounds
from butfor.log.sources import Log

NOT_EPISODES = ("action", "offered", "drug", "reward", "outcome", "behavior_probability", "time")


def recognize(log: Log, actions: Sequence[str] = ()) -> Roles:
    """Tell what each column is, by its name, its values, and how it changes in episodes.

    Columns that are known to be `actions` have that role.
    """
    profiles = {name: profile_column(log, name) for name in log.table.column_names}
    number = np.zeros(log.table.num_rows, dtype=np.int64)
    roles = Roles(log, dict(profiles), Rows.of(number), profiles=profiles)
    _leave_out_empty(roles)
    given = {name: roles.left.pop(name) for name in actions if name in roles.left}
    _episode(roles)
    _row_numbers(roles)
    _time(roles)
    _identifiers(roles)
    _rewards_and_ends(roles)
    _future(roles)
    like_policies = {n: roles.left.pop(n) for n in list(roles.left) if sounds(n, "target")}
    roles.left |= given
    find_actions(roles, [*given])
    find_targets(roles, like_policies)
    find_ready_states(roles)
    return roles


def _leave_out_empty(roles: Roles) -> None:
    named = [name for name in roles.left if names_episode(name)]
    one = named if all(roles.left[name].constant for name in named) else []  # a log of one episode
    for name, profile in list(roles.left.items()):
        needed = (
            len(roles.left) == 1
            or name in one[:1]
            or (sounds(name, "reward") and profile.kind == "number" and profile.known.any())
            or any(
                sounds(name, role) for role in ("outcome", "end", "behavior_probability", "target")
            )
        )
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
    unlike = [n for n in roles.left if not any(sounds(n, role) for role in NOT_EPISODES)]
    alone = list(filter(names_episode, unique)) + [
        n for n, p in roles.left.items() if is_row_number(p) or _is_unique_time(p)
    ]
    if named:
        name, why = named[0], "its name, and rows share its values"
    elif alone:
        name, why = alone[0], "it numbers the rows: each is an episode of one decision"
    elif together:
        name = max(together, key=lambda n: usable[n].distinct)
        why = "equal values stand together"
        roles.notes.append(f"{CHECK} no column is named like an episode; {name!r} is a guess")
    else:
        others = [*(n for n in repeated if n in unlike), *unlike, *roles.left]
        name, why = others[0], "nothing else looks like an episode"
        roles.notes.append(
            f"{CHECK} no column looks like an episode; this one is a guess. If each row is a\n"
            "decision of its own, add a column that numbers the rows."
        )
    roles.fill("episode", name, why)
    roles.rows = Rows.of(identify(roles.log.table[name], text=None)[0])


def _is_unique_time(profile: Profile) -> bool:
    return profile.kind == "time" and profile.distinct == len(profile.codes) > 1


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
    if roles.single:
        return
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
        shared = (moves == 0).any() and not (moves < 0).any()
        if shared and not _on_grid(rows, profile):
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


def _on_grid(rows: Rows, time: Profile) -> bool:
    """Whether few rows share a time, which a grid would merge."""
    spacing = find_spacing(Rows.of(rows.episode, time.numbers), time)
    return spacing is not None and spacing.suits


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
    numbers = {n: p for n, p in left.items() if p.kind == "number"}
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
    unnamed = [n for n, p in endings.items() if not roles.single and rows.only_last(p)]
    for names, why in (
        (roles.named("outcome", endings), "its name, and one value per episode"),
        (roles.named("outcome", rising), "its name, and yes on last rows alone"),
        (unnamed, "only last rows have a value"),
        (roles.named("end", endings | rising), "it marks the last row"),
    ):
        if names:
            roles.rising = names[0] in rising
            roles.fill("outcome", names[0], why)
            break
    reward = roles.columns.get("reward", "")
    even = not np.ptp(np.bincount(rows.episode))
    # the same reward in every row tells long episodes from short ones, if they come to an end
    if reward in numbers and numbers[reward].constant and (even or "outcome" not in roles.columns):
        del roles.columns["reward"]
        roles.found[reward] = Finding(reward, LEFT_OUT, "every row has the same value")
    if roles.single and "outcome" not in roles.columns:
        _outcome_of_one_row(roles)
    for name in roles.named("end", rising | endings) + roles.named("cut", rising | endings):
        if name in roles.left:
            roles.take(name, LEFT_OUT, "it tells where an episode stops")
    if "outcome" not in roles.columns and "reward" not in roles.columns:
        _reward_of_words(roles, few)
    costs = [name for name in numbers if name in left and sounds(name, "cost")]
    if "outcome" not in roles.columns and "reward" not in roles.columns:
        remedy = f"; rewards could be minus {costs[0]!r}, as a column" if costs else ""
        roles.notes.append(
            f"{CHECK} no column looks like an outcome or a reward. Name it here: one value per\n"
            f"episode for an outcome, a number per row for a reward{remedy}"
        )


def _reward_of_words(roles: Roles, few: dict[str, Profile]) -> None:
    """Find a yes or no on each row that sounds good or bad; it may be part of the state, too."""
    for name in [name for name in few if name in roles.left and meaning(name)]:
        flags = {value: flag(value) for value in few[name].values}
        if {*flags.values()} == {False, True}:
            roles.columns["reward"] = name
            roles.worth = {v: float(meaning(name)) if yes else 0.0 for v, yes in flags.items()}
            return


def is_rising(rows: Rows, profile: Profile) -> bool:
    """Whether a column is no until the last row of an episode, and yes there in some."""
    flags = [flag(value) for value in profile.values]
    if sorted(map(str, flags)) != ["False", "True"]:
        return False
    yes = profile.rows_with(profile.values[flags.index(True)])
    return not bool(yes[rows.earlier].any())


def earns_early(roles: Roles) -> bool:
    """Whether most rewards are earned before the last row of an episode."""
    name = roles.columns.get("reward")
    if name is None or roles.single:
        return False
    profile = roles.profiles[name]
    earned = np.nan_to_num(profile.numbers) != 0
    for value, worth in roles.worth.items():
        earned[profile.rows_with(value)] = worth != 0
    return bool(earned[roles.rows.earlier].sum() > earned[roles.rows.last].sum())


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
