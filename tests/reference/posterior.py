"""The posterior by weighted draws from the prior, and counterfactuals model after model."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import butfor as bf
from butfor.models.planning import state_values
from butfor.models.posterior import Drawn, DrawnModels, Posterior


def outcomes_by_model(
    log: bf.Episodes, drawn: DrawnModels, target: NDArray[np.float64], **options: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return outcome probabilities [n, O + 1, B] and expected returns [n, B]."""
    results = [
        bf.Replay(log, drawn.model(b), target, **options).outcomes()
        for b in range(drawn.probability.shape[1])
    ]
    masses = np.stack([result.probability for result in results], axis=-1)
    return masses, np.stack([result.expected_return for result in results], axis=-1)


def values_by_model(
    log: bf.Episodes,
    drawn: DrawnModels,
    target: NDArray[np.float64],
    *,
    horizon: int,
    discount: float = 1.0,
) -> list[float]:
    """Return the target's value in each model, from where the episodes of the log began."""
    return [
        float(
            np.mean(
                state_values(drawn.model(b), target, horizon=horizon, discount=discount)[
                    log.first_state
                ]
            )
        )
        for b in range(drawn.probability.shape[1])
    ]


# ---------------------------------------------------------------------------- rows and weights


def weighted_posterior(
    counts: NDArray[np.float64],
    weights: NDArray[np.float64],
    draws: int,
    *,
    every: bool = False,
    tied: bool = False,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return posterior means of rows, of their squares and of the weights, with standard errors.

    Weights and all tables above the rows are drawn from the prior [first, second, level], and
    weighted by the probability of the counts, which are Dirichlet-multinomial given these.
    """
    generator = np.random.default_rng(0)
    found, log_weights = [], []
    for _ in range(draws):
        k = generator.choice(weights, 3)
        if tied:
            k[:] = k[0]
        tables = {(): generator.dirichlet(np.full(counts.shape[-1], k[0] / counts.shape[-1]))}
        for axis in (0, 1) if every else (0,):
            tables[axis,] = np.array(
                [generator.dirichlet(k[1] * tables[()] + 1e-12) for _ in range(counts.shape[axis])]
            )
        log_weight, rows, squares = 0.0, [], []
        for i, j in np.ndindex(counts.shape[:2]):
            around = tables[0,][i]
            if every:
                around = (tables[0,][i] + tables[1,][j]) / 2
            a = counts[i, j] + k[2] * around
            n = counts[i, j].sum()
            # P(cases one after another): each level is as probable as it was frequent so far
            for level in range(counts.shape[-1]):
                w = max(k[2] * around[level], 1e-300)
                log_weight += sum(np.log(w + c) for c in range(int(counts[i, j, level])))
            log_weight -= sum(np.log(k[2] + c) for c in range(int(n)))
            rows.append(a / (n + k[2]))
            squares.append(a * (a + 1) / ((n + k[2]) * (n + k[2] + 1)))
        found.append(np.concatenate([np.ravel(rows), np.ravel(squares), k]))
        log_weights.append(log_weight)
    share = np.exp(np.array(log_weights) - max(log_weights))
    share /= share.sum()
    mean = share @ np.array(found)
    return mean, np.sqrt(share**2 @ (np.array(found) - mean) ** 2)


def rows_around_counts(
    counts: NDArray[np.float64], weight: float, draws: int
) -> NDArray[np.float64]:
    """Draw rows as if all cases of a state told of the row that its actions vary around."""
    generator = np.random.default_rng(0)
    around = counts.sum(axis=1, keepdims=True) + weight / counts.shape[-1]
    around = around / around.sum(axis=-1, keepdims=True)
    gamma = generator.standard_gamma(counts + weight * around, (draws, *counts.shape))
    return gamma / gamma.sum(axis=-1, keepdims=True)


# ----------------------------------------------------------------- rows that do not list everything


def outcomes_elsewhere(
    log: bf.Episodes,
    posterior: Posterior,
    drawn: Drawn,
    target: NDArray[np.float64],
    *,
    horizon: int,
    discount: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return outcome probabilities [n, O + 1], expected returns [n] and values [S] of one model.

    Actions are drawn afresh. What a row lists shares noise with what was observed; what it does not
    list shares none, and whoever goes there continues by the model alone.
    """
    states, actions, size = posterior.counts.shape
    ends = len(log.outcomes)
    reached = posterior.columns.tolist()
    visits = posterior.counted.terminal == "visits"
    pairs = [(s, a) for s in range(states) for a in range(actions) if target[s, a] > 0]
    divided = dict(
        zip(pairs, posterior.elsewhere(drawn, np.array([s for s, _ in pairs])), strict=True)
    )
    rows, rest = {}, {}
    for s, a in np.ndindex(states, actions):
        entries = range(posterior.start[s * actions + a], posterior.start[s * actions + a + 1])
        listed = {int(posterior.column[e]): float(drawn.probability[e]) for e in entries}
        rest[s, a] = listed.pop(size, 0.0)
        rows[s, a] = listed

    def following(moves: dict[int, float], s: int, a: int, left: int) -> NDArray[np.float64]:
        """What is earned and how it ends after a move, with so many steps left then."""
        total = np.zeros(ends + 2)
        for c, p in moves.items():
            total[0] += p * posterior.reward[s, a, c]
            if reached[c] >= states:
                total[1 + reached[c] - states] += p
            else:
                total += p * np.append(discount, np.ones(ends + 1)) * value[left, reached[c]]
        return total

    value = {(0, s): np.eye(ends + 2)[-1] for s in range(states)}
    for left in range(1, horizon + 1):
        for s in range(states):
            value[left, s] = np.zeros(ends + 2)
            for a in np.flatnonzero(target[s]).tolist():
                value[left, s] += target[s, a] * following(rows[s, a], s, a, left - 1)
                away = dict(enumerate(rest[s, a] * divided[s, a]))
                value[left, s] += target[s, a] * following(away, s, a, left - 1)

    found = np.zeros((len(log), ends + 2))
    for episode in range(len(log)):
        now = {int(log.first_state[episode]): 1.0}
        steps = range(log.offsets[episode], log.offsets[episode + 1])
        for t, i in enumerate(steps):
            left = horizon - t - 1
            seen = (int(log.state[i]), int(log.action[i]))
            k = int(log.next_state[i])
            if visits and i == steps[-1] and log.outcome[episode] >= 0:
                k = states + int(log.outcome[episode])
            k = reached.index(k)
            later: dict[int, float] = {}
            scale = np.append(discount**t, np.ones(ends + 1))
            for s, mass in now.items():
                for a in np.flatnonzero(target[s]).tolist():
                    moves = {k: 1.0}
                    if (s, a) != seen:
                        p, q = np.zeros(size + 2), np.zeros(size + 2)
                        p[list(rows[seen])], p[size] = list(rows[seen].values()), rest[seen]
                        q[list(rows[s, a])], q[size + 1] = list(rows[s, a].values()), rest[s, a]
                        moved = bf.counterfactual_distribution(p, q, k)
                        away = dict(enumerate(moved[size + 1] * divided[s, a]))
                        found[episode] += mass * target[s, a] * scale * following(away, s, a, left)
                        moves = {c: moved[c] for c in rows[s, a]}
                    for c, chance in moves.items():
                        part = mass * target[s, a] * chance
                        found[episode, 0] += discount**t * part * posterior.reward[s, a, c]
                        if reached[c] >= states:
                            found[episode, 1 + reached[c] - states] += part
                        else:
                            later[reached[c]] = later.get(reached[c], 0.0) + part
            now = later
        scale = np.append(discount ** len(steps), np.ones(ends + 1))
        for s, mass in now.items():
            found[episode] += mass * scale * value[horizon - len(steps), s]
    first = np.array([value[horizon, s][0] for s in range(states)])
    return found[:, 1:], found[:, 0], first
