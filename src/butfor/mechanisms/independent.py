"""Independent noise for every row: the observed outcome says nothing about another row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from butfor import kernels
from butfor.mechanisms.protocol import kernel_coupling
from butfor.types import Floats


@dataclass(frozen=True)
class Independent:
    """Each row has its own noise, so the counterfactual of another row is that row itself.

    This is the file to imitate for a new mechanism. An episode still repeats what was observed
    where state and action are the observed ones: consistency holds for every mechanism.
    """

    def counterfactual_rows(
        self, factual: Floats, counterfactual: Floats, observed: NDArray[np.int64]
    ) -> Floats:
        """Return P(outcome under the counterfactual row | the observed one), [m, n]: that row."""
        return counterfactual.copy()

    def coupling(self, size: int) -> kernels.Coupling:
        """Return the mechanism as kernels take it."""
        return kernel_coupling(kernels.INDEPENDENT)
