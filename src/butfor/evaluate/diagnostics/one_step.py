"""Predictions of single variables one step ahead, by a model of the other half of the log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from butfor.evaluate.diagnostics.halves import Halves
from butfor.log.episodes import Episodes
from butfor.models.factored import END, NEXT, FactoredModel, logged_codes
from butfor.replay.engine import check_factored
from butfor.types import Floats


@dataclass(frozen=True, eq=False)
class OneStep:
    """What was predicted for one variable, or the end, at the N logged steps, and its level."""

    variable: str  # END: the end
    parents: tuple[str, ...]  # in the model of the whole log
    rows: Floats  # [N, levels] predicted
    level: NDArray[np.intp]  # [N] observed
    known: NDArray[np.bool_]  # [N] whether this step can be judged

    @property
    def words(self) -> str:
        """The variable in a sentence."""
        return f'"{self.variable}"' if self.variable else "the end"


def predict_steps(halves: Halves, model: FactoredModel) -> list[OneStep]:
    """Predict each logged step, variable by variable, by the model of the half that it is not in.

    Variables that the past or the action alone decide are left out. If the log lacks the states in
    which episodes ended, other variables are judged only at steps that did not end.
    """
    log = halves.episodes
    # without outcomes the end has one level, of which nothing can be said
    learned = [one for one in model.factors if one.learned and one.levels > 1]
    codes, ends = logged_codes(log), step_ends(log)
    reached = log.next_state >= 0
    after = any(parent.startswith(NEXT) for parent in model.end.parents)
    usual = reached & (reached.all() | after | (ends == len(log.outcomes)))
    found = {
        factor.variable: OneStep(
            factor.variable,
            factor.parents,
            np.zeros((len(log.state), factor.levels)),
            codes[NEXT + factor.variable] if factor.variable else ends,
            usual.copy() if factor.variable else np.ones_like(usual),
        )
        for factor in learned
    }
    of_row = np.repeat(np.arange(len(log)), log.lengths)
    for half in halves.parts:
        judged = np.zeros(len(log), dtype=bool)
        judged[half.judged] = True
        mine = np.flatnonzero(judged[of_row])
        here = {name: code[mine] for name, code in codes.items()}
        for factor in check_factored(half.model).factors:
            if factor.variable in found:
                one = found[factor.variable]
                one.rows[mine] = factor.rows(here)
                if factor.variable == END and any(p.startswith(NEXT) for p in factor.parents):
                    one.known[mine] = reached[mine]
    return list(found.values())


def step_ends(log: Episodes) -> NDArray[np.intp]:
    """The outcome in which each logged step ended; O: none, [N]."""
    ends = np.full(len(log.state), len(log.outcomes), np.intp)
    ends[log.offsets[1:] - 1] = np.where(log.outcome >= 0, log.outcome, len(log.outcomes))
    return ends
