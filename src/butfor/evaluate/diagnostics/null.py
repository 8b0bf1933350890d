"""The null check: a policy that does what was done must change nothing, of any episode."""

from __future__ import annotations

import numpy as np

from butfor.evaluate.diagnostics.lights import Row
from butfor.replay.replay import Replay

MOST = 200  # episodes that are checked where a pass takes long
ROUNDING = 1e-9  # times the largest return


def null_check(replay: Replay) -> tuple[int, int]:
    """Number of episodes checked, and of those that a policy equal to the behavior would change."""
    if replay.terminal != "visits":  # outcomes come one step late: nothing is claimed
        return 0, 0
    slow = replay.sampled or replay.hidden
    some = np.arange(min(MOST, len(replay)) if slow else len(replay))
    found = replay.part(some).ask(target=replay.behavior, action_noise="shared").outcomes()
    limit = ROUNDING * max(1.0, float(np.abs(found.observed_return).max()))
    changed = (np.abs(found.difference) > limit) | (found.most_likely != found.compared)
    return len(some), int(changed.sum())


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
        f"Under a policy that does what was done, all {checked} episodes checked stay as they were."
    )
    return "null check", 0.0, "green", sentence
