"""Bounds for whole episodes: what no choice of the mechanism can change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.types import Floats

CLASSES = ("any", "stable")
ROUNDING = 1e-9  # a difference closer to 0 than this is 0


@dataclass(frozen=True, eq=False)
class Bounds:
    """Lowest and highest counterfactual of each of n episodes, over two classes of mechanisms.

    The first axis is the class: all mechanisms, then those that obey counterfactual stability. The
    last one is lowest, highest. They hold only if the model is right. Each step is bounded by
    itself, so that they are sharp if the mechanism may change with time (and stability is asked
    only between the observed row and each other one), and otherwise too wide, never too narrow.
    """

    expected_return: Floats  # [2, n, 2]
    probability: Floats  # [2, n, O + 1, 2] of each outcome; the last is that of none
    observed_return: Floats  # [n]
    outcome_names: list[str]  # none last
    sharp: bool = True  # False: only the widest that the model allows, as where a state is hidden

    def frame(self) -> pd.DataFrame:
        """Return a row an episode: `low_any`, `high_any`, …, `p_<outcome>_low_any`, …."""
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
        """Class over which the difference to what was observed keeps its sign, [n].

        "any", "stable", or "" where its sign hangs on the choice of the mechanism, or where there
        is no difference whatever the mechanism.
        """
        low, high = np.moveaxis(self.expected_return - self.observed_return[:, None], -1, 0)
        sure = (low > ROUNDING) | (high < -ROUNDING)  # [2, n]
        return np.where(sure[0], "any", np.where(sure[1], "stable", "")).astype(object)
