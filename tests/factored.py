"""Small factored models and their logs, and the plain twin of each."""

from itertools import product

import numpy as np
from numpy.typing import NDArray

import butfor as bf
from butfor.models.factored import END, Factor, FactoredModel, Rewards
from tests.reference.factored_replay import Part, Seen, World

# pulse has two parents in the next state; sex is static, dose records the action
VARIABLES = (
    bf.Variable("pulse", ("low", "normal", "high")),
    bf.Variable("sugar", ("normal", "high")),
    bf.Variable("sex", ("female", "male"), static=True),
    bf.Variable("dose", ("0", "1")),
)
ACTIONS = (bf.Variable("dose", ("0", "1")),)
OUTCOMES = (bf.Outcome("died", -1.0, bad=True), bf.Outcome("home", 1.0))


def rows(generator: np.random.Generator, *shape: int) -> NDArray[np.float64]:
    """Random rows, some of whose entries are 0."""
    table = generator.dirichlet(np.full(shape[-1], 0.8), shape[:-1])
    table[generator.random(table.shape) < 0.15] = 0.0
    table[..., -1] += 0.05
    return table / table.sum(axis=-1, keepdims=True)


def given(variable: str, parents: tuple[str, ...], table: NDArray[np.float64], source="given"):
    """Return a factor that was not learned from a log."""
    return Factor(variable, parents, table, np.zeros(table.shape), source)


def clinic_model(
    generator: np.random.Generator, *, end: tuple[str, ...] = ("next.pulse", "next.sugar", "dose")
) -> FactoredModel:
    """Two variables that nature moves, one of them by way of the other; a static one and a copy."""
    sizes = {"pulse": 3, "sugar": 2, "sex": 2, "dose": 2}
    shape = [sizes[parent.removeprefix("next.").removeprefix("action.")] for parent in end]
    # the end is rare, and every reward is different
    ends = 0.7 * np.array([0.0, 0.0, 1.0]) + 0.3 * rows(generator, *shape, 3)
    earned = generator.normal(size=(3, 2, 3))
    earned[:] = earned[:, :1]
    return FactoredModel(
        VARIABLES,
        ACTIONS,
        OUTCOMES,
        (
            given(END, end, ends),
            given("pulse", ("pulse", "action.dose", "next.sugar"), rows(generator, 3, 2, 2, 3)),
            given("sugar", ("sugar", "sex"), rows(generator, 2, 2, 2)),
            given("sex", ("sex",), np.eye(2), "static"),
            given("dose", ("action.dose",), np.eye(2), "copies action.dose"),
        ),
        Rewards(("pulse", "action.dose"), earned),
        generator.dirichlet(np.ones(24)),
        np.zeros((24, 2), np.int64),
    )


def tiny_model(
    generator: np.random.Generator, *, end: tuple[str, str] = ("next.pulse", "sugar")
) -> FactoredModel:
    """Sixteen states: as `clinic_model`, but with two levels of the pulse."""
    model = clinic_model(generator)
    return FactoredModel(
        (bf.Variable("pulse", ("low", "high")), *model.state_variables[1:]),
        ACTIONS,
        OUTCOMES,
        (
            given(END, end, rows(generator, 2, 2, 3)),
            given("pulse", ("pulse", "action.dose", "next.sugar"), rows(generator, 2, 2, 2, 2)),
            *(model.factor(name) for name in ("sugar", "sex", "dose")),
        ),
        Rewards(("pulse", "sex"), generator.normal(size=(2, 2, 3))),
        generator.dirichlet(np.ones(16)),
        np.zeros((16, 2), np.int64),
    )


def plain(model: FactoredModel) -> World:
    """Return a model as the plain one of the reference implementation."""
    parts = []
    for factor in model.factors:
        table = factor.table.reshape(-1, factor.table.shape[-1]).tolist()
        places = product(*map(range, factor.table.shape[:-1]))
        rows_of = dict(zip(places, table, strict=True))
        parts.append(Part(factor.variable or None, factor.parents, rows_of))
    tabular = model.tabular()
    rewards = {
        (*divmod(row, model.n_actions), reached): reward
        for row, reached, reward in zip(
            tabular.entry_row.tolist(),
            tabular.next_state.tolist(),
            tabular.reward.tolist(),
            strict=True,
        )
    }
    return World(
        {variable.name: len(variable.levels) for variable in model.state_variables},
        {variable.name: len(variable.levels) for variable in model.action_variables},
        len(model.outcomes),
        parts,
        lambda state, action, reached: rewards[state, action, reached],
    )


def seen_steps(log: bf.Episodes, episode: int) -> list[Seen]:
    """Return the transitions of one episode of a log."""
    low, high = log.offsets[episode], log.offsets[episode + 1]
    ends = [len(log.outcomes)] * (high - low)
    if log.outcome[episode] >= 0:
        ends[-1] = int(log.outcome[episode])
    columns = (log.state, log.action, log.next_state, log.reward)
    steps = zip(*(column[low:high].tolist() for column in columns), ends, strict=True)
    return [
        Seen(state, action, None if reached < 0 else reached, end, reward)
        for state, action, reached, reward, end in steps
    ]


def simulate_factored(
    generator: np.random.Generator,
    model: FactoredModel,
    behavior: NDArray[np.float64],
    episodes: int,
    horizon: int,
) -> bf.Episodes:
    """Draw a log, factor by factor, with the final state of every episode."""
    drawn: list[tuple[list[Seen], int]] = []
    for _ in range(episodes):
        state, steps, end = int(generator.choice(model.n_states, p=model.initial)), [], -1
        while len(steps) < horizon and end < 0:
            action = int(generator.choice(model.n_actions, p=behavior[state]))
            codes = model.codes(np.array([state]), np.array([action]))
            for factor in model.factors:
                level = generator.choice(factor.table.shape[-1], p=factor.rows(codes)[0])
                codes[f"next.{factor.variable}"] = np.array([level])
            after = [codes[f"next.{variable.name}"][0] for variable in model.state_variables]
            sizes = [len(variable.levels) for variable in model.state_variables]
            reached = int(np.ravel_multi_index(after, sizes))
            end = int(codes[f"next.{END}"][0])
            end = -1 if end == len(model.outcomes) else end
            steps.append(Seen(state, action, reached, end))
            state = reached
        drawn.append((steps, end))
    return as_log(drawn, model, horizon)


def as_log(drawn: list[tuple[list[Seen], int]], model: FactoredModel, horizon: int) -> bf.Episodes:
    """Return episodes of steps, each with its outcome, as a log with the model's rewards."""
    steps = [step for one, _ in drawn for step in one]
    reward = plain(model).reward
    states, none = model.n_states, (-1, len(model.outcomes))
    return bf.Episodes.from_arrays(
        [step.state for step in steps],
        [step.action for step in steps],
        [-1 if step.reached is None else step.reached for step in steps],
        reward=[
            reward(s.state, s.action, s.reached if s.end in none else states + s.end) for s in steps
        ],
        offsets=np.cumsum([0] + [len(one) for one, _ in drawn]),
        outcome=[end for _, end in drawn],
        outcomes=model.outcomes,
        states=model.state_variables,
        actions=model.action_variables,
        horizon=horizon,
    )
