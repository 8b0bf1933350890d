"""Occupancy: how often the target would use each state and action in the model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from butfor.models.mdp import total_by
from butfor.replay.replay import Replay
from butfor.types import Floats


def occupancy(replay: Replay, first: NDArray[np.int64]) -> Floats:
    """Expected number of uses of each state and action by the target in the model, [S, A]."""
    model, target = replay.mdp, replay.target_table
    here = first / first.sum()
    total = np.zeros_like(target)
    for _ in range(replay.horizon):
        used = here[:, None] * target
        total += used
        moved = used.ravel()[model.entry_row] * model.probability
        reached = total_by(model.next_state, moved, model.n_states + len(model.outcomes))
        here = reached[: model.n_states]
    return total
