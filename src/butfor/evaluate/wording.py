"""Uniform wording of numbers."""

from __future__ import annotations


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
    form = "+.3g" if 0 < size < 0.005 else "+.2f" if size < 100 else "+,.0f"
    return format(value + 0.0, form).replace("-", "\N{MINUS SIGN}")


def plural(noun: str) -> str:
    """Return the regular plural of a noun."""
    if noun[-1:] == "y" and noun[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")
