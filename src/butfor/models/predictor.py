"""Predictor: a conditional distribution that a classifier predicts on demand, without a table."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from butfor.models.learners import Learned
from butfor.printed import Printed
from butfor.types import Floats

Codes = dict[str, NDArray[np.intp]]  # level codes [m] by the name of a parent

BLOCK = 1 << 17  # rows that are predicted together


@dataclass(frozen=True, eq=False, repr=False)
class Predictor(Printed):
    """P(level | parents) as a calibrated classifier predicts it, of a variable or of the end.

    The same as a `Factor`, where a table of all combinations of parents would be too large.
    """

    variable: str  # "": the end
    parents: tuple[str, ...]
    learned_from: Learned  # the classifier with its features and its calibration
    cases: int  # logged transitions that it was learned from

    strength, every = math.nan, False  # there is no back-off
    learned = True

    @property
    def source(self) -> str:
        """Name of the learner."""
        return self.learned_from.source

    @property
    def score(self) -> float:
        """Mean log score of a case in a fold that was left out of what was learned."""
        return self.learned_from.score

    @property
    def levels(self) -> int:
        """Number of levels of the variable; of the end, the outcomes and none."""
        return len(self.learned_from.usual)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that a table would have."""
        return (*(int(size) for size in self.learned_from.sizes), self.levels)

    @property
    def table(self) -> Floats:
        """Raise an error: there is none."""
        raise ValueError(self._no_table())

    @property
    def counts(self) -> Floats:
        """Raise an error: there are none."""
        raise ValueError(self._no_table())

    def rows(self, codes: Codes) -> Floats:
        """Return the distribution for each row of parent codes, [m, levels]."""
        columns = np.array([codes[parent] for parent in self.parents])
        found = np.empty((columns.shape[1], self.levels))
        for start in range(0, len(found), BLOCK):
            part = slice(start, start + BLOCK)
            found[part] = self.learned_from.rows(columns[:, part])
        return found

    def _no_table(self) -> str:
        return (
            f"{self.variable or '(end)'!r} is predicted by a {self.source} from "
            f"{len(self.parents)} parents, too many for a table; name fewer in parents=, or use "
            "learner='counts'"
        )
