"""The null check: a policy that does what was done must change nothing, of any episode."""

from __future__ import annotations

from butfor.evaluate.diagnostics.lights import Row


def null_row(checked: int, changed: int) -> Row | None:
    """Return the row about the null check; None if nothing was checked."""
    if checked == 0:
        return None
    if changed:
        sentence = (
            f"{changed} of {checked} episodes would change under a policy that does what was done, "
            "so differences are not only due to the policy: the behavior does not fit the log."
        )
        return "null check", changed / checked, "red", sentence
    sentence = (
        f"Under a policy that does what was done, all {checked} episodes checked remain as they "
        "were."
    )
    return "null check", 0.0, "green", sentence
