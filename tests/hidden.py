"""Small random models with hidden states, as butfor's and as the plain ones of the reference."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import butfor as bf
from tests.reference import pomdp as reference

GOING, ENDS, ACTIONS, SEEN = 3, 2, 2, 2
OUTCOMES = (bf.Outcome("death", -1.0, bad=True), bf.Outcome("home", 1.0))


def random_pomdp(
    generator: np.random.Generator,
    *,
    certain: bool = False,
    labels: bool = False,
    reward_seen: bool = True,
    silent: bool = False,
) -> bf.hidden.TabularPOMDP:
    """Three hidden states, two ends, two actions and two observations.

    Some transitions are impossible. Rewards are 0 or 1, so that seeing them tells a little.
    `certain`: every state always shows the same; `labels`: states 0 and 3 share their noise;
    `silent`: ends show nothing.
    """
    size = GOING + ENDS
    rows = generator.dirichlet(np.full(size, 0.8), (size, ACTIONS))
    rows[generator.random(rows.shape) < 0.25] = 0.0
    if labels:
        rows[:, 0, 0] = rows[:, 1, 3] = 0.0
    rows[..., 1] += 0.1
    rows /= rows.sum(axis=-1, keepdims=True)
    emission = generator.dirichlet(np.ones(SEEN), size)
    if certain:
        emission = np.eye(SEEN)[[0, 1, 0, 0, 1]]
    if silent:
        emission[GOING:] = 0.0
    reward = generator.integers(0, 2, rows.shape).astype(float)
    return bf.hidden.TabularPOMDP.from_arrays(
        rows,
        emission,
        initial=np.append(generator.dirichlet(np.ones(GOING)), np.zeros(ENDS)),
        outcome=[-1] * GOING + [0, 1],
        outcomes=OUTCOMES,
        reward=reward,
        labels=[0, 1, 2, 0, 3] if labels else None,
        reward_seen=reward_seen,
    )


def plain_model(model: bf.hidden.TabularPOMDP) -> reference.Model:
    """Return a model as that of the reference."""
    dynamics = model.dynamics
    rows: dict[tuple[int, int], dict[int, tuple[float, float]]] = {}
    for entry, row in enumerate(dynamics.entry_row.tolist()):
        reached = int(dynamics.next_state[entry])
        rows.setdefault(divmod(row, model.n_actions), {})[reached] = (
            float(dynamics.probability[entry]),
            float(dynamics.reward[entry]),
        )
    table = model.emission.toarray()
    return reference.Model(
        states=model.n_states,
        actions=model.n_actions,
        observations=model.n_observations,
        outcomes=len(model.outcomes),
        rows=rows,
        label=dynamics.labels.tolist(),
        initial=model.initial.tolist(),
        emission=[{o: float(p) for o, p in enumerate(row) if p > 0} for row in table],
        outcome=model.outcome.tolist(),
        reward_seen=model.reward_seen,
    )


def plain_agent(
    policy: NDArray[np.float64] | bf.hidden.FiniteController | bf.hidden.LatentPolicy,
) -> reference.Agent:
    """Return a policy as that of the reference."""
    if isinstance(policy, bf.hidden.LatentPolicy):
        return reference.Agent(
            first=lambda shown: 0,
            following=lambda memory, action, shown: 0,
            row=lambda memory, state: policy.table[state].tolist(),
        )
    if isinstance(policy, bf.hidden.FiniteController):
        return reference.Agent(
            first=lambda shown: int(policy.first[shown]),
            following=lambda memory, action, shown: int(policy.following[memory, action, shown]),
            row=lambda memory, state: policy.action[memory].tolist(),
        )
    return reference.Agent(
        first=lambda shown: shown,
        following=lambda memory, action, shown: shown,
        row=lambda memory, state: policy[memory].tolist(),
    )


def random_agents(
    generator: np.random.Generator, model: bf.hidden.TabularPOMDP
) -> dict[str, NDArray[np.float64] | bf.hidden.FiniteController | bf.hidden.LatentPolicy]:
    """Return a random policy of each kind."""
    size = model.n_actions
    return {
        "seen": generator.dirichlet(np.ones(size), model.n_observations),
        "latent": bf.hidden.LatentPolicy(generator.dirichlet(np.ones(size), model.n_states)),
        "controller": bf.hidden.FiniteController.from_arrays(
            generator.dirichlet(np.ones(size), 3),
            generator.integers(0, 3, (3, size, model.n_observations)),
            generator.integers(0, 3, model.n_observations),
        ),
    }


def log_of(
    worlds: list[reference.Seen], model: bf.hidden.TabularPOMDP, horizon: int
) -> bf.Episodes:
    """Return what was seen as a log; where the reference tells no rewards they are 0."""
    lengths = [len(seen.actions) for seen in worlds]
    return bf.Episodes.from_arrays(
        [o for seen in worlds for o in seen.observations[:-1]],
        [a for seen in worlds for a in seen.actions],
        [o for seen in worlds for o in seen.observations[1:]],
        reward=[r for seen in worlds for r in (seen.rewards or [0.0] * len(seen.actions))],
        offsets=np.cumsum([0, *lengths]),
        outcome=[seen.outcome for seen in worlds],
        outcomes=model.outcomes,
        states=model.n_observations,
        actions=model.n_actions,
        horizon=horizon,
    )


def noisy_problem(
    episodes: int,
) -> tuple[bf.hidden.TabularPOMDP, bf.Episodes, NDArray[np.float64], NDArray[np.float64]]:
    """Return a random model with noisy observations, a log of it, its behavior and a target."""
    states, seen, actions, width = 15, 5, 4, 6
    generator, size = np.random.default_rng(0), states + 2
    rows = np.zeros((size, actions, size))
    for state in range(states):
        for action in range(actions):
            reached = np.append(generator.choice(states, width, replace=False), [states, size - 1])
            weight = np.append(np.ones(width), [0.2, 0.2])
            rows[state, action, reached] = generator.dirichlet(weight)
    rows[states:, :, states:] = np.eye(2)[:, None]
    model = bf.hidden.TabularPOMDP.from_arrays(
        rows,
        generator.dirichlet(np.full(seen, 0.5), size),
        initial=np.append(np.full(states, 1 / states), [0, 0]),
        outcome=[-1] * states + [0, 1],
        outcomes=OUTCOMES,
    )
    behavior, target = generator.dirichlet(np.ones(actions), (2, seen))
    log = bf.hidden.simulate_pomdp(model, behavior, episodes, horizon=6, seed=0)
    return model, log, behavior, target


def remembering(table: NDArray[np.float64]) -> bf.hidden.FiniteController:
    """Return the same policy as one that remembers the last observation, which is not summed."""
    seen = np.arange(len(table))
    return bf.hidden.FiniteController.from_arrays(table, np.tile(seen, (len(table), 1)), seen)


def tiger() -> bf.hidden.TabularPOMDP:
    """The tiger of `docs/tiger.md`: hidden are its side and the last action (listen, a door, none).

    Kaelbling, Littman & Cassandra, Artificial Intelligence 101, 1998.
    """
    rows, reward = np.zeros((2, 3, 3, 2, 3)), np.full((2, 3, 3), -1.0)
    for side in range(2):
        rows[side, :, 0, side, 0] = 1.0  # listening moves nothing
    rows[:, :, 1:, :, 1] = 0.5  # a door resets
    reward[:, :, 1:] = np.array([[-100, 10], [10, -100]])[:, None]
    heard = [[0.85, 0.15, 0], [0.5, 0.5, 0], [0, 0, 1], [0.15, 0.85, 0], [0.5, 0.5, 0], [0, 0, 1]]
    return bf.hidden.TabularPOMDP.from_arrays(
        rows.reshape(6, 3, 6),
        heard,
        initial=[0, 0, 0.5, 0, 0, 0.5],
        reward=reward.reshape(6, 3),
        labels=[0, 0, 0, 1, 1, 1],
    )
