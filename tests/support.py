"""What several tests need: small random models and logs, and checks of sampled frequencies."""

from dataclasses import replace

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.stats import binom

import butfor as bf
from butfor.models.fit import destinations
from tests.reference.counterfactual import Episode, Model, every_episode

FALSE_ALARM = 1e-6
PROPERTY = settings(deadline=None, derandomize=True)  # conftest.py says how many examples
LABELS = [None, np.array([0, 0, 1, 2])]  # on states, or states 0 and 1 share their noise


@st.composite
def row_pairs(draw, size=None):
    """Pairs of rows with zeros, ties and probabilities down to 1e-300."""
    size = size or draw(st.integers(2, 8))
    weight = st.one_of(
        st.just(0.0),
        st.sampled_from([1.0, 2.0, 3.0]),
        st.floats(1e-3, 1.0),
        st.integers(-300, 0).map(lambda exponent: 10.0**exponent),
    )
    rows = []
    for _ in range(2):
        row = draw(arrays(float, size, elements=weight))
        if row.max() < 1e-3:
            row[draw(st.integers(0, size - 1))] = 1.0
        rows.append(row / row.sum())
    return rows


def random_model(
    generator: np.random.Generator,
    states: int = 4,
    actions: int = 3,
    outcomes: int = 2,
    *,
    labels: NDArray[np.int64] | None = None,
) -> bf.TabularMDP:
    """Return a model whose rows have one to all of the next states, and rewards on every one."""
    columns = states + outcomes
    rows = generator.dirichlet(np.full(columns, 0.7), (states, actions))
    rows[generator.random(rows.shape) < 0.3] = 0.0
    rows[..., -1] += 0.05
    rows /= rows.sum(axis=-1, keepdims=True)
    return bf.TabularMDP.from_arrays(
        rows,
        reward=generator.normal(size=rows.shape),
        outcomes=[bf.Outcome(f"end {o}", float(o) - 1) for o in range(outcomes)],
        initial=generator.dirichlet(np.ones(states)),
        labels=labels,
    )


def random_policy(generator: np.random.Generator, model: bf.TabularMDP) -> NDArray[np.float64]:
    """Return a policy that gives every action some probability."""
    return generator.dirichlet(np.full(model.n_actions, 1.5), model.n_states)


def simulate_log(
    generator: np.random.Generator,
    model: bf.TabularMDP,
    behavior: NDArray[np.float64],
    episodes: int,
    horizon: int,
) -> bf.Episodes:
    """Draw a log from a model; a final state is that before the outcome."""
    drawn = []
    for _ in range(episodes):
        state = int(generator.choice(model.n_states, p=model.initial))
        steps = Episode([], [], [])
        while len(steps.states) < horizon and state < model.n_states:
            action = int(generator.choice(model.n_actions, p=behavior[state]))
            row = model.row(state, action)
            reached = int(generator.choice(list(row), p=list(row.values())))
            for column, value in zip(steps[:3], (state, action, reached), strict=True):
                column.append(value)
            state = reached
        drawn.append(steps)
    return as_log(drawn, model, horizon)


def vary_rewards(log: bf.Episodes) -> bf.Episodes:
    """Return a log in which the same transition pays now more, now less."""
    noise = np.random.default_rng(len(log)).normal(scale=0.5, size=len(log.reward))
    return replace(log, reward=log.reward + noise)


def as_log(drawn: list[Episode], model: bf.TabularMDP, horizon: int) -> bf.Episodes:
    """Return plain episodes as a log, with the model's rewards."""
    states = model.n_states
    columns = [np.concatenate([np.array(e[c], int) for e in drawn]) for c in range(3)]
    rows = reference_model(model).rows
    return bf.Episodes.from_arrays(
        columns[0],
        columns[1],
        np.where(columns[2] < states, columns[2], columns[0]),
        reward=[rows[s, a][x][1] for s, a, x in zip(*map(list, columns), strict=True)],
        offsets=np.cumsum([0] + [len(e.states) for e in drawn]),
        outcome=[max(e.reached[-1] - states, -1) for e in drawn],
        outcomes=model.outcomes,
        states=states,
        actions=model.n_actions,
        horizon=horizon,
    )


def reference_model(model: bf.TabularMDP) -> Model:
    """Return a model as the plain one of the reference implementation."""
    rows: dict[tuple[int, int], dict[int, tuple[float, float]]] = {}
    for entry, row in enumerate(model.entry_row.tolist()):
        pair = divmod(row, model.n_actions)
        reached = int(model.next_state[entry])
        rows.setdefault(pair, {})[reached] = (
            float(model.probability[entry]),
            float(model.reward[entry]),
        )
    return Model(model.n_states, model.n_actions, len(model.outcomes), rows, model.labels.tolist())


def reference_episodes(log: bf.Episodes, terminal: str = "visits") -> list[Episode]:
    """Return a log as plain episodes."""
    columns = [log.state, log.action, destinations(log, terminal)]
    if terminal == "visits":
        columns.append(log.reward)
    bounds = zip(log.offsets[:-1], log.offsets[1:], strict=True)
    return [Episode(*(c[low:high].tolist() for c in columns)) for low, high in bounds]


def labelled_model(generator, labels):
    """Return a model; with shared labels no row may hold both states 0 and 1."""
    model = random_model(generator)
    if labels is None:
        return model
    rows = np.zeros((4, 3, 6))
    rows[*np.unravel_index(model.entry_row, (4, 3)), model.next_state] = model.probability
    rows[:, 0, 0] = rows[:, 1, 1] = rows[:, 2, 1] = 0.0
    rows[..., -1] += 0.1
    rows /= rows.sum(axis=-1, keepdims=True)
    return bf.TabularMDP.from_arrays(
        rows,
        reward=generator.normal(size=rows.shape),
        outcomes=model.outcomes,
        initial=model.initial,
        labels=labels,
    )


def enumerated(model, behavior, horizon):
    """Every episode of a model, with its probability and its first state."""
    plain = reference_model(model)
    drawn, weight, first = [], [], []
    for start in range(model.n_states):
        for episode, probability in every_episode(plain, behavior, start, horizon):
            drawn.append(episode)
            weight.append(probability)
            first.append(start)
    return as_log(drawn, model, horizon), np.array(weight), np.array(first)


def frequencies_agree(
    counts: NDArray[np.int64], probability: NDArray[np.float64], draws: NDArray[np.int64] | int
) -> bool:
    """Whether counts fit a binomial law, each cell exactly, a false alarm in a million overall."""
    total, p = (np.broadcast_to(values, counts.shape) for values in (draws, probability))
    p = np.clip(p, 0.0, 1.0)
    tail = np.minimum(binom.cdf(counts, total, p), binom.sf(counts - 1, total, p))
    return bool((2 * tail >= FALSE_ALARM / counts.size).all())
