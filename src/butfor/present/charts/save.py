"""Write a chart as PNG, SVG, PDF, or as one HTML page that makes no requests."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from butfor.log.whole_files import whole_file
from butfor.present.charts.style import specification

VERSION = ".".join(alt.SCHEMA_VERSION.split(".")[:2])  # of Vega-Lite
FORMATS = ("png", "svg", "pdf", "html")


def save_figure(
    chart: alt.TopLevelMixin, stem: Path | str, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Write the chart to `stem` plus the suffix of each format, and return those paths."""
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise ValueError(f"format {unknown[0]!r}: give any of {', '.join(FORMATS)}")
    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    # all rows, however many they are, in the chart itself
    with alt.data_transformers.enable("default"), alt.data_transformers.disable_max_rows():
        spec = specification(chart)
    drawn = vl_convert.vegalite_to_svg(spec, VERSION) if set(formats) - {"html"} else ""
    paths = []
    for name in formats:
        path = stem.parent / f"{stem.name}.{name}"
        if name == "html":
            path.write_text(_page(spec), encoding="utf-8")
        elif name == "svg":
            path.write_text(drawn, encoding="utf-8")
        elif name == "png":
            path.write_bytes(vl_convert.svg_to_png(drawn, ppi=200))
        else:
            path.write_bytes(vl_convert.svg_to_pdf(drawn))
        paths.append(path)
    return paths


def _page(spec: dict[str, Any]) -> str:
    """Return one page with chart and JavaScript, whose policy forbids every request."""
    options = {"mode": "vega-lite", "actions": False, "ast": True, "renderer": "svg"}
    # without "<" no text of the chart can end the script
    call = f"window.vegaEmbed('#chart', {json.dumps(spec)}, {json.dumps(options)});"
    script = chart_bundle() + "\n" + call.replace("<", "\\u003c")
    title = html.escape(str(spec.get("description", "Figure")))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src '{hash_source(script)}'; style-src 'unsafe-inline'">
<title>{title}</title>
</head>
<body>
<div id="chart"></div>
<script type="module">{script}</script>
</body>
</html>
"""


def hash_source(text: str) -> str:
    """Return what a Content-Security-Policy allows this script or style by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def chart_bundle() -> str:
    """Return the JavaScript that draws charts: a module that sets window.vegaEmbed.

    To put it together takes longer than a report. So it is kept beside what Python compiles, if
    that can be written.
    """
    kept = Path(__file__).parent / "__pycache__" / f"charts-{version('vl-convert-python')}.js"
    with suppress(OSError):
        return kept.read_bytes().decode()
    made = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    if not sys.dont_write_bytecode:
        with suppress(OSError), whole_file(kept, overwrite=True) as new:
            new.write_bytes(made.encode())
    return made
