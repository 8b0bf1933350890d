"""Bounds for whole episodes: the range of a counterfactual over all mechanisms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.printed import Printed
from butfor.types import Floats

CLASSES = ("any", "stable")
ROUNDING = 1e-9  # smaller differences count as 0


@dataclass(frozen=True, eq=False, repr=False)
class Bounds(Printed):
    """Lowest and highest counterfactual of each of n episodes, over two classes of mechanisms.

    The first axis is the class: all mechanisms, then those that satisfy counterfactual stability.
    The last axis is lowest, highest. The bounds hold only if the model is right. Each step is
    bounded separately, so they are sharp if the mechanism may change with time and stability is
    required only between the observed row and each other row; otherwise they are conservative. With
    noise per variable each row of each variable is bounded separately, from the last variable to
    the first, which is conservative too: one noise may not be able to do the worst in all of them.
    With a hidden state the same holds for each row of each pair of hidden states of both worlds,
    which are averaged over the hidden paths that the record allows.
    """

    expected_return: Floats  # [2, n, 2]
    probability: Floats  # [2, n, O + 1, 2] of each outcome; the last is that of none
    usual_return: Floats  # [n] that differences are taken from
    outcome_names: list[str]  # none last
    tight: bool = True  # False (noise per variable, hidden state): conservative for a single step

    def frame(self) -> pd.DataFrame:
        """Return one row per episode: `low_any`, `high_any`, …, `p_<outcome>_low_any`, …."""
        columns = {}
        names = [*(f"p_{name}_" for name in self.outcome_names[:-1]), "p_none_"]
        for c, kind in enumerate(CLASSES):
            for end, word in enumerate(("low", "high")):
                columns[f"{word}_{kind}"] = self.expected_return[c, :, end]
        for o, name in enumerate(names):
            for c, kind in enumerate(CLASSES):
                for end, word in enumerate(("low", "high")):
                    columns[f"{name}{word}_{kind}"] = self.probability[c, :, o, end]
        return pd.DataFrame(columns)

    @property
    def survives(self) -> NDArray[np.object_]:
        """Class over which the difference from the usual return keeps its sign, [n].

        "any", "stable", or "" where the sign depends on the choice of mechanism, or where there is
        no difference under any mechanism.
        """
        low, high = np.moveaxis(self.expected_return - self.usual_return[:, None], -1, 0)
        sure = (low > ROUNDING) | (high < -ROUNDING)  # [2, n]
        return np.where(sure[0], "any", np.where(sure[1], "stable", "")).astype(object)
