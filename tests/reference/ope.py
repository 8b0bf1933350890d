"""Off-policy estimators in plain Python: loops over episodes and steps, dictionaries.

`counts` says how often each episode counts. Values of the model come from its rows by recursion.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from tests.reference.counterfactual import Episode, Model, action_law, next_law

Policy = Sequence[Sequence[float]]
Table = dict[tuple[int, ...], float]


class Step(NamedTuple):
    """A logged decision; `reached` is None where nothing follows."""

    state: int
    action: int
    reward: float
    reached: int | None


class World(NamedTuple):
    """What estimators are told besides the log."""

    model: Model
    target: Policy
    behavior: Policy
    horizon: int
    discount: float
    hazard: Sequence[float] | None = None  # of being lost, by state


Log = list[list[Step]]


def weight(world: World, episode: list[Step], t: int) -> float:
    """w_t, the product of the ratios of steps 0 .. t; the episode's end carries forward.

    With hazards, each decision but the first is divided by the probability of not being lost there,
    and a lost episode has no weight past its end.
    """
    product = 1.0
    for u, step in enumerate(episode[: t + 1]):
        product *= ratio_of(world, step, u)
    lost = world.hazard is not None and is_lost(world, episode) and t >= len(episode)
    return 0.0 if lost else product


def ratio_of(world: World, step: Step, t: int) -> float:
    ratio = world.target[step.state][step.action] / world.behavior[step.state][step.action]
    return ratio if world.hazard is None or t == 0 else ratio / (1 - world.hazard[step.state])


def is_lost(world: World, episode: list[Step]) -> bool:
    return episode[-1].reached is not None and len(episode) < world.horizon


def total_return(world: World, episode: list[Step]) -> float:
    return sum(world.discount**t * step.reward for t, step in enumerate(episode))


def observed(world: World, log: Log, counts: Sequence[float]) -> float:
    """The mean recorded return."""
    values = (total_return(world, episode) for episode in log)
    return sum(c * value for c, value in zip(counts, values, strict=True)) / sum(counts)


def continued(world: World, log: Log, counts: Sequence[float]) -> float:
    """The mean return; a lost episode goes on under the behavior in the model."""
    usual, memory, total = world._replace(target=world.behavior), {}, 0.0
    for count, episode in zip(counts, log, strict=True):
        value, last = total_return(world, episode), episode[-1].reached
        if is_lost(world, episode):
            left = world.horizon - len(episode)
            value += world.discount ** len(episode) * state_value(usual, last, left, memory)
        total += count * value
    return total / sum(counts)


def importance_sampling(world: World, log: Log, counts: Sequence[float]) -> float:
    total = 0.0
    for count, episode in zip(counts, log, strict=True):
        total += count * weight(world, episode, world.horizon) * total_return(world, episode)
    return total / sum(counts)


def weighted(world: World, log: Log, counts: Sequence[float]) -> float:
    total, weights = 0.0, 0.0
    for count, episode in zip(counts, log, strict=True):
        share = count * weight(world, episode, world.horizon)
        total += share * total_return(world, episode)
        weights += share
    return total / weights if weights else float("nan")


def per_decision(world: World, log: Log, counts: Sequence[float]) -> float:
    total = 0.0
    for count, episode in zip(counts, log, strict=True):
        for t, step in enumerate(episode):
            total += count * world.discount**t * weight(world, episode, t) * step.reward
    return total / sum(counts)


def per_decision_weighted(world: World, log: Log, counts: Sequence[float]) -> float:
    value = 0.0
    for t in range(world.horizon):
        total, weights = 0.0, 0.0
        for count, episode in zip(counts, log, strict=True):
            share = count * weight(world, episode, t)
            weights += share
            if t < len(episode):
                total += share * episode[t].reward
        if weights == 0:
            return float("nan")
        value += world.discount**t * total / weights
    return value


def state_value(world: World, state: int, steps: int, memory: Table) -> float:
    """V_h(s) of the target in the model."""
    if steps == 0 or state >= world.model.states:
        return 0.0
    if (state, steps) not in memory:
        memory[state, steps] = sum(
            chosen * pair_value(world, state, action, steps, memory)
            for action, chosen in enumerate(world.target[state])
        )
    return memory[state, steps]


def pair_value(world: World, state: int, action: int, steps: int, memory: Table) -> float:
    """Q_h(s, a) of the target in the model."""
    return sum(
        p * (reward + world.discount * state_value(world, reached, steps - 1, memory))
        for reached, (p, reward) in world.model.rows[state, action].items()
    )


def model_based(world: World, log: Log, counts: Sequence[float]) -> float:
    memory: Table = {}
    total = 0.0
    for count, episode in zip(counts, log, strict=True):
        total += count * state_value(world, episode[0].state, world.horizon, memory)
    return total / sum(counts)


def value_at(world: World, episode: list[Step], t: int, memory: Table) -> float:
    """Model value at step t of an episode; past its end only if it broke off in some state."""
    if t < len(episode):
        return state_value(world, episode[t].state, world.horizon - t, memory)
    reached = episode[-1].reached
    if t > len(episode) or reached is None or t >= world.horizon:
        return 0.0
    return state_value(world, reached, world.horizon - t, memory)


def doubly_robust(world: World, log: Log, counts: Sequence[float]) -> float:
    """Jiang & Li's recursion, from the last step back."""
    memory: Table = {}
    total = 0.0
    for count, episode in zip(counts, log, strict=True):
        value = value_at(world, episode, len(episode), memory)
        for t in reversed(range(len(episode))):
            step, left = episode[t], world.horizon - t
            ratio = ratio_of(world, step, t)
            surprise = step.reward + world.discount * value
            surprise -= pair_value(world, step.state, step.action, left, memory)
            value = state_value(world, step.state, left, memory) + ratio * surprise
        total += count * value
    return total / sum(counts)


def partial_returns(
    world: World, log: Log, counts: Sequence[float]
) -> tuple[list[float], list[list[float]]]:
    """g_j for j = -1 .. H - 1 (Thomas & Brunskill) and what each episode adds to it."""
    memory: Table = {}

    def normalised(i: int, t: int) -> float:
        if t < 0:
            return 1.0 / sum(counts)
        total = sum(c * weight(world, e, t) for c, e in zip(counts, log, strict=True))
        return weight(world, log[i], t) / total if total else 0.0

    shares = []
    for i, episode in enumerate(log):
        mine = []
        for j in range(-1, world.horizon):
            share = (
                world.discount ** (j + 1)
                * normalised(i, j)
                * value_at(world, episode, j + 1, memory)
            )
            for t in range(j + 1):
                base = value_at(world, episode, t, memory)
                share += world.discount**t * normalised(i, t - 1) * base
                if t < len(episode):
                    step = episode[t]
                    q = pair_value(world, step.state, step.action, world.horizon - t, memory)
                    share += world.discount**t * normalised(i, t) * (step.reward - q)
            mine.append(share)
        shares.append(mine)
    sums = [
        sum(c * mine[j] for c, mine in zip(counts, shares, strict=True))
        for j in range(world.horizon + 1)
    ]
    return sums, shares


def weighted_doubly_robust(world: World, log: Log, counts: Sequence[float]) -> float:
    return partial_returns(world, log, counts)[0][-1]


def magic(
    world: World, log: Log, counts: Sequence[int], slots: Sequence[Sequence[int]], ridge: float
) -> float:
    """MAGIC; row k of `slots` says how often the k-th inner resample takes each place of the
    log in which every episode stands as often as it counts.
    """
    stands = [i for i, count in enumerate(counts) for _ in range(count)]
    n = len(stands)
    partial, shares = partial_returns(world, log, counts)
    size = len(partial)
    error = np.zeros((size, size))
    for i in stands:
        gap = [shares[i][j] - partial[j] / n for j in range(size)]
        error += n / (n - 1) * np.outer(gap, gap)
    drawn = []
    for row in slots:
        inner = [0] * len(log)
        for place, times in enumerate(row):
            inner[stands[place]] += int(times)
        drawn.append(weighted_doubly_robust(world, log, inner))
    return blend(partial, error, drawn, ridge)


def magic_of_groups(
    world: World,
    log: Log,
    counts: Sequence[float],
    group: Sequence[int],
    slots: Sequence[Sequence[int]],
    ridge: float,
) -> float:
    """MAGIC from sums over groups; row k of `slots` says how often the k-th inner resample takes
    each group in which episodes count.
    """
    partial, shares = partial_returns(world, log, counts)
    size, total = len(partial), sum(counts)
    members = {g: [i for i in range(len(log)) if group[i] == g] for g in sorted(set(group))}
    members = {g: mine for g, mine in members.items() if any(counts[i] for i in mine)}
    n, error = len(members), np.zeros((size, size))
    for mine in members.values():
        gap = [
            sum(counts[i] * (shares[i][j] - partial[j] / total) for i in mine) for j in range(size)
        ]
        error += n / (n - 1) * np.outer(gap, gap)
    drawn = []
    for row in slots:
        times = dict(zip(members, row, strict=True))
        inner = [count * times.get(g, 0) for count, g in zip(counts, group, strict=True)]
        drawn.append(weighted_doubly_robust(world, log, inner))
    return blend(partial, error, drawn, ridge)


def blend(
    partial: Sequence[float], error: np.ndarray, drawn: Sequence[float], ridge: float
) -> float:
    """The mixture of partial returns, given their covariance and resampled values of the last."""
    low, high = (float(np.quantile(drawn, share)) for share in (0.05, 0.95))
    low, high = min(low, partial[-1]), max(high, partial[-1])
    bias = [max(g - high, 0.0) + min(g - low, 0.0) for g in partial]
    error = error + np.outer(bias, bias)
    shares_of = best_mixture(error + ridge * error.diagonal().max() * np.eye(len(partial)))
    return float(sum(x * g for x, g in zip(shares_of, partial, strict=True)))


def best_mixture(error: np.ndarray) -> list[float]:
    """x >= 0 with sum 1 and least x' M x, by trying every set of shares that are not 0."""
    best, least = [], float("inf")
    size = len(error)
    for count in range(1, size + 1):
        for chosen in combinations(range(size), count):
            part = np.linalg.solve(error[np.ix_(chosen, chosen)], np.ones(count))
            x = np.zeros(size)
            x[list(chosen)] = part / part.sum()
            if (x >= -1e-12).all() and x @ error @ x < least:
                best, least = x.tolist(), float(x @ error @ x)
    return best


def fitted_q(world: World, log: Log, counts: Sequence[float]) -> float:
    """Q_h as the mean over logged steps, step by step; 0 for pairs never logged."""
    q: dict[tuple[int, int], float] = {}
    for _ in range(world.horizon):
        total: dict[tuple[int, int], float] = defaultdict(float)
        times: dict[tuple[int, int], float] = defaultdict(float)
        for count, episode in zip(counts, log, strict=True):
            for step in episode:
                later = 0.0 if step.reached is None else policy_mean(world, q, step.reached)
                pair = step.state, step.action
                total[pair] += count * (step.reward + world.discount * later)
                times[pair] += count
        q = {pair: total[pair] / times[pair] for pair in total if times[pair] > 0}
    value = 0.0
    for count, episode in zip(counts, log, strict=True):
        value += count * policy_mean(world, q, episode[0].state)
    return value / sum(counts)


def policy_mean(world: World, q: dict[tuple[int, int], float], state: int) -> float:
    return sum(p * q.get((state, action), 0.0) for action, p in enumerate(world.target[state]))


def unsupported_mass(
    world: World, episode: Episode, unseen: set[tuple[int, int]], *, observed: bool = True
) -> float:
    """Probability that the counterfactual ever uses one of these pairs.

    With `observed` false the target acts in the model instead.
    """
    if not observed:
        episode = Episode(episode.states[:1], [], [])
    present: dict[int, float] = {episode.states[0]: 1.0}
    used = 0.0
    for t in range(world.horizon):
        following: dict[int, float] = defaultdict(float)
        for state, mass in present.items():
            law = action_law(episode, t, state, world.behavior, world.target, True)
            for action, chosen in law.items():
                if (state, action) in unseen:
                    used += mass * chosen
                    continue
                for reached, moved in next_law(world.model, episode, t, state, action).items():
                    if reached < world.model.states:
                        following[reached] += mass * chosen * moved
        present = following
    return used


def bca_quantiles(below: float, jackknife: Sequence[float], confidence: float) -> list[float]:
    """Levels at which the BCa interval reads the resampled values (Efron 1987, equation 3.8)."""
    normal = NormalDist()
    mean = sum(jackknife) / len(jackknife)
    cubes = sum((mean - value) ** 3 for value in jackknife)
    squares = sum((mean - value) ** 2 for value in jackknife)
    acceleration = cubes / (6 * squares**1.5)
    bias = normal.inv_cdf(below)
    levels = []
    for tail in ((1 - confidence) / 2, (1 + confidence) / 2):
        z = bias + normal.inv_cdf(tail)
        levels.append(normal.cdf(bias + z / (1 - acceleration * z)))
    return levels
