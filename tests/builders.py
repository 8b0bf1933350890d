"""Small logs and models that several test files share."""

from __future__ import annotations

from typing import Any

import numpy as np

from butfor import Episodes, Outcome, TabularMDP, Variable

DEATH = Outcome("death", -1.0, bad=True)
HOME = Outcome("home", 1.0)

# State (sex * 3 + pulse) * 2 + sugar, twelve in all; only sex never changes.
PATIENT = (
    Variable("sex", ("female", "male"), static=True),
    Variable("pulse", ("low", "normal", "high"), normal=("normal",)),
    Variable("sugar", ("normal", "high")),
)


def patient_state(sex: int, pulse: int, sugar: int) -> int:
    """Index of a state over PATIENT."""
    return (sex * 3 + pulse) * 2 + sugar


def patient_log(**changes: Any) -> Episodes:
    """Four patients: two women and two men.

    The finals (sex, pulse, sugar) are (0, 2, 1), (0, 2, 0), (1, 2, 1) and (1, 0, 0). The first
    three die, the last has no outcome.
    """
    path = {
        "w": [(0, 1, 0), (0, 1, 1), (0, 2, 1)],
        "x": [(0, 1, 0), (0, 2, 0)],
        "y": [(1, 0, 1), (1, 1, 1), (1, 2, 1)],
        "z": [(1, 1, 0), (1, 0, 0)],
    }
    index = [[patient_state(*visit) for visit in visits] for visits in path.values()]
    given: dict[str, Any] = {
        "state": [state for states in index for state in states[:-1]],
        "action": [0, 1, 0, 1, 1, 0],
        "next_state": [state for states in index for state in states[1:]],
        "offsets": [0, 2, 3, 5, 6],
        "states": PATIENT,
        "actions": 2,
        "outcome": [0, 0, 0, -1],
        "outcomes": [DEATH, HOME],
        "id": list(path),
    }
    return Episodes.from_arrays(**{**given, **changes})


def ward_log(**changes: Any) -> Episodes:
    """Four stays in three states under two actions, small enough to count on paper.

    stay 0:  0 -a0-> 1 -a1-> 2             death
    stay 1:  0 -a0-> 1 -a1-> 0 -a0-> 2     home
    stay 2:  0 -a1-> 0 -a0-> 1             none
    stay 3:  1 -a1-> 2                     death
    """
    given: dict[str, Any] = {
        "state": [0, 1, 0, 1, 0, 0, 0, 1],
        "action": [0, 1, 0, 1, 0, 1, 0, 1],
        "next_state": [1, 2, 1, 0, 2, 0, 1, 2],
        "offsets": [0, 2, 5, 7, 8],
        "states": 3,
        "actions": 2,
        "outcome": [0, 1, -1, 0],
        "outcomes": [DEATH, HOME],
    }
    return Episodes.from_arrays(**{**given, **changes})


def random_log(
    rng: np.random.Generator, *, episodes: int = 20, longest: int = 5, **changes: Any
) -> Episodes:
    """Walk at random over the twelve states of PATIENT; sex stays as it is."""
    state, action, next_state, lengths = [], [], [], []
    for _ in range(episodes):
        sex = int(rng.integers(2))
        length = int(rng.integers(1, longest + 1))
        visits = sex * 6 + rng.integers(6, size=length + 1)
        state.extend(visits[:-1].tolist())
        next_state.extend(visits[1:].tolist())
        action.extend(rng.integers(3, size=length).tolist())
        lengths.append(length)
    given: dict[str, Any] = {
        "state": state,
        "action": action,
        "next_state": next_state,
        "offsets": np.concatenate([[0], np.cumsum(lengths)]),
        "states": PATIENT,
        "actions": 3,
        "outcome": rng.integers(-1, 2, size=episodes),
        "outcomes": [DEATH, HOME],
    }
    return Episodes.from_arrays(**{**given, **changes})


def random_rows(
    rng: np.random.Generator, *, states: int, actions: int, outcomes: int, ends: float = 0.1
) -> np.ndarray:
    """Dense rows [S, A, S + O], many entries 0; every row ends with probability `ends` at least."""
    rows = rng.dirichlet(np.full(states + outcomes, 0.5), size=(states, actions))
    rows *= rng.random(rows.shape) < 0.7
    rows[..., -1] += 1e-3  # so that no row is empty
    rows *= (1 - ends) / rows.sum(axis=-1, keepdims=True)
    rows[..., -1] += ends
    return rows


def small_world() -> TabularMDP:
    """Three states, two actions, two outcomes: all transitions are possible."""
    rows = np.random.default_rng(5).dirichlet(np.ones(5), (3, 2))
    return TabularMDP.from_arrays(rows, outcomes=[DEATH, HOME])
