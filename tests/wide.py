"""A ward with thirty variables, more than can be enumerated, simulated in plain NumPy.

Variable j is 0 or 1 (well or ill), or for the last six 0, 1 or 2. It tends to stay, follows the
variable before it, and falls if the drug is given, where j is even. The more of the first six are
ill, the more often a patient dies.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import butfor as bf

COUNT = 30
SIZES = [2] * 24 + [3] * 6
VARIABLES = tuple(
    bf.Variable(f"x{j:02}", tuple(map(str, range(size)))) for j, size in enumerate(SIZES)
)
DRUG = (bf.Variable("drug", ("off", "on")),)
OUTCOMES = (bf.Outcome("died", -1.0, bad=True), bf.Outcome("home", 1.0))


class Ward(NamedTuple):
    """Simulated episodes."""

    log: bf.Episodes
    state: NDArray[np.int64]  # [N, J] level codes, as given to the log
    reached: NDArray[np.int64]  # [N, J]


def rise(state: NDArray[np.int64], drug: NDArray[np.int64]) -> NDArray[np.float64]:
    """Chance of each variable to be above 0 after the step, [m, J]."""
    ill = state > 0
    before = np.roll(ill, 1, axis=1)
    falls = (np.arange(COUNT) % 2 == 0) * drug[:, None]
    return 1 / (1 + np.exp(1.6 - 2.4 * ill - 1.0 * before + 1.8 * falls))


def ends(state: NDArray[np.int64]) -> NDArray[np.float64]:
    """Chances of dying, going home and staying in the state that was reached, [m, 3]."""
    ill = (state[:, :6] > 0).sum(axis=1)
    died, home = 0.02 + 0.05 * np.maximum(ill - 2, 0), 0.02 + 0.07 * np.maximum(3 - ill, 0)
    return np.stack([died, home, 1 - died - home], axis=1)


def cautious(state: NDArray[np.int64]) -> NDArray[np.float64]:
    """How often each drug decision is made, [m, 2]: more often the more of x00 to x05 are ill."""
    given = 0.2 + 0.1 * (state[:, :6] > 0).sum(axis=1)
    return np.stack([1 - given, given], axis=1)


def always(state: NDArray[np.int64]) -> NDArray[np.float64]:
    """Give the drug to everybody, [m, 2]."""
    return np.tile([0.0, 1.0], (len(state), 1))


def never(state: NDArray[np.int64]) -> NDArray[np.float64]:
    """Give the drug to nobody, [m, 2]."""
    return np.tile([1.0, 0.0], (len(state), 1))


def next_state(
    state: NDArray[np.int64], drug: NDArray[np.int64], noise: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the state reached with noise [m, J], uniform numbers; a third level splits level 1."""
    chance = rise(state, drug)
    third = (np.array(SIZES) == 3) & (noise < 0.4 * chance)
    return (noise < chance).astype(np.int64) + third


def first_states(generator: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Return the states in which patients arrive, [count, J]."""
    return generator.integers(0, SIZES, (count, COUNT))


def simulate(seed: int, episodes: int, *, horizon: int = 10, policy=cautious) -> Ward:
    """Simulate a log; every final state is known.

    All noise follows from the seed: with another policy it is what would have happened to the same
    patients.
    """
    generator = np.random.default_rng(seed)
    now = first_states(generator, episodes)
    noise = generator.random((horizon, episodes, COUNT + 2))
    going, columns = np.arange(episodes), []
    outcome = np.full(episodes, -1)
    for t in range(horizon):
        u = noise[t, going]
        drug = (u[:, -1] < policy(now)[:, 1]).astype(np.int64)
        after = next_state(now, drug, u[:, :COUNT])
        chance = ends(after)[:, :2].cumsum(axis=1)
        end = np.where(u[:, -2] < chance[:, 0], 0, np.where(u[:, -2] < chance[:, 1], 1, -1))
        columns.append((going, np.full(len(going), t), now, drug, after))
        outcome[going] = end
        going, now = going[end < 0], after[end < 0]
    episode, time, state, action, reached = (np.concatenate(c) for c in zip(*columns, strict=True))
    order = np.lexsort([time, episode])
    state, reached = state[order], reached[order]
    log = bf.Episodes.from_codes(
        state,
        action[order],
        reached,
        offsets=np.append(0, np.cumsum(np.bincount(episode))),
        states=VARIABLES,
        actions=DRUG,
        outcome=outcome,
        outcomes=OUTCOMES,
        horizon=horizon,
    )
    return Ward(log, state, reached)
