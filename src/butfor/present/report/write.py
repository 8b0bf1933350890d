"""Write the report: one self-contained file whose Content-Security-Policy forbids every request."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from butfor.audit.audit import Audit, load_for_readers
from butfor.audit.experts import ExpertValue
from butfor.checks import check_whole
from butfor.log.whole_files import check_new_file, whole_file
from butfor.present import STATIC, Stays, straight
from butfor.present.charts.save import chart_bundle, hash_source
from butfor.present.experts import experts_view
from butfor.present.report import content
from butfor.present.report.estimates import estimates_section
from butfor.present.report.evidence import evidence_section, rehearsal_section
from butfor.present.report.policy import policy_section
from butfor.present.text import DIRECTION_MARKS

HERE = Path(__file__).parent
TEMPLATES = Environment(  # compiles a template once
    loader=PackageLoader("butfor.present.report"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=straight,
    trim_blocks=True,
    lstrip_blocks=True,
)


def write_report(
    audit: Audit | str | Path,
    path: str | Path = "report.html",
    *,
    episodes: int | None = None,
    redact: bool = False,
    overwrite: bool = False,
    experts: ExpertValue | str | None = None,
) -> Path:
    """Write an audit as one HTML file to read, print and pass on, and return its path.

    The file makes no requests, and all of its numbers are the audit's: nothing is recomputed.

    Parameters
    ----------
    audit
        The audit, or the folder in which it was saved.
    episodes
        Number of episodes to show step by step: flagged ones first, then those with the largest
        difference; by default the flagged ones. Courses under the policy are drawn if the audit
        has them: for flagged episodes and controls. The list of numbers has all episodes; of a
        folder with more than 100,000, only flagged episodes and controls are read and listed.
    redact
        Leave out free text and side information: everything that the model was never given, times
        and numbers behind its levels, and the names of the log's files, problems and policy.
    overwrite
        Whether to replace an existing file.
    experts
        The experts' view (`expert_value`), or why there is none, to be shown beside the estimates.
    """
    goal = Path(path)
    if episodes is not None:
        check_whole(episodes, "episodes", 0, "a whole number")
    check_new_file(goal, overwrite=overwrite)
    chosen = audit if isinstance(audit, Audit) else load_for_readers(audit)
    text = render_report(chosen, episodes=episodes, redact=redact, experts=experts)
    with whole_file(goal, overwrite=overwrite) as new:
        # newline="": write exactly the bytes that were hashed
        new.write_text(text, encoding="utf-8", newline="")
    return goal


def render_report(
    audit: Audit,
    *,
    episodes: int | None = None,
    redact: bool = False,
    experts: ExpertValue | str | None = None,
) -> str:
    """Return the report as HTML."""
    all_stays = Stays(audit, redact=redact)
    count = len(audit.flagged) if episodes is None else episodes
    shown = all_stays.order()[:count]
    glance = content.glance(all_stays)
    few = len(glance["datasets"]["marks"]) <= 2500
    estimates = estimates_section(all_stays, experts)
    blocks = {
        "estimates": _charts(estimates),
        "glance": {
            **_charts(glance),
            "datasets": pack_rows(glance.pop("datasets")),
            "renderer": "svg" if few else "canvas",
        },
        "listing": content.listing(all_stays, shown),
        "template": {"spec": all_stays.template()},
    }
    rehearsal = rehearsal_section(all_stays)
    if rehearsal is not None:
        blocks["rehearsal"] = _charts(rehearsal)
    pictures = [all_stays.one(identifier) for identifier in shown]
    pictures = [stay | {"datasets": pack_rows(stay["datasets"])} for stay in pictures]
    mine = HERE / "static"
    files = (STATIC / "style.css", STATIC / "charts.js", mine / "tables.js", mine / "report.js")
    style, *scripts = (file.read_text(encoding="utf-8") for file in files)
    # line ends as browsers normalize them before they hash the script
    script = "\n".join([chart_bundle(), *scripts]).replace("\r\n", "\n")
    policy = (
        f"default-src 'none'; script-src '{hash_source(script)}'; "
        f"style-src '{hash_source(style)}'; base-uri 'none'; form-action 'none'"
    )
    return TEMPLATES.get_template("report.html").render(
        policy=policy,
        style=Markup(style),  # hashed as it is
        script=Markup(script),
        noun=all_stays.noun,
        nouns=all_stays.nouns,
        clock=all_stays.clock,
        inferred=all_stays.inferred(),
        rate=audit.is_rate,
        header=content.header(all_stays, experts),
        estimates=estimates,
        experts=None if experts is None else experts_view(experts, audit),
        doing=policy_section(all_stays),
        glance=glance,
        cells=content.cells(all_stays),
        evidence=evidence_section(all_stays),
        rehearsal=rehearsal,
        provenance=content.provenance(all_stays),
        flagged=len(audit.flagged),
        shown=len(shown),
        stories=content.stories(all_stays, pictures),
        compared=all_stays.compared,
        included=content.included(all_stays, len(shown)),
        blocks={name: _json(block) for name, block in blocks.items()},
        pictures=[_json(picture) for picture in pictures],
    )


def _charts(section: dict[str, Any]) -> dict[str, Any]:
    """Take the charts out of a section: for screens, and for phones."""
    return {name: section.pop(name) for name in ("spec", "narrow")}


def pack_rows(datasets: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[Any]]:
    """Return rows as a list of fields and lists of values, which take a third of the bytes."""
    packed: dict[str, list[Any]] = {}
    for name, rows in datasets.items():
        fields = list(dict.fromkeys(field for row in rows for field in row))
        packed[name] = [fields, *([row.get(f) for f in fields] for row in rows)] if rows else []
    return packed


def _json(value: Any) -> Markup:
    """Return JSON in which no text can end the element around it."""
    text = _dump(value)
    if any(f"\\u{ord(mark):04x}" in text for mark in DIRECTION_MARKS):
        text = _dump(straight(value))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def _dump(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
