"""The section of a report on evidence: checks, rehearsals, and what was rarely done."""

from __future__ import annotations

from typing import Any

import numpy as np

from butfor.evaluate.wording import in_words, share
from butfor.log.variables import describe_action, describe_states, unravel
from butfor.present.charts import rehearsal_chart, style
from butfor.present.stays import Stays
from butfor.present.text import LIGHTS, capitalized, check_name
from butfor.replay.steps import THIN

PAIRS = 25  # rows of the table of thin evidence


def evidence_section(stays: Stays) -> dict[str, Any]:
    """Return the section on evidence: checks, and where the policy does what was rarely done."""
    audit = stays.audit
    if audit.combinations is not None:
        sentence = (
            "With this many variables hardly a state occurs twice in the records, so evidence is "
            "counted variable by variable: similar past cases share what a variable depends on."
        )
        return {"sentence": sentence, "table": [], "more": 0, "checks": checks(stays)}
    visits = audit.counts.sum(axis=1)
    best = audit.target.argmax(axis=1)
    cases = audit.counts[np.arange(len(best)), best]
    met = visits > 0
    thin = met & (cases < THIN)
    order = [s for s in np.argsort(-visits, kind="stable").tolist() if thin[s]][:PAIRS]
    situations = describe_states(
        stays.layout.state, unravel(stays.layout.state, np.array(order, dtype=np.int64))
    )
    rows = []
    for words, state in zip(situations, order, strict=True):
        action = describe_action(stays.layout.action, int(best[state]))
        rows.append([words, action, str(int(visits[state])), str(int(cases[state]))])
    part = capitalized(share(float(visits[thin].sum() / visits.sum())))
    sentence = (
        f"In {int(thin.sum())} of the {int(met.sum())} states in the records, the most likely "
        f"decision of the policy was made there fewer than {THIN} times. {part} of all recorded "
        "decisions were made in these states."
    )
    head = ["State", "The policy gives", "Decisions recorded there", "Times that was given there"]
    more = int(thin.sum()) - len(rows)
    table = [head, *rows]
    return {"sentence": sentence, "table": table, "more": more, "checks": checks(stays)}


def checks(stays: Stays) -> list[dict[str, str]]:
    """Return the checks with their results, in their order."""
    return [
        {
            "light": row.light,
            "result": LIGHTS[row.light],
            "check": check_name(row.check, stays.noun),
            "sentence": in_words(row.sentence, stays.noun),
        }
        for row in stays.audit.diagnostics.itertuples()
    ]


def rehearsal_section(stays: Stays) -> dict[str, Any] | None:
    """Return the section on the rehearsal: its chart, caption and numbers; None without one."""
    found = stays.audit.rehearsal
    if found is None:
        return None

    def draw(*, narrow: bool) -> dict[str, Any]:
        chart = rehearsal_chart(
            found.table,
            found.gain,
            axis_title=f"Average return per {stays.noun}",
            rate=stays.audit.is_rate,
            narrow=narrow,
        )
        return embedded(chart, caption)

    caption = (
        "No records tell of a cause that they do not contain. So each variable was hidden in turn, "
        "and the policy learned again without it. Bar: what the records without the variable would "
        "have promised beyond what the full records say of the same policy. Dashed line: the gain "
        f"promised here. {found.sentence()}"
    )
    digits = stays.digits([*found.table["promised"], *found.table["judged"]])
    gaps = stays.digits([*found.table["error"], found.gain])
    rows = [
        [
            str(row.hidden),
            digits.value(row.promised),
            digits.value(row.judged),
            gaps.gap(row.error),
        ]
        for row in found.table.sort_values("error", ascending=False, kind="stable").itertuples()
    ]
    head = ["Hidden", "Promised without it", "Judged with it", "Promised too much"]
    return {
        "spec": draw(narrow=False),
        "narrow": draw(narrow=True),
        "caption": caption,
        "table": [head, *rows],
    }


def embedded(chart: Any, caption: str) -> dict[str, Any]:
    """Return the specification of a chart for a page, which has its title and its caption."""
    spec = style.specification(chart)
    spec.pop("title")
    return spec | {"description": caption}


def thin_part(stays: Stays) -> str:
    """Say how much rests on thin evidence, on average over the episodes."""
    part = share(float(stays.audit.episodes["thin_share"].mean()))
    return f"{part} of the steps under the policy rest on fewer than {THIN} similar past cases."
