"""Similar past cases of a factored model: logged transitions that share the parents of a variable.

A prediction rests on all of its variables, so the least over those that nature decides counts.
"""

from __future__ import annotations

import numpy as np

from butfor.log.episodes import Episodes
from butfor.models.factored import NEXT, AnyFactor, FactoredModel, logged_codes
from butfor.models.mdp import total_by
from butfor.types import Floats


def similar_cases(model: FactoredModel) -> Floats:
    """Expected number of similar past cases of each state and action, [S, A].

    Where a variable depends on the next state, it is the mean over next states. inf where nothing
    was learned from a log.
    """
    pairs = model.n_states * model.n_actions
    least = np.full(pairs, np.inf)
    for factor, row, weight, codes in model.expand():
        if _counted(factor):
            number = _rows(factor, codes)
            least = np.minimum(least, total_by(row, weight * number, pairs))
    return least.reshape(model.n_states, model.n_actions)


def logged_cases(model: FactoredModel, log: Episodes) -> Floats:
    """Similar past cases of each logged step, without those of its own episode, [N]."""
    known = log.next_state >= 0
    codes = logged_codes(log)
    episode = np.repeat(np.arange(len(log)), log.lengths)
    least = np.full(len(log.state), np.inf)
    for factor in filter(_counted, model.factors):
        sizes = factor.table.shape[:-1]
        place = np.zeros(len(episode), dtype=np.int64)
        for parent, size in zip(factor.parents, sizes, strict=True):
            place = place * size + codes[parent]
        # a step whose next state is unknown was not counted for the variables of that state
        counts = known if factor.variable else np.ones_like(known)
        _, same = np.unique(episode * int(np.prod(sizes)) + place, return_inverse=True)
        own = total_by(same, counts.astype(np.float64), int(same.max()) + 1)
        number = factor.counts.sum(axis=-1).reshape(-1)[place] - own[same]
        tells = known | ~np.array(any(parent.startswith(NEXT) for parent in factor.parents))
        least = np.where(tells, np.minimum(least, np.maximum(number, 0.0)), least)
    return least


def _counted(factor: AnyFactor) -> bool:
    return factor.learned and bool(factor.counts.any())


def _rows(factor: AnyFactor, codes: dict[str, np.ndarray[tuple[int], np.dtype[np.intp]]]) -> Floats:
    """Return the logged transitions behind each row of parent codes, [m]."""
    total = factor.counts.sum(axis=-1)
    return np.asarray(total[tuple(codes[parent] for parent in factor.parents)], dtype=np.float64)
