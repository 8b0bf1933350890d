"""The behavior policy of a log in which hardly a state occurs twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from butfor.log.episodes import Episodes
from butfor.log.variables import Variable, unravel
from butfor.models.backoff import fit_counts, make_cases
from butfor.models.factored import ACTION, Factor
from butfor.models.fit_factored import counted_factor
from butfor.models.learners import Codes
from butfor.printed import Printed
from butfor.types import Floats


@dataclass(frozen=True, eq=False, repr=False)
class FactoredBehavior(Printed):
    """P(a | x) = prod_k P(a_k | some state variables, earlier action variables)."""

    state_variables: tuple[Variable, ...]
    action_variables: tuple[Variable, ...]
    factors: tuple[Factor, ...]  # one per action variable, in their order

    def __call__(self, codes: NDArray[np.integer]) -> Floats:
        """Return the distribution of actions in states given by codes [m, J], [m, A]."""
        columns = zip(self.state_variables, np.asarray(codes).T, strict=True)
        state: Codes = {variable.name: code for variable, code in columns}
        count, found = len(codes), np.ones((len(codes), 1))
        for place, factor in enumerate(self.factors):
            # one row per state and combination of earlier actions
            known = {name: np.repeat(code, found.shape[1]) for name, code in state.items()}
            if place:
                earlier = unravel(self.action_variables[:place], np.arange(found.shape[1]))
                known |= {ACTION + name: np.tile(code, count) for name, code in earlier.items()}
            rows = factor.rows(known).reshape(count, found.shape[1], -1)
            found = (found[:, :, None] * rows).reshape(count, -1)
        return found


def fit_behavior(log: Episodes) -> FactoredBehavior:
    """Learn the behavior of a log as `fit_factored` learns a variable.

    Each action variable has a table with back-off, given state variables and earlier action
    variables that are chosen by leave-one-out log score. `estimate_behavior` instead counts by
    whole states, which says nothing where each occurs once.
    """
    sizes = {variable.name: len(variable.levels) for variable in log.state_variables}
    codes, chosen = log.codes(log.state), unravel(log.action_variables, log.action)
    factors = []
    for variable in log.action_variables:
        level, levels = chosen[variable.name], len(variable.levels)
        names = list(sizes)
        columns = [codes[name] for name in names]
        weight = np.ones(len(level))
        cases = make_cases(names, columns, list(sizes.values()), level, levels, weight)
        factors.append(counted_factor(variable.name, cases, fit_counts(cases)))
        sizes[ACTION + variable.name], codes[ACTION + variable.name] = levels, level
    return FactoredBehavior(log.state_variables, log.action_variables, tuple(factors))
