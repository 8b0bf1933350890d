"""The page of a study: its template, what it says in short, its tables, drawings and sources."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from butfor.evaluate.wording import MINUS, percent
from butfor.present import STATIC
from butfor.present.text import FULL_NAMES

LEGIBLE = 11 / 13  # of its size: letters of 13 pixels, the smallest, still have 11
HEADING = re.compile(r'<h2 id="([^"]+)">(.*?)</h2>')
STYLES = (STATIC / "style.css", Path(__file__).parent / "templates" / "article.css")


@dataclass(frozen=True)
class Source:
    """A paper that a study follows."""

    authors: str
    title: str
    where: str
    doi: str


PAPER = Source(
    "M. Oberst and D. Sontag",
    "Counterfactual Off-Policy Evaluation with Gumbel-Max Structural Causal Models",
    "ICML 2019, Proceedings of Machine Learning Research 97",
    "10.48550/arXiv.1905.05824",
)


def headings(text: str) -> list[tuple[str, str]]:
    """Return the places of a text and their headings, as HTML, for its contents."""
    return HEADING.findall(text)


def spelled(name: str) -> str:
    """Spell an abbreviation out: "weighted importance sampling (WIS)"; other names stay."""
    return f"{FULL_NAMES[name]} ({name})" if name in FULL_NAMES else name


def share(value: float, digits: int = 0) -> str:
    """Return a share in percent, with as many decimals as given."""
    return f"{100 * value:.{digits}f}%"


def with_error(mean: float, se: float) -> str:
    """Return a mean and its standard error."""
    return f"{signed(mean)} ± {plain(se)}"


def listed(values: Sequence[Any]) -> str:
    """Return "250, 1,000 and 4,000"."""
    *first, last = map(count, values)
    return f"{', '.join(first)} and {last}" if first else last


def count(value: int) -> str:
    """Return a whole number, by thousands."""
    return f"{value:,}"


def plain(value: float, digits: int = 3) -> str:
    """Return a number without a plus sign; 0 has no sign."""
    return f"{round(float(value), digits) + 0.0:.{digits}f}".replace("-", MINUS)


def signed(value: float, digits: int = 3) -> str:
    """Return a number with a sign that its digits justify."""
    shown = plain(value, digits)
    return f"+{shown}" if round(float(value), digits) > 0 else shown


FILTERS = {
    **{"signed": signed, "plain": plain, "share": share, "chance": percent},
    **{"count": count, "listed": listed, "spelled": spelled, "headings": headings},
}


def render_page(template: str, content: Mapping[str, Any], widths: Mapping[str, int]) -> str:
    """Return a page from a template that extends studies/templates/article.html.

    It may use FILTERS. `widths` are those of its drawings, in pixels: a narrow screen shrinks them
    only as far as their letters can be read.
    """
    environment = Environment(
        loader=PackageLoader("butfor", ""), autoescape=True, undefined=StrictUndefined
    )
    environment.filters |= FILTERS
    environment.globals |= {"widths": widths, "legible": LEGIBLE}
    styles = "\n".join(path.read_text(encoding="utf-8") for path in STYLES)
    page = environment.get_template(template).render(style=styles, **content)
    return page.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")
