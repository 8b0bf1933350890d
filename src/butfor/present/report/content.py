"""The content of each section of a report, as plain values for its template."""

from __future__ import annotations

from typing import Any

import pandas as pd

from butfor.audit.audit import RARE
from butfor.audit.experts import ExpertValue
from butfor.evaluate.diagnostics.lights import LIGHTS as LIGHT_ORDER
from butfor.evaluate.wording import counted, in_words, percent, share
from butfor.present.charts import glance_datasets, glance_template
from butfor.present.report.estimates import reward_names
from butfor.present.report.evidence import checks, thin_part
from butfor.present.stays import Stays
from butfor.present.story import recorded_part
from butfor.present.text import (
    ESTIMATE,
    HOLDS,
    MECHANISMS,
    WHAT_HAPPENED,
    capitalized,
    left_out,
)
from butfor.replay.steps import THIN


def header(stays: Stays, experts: ExpertValue | str | None = None) -> dict[str, Any]:
    """Return the first screen: the verdict, what the report is about, and what to read first."""
    audit, meta = stays.audit, stays.audit.meta
    first = [
        "Every number of “the model” below comes from a model learned from these records. It is "
        f"not a fact about any {stays.noun}. A flag means “read this chart”, not “the policy is "
        "better”.",
    ]
    if lost := left_out(meta.problems, meta.counts.episodes, stays.noun):
        first.insert(0, lost)
    if stays.inferred():
        first.append(f"Inferred by the model, which never saw it: {', '.join(stays.inferred())}.")
    if stays.hidden():
        first.append(f"Never given to the model: {', '.join(stays.hidden())}.")
    if len(audit.episodes):
        about = stays.scope or stays.nouns
        first.append(f"On average over {about}, {thin_part(stays)}")
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
    pills = [check | {"place": place} for place, check in enumerate(checks(stays), start=1)]
    return sorted(pills, key=lambda pill: -LIGHT_ORDER.index(pill["light"]))


def _model_size(stays: Stays) -> str:
    if stays.audit.combinations is not None:
        return f"{len(stays.layout.state)} variables"
    return f"{stays.audit.meta.counts.states} states"


def glance(stays: Stays, *, flags: bool = True) -> dict[str, Any]:
    """Return the section with everyone at a glance, showing which ones are flagged or not."""
    audit = stays.audit
    names = outcome_order(stays)
    table = audit.episodes if flags else audit.episodes.assign(rank=0)
    digits = stays.digits(table["expected_return"])
    datasets = glance_datasets(table, names) if len(table) else {"frame": [], "marks": []}
    frame = datasets["frame"][0] if datasets["frame"] else {"low": 0.0, "high": 0.0}
    caption = _glance_caption(stays, marks=len(datasets["marks"]), flags=flags)

    def template(*, narrow: bool) -> dict[str, Any]:
        found = glance_template(
            names,
            noun=stays.noun,
            nouns=stays.nouns,
            flags=flags and len(audit.flagged) > 0,
            digits=digits,
            names={
                reward: name
                for reward, name in reward_names(audit).items()
                if frame["low"] <= reward <= frame["high"]
            },
            narrow=narrow,
        )
        return found | {"description": caption}

    shown = f"{capitalized(stays.nouns)}{' shown' if stays.scope else ''}"
    head = [WHAT_HAPPENED, shown, "Mean expected return", "Lowest", "Highest"]
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
        "spec": template(narrow=False),
        "narrow": template(narrow=True),
        "datasets": datasets,
        "caption": caption,
        "table": [head, *rows],
    }


def _glance_caption(stays: Stays, *, marks: int, flags: bool) -> str:
    """Say what the strip plot with this many marks shows."""
    table, flagged = stays.audit.episodes, len(stays.audit.flagged)
    unknown = table["low_any"].isna()
    said = [_glance_sentence(stays), f"One mark for each {stays.noun}."]
    if marks < len(table):
        kept = " and all flagged ones" * flags
        said[1] = f"A mark for {marks:,} of them: an even selection{kept}."
    if not unknown.all():
        said.append(f"Thin line: worst to best case. {HOLDS}")
    said.append(ESTIMATE)
    if flags and flagged:
        said.append(f"Ringed: the {counted(flagged, f'flagged {stays.noun}')}.")
    if unknown.any():
        some = "for none" if unknown.all() else "for some only"
        said.append(f"Worst and best case were computed {some}.")
    return " ".join(said)


def _glance_sentence(stays: Stays) -> str:
    if stays.scope:
        return f"Shown are {stays.scope}: they were selected, and do not represent the others."
    table = stays.audit.episodes
    n = len(table)
    better = int((table["difference"].round(9) > 0).sum())
    thin = int((table["thin_share"] > 0.5).sum())
    continued = ", as it continues it" if "usual_return" in table else ""
    return (
        f"For {better} of {n} {stays.nouns if n != 1 else stays.noun} the model expects more under "
        f"the policy than what happened{continued}; {thin} of {n} rest mostly on thin evidence, "
        f"steps with fewer than {THIN} similar past cases."
    )


def outcome_order(stays: Stays) -> list[str]:
    """Return the names of what happened, from bad to good, with no outcome between if it occurs."""
    bad = [outcome.name for outcome in stays.audit.model.outcomes if outcome.bad]
    good = [outcome.name for outcome in stays.audit.model.outcomes if not outcome.bad]
    none, expected = stays.audit.meta.none, stays.audit.outcome_table(expected=True)
    occurs = expected.loc[none].sum() + expected[none].sum() > RARE * expected.to_numpy().sum()
    return [*bad, *[none] * bool(occurs), *good]


def thin_counts(stays: Stays) -> pd.DataFrame:
    """Count the episodes on mostly thin evidence by what happened and what the model says."""
    order, table = outcome_order(stays), stays.audit.episodes
    mine = table[table["thin_share"] > 0.5]
    counts = pd.crosstab(mine["observed_outcome"], mine["most_likely"])
    return counts.reindex(index=order, columns=order, fill_value=0)


def cells(stays: Stays) -> dict[str, Any]:
    """Return the table of buttons: what happened by the likeliest outcome in the model."""
    table = stays.audit.episodes
    names = outcome_order(stays)
    counts, expected = stays.audit.outcome_table(), stays.audit.outcome_table(expected=True)
    thin = thin_counts(stays)
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
            "thin": int(thin.loc[observed, model]),
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
    names = outcome_order(stays)
    columns = {name: f"p_{name}" if name != stays.audit.meta.none else "p_none" for name in names}
    place = {identifier: number for number, identifier in enumerate(shown)}
    digits, gaps = (stays.digits(table[name]) for name in ("expected_return", "difference"))
    rows = []
    for row in table.loc[stays.order()].to_dict("records"):
        part = recorded_part(row)
        chance, thin = float(row[columns[row["most_likely"]]]), float(row["thin_share"])
        words = [
            percent(chance),
            f"{gaps.gap(float(row['difference']))}{f' ({part} recorded)' if part else ''}",
            digits.span(float(row["low_any"]), float(row["high_any"])),
            share(thin),
        ]
        rows.append(
            [
                str(row["id"]),
                names.index(row["observed_outcome"]),
                stays.clock.time(int(row["length"])),
                names.index(row["most_likely"]),
                round(chance, 4),
                round(float(row["difference"]), 9),
                None if pd.isna(row["low_any"]) else round(float(row["low_any"]), 9),
                round(thin, 4),
                int(row["rank"]),
                place.get(row["id"], -1),
                words,
            ]
        )
    nouns = {"noun": stays.noun, "nouns": stays.nouns, "scope": stays.scope}
    times = {"unit": capitalized(stays.clock.unit), "step": stays.clock.length}
    pages = {"included": included(stays, len(shown))}
    return {"names": names, **nouns, **times, **pages, "rows": rows}


def stories(stays: Stays, pictures: list[dict[str, Any]]) -> list[list[str]]:
    """Return the episodes that are shown step by step as a table of sentences."""
    thin = stays.audit.episodes.set_index(stays.audit.episodes["id"].astype(str))["thin_share"]
    head = [capitalized(stays.noun), "Thin evidence", "In words"]
    return [head] + [
        [
            stay["id"],
            share(float(thin[stay["id"]])),
            f"{stay['title']}. {stay['story']} {stay['says']}",
        ]
        for stay in pictures
    ]


def included(stays: Stays, count: int) -> str:
    """Say of which episodes, `count` in all, the report has step-by-step pages."""
    if count == len(stays.audit.flagged):
        return f"only those of the {count} flagged {stays.nouns}" if count else "none"
    words = "flagged ones first, then those with the largest difference"
    return f"only {count}: {words}" if count else "none"


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
