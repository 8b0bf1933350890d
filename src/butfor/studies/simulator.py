"""What several studies ask of the sepsis simulator."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray

from butfor import sepsis
from butfor.log.episodes import Episodes
from butfor.log.variables import project
from butfor.models.mdp import TabularMDP
from butfor.studies.article import HIDDEN, HORIZON


def vital_signs(log: Episodes) -> NDArray[np.int32]:
    """Return labels of states: their vital signs without the running treatments, [S]."""
    shown = [variable.name for variable in log.state_variables]
    names = [name for name in sepsis.VITAL_SIGNS if name in shown]
    return log.state_labels(*names)


def endless_model(truth: TabularMDP, simulator: str) -> TabularMDP:
    """Return the model on the reduced states that the physician's log teaches in the limit.

    P(j|o, a) is the mean of P(j|s, a) over the full states s behind o, weighted by how often the
    physician visits s within the horizon and takes a. Ends are counted as `visits`; pairs that the
    physician never uses lead to death.
    """
    physician = sepsis.behavior_policy(simulator)
    states, actions = physician.shape
    transitions = sparse.csr_array(
        (truth.probability, truth.next_state, truth.start), (states * actions, states + 2)
    )
    visits, occupancy = np.zeros(states * actions), truth.initial
    for _ in range(HORIZON):
        pairs = (occupancy[:, None] * physician).reshape(-1)
        visits += pairs
        occupancy = (pairs @ transitions)[:states]
    seen = [variable.name for variable in sepsis.STATES if variable.name not in HIDDEN]
    reduced = project(sepsis.STATES, *seen).astype(np.int64)
    count = int(reduced.max()) + 1
    entries = (sparse.diags_array(visits) @ transitions).tocoo()
    row = reduced[entries.row // actions] * actions + entries.row % actions
    column = np.append(reduced, [count, count + 1])[entries.col]
    table = np.zeros((count * actions, count + 2))
    np.add.at(table, (row, column), entries.data)
    table[table.sum(axis=1) == 0, count] = 1.0
    table /= table.sum(axis=1, keepdims=True)
    return TabularMDP.from_arrays(
        sparse.csr_array(table),
        actions=actions,
        outcomes=sepsis.OUTCOMES,
        initial=np.bincount(reduced, truth.initial, minlength=count),
    )
