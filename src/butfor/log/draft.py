"""A first draft of a study file, guessed from the names and values of a log's columns."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from butfor.log.coding import listed, text_of
from butfor.log.combinations import MOST_STATES
from butfor.log.decisions import KINDS, Index
from butfor.log.fields import UNIT_NAMES, place
from butfor.log.guess.actions import action_codes
from butfor.log.guess.findings import CHECK, LEFT_OUT, Finding, Roles
from butfor.log.guess.profile import FEW, Profile, find_spacing
from butfor.log.guess.roles import earns_early, recognize
from butfor.log.guess.states import States, choose_states, lasting_actions, missing_states
from butfor.log.guess.words import flag, good_or_bad, is_censored, meaning, sounds
from butfor.log.meds.draft import draft_events, is_data_set
from butfor.log.read import read_log
from butfor.log.sources import Log, check_columns, load_first_rows
from butfor.log.study import read_study
from butfor.log.write import comment_lines, toml_value, write_toml

ROWS = 100_000  # of a log are looked at
MANY_NUMBERS = 8  # columns of numbers from which on clusters are offered
NOUNS = ("stay", "patient", "admission", "case", "subject", "user", "session")
# How a draft settles what reading finds, if the study can still be judged then.
SETTLED = {
    "order": ("sort",),
    "no_outcome": ("keep",),
    "missing_state": ("fill", "drop"),
    "missing_reward": ("fill",),
    "no_transition": ("drop", "keep"),
    "lost_reward": ("drop",),
}


@dataclass(frozen=True)
class Draft:
    """A drafted study file, what each column was taken for, and what a person must still decide."""

    text: str
    findings: tuple[Finding, ...]  # in the order of the log
    undecided: str  # why the log cannot be read with the draft yet; empty if it can


@dataclass
class _Content:
    """The sections of a draft; by section, comments before it and hints at its end."""

    sections: dict[str, Any]
    comments: dict[str, str] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)

    def check(self, head: str, text: str) -> None:
        """Ask a person to check a section."""
        before = f"{self.comments[head]}\n" if self.comments.get(head) else ""
        self.comments[head] = f"{before}{CHECK} {text}"


def draft_study(source: Any) -> str:
    """Return the text of a guessed study file, every section of which a person must check."""
    return draft(source).text


def draft(source: Any, actions: Sequence[str] = ()) -> Draft:
    """Guess a study file, every section of which a person must check.

    Columns are recognized by their names (stay_id, charttime, dose, died …), their values, and how
    they change within episodes. Rewards follow from what outcomes are called; where that says
    nothing they are left to the reader. Problems found when the log is read with the draft are
    settled in `[problems]` or listed at its end. Of a long log the first rows are looked at. Codes
    of a MEDS data set are recognized likewise. Columns named in `actions` are actions; a log in
    which no column looks like one is refused.
    """
    if is_data_set(source):
        return Draft(*draft_events(source))
    log = load_first_rows(source, ROWS)
    check_columns(log.name, log.table.column_names, dict.fromkeys(actions, "--action"))
    roles = recognize(log, actions)
    if not log.whole:
        log, source = _complete(log, roles)
        roles = recognize(log, actions)
    states = choose_states(roles)
    content = _draft(roles, states)
    found = _settle(source, content, log, roles)
    rows = "" if log.whole else f" (its first {log.table.num_rows:,} rows)"
    about = comment_lines(
        f"A draft of a study file for {log.name}{rows}, guessed from its columns."
    )
    text = f"{about}\n# Check every section, first the lines with {CHECK}\n\n"
    text += write_toml(content.sections, content.comments, content.hints)
    if found:
        text += f"\n# {CHECK} reading the log with this draft finds:\n{comment_lines(found)}\n"
    wrong = _mistakes(content.sections) or found
    undecided = "\n".join([wrong, *roles.notes]) if wrong else ""
    return Draft(text, tuple(roles.found[name] for name in roles.profiles), undecided)


def _complete(log: Log, roles: Roles) -> tuple[Log, Any]:
    """Leave out the last episode of a part of a log, of which rows may be missing."""
    number = roles.rows.episode
    kept = log.table.filter(number != number[-1])
    table = kept if kept.num_rows else log.table
    return replace(log, table=table), table


def _mistakes(sections: dict[str, Any]) -> str:
    try:
        read_study(tomllib.loads(write_toml(sections)))
    except ValueError as error:
        return str(error)
    return ""


def _settle(source: Any, content: _Content, log: Log, roles: Roles) -> str:
    """Read the log with the draft, settle problems and add the horizon; return what is wrong."""
    problems: dict[str, str] = dict(content.sections.pop("problems", {}))
    evaluation = content.sections.pop("evaluation")
    trial = content.sections | {"outcome": _placeholders(content.sections)}
    trial = {key: part for key, part in trial.items() if part}
    if evaluation.get("by_step"):
        trial["evaluation"] = {"by_step": True, "horizon": int(_lengths(roles).max())}
    while True:
        try:
            study = read_study(tomllib.loads(write_toml(trial | {"problems": problems})))
            horizon = int(read_log(source, study).episodes.lengths.max())
        except ValueError as error:
            found = str(error)
        else:
            found, evaluation = "", ({"horizon": horizon} if log.whole else {}) | evaluation
        choice = _choice(found, problems, ends="outcome" in content.sections or earns_early(roles))
        if not choice:
            break
        problems |= choice
    if problems:
        content.sections["problems"] = problems
        lines = [f"{kind}: {KINDS[kind][choice]}" for kind, choice in problems.items()]
        content.check(
            "[problems]", "what to do where rows are not as they should be\n" + "\n".join(lines)
        )
    content.sections["evaluation"] = evaluation
    return found


def _choice(found: str, problems: dict[str, str], *, ends: bool) -> dict[str, str]:
    """Return the next way to settle one of the problems found, empty if there is none.

    `ends`: whether episodes have outcomes, or can do without their last decisions.
    """
    for kind in re.findall(r"^- (\w+):", found, re.MULTILINE):
        if kind == "lost_reward" and problems.get(kind) == "drop":
            kind = "no_transition"  # too many would lose it
        choices = SETTLED.get(kind, ())
        if kind in ("lost_reward", "no_transition") and not ends:
            continue  # nothing tells how any episode ends
        tried = choices.index(problems[kind]) + 1 if problems.get(kind) in choices else 0
        if tried < len(choices):
            return {kind: choices[tried]}
    return {}


def _placeholders(sections: dict[str, Any]) -> dict[str, Any]:
    """Return the outcomes with some reward each, so that the log can be read."""
    return {
        value: {"reward": float(place)} | section
        for place, (value, section) in enumerate(sections.get("outcome", {}).items())
    }


def _draft(roles: Roles, states: States) -> _Content:
    """Return the sections of the draft, without what reading the log tells."""
    columns: dict[str, Any] = dict(roles.columns)
    if roles.targets:
        columns["target_action"] = roles.targets
    content = _Content({"columns": columns, "state": states.sections, "action": roles.action})
    for key in ("state", "action"):
        if key in columns:
            content.check(
                "[columns]", f"{columns[key]!r} is taken for ready-made {key}s, from 0 on"
            )
    for name in roles.action:
        content.check(place("action", name), f"taken for an action: {roles.found[name].why}")
    for name, section in states.sections.items():
        what = "the cuts are quartiles of the log" if "cuts" in section else "order the levels"
        content.check(place("state", name), f"{what}; normal = [...] is missing")
        if name in states.suspected:
            content.check(place("state", name), "it tells much of the action; was it known before?")
    _outcomes(roles, content)
    _side(states, content)
    if len(states.sections) > 1:
        _model(roles, states, content)
    noun = (noun for noun in NOUNS if noun in columns["episode"].lower())
    called = content.sections.pop("words", {})
    content.sections["words"] = {"episode": next(noun, "episode")} | called
    _time(roles, content)
    _missing(roles, states, content)
    if roles.worth:
        name = columns["reward"]
        content.sections["reward"] = {"values": roles.worth}
        content.check("[reward.values]", f"what each {name!r} is worth is a guess from the name")
        roles.explain(name, "and its reward, by its name")
    left = [f"{n}: {f.why}" for n, f in roles.found.items() if f.role == LEFT_OUT]
    told = content.comments.get("[columns]")
    lines = [*([told] if told else []), *roles.notes, *(["Left out:", *left] if left else [])]
    content.comments["[columns]"] = "\n".join(lines)
    content.sections["evaluation"] = {"discount": 1.0, "planning_discount": 0.99}
    if "time" not in content.sections and (told := _step_tells(roles, content)):
        content.sections["evaluation"]["by_step"] = True
        content.check("[evaluation]", f"{told}, so the step is in the state")
    content.sections = {key: part for key, part in content.sections.items() if part}
    return content


def _time(roles: Roles, content: _Content) -> None:
    """Add the interval between rows, or put rows at irregular times on a grid."""
    columns, name = content.sections["columns"], roles.columns.get("time")
    spacing = None if name is None else find_spacing(roles.rows, roles.profiles[name])
    if name is None or spacing is None or roles.single:
        return
    step = spacing.step
    told = any(key in columns for key in ("behavior_probability", "target_action"))
    if spacing.always:
        columns["time_step"] = step
        roles.notes.append(f"{CHECK} rows of an episode are {step} apart; time_step reveals gaps")
    elif told or not spacing.suits:
        text = f"rows are at irregular times, typically {step} apart. Each is a decision here"
        roles.notes.append(f"{CHECK} {text};\n[time] every = ... would put them on a grid")
        return
    else:
        content.sections["time"] = {"every": step}
        did = f"merges {spacing.merged:,} rows with another one and adds {spacing.added:,} steps"
        content.check("[time]", f"rows are at irregular times; this grid {did}")
        roles.explain(name, f"irregular, so put on a grid of {text_of(step)}")
        for action, section in lasting_actions(roles).items():
            content.sections.setdefault("missing", {})[action] = section
            content.check(place("missing", action), "it goes on until it is changed")
    counted = name.lower().removesuffix("s")
    if isinstance(step, float) and counted in UNIT_NAMES.values():
        content.sections["words"]["time"] = counted


def _missing(roles: Roles, states: States, content: _Content) -> None:
    """Say what stands in for missing values of the state."""
    for name, section in missing_states(roles, states.sections).items():
        content.sections.setdefault("missing", {})[name] = section
        share = f"empty in {roles.profiles[name].empty.mean():.1%} of the rows"
        before = f", before the first {text_of(section['fill'])}" if "fill" in section else ""
        content.check(place("missing", name), f"{share}; the last value is carried forward{before}")
        roles.explain(name, f"{share}, see [missing]")


def _outcomes(roles: Roles, content: _Content) -> None:
    """Give each outcome a reward by what it is called, or leave that to the reader."""
    column = roles.columns.get("outcome")
    if column is None:
        return
    profile, values = roles.profiles[column], roles.profiles[column].values
    problems: dict[str, str] = {}
    if roles.rising and meaning(column):
        problems["differing_outcomes"] = "last"
        no = next(value for value in values if not flag(value))
        text = f"{column!r} is yes on last rows alone. Episodes that end without it count as"
        remedy = 'write unknown_levels = "fill" and\nno_outcome = "keep" in [problems]'
        remedy += f", and remove {place('outcome', no)}"
        text += f"\n'not {column}'. If they were only lost from sight, {remedy}"
        content.check("[columns]", text)
    elif roles.rising:
        values = tuple(value for value in values if flag(value))
        problems["unknown_levels"] = "fill"
        text = f"{column!r} is yes on last rows alone. Episodes without it count as cut short"
        content.check("[columns]", text)
    unknown = tuple(value for value in values if is_censored(value))
    if not unknown and roles.followed_up and values[0] == "0" and len(values) > 1:
        unknown = values[:1]  # the usual code in tables of survival times
    if len(unknown) < len(values):
        values = tuple(value for value in values if value not in unknown)
    if unknown:
        problems["unknown_levels"] = "fill"
        text = f"episodes with {column!r} = {listed(unknown)} count as cut short (censored)"
        content.check("[columns]", text)
    ended = np.any([profile.rows_with(value)[roles.rows.last] for value in values], axis=0)
    follow_up = None if roles.rising else _end_of_follow_up(roles, profile, values)
    # a last decision would be left out with its reward, or count as lost
    counts = "reward" in roles.columns or not ended.all()
    if follow_up is not None and not (counts and _ends_decision(roles, profile, follow_up)):
        values = tuple(value for value in values if value != follow_up)
        text = f"{follow_up!r} occurs only at the greatest length: the end of follow-up, no outcome"
        if not ended.all():
            problems["unknown_levels"] = "fill"
            text += f".\nOthers stop earlier without one: they were not {follow_up!r}, but lost"
            follow_up += " or lost"
        content.sections["words"] = {"none": follow_up}
        content.check("[words]", text)
    content.sections["problems"] = problems
    signs = good_or_bad(column, values)
    if len(values) > 1 and len(set(signs)) == 1:
        signs = [0] * len(values)  # outcomes worth the same would teach nothing
    sections: dict[str, Any] = {}
    for value, sign in zip(values, signs, strict=True):
        head = place("outcome", value)
        happened = flag(value)
        section: dict[str, Any] = {}
        if happened is not None and (sign or roles.rising or sounds(column, "reward")):
            section["name"] = column if happened else f"not {column}"
        if roles.single and sounds(column, "reward") and profile.kind == "number":
            section["reward"], sign = float(value), 0  # the reward itself, neither good nor bad
        elif sign and "reward" not in roles.columns:
            section["reward"] = float(sign)
            content.check(head, "the reward is a guess from the name")
        elif "reward" not in roles.columns:
            content.check(head, "its name does not say whether it is good or bad; give it a reward")
            content.hints[head] = "reward = 1.0  # the better the higher; bad = true: to be avoided"
        if sign < 0:
            section["bad"] = True
        sections[value] = section
    content.sections["outcome"] = sections


def _lengths(roles: Roles) -> Index:
    """Return the number of rows of each episode, by its number."""
    return np.bincount(roles.rows.episode[roles.rows.order])


def _end_of_follow_up(roles: Roles, profile: Profile, values: Sequence[str]) -> str | None:
    """Return the one outcome of most of the longest episodes and no others, if some end earlier.

    Several such outcomes are results.
    """
    size, last = _lengths(roles), roles.rows.last
    longest = size[roles.rows.episode[last]] == size.max()
    found = {value: profile.rows_with(value)[last] for value in values}
    if roles.single or not any((ends & ~longest).any() for ends in found.values()):
        return None
    late = [v for v, ends in found.items() if ends.any() and not (ends & ~longest).any()]
    return late[0] if len(late) == 1 and 2 * found[late[0]].sum() > longest.sum() else None


def _ends_decision(roles: Roles, profile: Profile, value: str) -> bool:
    """Whether an outcome stands beside an action, not in a last row that gives the final state."""
    return bool((profile.rows_with(value) & (action_codes(roles) >= 0)).any())


def _step_tells(roles: Roles, content: _Content) -> str:
    """Say why the step tells which outcomes are possible; empty if it does not, or has no room."""
    column = roles.columns.get("outcome")
    if column is None or roles.single or not roles.log.whole:
        return ""
    profile, values = roles.profiles[column], list(content.sections["outcome"])
    ends = [profile.rows_with(value)[roles.rows.last] for value in values]
    states = [
        len(s.get("levels", s.get("cuts", ()))) + 1 for s in content.sections["state"].values()
    ]
    size = _lengths(roles)
    room = math.prod(states) * (int(size.max()) + 1) <= MOST_STATES
    late = _end_of_follow_up(roles, profile, values)
    if room and late is not None:
        return f"{late!r} occurs only at the greatest length"
    fixed = room and np.any(ends, axis=0).all() and size.min() == size.max()
    return "every episode has the same length" if fixed else ""


def _side(states: States, content: _Content) -> None:
    """Add the columns that are shown only; how they could be part of the state is a comment."""
    content.sections["side"] = {name: {} for name in states.side}
    for name, section in states.no_room.items():
        lines = [f"{key} = {toml_value(value)}" for key, value in section.items()]
        content.comments[place("side", name)] = f"as {place('state', name)}: {', '.join(lines)}"


def _model(roles: Roles, states: States, content: _Content) -> None:
    """Add [model], with hints: parents of a variable, an order of variables, and clusters."""
    if roles.single:
        content.sections["model"] = {"kind": "tabular"}
        content.check("[model]", "each episode is one decision, so there is no course to learn")
        return
    content.sections["model"] = {"kind": "factored", "learner": "counts"}
    content.check(
        "[model]",
        'one distribution per variable; "tabular" is one per state. The learner may be\n'
        '"logistic" or "boosting" (they need scikit-learn). These learn from the number itself\n'
        "where the section of a state with cuts says number = true.",
    )
    names = list(states.sections)
    changing = [name for name in names if "static" not in states.sections[name]] or names
    action = roles.columns.get("action") or next(iter(roles.action), "")
    key = place("model", changing[0]).removeprefix("[model.").removesuffix("]")
    hint = f"parents.{key} = {toml_value([changing[0], f'action.{action}'])}"
    hint += "  # if it is known what decides it"
    if len(changing) > 1:
        hint += (
            f"\norder = {toml_value(changing[:2])}  # if the second depends on where the first goes"
        )
    content.hints["[model]"] = hint + _clusters(roles, states)


def _clusters(roles: Roles, states: States) -> str:
    """Offer clusters where there are more columns of numbers than the state has room for."""
    sections = states.sections | states.no_room
    numbers = [n for n in roles.profiles if "cuts" in sections.get(n, {})]
    numbers = [n for n in numbers if not roles.rows.is_static(roles.profiles[n])]
    if len(numbers) < MANY_NUMBERS or not states.no_room:
        return ""
    count = max(FEW, min(500, len(roles.rows.episode) // 100))
    return (
        f"\n\n{CHECK} all {len(numbers)} columns of numbers can make the state, as groups of\n"
        " similar rows (needs butfor[cluster]). Then remove [model], the [state] sections, and\n"
        f"these columns from [side]:\n[cluster]\ncolumns = {toml_value(numbers)}\ncount = {count}"
    )
