"""What stands in the sections of a report, as plain values for its template."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from butfor.evaluate.wording import percent, share, signed
from butfor.log.variables import describe_action, unravel
from butfor.present.charts import estimates_chart
from butfor.present.charts.glance import glance_datasets, glance_sentence, glance_template
from butfor.present.charts.style import CHANCE, ESTIMATE, SIMULATOR, TRUE
from butfor.present.stays import HOLDS, Stays
from butfor.replay.steps import THIN

# in the picture of estimates, from top to bottom: name and what it is
SHOWN = {
    "Observed": ("What happened", "average over these {nouns}"),
    "WIS": ("Reweighted records (WIS)", "no model; only {nouns} treated as the policy would"),
    "MB": ("Model simulation (MB)", "new {nouns} drawn from the model"),
    "CF": ("Replay of each (CF)", "the same {nouns}, replayed by the model"),
    "MB (cross-fitted)": ("Simulation, fresh data (MB)", "judged by data it was not learned from"),
    "CF (cross-fitted)": ("Replay, fresh data (CF)", "judged by data it was not learned from"),
    TRUE: (TRUE, SIMULATOR),
}
PAIRS = 25  # rows of the table of thin evidence


def plain(text: str, stays: Stays) -> str:
    """Put a sentence about episodes into the words of the log's trade."""

    def swap(found: re.Match[str]) -> str:
        word = stays.nouns if found[0].lower().endswith("s") else stays.noun
        return word[:1].upper() + word[1:] if found[0][0].isupper() else word

    return re.sub(r"\bepisodes?\b", swap, text, flags=re.IGNORECASE)


def header(stays: Stays) -> dict[str, Any]:
    """Return what stands at the top: what this is about, and what to read first."""
    audit, meta = stays.audit, stays.audit.meta
    count = meta.counts.episodes
    hidden, inferred = stays.hidden(), stays.inferred()
    first = [
        f"Every number of “the model” below comes from a model learned from these records. It is "
        f"not a fact about any {stays.noun}. A flag means “read this chart”, not “the policy is "
        "better”.",
    ]
    if len(audit.episodes):
        about = stays.scope or stays.nouns
        part = share(float(audit.episodes["thin_share"].mean()))
        first.append(
            f"On average over {about}, {part} of the steps under the policy rest on fewer than "
            f"{THIN} similar past cases."
        )
    if stays.scope:
        first.append(f"Pictures and lists are about {stays.scope}; estimates are about all.")
    if hidden:
        first.insert(1, f"Never given to the model: {', '.join(hidden)}.")
    if inferred:
        first.insert(1, f"Inferred by the model, which never saw it: {', '.join(inferred)}.")
    if stays.redact:
        first.append("Free text and side information were left out of this copy.")
    model = f"{meta.counts.states} states, {meta.counts.actions} treatments"
    target = "not named in this copy" if stays.redact else meta.target
    return {
        "facts": [
            f"{count} {stays.nouns if count != 1 else stays.noun}",
            f"policy: {target}",
            f"model: {model}",
            f"run {meta.digest[:8]}",
            f"butfor {meta.butfor}",
        ],
        "first": first,
        "warnings": [] if stays.redact else [plain(text, stays) for text in meta.warnings],
    }


def estimates(stays: Stays) -> dict[str, Any]:
    """Return the section on how well the policy would have done."""
    audit = stays.audit
    table = audit.estimates
    chosen = table[table["estimator"].isin(SHOWN)]
    order = {name: place for place, name in enumerate(SHOWN)}
    chosen = chosen.iloc[np.argsort([order[name] for name in chosen["estimator"]], kind="stable")]
    words = [SHOWN[name] for name in chosen["estimator"]]
    shown = chosen.assign(
        estimator=[name for name, _ in words],
        note=[note.format(nouns=stays.nouns) for _, note in words],
    )
    rewards = [outcome.reward for outcome in audit.model.outcomes]
    domain = (min(rewards), max(rewards)) if len(set(rewards)) > 1 else None
    chart = estimates_chart(
        shown,
        reference="What happened",
        axis_title=f"Average return per {stays.noun}",
        domain=domain,
    )
    spec = chart.to_dict()
    spec.pop("title")
    sentence = _estimates_sentence(table.set_index("estimator")["value"].to_dict())
    thin = "" if stays.scope else f"{_thin_sentence(stays)} "
    caption = (
        f"{sentence} Dot: estimate; bar: 95% interval. {CHANCE} {ESTIMATE} "
        f"{thin}Dashed line: what happened."
    )
    if TRUE in set(table["estimator"]):
        caption += f" True: {SIMULATOR}."
    spec["description"] = caption
    head = [
        "Estimate",
        "Value",
        "95% interval",
        "If the model were drawn anew",
        "Counts",
        "Warning",
    ]
    rows = [
        [
            _estimator_name(str(row["estimator"])),
            signed(row["value"]),
            _span(row["low"], row["high"]),
            _span(row["low_credible"], row["high_credible"]),
            "" if row["estimator"] == TRUE else str(row["episodes"]),
            plain(str(row["warning"]), stays),
        ]
        for _, row in table.iterrows()
    ]
    if table["low_credible"].isna().all():
        head, rows = [*head[:3], *head[4:]], [[*row[:3], *row[4:]] for row in rows]
    return {"spec": spec, "caption": caption, "table": [head, *rows]}


def _estimates_sentence(value: dict[str, float]) -> str:
    known = [value[name] for name in ("MB", "CF") if value.get(name) == value.get(name, np.nan)]
    if "Observed" not in value or not known:
        return ""
    above = [number > value["Observed"] for number in known]
    told = "above" if all(above) else "below" if not any(above) else "on both sides of"
    sentence = f"What the model says of the policy lies {told} what happened."
    if TRUE in value:
        side = "above" if value[TRUE] > value["Observed"] else "below"
        sentence += f" The true value lies {side} it."
    return sentence


def _estimator_name(name: str) -> str:
    """Name an estimator in words, its short name in brackets."""
    kinds = {
        "IS": "Weighted records",
        "PDIS": "Weighted by step",
        "PDWIS": "Reweighted by step",
        "DR": "Model, corrected by records",
        "WDR": "Model, corrected by reweighted records",
        "MAGIC": "Blend of model and records",
        "FQE": "Fitted values",
    }
    return f"{kinds[name]} ({name})" if name in kinds else SHOWN.get(name, (name, ""))[0]


def glance(stays: Stays, *, flags: bool = True) -> dict[str, Any]:
    """Return the section with everyone at a glance, with or without which ones are flagged."""
    audit = stays.audit
    names = _row_names(stays)
    spec = glance_template(names, noun=stays.noun, nouns=stays.nouns, flags=flags)
    sentence = glance_sentence(audit.episodes, noun=stays.noun, nouns=stays.nouns)
    if stays.scope:
        sentence = f"Shown are {stays.scope}: they were picked, and do not stand for the others."
    caption = (
        f"{sentence} One mark for each {stays.noun}. Thin line: worst to best case. {HOLDS} "
        f"{ESTIMATE}"
    )
    if flags:
        caption += f" Ringed: the {len(audit.flagged)} flagged ones."
    if audit.episodes["low_any"].isna().any():
        caption += " Worst and best case were worked out for some only."
    spec["description"] = caption
    table = audit.episodes if flags else audit.episodes.assign(rank=0)
    counted = f"{stays.nouns.capitalize()}{' shown' if stays.scope else ''}"
    head = ["What happened", counted, "Mean expected return", "Lowest", "Highest"]
    head += ["Worst case", "Best case", "Mostly thin evidence", *["Flagged"] * flags]
    rows = []
    for name in names:
        mine = table[table["observed_outcome"] == name]
        value = mine["expected_return"]
        numbers = [value.mean(), value.min(), value.max()]
        numbers += [mine["low_any"].min(skipna=False), mine["high_any"].max(skipna=False)]
        told = ["" if pd.isna(number) else signed(float(number)) for number in numbers]
        counts = [(mine["thin_share"] > 0.5).sum(), *[(mine["rank"] > 0).sum()] * flags]
        rows.append([name, str(len(mine)), *told, *map(str, counts)])
    return {
        "spec": spec,
        "datasets": glance_datasets(table, names) if len(table) else {"marks": []},
        "caption": caption,
        "table": [head, *rows],
    }


def _row_names(stays: Stays) -> list[str]:
    """Names of what happened, from bad to good: no outcome stands between."""
    bad = [outcome.name for outcome in stays.audit.model.outcomes if outcome.bad]
    good = [outcome.name for outcome in stays.audit.model.outcomes if not outcome.bad]
    return [*bad, stays.audit.meta.none, *good]


def cells(stays: Stays) -> dict[str, Any]:
    """Return the table of buttons: what happened by what the model says is likeliest."""
    table = stays.audit.episodes
    names = _row_names(stays)
    counts, expected = stays.audit.outcome_table(), stays.audit.outcome_table(expected=True)
    most = max(1, int(counts.to_numpy().max()))
    rows = []
    for observed in names:
        mine = table[table["observed_outcome"] == observed]
        row, total = [], 0
        for model in names:
            cell = mine[mine["most_likely"] == model]
            count = int(counts.loc[observed, model])
            total += count
            row.append(
                {
                    "observed": names.index(observed),
                    "model": names.index(model),
                    "count": count,
                    "listed": len(cell),
                    "expected": _expected(float(expected.loc[observed, model])),
                    "thin": int((cell["thin_share"] > 0.5).sum()),
                    "shade": 0 if not count else 1 + int(3.999 * count / most),
                    "words": f"{observed}; the model says {model}",
                }
            )
        rows.append({"name": observed, "count": total, "cells": row})
    return {"names": names, "rows": rows, "scope": stays.scope}


def _expected(value: float) -> str:
    return "<0.1" if value < 0.05 else f"{value:.1f}"


def listing(stays: Stays, shown: list[Any]) -> dict[str, Any]:
    """Return the stays for the list beside the buttons: numbers to sort by, words to show."""
    table = stays.audit.episodes.set_index("id", drop=False)
    names = _row_names(stays)
    columns = {name: f"p_{name}" if name != stays.audit.meta.none else "p_none" for name in names}
    place = {identifier: number for number, identifier in enumerate(shown)}
    rows = []
    for identifier in stays.order():
        row = table.loc[identifier]
        chance, thin = float(row[columns[row["most_likely"]]]), float(row["thin_share"])
        words = [
            percent(chance),
            signed(float(row["difference"])),
            _span(float(row["low_any"]), float(row["high_any"])),
            share(thin),
        ]
        rows.append(
            [
                str(identifier),
                names.index(row["observed_outcome"]),
                int(row["length"]),
                names.index(row["most_likely"]),
                round(chance, 4),
                round(float(row["difference"]), 4),
                None if pd.isna(row["low_any"]) else round(float(row["low_any"]), 4),
                round(thin, 4),
                int(row["rank"]),
                place.get(identifier, -1),
                words,
            ]
        )
    told = {"noun": stays.noun, "nouns": stays.nouns, "scope": stays.scope}
    return {"names": names, **told, "rows": rows}


def thin_evidence(stays: Stays) -> dict[str, Any]:
    """Return the section on evidence: lights, and where the policy does what was rarely done."""
    audit = stays.audit
    visits = stays.counts.sum(axis=1)
    best = audit.target.argmax(axis=1)
    cases = stays.counts[np.arange(len(best)), best]
    met = visits > 0
    thin = met & (cases < THIN)
    order = [s for s in np.argsort(-visits, kind="stable").tolist() if thin[s]][:PAIRS]
    codes = unravel(stays.layout.state, np.arange(len(best)))
    rows = []
    for state in order:
        words = ", ".join(f"{v.name} {v.levels[codes[v.name][state]]}" for v in stays.layout.state)
        action = describe_action(stays.layout.action, int(best[state]))
        rows.append([words, action, str(int(visits[state])), str(int(cases[state]))])
    sentence = (
        f"In {int(thin.sum())} of the {int(met.sum())} states met in the records, what the policy "
        f"would most likely do there was done fewer than {THIN} times. "
        f"{share(float(visits[thin].sum() / visits.sum())).capitalize()} of all recorded "
        "decisions were made in these states."
    )
    more = int(thin.sum()) - len(rows)
    head = ["State", "The policy gives", "Decisions recorded there", "Times that was given there"]
    lights = [
        {"light": row.light, "check": row.check, "sentence": plain(row.sentence, stays)}
        for row in audit.diagnostics.itertuples()
    ]
    return {"sentence": sentence, "table": [head, *rows], "more": more, "lights": lights}


def provenance(stays: Stays) -> dict[str, Any]:
    """Return the section on how all this was computed."""
    meta = stays.audit.meta
    parameters = meta.parameters
    facts = [
        ("Run (digest of all inputs)", meta.digest),
        ("butfor", meta.butfor),
        ("Seed", str(meta.seed)),
        ("Steps looked ahead", str(parameters.horizon)),
        ("Discount", f"{parameters.discount:g}"),
        ("How luck carries over", _mechanism(parameters.mechanism)),
        ("Noise of decisions", str(parameters.action_noise)),
        ("How ends are counted", str(parameters.terminal)),
        ("Flagged at most", str(parameters.flags)),
    ]
    names = {"flagged": "flagged", "steps": "decisions", "censored": "broken off"}
    facts += [(f"Counted: {words}", str(getattr(meta.counts, key))) for key, words in names.items()]
    if not stays.redact:
        facts += [(f"Reading: {words}", str(count)) for words, count in meta.problems.items()]
    return {"facts": facts}


def _mechanism(name: str) -> str:
    """Describe a mechanism without words that readers need not know."""
    kinds = {
        "GumbelMax": "the same luck favours the same results (stable)",
        "InverseCDF": "the same luck keeps its rank among ordered results",
        "MaximalCoupling": "results stay as they were wherever that is possible",
        "Independent": "fresh luck wherever treatment differs",
    }
    return kinds.get(name.split("(")[0], "a mechanism of your own")


def _thin_sentence(stays: Stays) -> str:
    part = share(float(stays.audit.episodes["thin_share"].mean()))
    return f"On average {part} of the steps rest on fewer than {THIN} similar past cases."


def _span(low: float, high: float) -> str:
    return "" if pd.isna(low) or pd.isna(high) else f"{signed(low)} to {signed(high)}"
