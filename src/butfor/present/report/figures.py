"""The figures of an audit, to be saved: what they show, with everything to know about it."""

from __future__ import annotations

import re
from typing import Any

from butfor.audit.audit import Audit
from butfor.present.charts import filled_template, outcome_table_chart
from butfor.present.report.content import outcome_order, thin_counts
from butfor.present.report.estimates import estimates_figure
from butfor.present.report.evidence import thin_part
from butfor.present.stays import Stays
from butfor.present.text import ESTIMATE, capitalized
from butfor.replay.steps import THIN


def audit_figures(audit: Audit, *, episodes: int = 1) -> dict[str, Any]:
    """Return the figures of an audit by file name, for `charts.save_figure`.

    They are the estimates, what happened against what the model says, and the first flagged
    `episodes`, step by step.
    """
    stays = Stays(audit)
    figures = {"estimates": estimates_figure(stays), "outcomes": _outcomes(stays)}
    for identifier in audit.flagged["id"].tolist()[:episodes]:
        name = re.sub(r"[^\w.-]+", "_", f"{stays.noun}_{identifier}")
        figures[name] = _episode(stays, identifier)
    return figures


def _outcomes(stays: Stays) -> Any:
    order = outcome_order(stays)
    said = [
        f"Large: {stays.nouns} by the likeliest outcome in the model, with their share of all.",
        "Expected: sum of its probabilities.",
    ]
    if not stays.scope:
        said.append(f"Thin evidence: rests mostly on fewer than {THIN} similar past cases.")
        said.append(f"On average {thin_part(stays)}")
    counts, expected = stays.audit.outcome_table(), stays.audit.outcome_table(expected=True)
    return outcome_table_chart(
        counts.loc[order, order],
        expected=expected.loc[order, order],
        thin=None if stays.scope else thin_counts(stays),
        subtitle=" ".join([*said, ESTIMATE]),
    )


def _episode(stays: Stays, identifier: Any) -> Any:
    stay = stays.one(identifier)
    rows = stay["datasets"] | {"draws": [], "draw_ends": [], "draw_words": []}
    if stay["near"] is not None:
        fitted = stay["near"]["rows"]
        end = fitted["frame"][0]["high"]
        rows = {
            name: [row for row in found if row.get("step", 0) <= end]
            for name, found in rows.items()
        }
        rows |= fitted
    said = [stay[name] for name in ("story", "says", "caveat", "range")]
    said += [f"{capitalized(name)}: {text}." for name, text in stay["given"]]
    said += [f"Never given to the model: {name}, {text}." for name, text in stay["side"]]
    return filled_template(stays.layout, rows, stay["title"], " ".join(said))
