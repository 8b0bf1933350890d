"""Models from Gymnasium environments with a table `P` of their dynamics; logs from Minari data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike, NDArray

from butfor.checks import check_whole
from butfor.log.episodes import Episodes
from butfor.log.variables import Outcome, Variable, check_outcomes, ravel
from butfor.models.given import coalesce
from butfor.models.mdp import TabularMDP
from butfor.types import Floats, Integers

Index = NDArray[np.int64]
OutcomeOf = Mapping[int, Outcome]  # by final state

MOST_REWARDS = 10  # distinct last rewards that become one outcome each; more become one in all
# one entry of a table P, after its state and action
ENTRY = [("state", "i8"), ("action", "i8"), ("probability", "f8"), ("reached", "i8")]
ENTRY += [("reward", "f8"), ("done", "?")]


def model_from_gym(env: Any, *, outcomes: OutcomeOf | None = None) -> TabularMDP:
    """Make a model of an environment with a `P` table: FrozenLake, CliffWalking, Taxi.

    Parameters
    ----------
    env
        `env.unwrapped.P[s][a]` is [(probability, next state, reward, done), ...]. Entries with the
        same next state are added; their reward is the mean weighted by probability. The
        distribution of the first state is `initial_state_distrib` if the environment has it,
        otherwise uniform.
    outcomes : {final state: Outcome}, optional
        The outcome of a transition that is done, by the state reached; several states may share
        one. By default there is one outcome for each reward of such a transition.

    Notes
    -----
    Transitions keep the rewards of the environment; the reward of an Outcome is not added to them.
    States keep their numbers; those that are reached only as final states are never visited.
    """
    base = getattr(env, "unwrapped", env)
    if not hasattr(base, "P"):
        raise ValueError(
            f"{type(base).__name__} has no table P[state][action] of its dynamics; simulate a log "
            "instead, or pass the dynamics to TabularMDP.from_arrays"
        )
    states, actions, entries = _read_table(base.P)
    ends, of_entry = _entry_outcomes(entries, outcomes)
    column = np.where(entries.done, states + of_entry, entries.reached)
    row = entries.state * actions + entries.action
    width = states + len(ends)
    keys, weight, reward = coalesce(row * width + column, entries.probability, entries.reward)
    place = np.divmod(keys, width)
    shape = (states * actions, width)
    return TabularMDP.from_arrays(
        sparse.csr_array((weight, place), shape),
        reward=sparse.csr_array((reward, place), shape),
        outcomes=ends,
        actions=actions,
        initial=getattr(base, "initial_state_distrib", None),
    )


def episodes_from_minari(dataset: Any, *, outcomes: OutcomeOf | None = None) -> Episodes:
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
    states = _space_variables(dataset.observation_space, "observation", "state")
    actions = _space_variables(dataset.action_space, "action", "action")
    state, action, reached, reward, ids, ended = [], [], [], [], [], []
    for episode in dataset.iterate_episodes():
        place = f"episode {episode.id}"
        visits = _space_codes(episode.observations, dataset.observation_space, states, place)
        taken = _space_codes(episode.actions, dataset.action_space, actions, place)
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
    ends, outcome = _outcomes_of(np.array(ended), last, final, outcomes)
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


def outcomes_by_reward(rewards: ArrayLike) -> tuple[tuple[Outcome, ...], Integers]:
    """Make an outcome of each distinct last reward; return them, and the index for each reward.

    One reward becomes the outcome "ended", several become "ended with 0", "ended with 1" and so on;
    more than 10 become one outcome "ended" with their mean.
    """
    given = np.asarray(rewards, dtype=np.float64)
    distinct, position = np.unique(given, return_inverse=True)
    if 1 < len(distinct) <= MOST_REWARDS:
        named = tuple(Outcome(f"ended with {value:.12g}", float(value)) for value in distinct)
        return named, position.astype(np.int32)
    ended = tuple(Outcome("ended", float(given.mean())) for _ in distinct[:1])
    return ended, np.zeros(len(given), dtype=np.int32)


def _outcomes_of(
    done: NDArray[np.bool_], rewards: Floats, reached: Index, given: OutcomeOf | None
) -> tuple[tuple[Outcome, ...], Index]:
    """Return the outcomes given for final states, or one for each reward; and the index of each.

    The index is -1 for what is not done.
    """
    index = np.full(len(done), -1)
    if given is None:
        ends, index[done] = outcomes_by_reward(rewards[done])
        return ends, index
    ends = check_outcomes(tuple(dict.fromkeys(given.values())))
    lost = done & ~np.isin(reached, list(given))
    if lost.any():
        raise ValueError(
            f"outcomes: state {reached[int(lost.argmax())]} is final and has none; there are "
            f"outcomes for {', '.join(map(str, list(given)[:8])) or 'no state'}; add it"
        )
    position = {state: ends.index(outcome) for state, outcome in given.items()}
    index[done] = [position[state] for state in reached[done].tolist()]
    return ends, index


def _read_table(table: Any) -> tuple[int, int, Any]:
    """Return the number of states and actions, and the entries of P with positive probability."""
    states = check_whole(len(table), "states of P", 1, "a table with states")
    actions = check_whole(len(_at(table, 0, "state 0")), "actions of P[0]", 1, "actions")
    rows: list[tuple[int, int, float, int, float, bool]] = []
    for state in range(states):
        choices = _at(table, state, f"state {state}")
        if len(choices) != actions:
            raise ValueError(
                f"P: state {state} has {len(choices)} actions, state 0 has {actions}; give every "
                "state all actions"
            )
        for action in range(actions):
            place = f"state {state}, action {action}"
            given = [_entry(entry, place, states) for entry in _at(choices, action, place)]
            total = sum(entry[0] for entry in given)
            if not math.isclose(total, 1, abs_tol=1e-6):
                raise ValueError(
                    f"P: the probabilities of {place} sum to {total:.9g}, not to 1; correct the "
                    "environment's table"
                )
            rows += [(state, action, *entry) for entry in given if entry[0] > 0]
    return states, actions, np.rec.fromrecords(rows, dtype=ENTRY)


def _at(table: Any, key: int, place: str) -> Any:
    try:
        return table[key]
    except (KeyError, IndexError, TypeError):
        raise ValueError(f"P has no {place}; number states and actions from 0") from None


def _entry(entry: Any, place: str, states: int) -> tuple[float, int, float, bool]:
    try:
        probability, reached, reward, done = entry
        probability, reward = float(probability), float(reward)
        whole = int(reached) == reached
    except (TypeError, ValueError):
        raise ValueError(
            f"P: {place} has the entry {entry!r}, expected (probability, next state, reward, done)"
        ) from None
    if not 0 <= probability <= 1 + 1e-6:
        raise ValueError(f"P: {place} has the probability {probability}; give one from 0 to 1")
    if not whole or not 0 <= reached < states:
        raise ValueError(f"P: {place} leads to state {reached!r} outside 0..{states - 1}")
    if not math.isfinite(reward):
        raise ValueError(f"P: {place} earns {reward}; give every transition a finite reward")
    return probability, int(reached), reward, bool(done)


def _entry_outcomes(entries: Any, given: OutcomeOf | None) -> tuple[tuple[Outcome, ...], Index]:
    """Return the outcomes, and the one that each entry leads to (-1 if it is not done).

    A self-loop that is done, in a state that is only ever reached as final, makes no outcome of its
    own: it leads to the outcome of the first arrival there.
    """
    if given is not None:
        return _outcomes_of(entries.done, entries.reward, entries.reached, given)
    moves = entries.reached != entries.state
    arrived = entries[moves]
    final = np.setdiff1d(arrived.reached[arrived.done], arrived.reached[~arrived.done])
    loop = entries.done & ~moves & np.isin(entries.state, final)
    arrival = entries.done & ~loop
    ends, of_entry = _outcomes_of(arrival, entries.reward, entries.reached, None)
    first: dict[int, int] = {}
    for state, end in zip(entries.reached[arrival], of_entry[arrival], strict=True):
        first.setdefault(int(state), int(end))
    of_entry[loop] = [first[int(state)] for state in entries.state[loop]]
    return ends, of_entry


def _check_episode(
    steps: int, visits: Index, taken: Index, over: NDArray[np.bool_], place: str
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


def _space_variables(space: Any, name: str, noun: str) -> tuple[Variable, ...]:
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


def _space_codes(values: Any, space: Any, variables: Sequence[Variable], place: str) -> Index:
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
