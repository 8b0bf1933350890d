"""The table of observed steps: one row per step, and one for each final state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.audit.files import TARGET
from butfor.log.episodes import Episodes
from butfor.log.variables import Variable, unravel
from butfor.types import Floats


def step_table(log: Episodes, target: Floats, cases: NDArray[np.int64]) -> pd.DataFrame:
    """Return one row per observed step, and one without an action for each final state.

    `cases` [N] is the number of similar past cases of each step.
    """
    logged = logged_columns(log) | {"evidence": with_finals(log, cases, -1)}
    columns = step_columns(logged, log.id, log.lengths, target, log)
    return pd.concat([pd.DataFrame(columns), described_rows(log)], axis=1)


def step_columns(
    logged: Mapping[str, Any], ids: Any, lengths: NDArray[np.int64], target: Floats, like: Episodes
) -> dict[str, Any]:
    """Return the columns of `step_table` that follow from what was logged, and the evidence.

    `ids` and `lengths` [n] are those of the episodes, and `like` is a log with their variables.
    """
    others = dict(logged)
    state, action = others.pop("state"), others.pop("action")
    best = target.argmax(axis=1)[state]
    rows = lengths + 1
    episode = np.repeat(np.arange(len(rows)), rows)
    columns: dict[str, Any] = {
        "episode": episode,
        "id": ids.take(episode),
        "step": np.arange(len(state)) - (np.cumsum(rows) - rows)[episode],
        "state": state,
        "action": action,
        "target_action": np.where(action < 0, -1, best),
        "reward": others.pop("reward"),
        "evidence": others.pop("evidence"),
        **others,
    }
    columns |= _labels("state.", like.state_variables, state, like.n_states, like.codes)
    actions = like.action_variables
    for prefix, chosen in (("action.", action), ("target.", columns["target_action"])):
        columns |= _labels(prefix, actions, chosen, like.n_actions, partial(unravel, actions))
    return columns


def logged_columns(log: Episodes) -> dict[str, Any]:
    """Return what was logged at each step and final state: each right after the last step."""
    finals = log.next_state[log.offsets[1:] - 1]  # -1: a final state that was not logged
    columns: dict[str, Any] = {
        "state": with_finals(log, log.state, finals),
        "action": with_finals(log, log.action, -1),
        "reward": with_finals(log, log.reward, np.nan),
    }
    if log.behavior_probability is not None:
        columns["behavior_probability"] = with_finals(log, log.behavior_probability, np.nan)
    if log.target_probability is not None:
        for number, chance in enumerate(log.target_probability.T):
            columns[f"{TARGET}{number}"] = with_finals(log, chance, np.nan)
    return columns


def described_rows(log: Episodes) -> pd.DataFrame | None:
    """Return the side columns and what readers see of these rows; None if there is nothing."""
    side = None if log.side is None else log.side.add_prefix("side.")
    given = [frame for frame in (side, log.recorded) if frame is not None]
    if not given:
        return None
    steps, episodes = len(log.state), len(log)
    order = with_finals(log, np.arange(steps), np.arange(steps, steps + episodes))
    return pd.concat(given, axis=1).iloc[order].reset_index(drop=True)


def with_finals(log: Episodes, steps: NDArray[Any], finals: Any) -> NDArray[Any]:
    """Insert the value of each final state [n] after those of the steps of its episode [N]."""
    rows = np.empty(len(log.state) + len(log), dtype=steps.dtype)
    last = log.offsets[1:] + np.arange(len(log))
    rows[np.arange(len(log.state)) + np.repeat(np.arange(len(log)), log.lengths)] = steps
    rows[last] = finals
    return rows


def _labels(
    prefix: str,
    variables: Sequence[Variable],
    numbers: NDArray[np.integer],
    size: int,
    codes_of: Callable[[NDArray[np.integer]], Mapping[str, NDArray[np.intp]]],
) -> dict[str, pd.Categorical]:
    """Return the level of each variable by the numbers, below `size`, of states or actions.

    A number of -1 has no level.
    """
    tabled = size <= len(numbers)  # the codes of all numbers, with none at -1
    found = codes_of(np.arange(size) if tabled else np.maximum(numbers, 0))
    columns = {}
    for variable in variables:
        codes = found[variable.name].astype(np.min_scalar_type(-len(variable.levels)))
        known = np.append(codes, codes.dtype.type(-1))[numbers] if tabled else codes
        known[numbers < 0] = -1
        columns[prefix + variable.name] = pd.Categorical.from_codes(
            known, dtype=_levels_type(variable.levels), validate=False
        )
    return columns


@cache
def _levels_type(levels: tuple[str, ...]) -> pd.CategoricalDtype:
    return pd.CategoricalDtype(list(levels), ordered=True)
