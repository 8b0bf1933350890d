"""The behavior policy of a log in which hardly a state occurs twice."""

from __future__ import annotations

import numpy as np

from butfor.log.episodes import Episodes
from butfor.models.backoff import fit_counts, make_cases
from butfor.types import Floats


def fit_behavior(log: Episodes) -> Floats:
    """Estimate the behavior in the states of a log from the few variables that tell most, [S, A].

    A table with back-off, as of a variable in `fit_factored`: the action given state variables
    that are chosen by leave-one-out log score. `estimate_behavior` instead counts by whole states,
    which says nothing where each occurs once.
    """
    names = [variable.name for variable in log.state_variables]
    sizes = [len(variable.levels) for variable in log.state_variables]
    codes = log.codes(log.state)
    cases = make_cases(
        names,
        [codes[name] for name in names],
        sizes,
        log.action,
        log.n_actions,
        np.ones(len(log.action)),
    )
    found = fit_counts(cases)
    table = found.table(cases)
    if not found.parents:
        return np.tile(table, (log.n_states, 1))
    states = log.codes(np.arange(log.n_states))
    return np.asarray(table[tuple(states[names[parent]] for parent in found.parents)])
