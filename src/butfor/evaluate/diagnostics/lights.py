"""Traffic lights: a number compared with two limits."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

UNKNOWN = "unknown"  # of what cannot be checked: no alarm, but never "good"
LIGHTS = ("green", UNKNOWN, "amber", "red")  # from best to worst
ALARMS = ("amber", "red")

Limits = tuple[float, float]  # a light is green up to the first, amber up to the second, else red
Row = tuple[str, float, str, str]  # check, value, light, sentence


def at_least(value: float, limits: Limits) -> str:
    """Return the light of a number that should be large."""
    green, amber = limits
    return "green" if value >= green else "amber" if value >= amber else "red"


def at_most(value: float, limits: Limits) -> str:
    """Return the light of a number that should be small."""
    green, amber = limits
    return "green" if value <= green else "amber" if value <= amber else "red"


def worst_light(lights: pd.DataFrame | Iterable[str]) -> str:
    """Return the worst of several lights, or of those in a table of `diagnose`."""
    given = list(lights["light"] if isinstance(lights, pd.DataFrame) else lights)
    if not given or not set(given) <= set(LIGHTS):
        raise ValueError(f"lights {given!r}: give at least one of {', '.join(map(repr, LIGHTS))}")
    return max(given, key=LIGHTS.index)
