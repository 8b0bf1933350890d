"""The range of a number over several logs: which one there are enough logs for, and its name."""

from __future__ import annotations

LEAST = 40  # logs for a range of 95%: of fewer, 2.5% at either end is less than one log


def enough_logs(logs: int) -> bool:
    """Return whether there are enough logs for a range that holds 95% of them."""
    return logs >= LEAST


def range_percentiles(logs: int) -> tuple[float, float]:
    """Return the ends of the range in percentiles: the middle 95%, or the lowest and highest."""
    return (2.5, 97.5) if enough_logs(logs) else (0.0, 100.0)


def range_name(logs: int, noun: str = "log") -> str:
    """Name the range and the number of logs: "lowest to highest of 10 logs"."""
    kind = "middle 95%" if enough_logs(logs) else "lowest to highest"
    return f"{kind} of {logs:,} {noun}{'s' * (logs != 1)}"
