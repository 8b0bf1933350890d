"""A data frame with one row per decision, as the arrays that Episodes are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.checks import check_horizon
from butfor.log.coding import listed, text_of
from butfor.log.combinations import rows_of_codes
from butfor.log.decisions import Decisions
from butfor.log.fields import LOST
from butfor.log.left_out import check_left_out
from butfor.log.rows import settled_rows
from butfor.log.sections import (
    Columns,
    Evaluation,
    OutcomeSection,
    StateSection,
    Study,
    VariableSection,
)
from butfor.log.sources import load_log
from butfor.log.study import check_problems
from butfor.log.variables import check_distinct

# Unless others are given: a frame may be in any order, and its episodes may be censored.
PROBLEMS = {"order": "sort", "no_outcome": "keep", "no_transition": "refuse"}

Key = tuple[str, str]  # role and column


def read_frame(
    frame: pd.DataFrame,
    roles: Mapping[str, str | None],
    given: Mapping[Key, Sequence[Any] | None],
    *,
    horizon: int | None = None,
    problems: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], dict[Key, tuple[str, ...]]]:
    """Return arrays for `Episodes.from_arrays`, and the labels of states, actions and outcomes.

    `roles` has the columns of episode, time, reward and behavior_probability, None if there is no
    such column; `given` the labels of the columns that have labels, None if these are those that
    it has.
    """
    named = {role: str(name) for role, name in roles.items() if name is not None}
    frame = frame.rename(columns=str)
    used = {name: f"{role}=" for role, name in (*named.items(), *given)}
    log = load_log(frame, used)
    labels = {key: _labels(frame[key[1]], among, f"{key[0]}s") for key, among in given.items()}
    levels = {
        role: {name: list(known) for (group, name), known in labels.items() if group == role}
        for role in ("state", "action", "outcome")
    }
    chosen, most = check_problems(problems or {}, "problems=")
    settled = PROBLEMS | chosen
    outcome = next(iter(levels["outcome"]), None)
    ends = [end for known in levels["outcome"].values() for end in known]
    ends += [LOST] * (settled["no_transition"] == "keep")
    study = Study(
        columns=Columns.model_validate(named | {"outcome": outcome}),
        state={
            name: StateSection.model_construct(levels=known)
            for name, known in levels["state"].items()
        },
        action={
            name: VariableSection.model_construct(levels=known)
            for name, known in levels["action"].items()
        },
        outcome={end: OutcomeSection() for end in ends},
        problems=settled,
        drop_at_most=most,
        evaluation=Evaluation(horizon=None if horizon is None else check_horizon(horizon)),
    )
    rows, ids = settled_rows(log, study, partial(_remedy, labels))
    if len(rows) == 0:
        raise ValueError(f"{log.name}: no episode is left; drop less in problems=")
    check_left_out(rows.problems.done, most, log.name)
    return _arrays(rows, ids), labels


def levels_of(
    state: str | Sequence[str], states: Sequence[Any] | Mapping[str, Sequence[Any]] | None
) -> dict[str, Sequence[Any] | None]:
    """Return the columns of the state, each with its levels if these are given."""
    names = [str(state)] if isinstance(state, str) else [str(name) for name in state]
    check_distinct(names, "state")
    if not isinstance(states, Mapping):
        if states is not None and len(names) > 1:
            raise ValueError(
                f"states: {len(names)} columns have their own levels; give {{column: [...]}}"
            )
        return dict.fromkeys(names, states)
    for name in states:
        if str(name) not in names:
            raise ValueError(f"states: {name!r} is not in state=; it has {', '.join(names)}")
    return {name: states.get(name) for name in names}


def _arrays(rows: Decisions, ids: NDArray[Any]) -> dict[str, Any]:
    """Return arrays of settled rows, states as level codes [N, J]."""
    levels = np.stack(list(rows.group("state").values()), axis=1)
    place = np.where((levels < 0).any(axis=1), -1, np.arange(len(rows)))
    (action,) = rows.group("action").values()
    arrays = rows.arrays(place, action, ids)
    if "probability" in rows.numbers:
        arrays["probability"] = rows.numbers["probability"][rows.transitions()[0]]
    return arrays | rows_of_codes(levels, arrays["state"], arrays["next_state"])


def _remedy(labels: Mapping[Key, Sequence[str]], group: str, column: str) -> str:
    if (group, column) not in labels:
        return "Fill or drop it"
    plural, known = f"{group}s", listed(labels[group, column]) or "none"
    return f"The {plural} are {known}; list it in {plural}=[...], or fill or drop it"


def _labels(column: pd.Series[Any], given: Sequence[Any] | None, plural: str) -> tuple[str, ...]:
    """Return the labels given, or those of the column in order."""
    if given is None:
        found = column.dropna().unique()
        given = _sorted([value for value in found if text_of(value).strip()], plural)
    labels = tuple(map(text_of, given))
    check_distinct(labels, plural)
    if not all(label.strip() for label in labels):
        raise ValueError(f"{plural}: one of them is empty, which means missing; give it a name")
    return labels


def _sorted(labels: list[Any], plural: str) -> list[Any]:
    try:
        return sorted(labels)
    except TypeError:
        kinds = {type(label).__name__: label for label in labels}
        shown = ", ".join(repr(text_of(label)) for label in kinds.values())
        raise ValueError(
            f"{plural} of several types ({shown}) have no order; list them in {plural}=[...]"
        ) from None
