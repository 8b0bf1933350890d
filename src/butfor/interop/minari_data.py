"""Logs from Minari data sets with discrete spaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.interop.gym import outcomes_of
from butfor.log.episodes import Episodes
from butfor.log.variables import Outcome, Variable, ravel


def episodes_from_minari(
    dataset: Any, *, outcomes: Mapping[int, Outcome] | None = None
) -> Episodes:
    """Make Episodes of a Minari data set with discrete observations and actions.

    Parameters
    ----------
    dataset
        The result of `minari.load_dataset`, with spaces `Discrete` or `MultiDiscrete` (each entry
        of which becomes a variable). Observations are taken as states.
    outcomes : {final state: Outcome}, optional
        The outcome of a terminated episode, by its final state. By default there is one outcome
        for each distinct last reward. A truncated episode has none.

    Notes
    -----
    The horizon is the step limit of the environment if the data set has it, otherwise that of the
    longest episode. Causal claims require observations that include everything the behavior policy
    used.
    """
    states = _variables(dataset.observation_space, "observation", "state")
    actions = _variables(dataset.action_space, "action", "action")
    state, action, reached, reward, ids, ended = [], [], [], [], [], []
    for episode in dataset.iterate_episodes():
        place = f"episode {episode.id}"
        visits = _codes(episode.observations, dataset.observation_space, states, place)
        taken = _codes(episode.actions, dataset.action_space, actions, place)
        over = np.asarray(episode.terminations, dtype=bool)
        _check_episode(len(episode.rewards), visits, taken, over, place)
        state.append(visits[:-1])
        reached.append(visits[1:])
        action.append(taken)
        reward.append(np.asarray(episode.rewards, dtype=np.float64))
        ids.append(episode.id)
        ended.append(bool(over[-1]))
    if not ids:
        raise ValueError("the data set has no episodes; give one with episodes")
    last = np.array([steps[-1] for steps in reward])
    final = np.array([visits[-1] for visits in reached])
    ends, outcome = outcomes_of(np.array(ended), last, final, outcomes)
    longest = max(map(len, reward))
    limit = getattr(getattr(dataset, "env_spec", None), "max_episode_steps", None)
    return Episodes.from_arrays(
        np.concatenate(state),
        np.concatenate(action),
        np.concatenate(reached),
        offsets=np.append(0, np.cumsum([len(steps) for steps in reward])),
        states=states,
        actions=actions,
        reward=np.concatenate(reward),
        outcome=outcome,
        outcomes=ends,
        id=ids,
        horizon=longest if limit is None else max(int(limit), longest),
    )


def _check_episode(
    steps: int,
    visits: NDArray[np.int64],
    taken: NDArray[np.int64],
    over: NDArray[np.bool_],
    place: str,
) -> None:
    """Refuse an episode whose parts do not fit together."""
    if steps == 0:
        raise ValueError(f"{place} has no steps; drop it with dataset.filter_episodes")
    if len(visits) != steps + 1:
        raise ValueError(
            f"{place} has {len(visits)} observations and {steps} rewards, expected one more "
            "observation, the final one; record the data set again with it"
        )
    if len(taken) != steps:
        raise ValueError(
            f"{place} has {len(taken)} actions and {steps} rewards; record one of each per step"
        )
    if over[:-1].any():
        raise ValueError(
            f"{place} is terminated at step {int(over.argmax())} of {steps} and goes on; cut it "
            "there, or clear the flag"
        )


def _variables(space: Any, name: str, noun: str) -> tuple[Variable, ...]:
    kind = type(space).__name__
    if kind == "Discrete":
        start = int(getattr(space, "start", 0))
        levels = tuple(str(level) for level in range(start, start + int(space.n)))
        return (Variable(noun, levels),)
    if kind == "MultiDiscrete" and np.ndim(space.nvec) == 1:
        starts = np.broadcast_to(getattr(space, "start", 0), np.shape(space.nvec))
        return tuple(
            Variable(f"{noun} {i}", tuple(str(int(first) + level) for level in range(int(size))))
            for i, (size, first) in enumerate(zip(space.nvec, starts, strict=True))
        )
    raise ValueError(
        f"the {name} space is {space}, not Discrete or MultiDiscrete; cut numbers into levels "
        "first, and pass the log to Episodes.from_arrays"
    )


def _codes(
    values: Any, space: Any, variables: tuple[Variable, ...], place: str
) -> NDArray[np.int64]:
    """Return the states or actions of one episode as numbers from 0."""
    try:
        columns = np.asarray(values, dtype=np.int64).reshape(-1, len(variables))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place}: {error}; the values do not fit the space {space}") from error
    codes = columns - np.asarray(getattr(space, "start", 0))
    wrong = (codes < 0) | (codes >= [len(variable.levels) for variable in variables])
    if wrong.any():
        step, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"{place}, step {step}: {columns[step, column]} is outside the space {space}; "
            "correct the data set or its space"
        )
    return ravel(variables, list(codes.T))
