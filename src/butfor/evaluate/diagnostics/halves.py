"""Halves: models of each half of a log, which predict the other half."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from butfor.evaluate.crossfit import Learn, Learned, given_halves, split_halves
from butfor.log.episodes import Episodes
from butfor.random import numbered_keys
from butfor.replay.engine import fit_again


@dataclass(frozen=True, eq=False)
class Half:
    """A model and the episodes that it was not learned from."""

    model: Learned
    learned_from: Episodes
    judged: NDArray[np.int64]  # positions of the other episodes


@dataclass(frozen=True, eq=False)
class Halves:
    """Two halves of a log, each predicted by a model of the other; learned when needed.

    They are those that the log gives, or else random.
    """

    episodes: Episodes
    model: Learned  # of the whole log
    learn: Learn | None  # made it, together with the target; None: as is usual for its kind
    seed: int

    @property
    def given(self) -> bool:
        """Whether the model was not learned from a log, as far as can be known."""
        return self.learn is None and not self.model.counts.any()

    @property
    def problem(self) -> str:
        """Why there are no halves, or ""."""
        ids = self.episodes.unit
        return "one episode cannot be split into halves" if (ids == ids[0]).all() else ""

    @cached_property
    def parts(self) -> tuple[Half, Half]:
        """Both models, each with the episodes that it predicts."""
        key = int(numbered_keys(self.seed, 1, "calibration")[0])
        one, other = given_halves(self.episodes) or split_halves(self.episodes, key)
        return self._half(one, other), self._half(other, one)

    def _half(self, learned_from: NDArray[np.int64], judged: NDArray[np.int64]) -> Half:
        log = self.episodes.select(learned_from)
        if self.learn is not None:
            model = self.learn(log)[0]
        else:
            model = self.model if self.given else fit_again(self.model, log)
        return Half(model, log, judged)
