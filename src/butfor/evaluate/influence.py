"""Influence: how much each group of episodes adds to an estimate, and intervals from that."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri, stdtrit

from butfor.printed import Printed
from butfor.types import Floats

LESS = 0.5  # by how much a group counts less: not by 1, so that no state-action pair is lost


@dataclass(frozen=True, eq=False, repr=False)
class Influence(Printed):
    """How much each of some groups of episodes adds to an estimate."""

    of_group: Floats  # [G]

    @property
    def error(self) -> float:
        """Standard error of the estimate."""
        groups = len(self.of_group)
        return float(np.sqrt((self._centered**2).sum() * groups / max(groups - 1, 1)))

    @property
    def freedom(self) -> float:
        """Number of groups that the error rests on, (sum d^2)^2 / sum d^4 with d their influence.

        If m groups matter equally and the others not at all, it is m.
        """
        squares = self._centered**2
        fourth = float((squares**2).sum())
        return float(squares.sum() ** 2 / fourth) if fourth > 0 else float(len(squares))

    def quantile(self, confidence: float) -> float:
        """Quantile of Student's t: the error is itself uncertain if few groups matter."""
        return float(stdtrit(self.freedom, (1 + confidence) / 2))

    def interval(self, value: float, confidence: float) -> tuple[float, float]:
        """Return the interval around an estimate."""
        half = self.error * self.quantile(confidence)
        return value - half, value + half

    def stretch(
        self, value: float, ends: tuple[float, float], confidence: float
    ) -> tuple[float, float]:
        """Move the ends of a bootstrap interval away from the value, as t is wider than normal."""
        factor = self.quantile(confidence) / float(ndtri((1 + confidence) / 2))
        low, high = ends
        return value + factor * (low - value), value + factor * (high - value)

    @cached_property
    def _centered(self) -> Floats:
        return np.asarray(self.of_group - self.of_group.mean())
