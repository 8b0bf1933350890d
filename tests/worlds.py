"""Random worlds in which the truth is known, and how often credible intervals hold it there."""

from collections.abc import Callable
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

import butfor as bf
from butfor.models.backoff import STRENGTHS, build_table
from butfor.models.factored import END, Factor, FactoredModel, Rewards
from butfor.models.hierarchy import WEIGHTS, draw_gamma, normalized
from butfor.models.planning import state_values
from butfor.models.simulate import simulate_model
from butfor.models.simulate_factored import simulate_factored
from butfor.replay import credible

STATES, ACTIONS, HORIZON = 6, 4, 6
TAKEN = (0.62, 0.35, 0.03, 0.0)  # how often actions are taken in a state, in random order
OUTCOMES = (bf.Outcome("died", -1.0, bad=True), bf.Outcome("home", 1.0))
TIE = 1e-3  # returns that are equal
World = bf.TabularMDP | FactoredModel


class Coverage(NamedTuple):
    """How often the 95% intervals of one log hold the truth; nan where there is nothing to hold."""

    patients: float  # share in the middle, of those whose return is not the same in all models
    rare: float  # the same of those for whom the policy begins with what was seldom or never done
    intervals: float  # share of closed intervals that hold the truth
    value: float  # of the policy


def drawn_world(generator: np.random.Generator) -> bf.TabularMDP:
    """Return a world drawn from the prior of `draw_models`, with its weights."""
    k = generator.choice(WEIGHTS, 3)
    columns = STATES + len(OUTCOMES)
    overall = normalized(draw_gamma(np.full(columns, k[0] / columns), generator))
    state = normalized(draw_gamma(np.tile(k[1] * overall, (STATES, 1)), generator))
    pair = normalized(draw_gamma(np.repeat(k[2] * state[:, None], ACTIONS, axis=1), generator))
    return bf.TabularMDP.from_arrays(pair, outcomes=OUTCOMES)


def sparse_world(generator: np.random.Generator) -> bf.TabularMDP:
    """Return a world that the prior does not have: two or three next states, and rare ends."""
    rows = generator.dirichlet(np.ones(STATES + len(OUTCOMES)), (STATES, ACTIONS))
    rows[generator.random(rows.shape) < 0.6] = 0.0
    rows[..., -2:] += [0.03, 0.05]
    return bf.TabularMDP.from_arrays(normalized(rows), outcomes=OUTCOMES)


def factored_world(generator: np.random.Generator) -> FactoredModel:
    """Return a factored world drawn from the prior of `draw_factored`."""
    variables = (bf.Variable("pulse", ("0", "1", "2")), bf.Variable("sugar", ("0", "1")))

    def factor(variable: str, parents: tuple[str, ...], *shape: int) -> Factor:
        strength = generator.choice(STRENGTHS)

        def row(n: NDArray[np.float64], fewer: NDArray[np.float64]) -> NDArray[np.float64]:
            return normalized(draw_gamma(n + strength * fewer, generator))

        none = np.zeros(shape)
        return Factor(variable, parents, build_table(none[None], row, every=False)[0], none, "")

    return FactoredModel(
        variables,
        (bf.Variable("dose", ("0", "1", "2", "3")),),
        OUTCOMES,
        (
            factor(END, ("next.pulse", "next.sugar", "action.dose"), 3, 2, 4, 3),
            factor("pulse", ("pulse", "action.dose"), 3, 4, 3),
            factor("sugar", ("sugar", "action.dose"), 2, 4, 2),
        ),
        Rewards((), np.array([-1.0, 1.0, 0.0])),
        np.full(STATES, 1 / STATES),
        np.zeros((STATES, ACTIONS), np.int64),
    )


class Case(NamedTuple):
    """A log of a world, the question asked of its learned model, and the true answers."""

    replay: bf.Replay
    rare: NDArray[np.bool_]  # [n] the policy begins with what was seldom or never done
    truth: NDArray[np.float64]  # [n] counterfactual return in the true model
    value: float  # of the policy, from where the episodes began


def make_case(make: Callable[[np.random.Generator], World], episodes: int, seed: int) -> Case:
    """Simulate a log in a world; in each state actions are taken often, seldom and never."""
    generator = np.random.default_rng([seed, episodes])
    world = make(generator)
    taken = np.stack([generator.permutation(TAKEN) for _ in range(STATES)])
    target = np.eye(ACTIONS)[generator.integers(ACTIONS, size=STATES)]
    learned: World
    if isinstance(world, FactoredModel):
        log = simulate_factored(
            world,
            lambda codes: taken[codes[:, 0] * 2 + codes[:, 1]],
            episodes,
            horizon=HORIZON,
            seed=seed,
        )
        parents = {factor.variable: factor.parents for factor in world.factors}
        learned, rows = bf.fit_factored(log, parents=parents), world.tabular()
    else:
        log = simulate_model(world, taken, episodes, horizon=HORIZON, seed=seed)
        learned, rows = bf.fit_mdp(log), world
    replay = bf.Replay(log, learned, target, behavior=taken)
    return Case(
        replay,
        (taken * target).sum(axis=1)[log.first_state] < 0.1,
        replay.ask(model=world, behavior=taken).outcomes().expected_return,
        float(state_values(rows, target, horizon=HORIZON)[log.first_state].mean()),
    )


def coverage(case: Case, ask: Callable[[bf.Replay], credible.Credible], seed: int) -> Coverage:
    """Ask for credible intervals, and whether they hold what is true."""
    with patch.object(credible, "central", wraps=credible.central) as central:
        found = ask(case.replay)
    draws = np.concatenate([c.args[0] for c in central.call_args_list if c.kwargs.get("axis") == 1])
    low, high = found.expected_return.T
    different = np.ptp(draws, axis=1) > TIE
    held = in_the_middle(draws, case.truth, np.random.default_rng(seed))
    policy = found.estimates.set_index("estimator").loc["MB"]
    return Coverage(
        mean_of(held[different]),
        mean_of(held[different & case.rare]),
        mean_of(((low <= case.truth) & (case.truth <= high))[different]),
        float(policy["low"] <= case.value <= policy["high"]),
    )


def summarize(found: list[Coverage]) -> tuple[Coverage, Coverage]:
    """Return the mean over logs, and its standard error."""
    table = np.array(found)
    logs = np.isfinite(table).sum(axis=0)
    mean, error = np.nanmean(table, axis=0), np.nanstd(table, axis=0, ddof=1) / np.sqrt(logs)
    return Coverage(*mean.tolist()), Coverage(*error.tolist())


def in_the_middle(
    draws: NDArray[np.float64], truth: NDArray[np.float64], generator: np.random.Generator
) -> NDArray[np.bool_]:
    """Whether the truth is among the middle 95% of the draws, [n]; ties are in random order.

    If all of them come from one distribution, the place of the truth is uniform, so that it is in
    the middle with probability .95 exactly. Closed intervals hold more if many draws are equal, as
    where a patient is all but certain to die in most models.
    """
    below = (draws < truth[:, None] - TIE).sum(axis=1)
    tied = (np.abs(draws - truth[:, None]) <= TIE).sum(axis=1)
    place = (below + generator.random(len(truth)) * (tied + 1)) / (draws.shape[1] + 1)
    return np.abs(place - 0.5) < 0.475


def mean_of(values: NDArray[np.float64]) -> float:
    """Return the mean, nan of nothing."""
    return float(values.mean()) if len(values) else float("nan")
