"""The content of each section of a report, as plain values for its template."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from butfor.audit.audit import Audit
from butfor.audit.experts import ExpertValue
from butfor.evaluate.diagnostics.lights import LIGHTS as LIGHT_ORDER
from butfor.evaluate.wording import Digits, counted, in_words, percent, share
from butfor.present.charts import (
    estimates_chart,
    glance_datasets,
    glance_template,
)
from butfor.present.stays import Stays
from butfor.present.text import (
    CHANCE,
    DRAWN_ESTIMATORS,
    ESTIMATE,
    ESTIMATORS,
    FULL_NAMES,
    HOLDS,
    LIGHTS,
    MECHANISMS,
    REVIEWERS,
    SIMULATOR,
    TRUE,
    WHAT_HAPPENED,
    capitalized,
    check_name,
)
from butfor.replay.steps import THIN

NARROW = 0.05  # of the axis from worst to best outcome: values closer together get their own


def header(stays: Stays, experts: ExpertValue | str | None = None) -> dict[str, Any]:
    """Return the first screen: the verdict, what the report is about, and what to read first."""
    audit, meta = stays.audit, stays.audit.meta
    first = [
        "Every number of “the model” below comes from a model learned from these records. It is "
        f"not a fact about any {stays.noun}. A flag means “read this chart”, not “the policy is "
        "better”.",
    ]
    if stays.inferred():
        first.append(f"Inferred by the model, which never saw it: {', '.join(stays.inferred())}.")
    if stays.hidden():
        first.append(f"Never given to the model: {', '.join(stays.hidden())}.")
    if len(audit.episodes):
        about = stays.scope or stays.nouns
        first.append(f"On average over {about}, {_thin_part(stays)}")
    if stays.scope:
        first.append(f"Charts and lists are about {stays.scope}; estimates are about all.")
    if stays.redact:
        first.append(
            "Free text, side information, dates and recorded numbers were left out of this copy."
        )
    return {
        "conclusion": conclusion(stays, experts),
        "facts": _facts(stays),
        "pills": _pills(stays),
        "first": first,
        "warnings": [] if stays.redact else [in_words(text, stays.noun) for text in meta.warnings],
    }


def conclusion(stays: Stays, experts: ExpertValue | str | None = None) -> dict[str, str]:
    """Return the verdict, and its reason."""
    reviewed = experts.reviewed if isinstance(experts, ExpertValue) else None
    found = stays.audit.conclude(reviewed)
    return {
        "light": found.light,
        "sentence": in_words(found.sentence, stays.noun),
        "reason": in_words(found.reason, stays.noun),
    }


def _facts(stays: Stays) -> list[tuple[str, str]]:
    """Return what the report is about: the log, the policy, the model and the run."""
    meta = stays.audit.meta
    count, steps = counted(meta.counts.episodes, stays.noun), counted(meta.counts.steps, "decision")
    facts = [
        ("Log", f"{count}, {steps}"),
        ("Policy", "not named in this copy" if stays.redact else meta.target),
        ("It changes", f"{share(stays.audit.policy.changed)} of the decisions"),
        ("Model", f"{_model_size(stays)}, {counted(meta.counts.actions, 'treatment')}"),
        ("Run", f"{meta.digest[:8]}, butfor {meta.butfor}"),
    ]
    return facts if meta.date is None else [*facts, ("Date", meta.date)]


def _pills(stays: Stays) -> list[dict[str, Any]]:
    """Return the checks with their results, the worst first."""
    pills = [
        {
            "place": place,
            "light": row.light,
            "result": LIGHTS[row.light],
            "check": check_name(row.check, stays.noun),
        }
        for place, row in enumerate(stays.audit.diagnostics.itertuples(), start=1)
    ]
    return sorted(pills, key=lambda pill: -LIGHT_ORDER.index(pill["light"]))


def _model_size(stays: Stays) -> str:
    if stays.audit.combinations is not None:
        return f"{len(stays.layout.state)} variables"
    return f"{stays.audit.meta.counts.states} states"


def estimates(stays: Stays, experts: ExpertValue | str | None = None) -> dict[str, Any]:
    """Return the section on how well the policy would have done.

    `experts` is the experts' view, or why there is none.
    """
    audit, table = stays.audit, stays.audit.estimates
    if isinstance(experts, ExpertValue):
        table = _with_experts(table, experts)
    chosen = table.set_index("estimator", drop=False)
    chosen = chosen.loc[[name for name in DRAWN_ESTIMATORS if name in chosen.index]]
    sentence = _estimates_sentence(chosen["value"])
    words = [ESTIMATORS[name] for name in chosen["estimator"]]
    shown = chosen.assign(
        estimator=[name for name, _ in words],
        note=[note.format(nouns=stays.nouns) for _, note in words],
    )
    chart = estimates_chart(
        shown,
        reference=WHAT_HAPPENED,
        axis_title=f"Average return per {stays.noun}",
        domain=_reward_domain(audit, chosen),
        rate=audit.is_rate,
    )
    spec = chart.to_dict()
    spec.pop("title")
    thin = "" if stays.scope else f"On average {_thin_part(stays)} "
    caption = (
        f"{sentence} Dot: estimate; bar: 95% interval. {CHANCE} {ESTIMATE} "
        f"{thin}Dashed line: what happened."
    )
    if (chosen["low"].isna() & (chosen["estimator"] != TRUE)).any():
        caption += " Without a bar: no interval, for the reason in the table."
    if REVIEWERS in chosen.index:
        caption += " Reviewers: what they expect, which does not cover what they misjudge together."
    if TRUE in set(table["estimator"]):
        caption += f" True: {SIMULATOR}."
    spec["description"] = caption
    digits = stays.digits(chosen["value"])
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
    full = [f"{FULL_NAMES[name]} ({name})" for name in table["estimator"] if name in FULL_NAMES]
    names = in_words(f"Abbreviations: {', '.join(full)}." if full else "", stays.noun)
    return {"spec": spec, "caption": caption, "names": names, "table": [list(columns), *rows]}


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


def _estimates_sentence(values: pd.Series) -> str:
    """Say which of the estimates in the chart lie above what happened, and which below."""
    if "Observed" not in values.index:
        return ""
    observed = values["Observed"]
    sides: dict[str, list[str]] = {"Above": [], "Below": []}
    for name, value in values.drop("Observed").dropna().items():
        sides["Above" if value > observed else "Below"].append(ESTIMATORS[str(name)][0])
    return " ".join(
        f"{side} what happened: {', '.join(names)}." for side, names in sides.items() if names
    )


def glance(stays: Stays, *, flags: bool = True) -> dict[str, Any]:
    """Return the section with everyone at a glance, showing which ones are flagged or not."""
    audit = stays.audit
    names = _row_names(stays)
    table = audit.episodes if flags else audit.episodes.assign(rank=0)
    digits = stays.digits(table["expected_return"])
    spec = glance_template(names, noun=stays.noun, nouns=stays.nouns, flags=flags, digits=digits)
    unknown = table["low_any"].isna()
    line = "" if len(table) and unknown.all() else f"Thin line: worst to best case. {HOLDS} "
    caption = f"{_glance_sentence(stays)} One mark for each {stays.noun}. {line}{ESTIMATE}"
    if flags:
        caption += f" Ringed: the {len(audit.flagged)} flagged ones."
    if unknown.any():
        some = "for some only" if line else "for none"
        caption += f" Worst and best case were computed {some}."
    spec["description"] = caption
    counted = f"{capitalized(stays.nouns)}{' shown' if stays.scope else ''}"
    head = [WHAT_HAPPENED, counted, "Mean expected return", "Lowest", "Highest"]
    head += ["Worst case", "Best case", "Mostly thin evidence", *["Flagged"] * flags]
    rows = []
    for name in names:
        mine = table[table["observed_outcome"] == name]
        value = mine["expected_return"]
        numbers = [value.mean(), value.min(), value.max()]
        numbers += [mine["low_any"].min(skipna=False), mine["high_any"].max(skipna=False)]
        words = ["" if pd.isna(number) else digits.value(float(number)) for number in numbers]
        counts = [(mine["thin_share"] > 0.5).sum(), *[(mine["rank"] > 0).sum()] * flags]
        rows.append([name, str(len(mine)), *words, *map(str, counts)])
    return {
        "spec": spec,
        "datasets": glance_datasets(table, names) if len(table) else {"marks": []},
        "caption": caption,
        "table": [head, *rows],
    }


def _glance_sentence(stays: Stays) -> str:
    if stays.scope:
        return f"Shown are {stays.scope}: they were selected, and do not represent the others."
    table = stays.audit.episodes
    n = len(table)
    better, thin = int((table["difference"] > 0).sum()), int((table["thin_share"] > 0.5).sum())
    return (
        f"For {better} of {n} {stays.nouns if n != 1 else stays.noun} the model expects more under "
        f"the policy than what happened; {thin} of {n} rest mostly on thin evidence, steps with "
        f"fewer than {THIN} similar past cases."
    )


def _row_names(stays: Stays) -> list[str]:
    """Return the names of what happened, from bad to good, with no outcome between if it occurs."""
    bad = [outcome.name for outcome in stays.audit.model.outcomes if outcome.bad]
    good = [outcome.name for outcome in stays.audit.model.outcomes if not outcome.bad]
    none, counts = stays.audit.meta.none, stays.audit.outcome_table()
    occurs = counts.loc[none].sum() + counts[none].sum() > 0
    return [*bad, *[none] * bool(occurs), *good]


def cells(stays: Stays) -> dict[str, Any]:
    """Return the table of buttons: what happened by the likeliest outcome in the model."""
    table = stays.audit.episodes
    names = _row_names(stays)
    counts, expected = stays.audit.outcome_table(), stays.audit.outcome_table(expected=True)
    most = max(1, int(counts.to_numpy().max()))

    def cell(observed: str, model: str) -> dict[str, Any]:
        mine = table[(table["observed_outcome"] == observed) & (table["most_likely"] == model)]
        count, mean = int(counts.loc[observed, model]), float(expected.loc[observed, model])
        return {
            "observed": names.index(observed),
            "model": names.index(model),
            "count": count,
            "listed": len(mine),
            "expected": "<0.1" if mean < 0.05 else f"{mean:.1f}",
            "thin": int((mine["thin_share"] > 0.5).sum()),
            "shade": 0 if not count else 1 + int(3.999 * count / most),
            "words": f"{observed}; the model says {model}",
        }

    rows = [
        {
            "name": observed,
            "count": int(counts.loc[observed].sum()),
            "cells": [cell(observed, model) for model in names],
        }
        for observed in names
    ]
    return {"names": names, "rows": rows, "scope": stays.scope}


def listing(stays: Stays, shown: list[Any]) -> dict[str, Any]:
    """Return the episodes for the list beside the buttons: numbers to sort by, words to show."""
    table = stays.audit.episodes.set_index("id", drop=False)
    names = _row_names(stays)
    columns = {name: f"p_{name}" if name != stays.audit.meta.none else "p_none" for name in names}
    place = {identifier: number for number, identifier in enumerate(shown)}
    digits, gaps = (stays.digits(table[name]) for name in ("expected_return", "difference"))
    rows = []
    for identifier in stays.order():
        row = table.loc[identifier]
        chance, thin = float(row[columns[row["most_likely"]]]), float(row["thin_share"])
        words = [
            percent(chance),
            gaps.gap(float(row["difference"])),
            digits.span(float(row["low_any"]), float(row["high_any"])),
            share(thin),
        ]
        rows.append(
            [
                str(identifier),
                names.index(row["observed_outcome"]),
                stays.clock.time(int(row["length"])),
                names.index(row["most_likely"]),
                round(chance, 4),
                round(float(row["difference"]), 9),
                None if pd.isna(row["low_any"]) else round(float(row["low_any"]), 9),
                round(thin, 4),
                int(row["rank"]),
                place.get(identifier, -1),
                words,
            ]
        )
    nouns = {"noun": stays.noun, "nouns": stays.nouns, "scope": stays.scope}
    times = {"unit": capitalized(stays.clock.unit), "step": stays.clock.length}
    return {"names": names, **nouns, **times, "rows": rows}


def provenance(stays: Stays) -> dict[str, Any]:
    """Return the section on how the numbers were computed."""
    meta = stays.audit.meta
    parameters = meta.parameters
    mechanism = parameters.mechanism.split("(")[0]
    facts = [
        ("Run (digest of all inputs)", meta.digest),
        ("butfor", meta.butfor),
        ("Seed", str(meta.seed)),
        ("Horizon", stays.clock.lasting(parameters.horizon)),
        ("Discount", f"{parameters.discount:g}"),
        ("How luck carries over", MECHANISMS.get(mechanism, "a user-defined mechanism")),
        ("Noise of decisions", str(parameters.action_noise)),
        ("How ends are counted", str(parameters.terminal)),
        ("Flagged at most", str(parameters.flags)),
    ]
    names = {"flagged": "flagged", "steps": "decisions", "censored": "broken off"}
    facts += [(f"Counted: {words}", str(getattr(meta.counts, key))) for key, words in names.items()]
    if not stays.redact:
        facts += [
            (f"Reading: {in_words(words, stays.noun)}", str(number))
            for words, number in meta.problems.items()
        ]
    return {"facts": facts}


def _thin_part(stays: Stays) -> str:
    part = share(float(stays.audit.episodes["thin_share"].mean()))
    return f"{part} of the steps under the policy rest on fewer than {THIN} similar past cases."


def _spans(table: pd.DataFrame, low: str, high: str, digits: Digits) -> list[str]:
    return [digits.span(*ends) for ends in zip(table[low], table[high], strict=True)]
