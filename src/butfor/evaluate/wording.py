"""Uniform wording of numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

MOST_DECIMALS = 9
PARTS = 5  # that the last decimal distinguishes in what is compared
LARGE = 100  # sizes from which on decimals tell nothing
MINUS = "\N{MINUS SIGN}"
# characters that a terminal obeys instead of showing them, with pictures where Unicode has one
CONTROLS = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"}
CONTROLS |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
CONTROLS |= dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)
CONTROLS |= dict.fromkeys((0xFFFE, 0xFFFF), 0xFFFD)  # no characters at all


def percent(probability: float) -> str:
    """Format a model's probability, which is never certain: under 0.1%, over 99.9%."""
    if probability < 0.001:
        return "under 0.1%"
    if probability > 0.999:
        return "over 99.9%"
    near = probability < 0.01 or probability > 0.99
    return f"{100 * probability:.1f}%" if near else f"{100 * probability:.0f}%"


def share(part: float) -> str:
    """Format a share of things that were counted: none, all, or a percentage."""
    return "none" if part <= 0 else "all" if part > 1 - 1e-9 else percent(part)


def signed(value: float) -> str:
    """Format a number with its sign: three significant digits if it is small, else two decimals."""
    if value != value:
        return "no estimate"
    size = abs(value)
    form = "+.3g" if 0 < size < 0.005 else "+.2f" if size < LARGE else "+,.0f"
    return format(value + 0.0, form).replace("-", MINUS)


@dataclass(frozen=True)
class Digits:
    """How numbers that are compared with one another are written: all with as many decimals."""

    decimals: int
    rate: bool = False  # the numbers are shares, and are written in percent

    def value(self, number: float) -> str:
        """Return a number: "+0.43", or "0.43%" if it is a rate."""
        if not math.isfinite(number):
            return "no estimate"
        return f"{self._text(number, '')}%" if self.rate else self._text(number, "+")

    def gap(self, number: float) -> str:
        """Return a difference: "+0.43", or "+0.43 pp" (percentage points) between rates."""
        if not math.isfinite(number):
            return "no estimate"
        return f"{self._text(number, '+')}{' pp' * self.rate}"

    def size(self, number: float) -> str:
        """Return a number that has no sign, such as a spread: "0.43", or "0.43 pp"."""
        return f"{self._text(number, '')}{' pp' * self.rate}"

    def span(self, low: float, high: float) -> str:
        """Return an interval of numbers; nothing if there is none."""
        known = math.isfinite(low) and math.isfinite(high)
        return f"{self.value(low)} to {self.value(high)}" if known else ""

    def estimate(self, value: float, low: float, high: float) -> str:
        """Return a number and its interval, if it has one."""
        span = self.span(low, high) if math.isfinite(value) else ""
        return f"{self.value(value)}{f' ({span})' * bool(span)}"

    def gap_span(self, low: float, high: float) -> str:
        """Return an interval of differences; nothing if there is none."""
        known = math.isfinite(low) and math.isfinite(high)
        return f"{self.gap(low)} to {self.gap(high)}" if known else ""

    @property
    def axis(self) -> str:
        """The same as a format of d3, for the labels and tooltips of charts."""
        return f".{self.decimals}%" if self.rate else f"+,.{self.decimals}f"

    def _text(self, number: float, sign: str) -> str:
        rounded = round(100 * number if self.rate else number, self.decimals) + 0.0  # no minus 0
        return format(rounded, f"{sign},.{self.decimals}f").replace("-", MINUS)


def digits_for(values: Iterable[float], *, rate: bool = False) -> Digits:
    """Return how numbers are written that stand beside one another.

    The last decimal is at most a fifth of their spread, or of a typical one of them if that is
    smaller. However close they are, a spread asks for no more than a five-hundredth of the largest.
    There are at least two decimals (one in percent), and none from a hundred on.
    """
    numbers = np.fromiter(values, dtype=np.float64)
    numbers = numbers[np.isfinite(numbers)] * (100 if rate else 1)
    least = 1 if rate else 2
    most = float(np.abs(numbers).max(initial=0.0))
    noise = max(1e-9 * most, 1e-12)  # smaller sizes are rounding errors
    if most <= noise:
        return Digits(least, rate)
    size = float(np.median(np.abs(numbers)[np.abs(numbers) > noise]))
    spread = float(np.ptp(numbers))
    if spread > noise:
        size = min(size, max(spread, 0.01 * most))
    if size >= LARGE:
        return Digits(0, rate)
    needed = math.ceil(math.log10(PARTS / size) - 1e-9)
    return Digits(min(max(needed, least), MOST_DECIMALS), rate)


def visible(text: str) -> str:
    """Return text for a terminal: characters that would steer it become visible ones."""
    return text.translate(CONTROLS)


def plural(noun: str) -> str:
    """Return the regular plural of a noun."""
    if noun[-1:] == "y" and noun[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


def counted(number: int, noun: str) -> str:
    """Return how many there are: "1 stay", "1,200 stays"."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def in_words(sentence: str, noun: str) -> str:
    """Replace "episode" and "episodes" with the noun of a study."""

    def swap(found: re.Match[str]) -> str:
        word = plural(noun) if found[0].lower().endswith("s") else noun
        return word[:1].upper() + word[1:] if found[0][0].isupper() else word

    return re.sub(r"\bepisodes?\b", swap, sentence, flags=re.IGNORECASE)
