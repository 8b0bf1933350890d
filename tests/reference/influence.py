"""Influence of an observed episode on its counterfactual, in plain Python."""

from collections import defaultdict
from collections.abc import Sequence

from tests.reference.counterfactual import Distribution, Episode, Model, action_law, next_law


def influence(
    model: Model,
    episode: Episode,
    behavior: Sequence[Sequence[float]],
    target: Sequence[Sequence[float]],
    *,
    shared: bool,
    horizon: int,
) -> tuple[list[float], ...]:
    """By step: mean total variation over the mass still going, that mass, expected |reward|.

    Then, by observed step, the mass in other rows than the observed one, and the part of it in
    rows without any of its labels.
    """
    present: Distribution = {episode.states[0]: 1.0}
    by_step, mass, earned = [], [], []
    other, apart = [0.0] * horizon, [0.0] * horizon
    for t in range(horizon):
        following: Distribution = defaultdict(float)
        distance, size = 0.0, 0.0
        for state, here in present.items():
            for action, chosen in action_law(episode, t, state, behavior, target, shared).items():
                row = model.rows[state, action]
                if t < len(episode.states) and (state, action) != pair(episode, t):
                    other[t] += here * chosen
                    seen = {model.label[x] for x in model.rows[pair(episode, t)]}
                    if not seen & {model.label[x] for x in row}:
                        apart[t] += here * chosen
                law = next_law(model, episode, t, state, action)
                plain = {reached: p for reached, (p, _) in row.items()}
                distance += here * chosen * total_variation(law, plain)
                for reached, moved in law.items():
                    size += here * chosen * moved * abs(row[reached][1])
                    if reached < model.states:
                        following[reached] += here * chosen * moved
        going = sum(present.values())
        by_step.append(distance / going if going > 0 else 0.0)
        mass.append(going)
        earned.append(size)
        present = following
    return by_step, mass, earned, other, apart


def pair(episode: Episode, t: int) -> tuple[int, int]:
    """Observed state and action of a step."""
    return episode.states[t], episode.actions[t]


def total_variation(one: Distribution, other: Distribution) -> float:
    """Half the sum of the absolute differences: the most by which an event's chance differs."""
    return sum(abs(one.get(x, 0.0) - other.get(x, 0.0)) for x in {*one, *other}) / 2
