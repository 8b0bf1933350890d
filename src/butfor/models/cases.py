"""Similar past cases of a factored model: logged transitions that share the parents of a variable.

A prediction rests on all of its variables, so the least over those that nature decides counts.
"""

from __future__ import annotations

import numpy as np

from butfor import kernels
from butfor.log.episodes import Episodes
from butfor.models.backup import Backup
from butfor.models.factored import NEXT, AnyFactor, Factor, FactoredModel, logged_codes
from butfor.models.learners import Codes
from butfor.models.mdp import total_by
from butfor.types import Floats, Offsets


def similar_cases(model: FactoredModel) -> Floats:
    """Expected number of similar past cases of each state and action, [S, A].

    Where a variable depends on the next state, it is the mean over next states. inf where nothing
    was learned from a log.
    """
    pairs = model.n_states * model.n_actions
    least = np.full(pairs, np.inf)
    if Backup.fits(model):
        backup, parts = Backup(model), filter(_counted, model.factors)
        means = [backup.mean(part.counts.sum(axis=-1), part.parents) for part in parts]
        return np.minimum.reduce([least.reshape(model.counts.shape), *means])
    for factor, row, weight, codes in model.expand():
        if _counted(factor):
            number = _rows(factor, codes)
            least = np.minimum(least, total_by(row, weight * number, pairs))
    return least.reshape(model.n_states, model.n_actions)


class CaseCounter:
    """Counts the similar past cases of particles, without those of the episode that each is about.

    `log` has the episodes that may be left out. A distribution that a classifier predicts on demand
    has no cases of its own.
    """

    def __init__(self, model: FactoredModel, log: Episodes) -> None:
        codes, known = logged_codes(log), log.next_state >= 0
        self.parts = []
        for factor in model.factors:
            if not isinstance(factor, Factor) or not _counted(factor):
                continue
            own = factor.place(codes, len(known))
            # a step whose next state is unknown was not counted for the variables of that state
            own = np.where(known, own, -1) if factor.variable else own
            self.parts.append((factor, factor.counts.sum(axis=-1).ravel(), own))

    def count(self, codes: Codes, start: Offsets, stop: Offsets) -> Floats:
        """Return the fewest cases over the variables, [m]; inf where nothing was counted.

        Logged steps start[i] .. stop[i] - 1 are left out for row i.
        """
        least = np.full(len(start), np.inf)
        for factor, total, own in self.parts:
            place = factor.place(codes, len(start))
            kernels.fewest_cases(total, place, own, start, stop, least)
        return least


def logged_cases(model: FactoredModel, log: Episodes) -> Floats:
    """Similar past cases of each logged step, without those of its own episode, [N].

    Where the next state is unknown, variables that depend on it do not count.
    """
    counter, codes = CaseCounter(model, log), logged_codes(log)
    start, stop = (np.repeat(ends, log.lengths) for ends in (log.offsets[:-1], log.offsets[1:]))
    least = counter.count(codes, start, stop)
    lost = np.flatnonzero(log.next_state < 0)
    if len(lost):
        counter.parts = [
            part for part in counter.parts if not any(p.startswith(NEXT) for p in part[0].parents)
        ]
        here = {name: code[lost] for name, code in codes.items()}
        least[lost] = counter.count(here, start[lost], stop[lost])
    return least


def _counted(factor: AnyFactor) -> bool:
    return factor.learned and bool(factor.counts.any())


def _rows(factor: AnyFactor, codes: Codes) -> Floats:
    """Return the logged transitions behind each row of parent codes, [m]."""
    total = factor.counts.sum(axis=-1)
    return np.asarray(total[tuple(codes[parent] for parent in factor.parents)], dtype=np.float64)
