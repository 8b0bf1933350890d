"""Fewest changes: the few actions that, changed, would have helped each episode most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.log.episodes import Episodes
from butfor.log.variables import describe_action
from butfor.printed import Printed
from butfor.types import Floats

RARE = 0.005  # changes less probable than this are not listed


@dataclass(frozen=True, eq=False, repr=False)
class Changes(Printed):
    """The best result that 0, 1, …, C changed actions could have had in each of n episodes."""

    episodes: Episodes
    value: Floats  # [n, C + 1] expected return with at most that many changes
    probability: Floats  # [n, C + 1, O + 1] of each outcome; the last is that of none by the end
    changed: Floats  # [N, C + 1, A] probability that an observed step is changed to each action

    @property
    def gain(self) -> Floats:
        """Expected return gained over no change, [n, C + 1]."""
        return self.value - self.value[:, :1]

    @property
    def first_step(self) -> NDArray[np.int64]:
        """Step of the first change, counted from 0, [n, C + 1]; -1 where nothing can be gained.

        Up to that step the course is the observed one, so the first change is certain.
        """
        log = self.episodes
        certain = self.changed.max(axis=2) > 1 - 1e-9  # [N, C + 1]
        never = np.iinfo(np.int64).max
        steps = np.where(certain, log.time[:, None], never)
        first = np.minimum.reduceat(steps, log.offsets[:-1], axis=0)
        return np.where((first == never) | (self.gain == 0), -1, first)

    def frame(self) -> pd.DataFrame:
        """Return one row per episode and number of changes: value, gain, outcomes, first change."""
        log = self.episodes
        count, budget = self.value.shape
        first = self.first_step.ravel()
        rows = np.repeat(log.offsets[:-1], budget) + np.maximum(first, 0)
        action = self.changed[rows, np.tile(np.arange(budget), count)].argmax(axis=1)
        columns = {
            "id": np.repeat(log.id, budget),
            "changes": np.tile(np.arange(budget), count),
            "value": self.value.ravel(),
            "gain": self.gain.ravel(),
        }
        for o, outcome in enumerate(log.outcomes):
            columns[f"p_{outcome.name}"] = self.probability[:, :, o].ravel()
        columns["p_none"] = self.probability[:, :, -1].ravel()
        return pd.DataFrame(
            columns
            | {
                "first_step": first,
                "given": np.where(first < 0, -1, log.action[rows]),
                "instead": np.where(first < 0, -1, action),
                "first_change": [
                    self._change(int(row), int(instead)) if step >= 0 else ""
                    for row, instead, step in zip(rows, action, first, strict=True)
                ],
            }
        )

    def _change(self, row: int, action: int) -> str:
        """Describe a change at an observed step, counted from 0."""
        log = self.episodes
        given, instead = (
            describe_action(log.action_variables, a) for a in (int(log.action[row]), action)
        )
        return f"step {log.time[row]}: {instead} instead of {given}"

    def steps(self) -> pd.DataFrame:
        """Return one row per possible change: step, action given, action instead, probability.

        What to change after the first change depends on where it leads; changes less probable than
        .005 are left out.
        """
        log = self.episodes
        row, budget, action = np.nonzero(self.changed >= RARE)
        episode = np.searchsorted(log.offsets, row, side="right") - 1
        table = pd.DataFrame(
            {
                "id": log.id[episode],
                "changes": budget,
                "step": log.time[row],
                "given": [describe_action(log.action_variables, int(a)) for a in log.action[row]],
                "instead": [describe_action(log.action_variables, int(a)) for a in action],
                "probability": self.changed[row, budget, action],
            }
        )
        order = np.lexsort([-table["probability"].to_numpy(), log.time[row], budget, episode])
        return table.iloc[order].reset_index(drop=True)
