"""Returns discounted by the time that passed, path by path: no value functions, no matrices."""

from collections.abc import Iterator, Sequence

from tests.reference.counterfactual import Episode, Model, action_law, next_law

Policy = Sequence[Sequence[float]]


def every_path(
    model: Model,
    durations: Sequence[float],
    episode: Episode,
    behavior: Policy,
    target: Policy,
    *,
    horizon: int,
    discount: float,
) -> Iterator[tuple[float, float]]:
    """Yield the probability and the return of every counterfactual path of an episode.

    An episode without actions is a new one from its first state. The reward of a step counts
    discount^T, with T the time between the first decision and that of the step.
    """

    def walk(t: int, state: int, elapsed: float) -> Iterator[tuple[float, float]]:
        if t == horizon or state >= model.states:
            yield 1.0, 0.0
            return
        for action, chosen in action_law(episode, t, state, behavior, target, True).items():
            for reached, moved in next_law(model, episode, t, state, action).items():
                reward = discount**elapsed * model.rows[state, action][reached][1]
                passed = durations[reached] if reached < model.states else 0.0
                for probability, rest in walk(t + 1, reached, elapsed + passed):
                    yield chosen * moved * probability, reward + rest

    yield from walk(0, episode.states[0], 0.0)


def expected_return(*args: object, **options: object) -> float:
    """Return the mean return over every path; see `every_path`."""
    return sum(p * value for p, value in every_path(*args, **options))
