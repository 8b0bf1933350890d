"""A counterfactual step by step, in plain Python: influence, evidence, probabilities."""

from collections import defaultdict
from collections.abc import Sequence

from tests.reference.counterfactual import Distribution, Episode, Model, action_law, next_law, pays


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
    pairs = list(zip(episode.states, episode.actions, strict=True))
    for t in range(horizon):
        following: Distribution = defaultdict(float)
        distance, size = 0.0, 0.0
        for state, here in present.items():
            for action, chosen in action_law(episode, t, state, behavior, target, shared).items():
                row = model.rows[state, action]
                if t < len(pairs) and (state, action) != pairs[t]:
                    other[t] += here * chosen
                    seen = {model.label[x] for x in model.rows[pairs[t]]}
                    if not seen & {model.label[x] for x in row}:
                        apart[t] += here * chosen
                law = next_law(model, episode, t, state, action)
                plain = {reached: p for reached, (p, _) in row.items()}
                distance += here * chosen * total_variation(law, plain)
                for reached, moved in law.items():
                    reward = pays(model, episode, t, state, action, reached)
                    size += here * chosen * moved * abs(reward)
                    if reached < model.states:
                        following[reached] += here * chosen * moved
        going = sum(present.values())
        by_step.append(distance / going if going > 0 else 0.0)
        mass.append(going)
        earned.append(size)
        present = following
    return by_step, mass, earned, other, apart


def total_variation(one: Distribution, other: Distribution) -> float:
    """Half the sum of the absolute differences: the most by which an event's chance differs."""
    return sum(abs(one.get(x, 0.0) - other.get(x, 0.0)) for x in {*one, *other}) / 2


def evidence(
    model: Model,
    episode: Episode,
    behavior: Sequence[Sequence[float]],
    target: Sequence[Sequence[float]],
    counts: Sequence[Sequence[int]],
    own: Sequence[tuple[int, int]],
    *,
    shared: bool,
    horizon: int,
) -> tuple[list[float], list[float], list[Distribution]]:
    """By step: median similar past cases, mass on fewer than ten; and where the episode is.

    The cases of a pair are those of the log without the episode's own pairs. Outcomes keep their
    mass.
    """
    place: Distribution = {episode.states[0]: 1.0}
    medians, thin, places = [], [], [dict(place)]
    for t in range(horizon):
        following: Distribution = defaultdict(float)
        weighed = []  # (cases, mass)
        for state, here in place.items():
            if state >= model.states:
                following[state] += here
                continue
            for action, chosen in action_law(episode, t, state, behavior, target, shared).items():
                cases = counts[state][action] - own.count((state, action))
                weighed.append((cases, here * chosen))
                for reached, moved in next_law(model, episode, t, state, action).items():
                    following[reached] += here * chosen * moved
        weighed = sorted((cases, mass) for cases, mass in weighed if mass > 0)
        half = sum(mass for _, mass in weighed) / 2
        passed, median = 0.0, float("nan")
        for cases, mass in weighed:
            passed, median = passed + mass, float(cases)
            if passed >= half - 1e-12:
                break
        medians.append(median)
        thin.append(sum(mass for cases, mass in weighed if cases < 10))
        place = following
        places.append(dict(place))
    return medians, thin, places
