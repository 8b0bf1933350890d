"""The sepsis simulator described variable by variable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from butfor.hidden.factors import ACTION, Factored
from butfor.log.variables import unravel
from butfor.models import factored as observed
from butfor.sepsis.dynamics import (
    ACTIONS,
    GLUCOSE_AT_FIRST,
    N_ACTIONS,
    N_STATES,
    OUTCOMES,
    OXYGEN_AT_FIRST,
    STATES,
    THREE_AT_FIRST,
    check_prevalence,
    initial_distribution,
    outcome_of,
    vital_tables,
)

# what the next level of each vital sign depends on
PARENTS = {
    "heart rate": ("heart rate", "antibiotics", "action:antibiotics"),
    "blood pressure": (
        *("diabetes", "blood pressure", "antibiotics", "vasopressors"),
        *("action:antibiotics", "action:vasopressors"),
    ),
    "oxygen": ("oxygen", "ventilation", "action:ventilation"),
    "glucose": ("diabetes", "glucose", "action:vasopressors"),
}


def factored(
    version: str = "corrected",
    *,
    hidden: Sequence[str] = ("diabetes", "glucose"),
    prevalence: float = 0.2,
) -> Factored:
    """Return the true model variable by variable; its `model()` is that of `pomdp`.

    Diabetes is static, treatment flags copy the action, and each vital sign has a table. Give it to
    `fit_pomdp` to learn some of the tables from a log.
    """
    check_prevalence(prevalence)
    moves: dict[str, Any] = {name: _table(name, version) for name in PARENTS}
    moves |= {variable.name: ACTION + variable.name for variable in ACTIONS}
    return Factored.from_tables(
        STATES,
        moves,
        actions=ACTIONS,
        hidden=hidden,
        initial={
            "diabetes": ((), [1 - prevalence, prevalence]),
            "heart rate": ((), THREE_AT_FIRST),
            "blood pressure": ((), THREE_AT_FIRST),
            "oxygen": ((), OXYGEN_AT_FIRST),
            "glucose": (("diabetes",), GLUCOSE_AT_FIRST),
            **{variable.name: ((), [1.0, 0.0]) for variable in ACTIONS},  # nothing is running
        },
        outcome=outcome_of(),
        outcomes=OUTCOMES,
    )


def factored_model(
    version: str = "corrected", *, prevalence: float = 0.2
) -> observed.FactoredModel:
    """Return the true model on the 1440 full states with noise per variable.

    Its rows are those of `model`. The simulator moves each vital sign by its own uniforms, so their
    noises are indeed independent; that each is Gumbel-Max noise remains an assumption.
    """
    factors = [_given("diabetes", ("diabetes",), np.eye(2), "static")]
    for name in PARENTS:
        parents, table = _table(name, version)
        renamed = [parent.replace(ACTION, observed.ACTION) for parent in parents]
        factors.append(_given(name, tuple(renamed), table))
    for variable in ACTIONS:
        chosen = observed.ACTION + variable.name
        factors.append(_given(variable.name, (chosen,), np.eye(2), f"copies {chosen}"))
    return observed.FactoredModel(
        STATES,
        ACTIONS,
        OUTCOMES,
        (*factors, _end()),
        observed.Rewards((), np.array([*(outcome.reward for outcome in OUTCOMES), 0.0])),
        initial_distribution(prevalence),
        np.zeros((N_STATES, N_ACTIONS), np.int64),
    )


def _given(
    variable: str, parents: tuple[str, ...], table: Any, source: str = "given"
) -> observed.Factor:
    return observed.Factor(variable, parents, table, np.zeros(table.shape), source)


def _end() -> observed.Factor:
    """Return the rule of ends, which depends on the whole next state but diabetes."""
    reached = [variable for variable in STATES if variable.name != "diabetes"]
    sizes = [len(variable.levels) for variable in reached]
    # the rule is the same with diabetes, the first variable, and without
    rule = outcome_of()[: int(np.prod(sizes))].reshape(sizes)
    table = np.eye(len(OUTCOMES) + 1)[rule]
    return _given(observed.END, tuple(observed.NEXT + v.name for v in reached), table)


def _table(name: str, version: str) -> tuple[tuple[str, ...], Any]:
    """Return the parents and the table of a vital sign, from its rows by full state."""
    rows = vital_tables(version)[name]
    state, action = np.divmod(np.arange(N_STATES * N_ACTIONS), N_ACTIONS)
    codes = dict(unravel(STATES, state))
    codes |= {ACTION + key: code for key, code in unravel(ACTIONS, action).items()}
    parents = PARENTS[name]
    table = np.empty((*(codes[parent].max() + 1 for parent in parents), rows.shape[1]))
    table[tuple(codes[parent] for parent in parents)] = rows
    return parents, table
