"""What particles show step by step: influence, evidence, and where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from butfor.log.episodes import Episodes
from butfor.models.cases import CaseCounter
from butfor.models.factored import NEXT, FactoredModel
from butfor.models.learners import Codes
from butfor.models.step_factored import Moved
from butfor.replay.outcomes import DRAWS
from butfor.replay.steps import THIN, Steps
from butfor.types import Floats

if TYPE_CHECKING:
    from butfor.replay.replay import Replay


class StepSums:
    """Sums over the particles of n episodes at each step, for `Steps`.

    The influence sum m_t TV(K, P) is a mean over particles: the total variation between the row
    K that a particle is drawn from and the model's own row P is the mean of max(0, 1 - P / K) over
    draws from K. Here a row is about the next state and the end together.
    """

    def __init__(self, replay: Replay, model: FactoredModel) -> None:
        log = replay.log
        self.log = log
        self.cases = CaseCounter(model, replay.episodes)
        self.offsets = replay.episodes.offsets
        shape = (len(log), replay.horizon)
        self.influence, self.mass, self.earned, self.thin, self.other = np.zeros((5, *shape))
        self.evidence = np.full(shape, np.nan)
        self.state = np.stack(list(log.codes(log.state).values()), axis=1)
        self.names = [variable.name for variable in log.state_variables]

    def note(self, moved: Moved) -> None:
        """Add one step of the particles of some episodes, which are in order."""
        group, t = moved.group, moved.t
        first, last = int(group[0]), int(group[-1]) + 1

        def total(weight: Floats) -> Floats:
            return np.asarray(np.bincount(group - first, weight, last - first), np.float64)

        at = slice(first, last), t
        self.mass[at] += total(np.ones(len(group)))
        self.influence[at] += total(np.maximum(0.0, 1.0 - moved.ratio))
        self.earned[at] += total(np.abs(moved.reward))
        self.other[at] += total(self._other(moved).astype(np.float64))
        cases = self.cases.count(moved.codes, self.offsets[group], self.offsets[group + 1])
        self.thin[at] += total((cases < THIN).astype(np.float64))
        # the lower median over the particles of each episode
        order = np.lexsort([cases, group])
        counts = np.bincount(group - first, minlength=last - first)
        here = np.flatnonzero(counts)
        middle = (np.cumsum(counts) - counts + (counts - 1) // 2)[here]
        self.evidence[first + here, t] = cases[order][middle]

    def _other(self, moved: Moved) -> NDArray[np.bool_]:
        """Whether each particle is in a row other than the observed one, [p]."""
        step = moved.step
        now = np.stack([moved.codes[name] for name in self.names], axis=1)
        same = (now == self.state[step]).all(axis=1) & (moved.action == self.log.action[step])
        return (step >= 0) & ~same

    def steps(self) -> Steps:
        """Return the sums as shares of the particles."""
        with np.errstate(invalid="ignore"):
            influence = np.where(self.mass > 0, self.influence / self.mass, 0.0)
        return Steps(
            influence=influence,
            mass=self.mass / DRAWS,
            earned=self.earned / DRAWS,
            evidence=self.evidence,
            thin=self.thin / DRAWS,
            other=self.other / DRAWS,
            apart=np.full(self.mass.shape, np.nan),
            probability=np.zeros((0, 0, 0)),
        )


def course_sums(
    log: Episodes, first: Codes, horizon: int
) -> tuple[Floats, Callable[[Moved], None]]:
    """Return room for the shares of particles by level and outcome, and what adds to it.

    [n, H + 1, levels + O]: each level of each variable without an outcome yet, then each outcome.
    `first` are the codes of the first states.
    """
    sizes = [len(variable.levels) for variable in log.state_variables]
    start = np.cumsum([0, *sizes])
    place = np.zeros((len(log), horizon + 1, int(start[-1]) + len(log.outcomes)))
    for offset, code in zip(start, first.values(), strict=False):
        place[np.arange(len(log)), 0, offset + code] = 1.0

    def note(moved: Moved) -> None:
        going = moved.end == len(log.outcomes)
        group, t = moved.group[going], moved.t + 1
        for offset, variable in zip(start, log.state_variables, strict=False):
            level = offset + moved.codes[NEXT + variable.name][going]
            np.add.at(place, (group, t, level), 1 / DRAWS)
        for owner, end in zip(moved.group[~going], moved.end[~going], strict=True):
            place[owner, t:, start[-1] + end] += 1 / DRAWS

    return place, note
