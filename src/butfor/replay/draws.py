"""Drawn counterfactual trajectories."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from butfor.log.episodes import Episodes
from butfor.printed import Printed
from butfor.types import Floats, Integers


@dataclass(frozen=True, eq=False, repr=False)
class Draws(Printed):
    """Counterfactual trajectories of n episodes, `draws` of each, over at most `horizon` steps.

    States S + o are outcomes; -1 fills the steps after an end. With a hidden state, `state` holds
    the observations.
    """

    episodes: Episodes
    state: Integers  # [n, draws, horizon + 1]
    action: Integers  # [n, draws, horizon]
    reward: Floats  # [n, draws, horizon]
    latent: Integers | None = None  # [n, draws, horizon + 1] the hidden state, if there is one

    @property
    def outcome(self) -> Integers:
        """Outcome of each draw, -1 for none, [n, draws]."""
        last = self.state.max(axis=2)
        return np.where(last >= self.episodes.n_states, last - self.episodes.n_states, -1)

    def returns(self, discount: float = 1.0) -> Floats:
        """Discounted sum of rewards of each draw, [n, draws]."""
        kept = discount_path(self.state[..., :-1], self.episodes.durations, discount)
        return np.asarray((self.reward * kept).sum(axis=2))


def discount_path(state: NDArray[np.integer], durations: Floats | None, discount: float) -> Floats:
    """Return the discount of each step of paths through states, [..., H].

    After the end of a path, where no rewards follow, there is no state.
    """
    if durations is None:
        return np.broadcast_to(discount ** np.arange(state.shape[-1]), state.shape)
    inside = (state >= 0) & (state < len(durations))
    passed = np.where(inside, durations[np.where(inside, state, 0)], 0.0)
    return np.asarray(discount ** (np.cumsum(passed, axis=-1) - passed[..., :1]))


def draws_needed(precision: float, confidence: float = 0.95) -> int:
    """Number of draws that estimate any probability to within `precision`, with this confidence.

    By Hoeffding's inequality, 2 exp(-2 n precision^2) <= 1 - confidence. The paper's footnote asks
    for this number; the exact answer needs no draws.
    """
    if not 0 < precision < 1:
        raise ValueError(f"precision {precision}: give a number between 0 and 1")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence}: give a number between 0 and 1")
    return int(np.ceil(np.log(2 / (1 - confidence)) / (2 * precision**2)))
