"""Courses of one episode, observed and drawn: the level of each variable, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.log.episodes import Episodes
from butfor.log.variables import unravel
from butfor.replay.draws import Draws

Key = tuple[str, str]  # kind of variable (state, side or action) and its name


@dataclass(frozen=True)
class Course:
    """What one line through the panels of a picture shows."""

    levels: dict[Key, tuple[NDArray[Any], NDArray[Any]]]  # the steps, and the level at each
    outcome: int  # -1: none

    @property
    def last(self) -> int:
        """The last step of any variable."""
        return max(int(steps[-1]) for steps, _ in self.levels.values() if len(steps))


def observed_course(episodes: Episodes, position: int) -> Course:
    """Return what happened, with what was hidden from the model."""
    start, stop = int(episodes.offsets[position]), int(episodes.offsets[position + 1])
    states = np.append(episodes.state[start:stop], episodes.next_state[stop - 1])
    levels = _levels(episodes, states, episodes.action[start:stop])
    if episodes.side is not None:
        rows = [*range(start, stop), len(episodes.state) + position]
        for variable in episodes.side_variables:
            values = episodes.side[variable.name].iloc[rows]
            codes = np.asarray(pd.Categorical(values, categories=list(variable.levels)).codes)
            levels["side", variable.name] = (np.flatnonzero(codes >= 0), codes[codes >= 0])
    return Course(levels, int(episodes.outcome[position]))


def drawn_courses(
    episodes: Episodes, position: int, draws: Draws
) -> tuple[list[Course], int | None]:
    """Return the draws of an episode, and the first step at which one of them decides otherwise."""
    ids, wanted = draws.episodes.id.tolist(), episodes.id.tolist()[position]
    if wanted not in ids:
        raise ValueError(
            f"no draws of episode {wanted!r}; draw them with "
            f"sample_counterfactuals(episodes.select([{position}]), ...)"
        )
    if draws.episodes.state_variables != episodes.state_variables:
        raise ValueError(
            f"the draws have states over {[v.name for v in draws.episodes.state_variables]}, the "
            f"episodes over {[v.name for v in episodes.state_variables]}; give the log drawn from"
        )
    here = ids.index(wanted)
    courses = []
    for state, action, outcome in zip(
        draws.state[here], draws.action[here], draws.outcome[here].tolist(), strict=True
    ):
        visited = state[state >= 0]
        path = np.where(visited < episodes.n_states, visited, -1)
        courses.append(Course(_levels(episodes, path, action[: len(path) - 1]), outcome))
    taken = episodes.action[episodes.offsets[position] : episodes.offsets[position + 1]]
    decided = draws.action[here][:, : len(taken)]
    differs = ((decided >= 0) & (decided != taken[: decided.shape[1]])).any(axis=0)
    return courses, int(differs.argmax()) if differs.any() else None


def static_levels(episodes: Episodes, position: int) -> list[tuple[str, str, bool]]:
    """Return name and level of what never changes, and whether the model was given it."""
    row = int(episodes.offsets[position])
    codes = unravel(episodes.state_variables, episodes.state[row : row + 1])
    given = [v for v in episodes.state_variables if v.static]
    static = [(v.name, v.levels[int(codes[v.name][0])], True) for v in given]
    if episodes.side is not None:
        hidden = [v.name for v in episodes.side_variables if v.static]
        static += [(name, str(episodes.side[name].iloc[row]), False) for name in hidden]
    return static


def _levels(
    episodes: Episodes, states: NDArray[Any], actions: NDArray[Any]
) -> dict[Key, tuple[NDArray[Any], NDArray[Any]]]:
    """Levels by step of a path; a last state of -1 is not known and holds the one before.

    A decision at step t shows as treatment at t + 1: by the state, where it tells, as for
    sepsis; else, and where the last state is not known, by the decision itself.
    """
    unknown = states[-1] < 0
    held = np.append(states[:-1], states[-2]) if unknown else states
    steps = np.arange(len(states))
    running = {variable.name: variable for variable in episodes.state_variables}
    codes = unravel(episodes.state_variables, held)
    levels = {("state", name): (steps, code) for name, code in codes.items()}
    decisions = unravel(episodes.action_variables, actions)
    for variable in episodes.action_variables:
        name, decision = variable.name, decisions[variable.name]
        if name not in running:
            levels["action", name] = (steps[1:], decision)
            continue
        code = levels.pop(("state", name))[1].copy()
        if unknown and running[name].levels == variable.levels:
            code[-1] = decision[-1]
        levels["action", name] = (steps, code)
    return levels
