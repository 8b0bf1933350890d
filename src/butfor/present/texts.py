"""Texts of a log as pages show them."""

from __future__ import annotations

from typing import Any

# characters that turn the direction of the text around them: a label must not turn our words
TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def straight(value: Any) -> Any:
    """Take the turning characters out of a text, or of all texts of a list or a mapping.

    Markup stays as it is.
    """
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return value.translate(dict.fromkeys(map(ord, TURNING)))
    if isinstance(value, dict):
        return {straight(key): straight(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [straight(entry) for entry in value]
    return value
