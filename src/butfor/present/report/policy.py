"""The section of a report on the policy itself: what it does, beside what was done."""

from __future__ import annotations

from typing import Any

import pandas as pd

from butfor.evaluate.wording import counted, plural, share
from butfor.present.stays import Stays

SITUATIONS = 25  # rows of the table of situations
LEVELS = 40  # rows of the table by variable
ACTIONS = 15  # rows of the table of actions
HEAD = ("Usual practice", "Policy", "Decisions", "Would differ")
WIDTHS = "texts choices"  # the class of tables with these columns
WIDE = 12  # variables; more of them make no situation that can be read


def policy_section(stays: Stays) -> dict[str, Any]:
    """Return the section on what the policy does: sentences, and tables of bounded size."""
    audit = stays.audit
    view = audit.policy
    states = audit.policy_table("state")
    by_variable = audit.policy_table("variable") if len(view.named) > 1 else None
    readable = audit.combinations is None and len(view.named) <= WIDE
    sections = [_actions(audit.policy_table("action"))]
    if readable:
        sections.append(_situations(states, "The most common situations", SITUATIONS))
        changed = states.assign(changed=states["decisions"] * states["differs"])
        changed = changed[changed["differs"] > 0].sort_values(
            "changed", ascending=False, kind="stable"
        )
        title = "Where it changes the most decisions"
        if len(changed) and len(states) > 2 * SITUATIONS:
            sections.append(_situations(changed, title, SITUATIONS))
    if by_variable is not None:
        sections.append(_levels(by_variable))
    return {"sentences": _sentences(stays, states, readable=readable), "tables": sections}


def _sentences(stays: Stays, states: pd.DataFrame, *, readable: bool) -> list[str]:
    """Say how often the policy decides differently, and what the tables leave out."""
    audit = stays.audit
    decisions = int(audit.counts.sum())
    changed = audit.policy.changed
    said = [
        "Usual practice is what the records show was done. To follow the policy, "
        f"{share(changed)} of the {counted(decisions, 'recorded decision')} would have to "
        "change."
    ]
    if audit.meta.parameters.by_row:
        said.append(
            "The policy uses more than the states of the model: here it is averaged over each "
            "situation, but how often it differs is counted decision by decision."
        )
    same = float(states.loc[states["differs"] < 0.005, "share"].sum())
    if readable and same > 0:
        said.append(f"It decides as usual practice does in situations with {share(same)} of them.")
    if readable and len(states) > SITUATIONS:
        part = share(float(states["share"].head(SITUATIONS).sum()))
        said.append(
            f"Of {counted(len(states), 'situation')} in the records, the {SITUATIONS} most common "
            f"have {part} of the decisions."
        )
    if not readable:
        said.append(
            "With this many variables hardly a situation occurs twice, so the policy is shown "
            "variable by variable."
        )
    return said


def _actions(table: pd.DataFrame) -> dict[str, Any]:
    rows = [
        [row.action, share(row.usual), share(row.policy), _points(row.policy - row.usual)]
        for row in table.head(ACTIONS).itertuples()
    ]
    title = "How often each action is chosen"
    caption = "Share of all recorded decisions (pp: percentage points)"
    head = ["Action", "Usual practice", "Policy", "Difference"]
    return _section(title, caption, [head, *rows], len(table), "action")


def _situations(table: pd.DataFrame, title: str, most: int) -> dict[str, Any]:
    rows = [_choices(row.situation, row) for row in table.head(most).itertuples()]
    caption = (
        "Most common action of usual practice, likeliest action of the policy, and their shares"
    )
    return _section(title, caption, [["Situation", *HEAD], *rows], len(table), "situation", WIDTHS)


def _levels(table: pd.DataFrame) -> dict[str, Any]:
    """Return the levels of variables, first of those on which the policy depends most."""
    weight = (table["decisions"] * table["shifts"]).groupby(table["variable"], sort=False).sum()
    order = weight.sort_values(ascending=False, kind="stable").index
    shown = table.set_index("variable").loc[order].reset_index().head(LEVELS)
    rows = [_choices(f"{row.variable} {row.level}", row) for row in shown.itertuples()]
    title = "By one variable at a time"
    caption = (
        "Averages over all decisions at which a variable had this level; first the variables on "
        "which the policy depends most"
    )
    return _section(title, caption, [["Where", *HEAD], *rows], len(table), "level", WIDTHS)


def _choices(where: str, row: Any) -> list[str]:
    """Return the most common action of usual practice and of the policy, with shares below 1."""
    said = [
        words if share(part) == "all" else f"{words} ({share(part)})"
        for words, part in ((row.usual, row.usual_share), (row.policy, row.policy_share))
    ]
    return [where, *said, f"{row.decisions:,}", share(row.differs)]


def _points(change: float) -> str:
    return f"{100 * change:+.1f} pp".replace("-", "\N{MINUS SIGN}")


def _section(
    title: str, caption: str, rows: list[list[str]], number: int, noun: str, kind: str = ""
) -> dict[str, Any]:
    """Return a table with its head, and say how many rows of all it leaves out."""
    more = number - (len(rows) - 1)
    if more:
        caption = f"{caption}; {more:,} more {plural(noun) if more > 1 else noun} left out"
    return {"title": title, "caption": caption, "rows": rows, "class": kind}
