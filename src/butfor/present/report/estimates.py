"""The section of a report on how well the policy would have done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from butfor.audit.audit import Audit
from butfor.audit.experts import ExpertValue
from butfor.evaluate.estimators.table import RECORDS, compared_with
from butfor.evaluate.wording import Digits, in_words
from butfor.present.charts import estimates_chart
from butfor.present.report.evidence import embedded, thin_part
from butfor.present.stays import Stays
from butfor.present.text import (
    CHANCE,
    DRAWN_ESTIMATORS,
    ESTIMATE,
    ESTIMATORS,
    FULL_NAMES,
    REVIEWERS,
    SIMULATOR,
    TRUE,
)

NARROW = 0.05  # of the axis from worst to best outcome: values closer together get their own


def estimates_section(stays: Stays, experts: ExpertValue | str | None = None) -> dict[str, Any]:
    """Return the section on how well the policy would have done.

    `experts` is the experts' view, or why there is none.
    """
    table = stays.audit.estimates
    if isinstance(experts, ExpertValue):
        table = _with_experts(table, experts)
    chosen = _drawn(table)
    digits = stays.digits(chosen["value"])
    caption = _estimates_caption(stays, chosen, reason=", for the reason in the table")
    columns = {
        "Estimate": [ESTIMATORS.get(name, (name,))[0] for name in table["estimator"]],
        "Value": [digits.value(value) for value in table["value"]],
        "95% interval": _spans(table, "low", "high", digits),
        f"For these {stays.nouns} only": _spans(table, "low_these", "high_these", digits),
        "If the model were learned again": _spans(table, "low_credible", "high_credible", digits),
        "Counts": [
            "" if row.estimator == TRUE else str(row.episodes) for row in table.itertuples()
        ],
        "Warning": [in_words(str(text), stays.noun) for text in table["warning"]],
    }
    if table["low_credible"].isna().all():
        del columns["If the model were learned again"]
    if table["low_these"].isna().all():
        del columns[f"For these {stays.nouns} only"]
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return {
        "spec": embedded(_estimates_chart(stays, chosen, caption), caption),
        "narrow": embedded(_estimates_chart(stays, chosen, caption, narrow=True), caption),
        "caption": caption,
        "names": _full_names(stays, table),
        "table": [list(columns), *rows],
    }


def estimates_figure(stays: Stays) -> Any:
    """Return the chart of estimates by itself, to be saved, with everything to know about it."""
    chosen = _drawn(stays.audit.estimates)
    caption = _estimates_caption(stays, chosen)
    return _estimates_chart(stays, chosen, f"{caption} {_full_names(stays, chosen)}")


def _drawn(table: pd.DataFrame) -> pd.DataFrame:
    """Return the estimates in the chart, from top to bottom, by estimator."""
    by_name = table.set_index("estimator", drop=False)
    return by_name.loc[[name for name in DRAWN_ESTIMATORS if name in by_name.index]]


def _estimates_chart(
    stays: Stays, chosen: pd.DataFrame, caption: str, *, narrow: bool = False
) -> Any:
    words = [ESTIMATORS[name] for name in chosen["estimator"]]
    shown = chosen.assign(
        estimator=[name for name, _ in words],
        note=[note.format(nouns=stays.nouns) for _, note in words],
    )
    return estimates_chart(
        shown,
        reference=_reference(chosen),
        subtitle=caption,
        axis_title=f"Average return per {stays.noun}",
        domain=_reward_domain(stays.audit, chosen),
        ends=_axis_ends(stays.audit),
        rate=stays.audit.is_rate,
        narrow=narrow,
    )


def _full_names(stays: Stays, table: pd.DataFrame) -> str:
    """Spell out the abbreviations of estimators."""
    full = [f"{FULL_NAMES[name]} ({name})" for name in table["estimator"] if name in FULL_NAMES]
    return in_words(f"Abbreviations: {', '.join(full)}." if full else "", stays.noun)


def _reward_domain(audit: Audit, shown: pd.DataFrame) -> tuple[float, float] | None:
    """Return the worst and best outcome as ends of an axis, unless values would lie on one spot."""
    rewards = [outcome.reward for outcome in audit.model.outcomes]
    width = max(rewards, default=0.0) - min(rewards, default=0.0)
    values = shown[["value", "low", "high"]].to_numpy(dtype=np.float64)
    if not np.isfinite(values).any() or np.nanmax(values) - np.nanmin(values) < NARROW * width:
        return None
    return (min(rewards), max(rewards)) if width > 0 else None


def _with_experts(table: pd.DataFrame, experts: ExpertValue) -> pd.DataFrame:
    """Return the table of estimates with a row for the experts' view."""
    numbers = {"value": experts.value, "low": experts.low, "high": experts.high}
    row: dict[str, Any] = dict.fromkeys(table.columns, np.nan) | numbers
    row |= {"estimator": REVIEWERS, "episodes": experts.cases, "warning": ""}
    return pd.concat([table, pd.DataFrame([row])], ignore_index=True)


def _axis_ends(audit: Audit) -> tuple[str, str] | None:
    """Say what the worst and the best average return mean, if only outcomes count."""
    names = reward_names(audit)
    return (f"all {names[min(names)]}", f"all {names[max(names)]}") if names else None


def reward_names(audit: Audit) -> dict[float, str]:
    """Return the worst and the best reward of an outcome with its name, if nothing else counts."""
    rewards = [outcome.reward for outcome in audit.model.outcomes]
    if not audit.only_outcomes_count or len(set(rewards)) < 2:
        return {}
    return {
        end: " or ".join(each.name for each in audit.model.outcomes if each.reward == end)
        for end in (min(rewards), max(rewards))
    }


def _estimates_caption(stays: Stays, chosen: pd.DataFrame, reason: str = "") -> str:
    """Say what the chart of estimates shows, as far as it shows it.

    `reason` is added where an interval is missing.
    """
    bars = chosen["low"].notna()
    missing = ~bars & chosen["value"].notna() & (chosen.index != TRUE)
    said = [
        *_sides(chosen["value"], stays.digits(chosen["value"]), _reference(chosen).lower()),
        *[f"Dot: estimate; bar: 95% interval. {CHANCE}"] * bool(bars.any()),
        ESTIMATE,
        *[f"On average {thin_part(stays)}"] * (not stays.scope),
        f"Dashed line: {_reference(chosen).lower()}.",
        *[f"Without a bar: no interval{reason}."] * bool(missing.any()),
    ]
    if REVIEWERS in chosen.index:
        said.append(
            "Reviewers: what they expect, which does not cover what they misjudge together."
        )
    if TRUE in chosen.index:
        said.append(f"True: {SIMULATOR}.")
    return " ".join(said)


def _reference(chosen: pd.DataFrame) -> str:
    """Return the name of what estimates are compared with."""
    return ESTIMATORS[compared_with(chosen.index)][0]


def _sides(values: pd.Series, digits: Digits, reference: str) -> list[str]:
    """Say which estimates lie above what happened, which below, and which look the same."""
    observed = values[compared_with(values.index)]
    sides: dict[str, list[str]] = {"Above": [], "Below": [], "Rounded, the same as": []}
    for name, value in values.drop(list(RECORDS), errors="ignore").dropna().items():
        same = digits.value(value) == digits.value(observed)
        side = "Rounded, the same as" if same else "Above" if value > observed else "Below"
        sides[side].append(ESTIMATORS[str(name)][0])
    return [f"{side} {reference}: {', '.join(names)}." for side, names in sides.items() if names]


def _spans(table: pd.DataFrame, low: str, high: str, digits: Digits) -> list[str]:
    return [digits.span(*ends) for ends in zip(table[low], table[high], strict=True)]
