"""Numbers in words, the same everywhere."""

from __future__ import annotations


def percent(probability: float) -> str:
    """Write a model's probability, which is never certain: under 0.1%, over 99.9%."""
    if probability < 0.001:
        return "under 0.1%"
    if probability > 0.999:
        return "over 99.9%"
    near = probability < 0.01 or probability > 0.99
    return f"{100 * probability:.1f}%" if near else f"{100 * probability:.0f}%"
