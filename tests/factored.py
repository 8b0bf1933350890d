"""Small factored models and their logs, and the plain twin of each."""

from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

import butfor as bf
from butfor.models.factored import END, Factor, FactoredModel, Rewards
from tests.reference.factored_replay import Part, Seen, World, reward_of

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

    def part(variable: str | None, parents: tuple[str, ...], table: NDArray[np.float64]) -> Part:
        places = product(*map(range, table.shape[:-1]))
        listed = table.reshape(-1, table.shape[-1]).tolist()
        return Part(variable, parents, dict(zip(places, listed, strict=True)))

    return World(
        {variable.name: len(variable.levels) for variable in model.state_variables},
        {variable.name: len(variable.levels) for variable in model.action_variables},
        len(model.outcomes),
        [part(one.variable or None, one.parents, one.table) for one in model.factors],
        part(None, model.rewards.parents, model.rewards.table),
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
    world = plain(model)
    return bf.Episodes.from_arrays(
        [step.state for step in steps],
        [step.action for step in steps],
        [-1 if step.reached is None else step.reached for step in steps],
        reward=[reward_of(world, s.state, s.action, s.reached, s.end) for s in steps],
        offsets=np.cumsum([0] + [len(one) for one, _ in drawn]),
        outcome=[end for _, end in drawn],
        outcomes=model.outcomes,
        states=model.state_variables,
        actions=model.action_variables,
        horizon=horizon,
    )


def random_world(generator: np.random.Generator) -> FactoredModel:
    """A small model with random parents, in which the state that an end reaches decides its pay."""
    variables = [bf.Variable("x", tuple("abc"[: generator.integers(2, 4)]))]
    variables += [bf.Variable("y", ("no", "yes")), bf.Variable("dose", ("0", "1"))]
    variables = variables[: generator.integers(2, 4)]  # with a record of the action or without
    sizes = {variable.name: len(variable.levels) for variable in variables} | {"action.dose": 2}
    outcomes = OUTCOMES[: generator.integers(1, 3)]
    after = [f"next.{variable.name}" for variable in variables]

    def some(*names: str) -> tuple[str, ...]:
        return tuple(name for name in names if generator.random() < 0.6)

    def shape(parents: tuple[str, ...]) -> list[int]:
        return [sizes[parent.removeprefix("next.")] for parent in parents]

    factors = [
        given(name, parents, rows(generator, *shape(parents), sizes[name]))
        for name, parents in (
            ("x", some("x", "y", "action.dose")),
            ("y", some("x", "y", "action.dose", "next.x")),
        )
    ]
    if len(variables) == 3:
        factors.append(given("dose", ("action.dose",), np.eye(2), "copies action.dose"))
    end = some("x", "action.dose", "next.x", "next.y")
    factors.append(given(END, end, rows(generator, *shape(end), len(outcomes) + 1)))
    pays = (*some("x", "y", "action.dose"), str(generator.choice(after[:2])))
    pays += tuple(name for name in some(*after) if name not in pays)
    return FactoredModel(
        tuple(variables),
        ACTIONS,
        outcomes,
        tuple(factors),
        Rewards(pays, generator.normal(size=(*shape(pays), len(outcomes) + 1))),
        generator.dirichlet(np.ones(int(np.prod([sizes[v.name] for v in variables])))),
        np.zeros((int(np.prod([sizes[v.name] for v in variables])), 2), np.int64),
    )


def without_finals(log: bf.Episodes) -> bf.Episodes:
    """The same log with unknown final states of episodes that ended."""
    following = log.next_state.copy()
    following[(log.offsets[1:] - 1)[log.outcome >= 0]] = -1
    return replace(log, next_state=following)
