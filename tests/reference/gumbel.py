"""The Gumbel-Max counterfactual of one categorical draw, in closed form and by sampling.

The mechanism is Y = argmax(log p_i + g_i) with independent Gumbel noise g.  Having seen Y = k under
the factual row p, the counterfactual asks what the same noise would have given under the row q.

With E_i = exp(-g_i), a standard exponential, it is a race: Y = argmin(E_i / p_i).  Everything
below follows from that.  Rows are probabilities that sum to one; zeros are allowed; outcomes count
from 0.
"""

from collections.abc import Sequence
from math import exp, fsum, inf, isinf, log
from random import Random

# ---------------------------------------------------------------------------------------------
# Closed form
# ---------------------------------------------------------------------------------------------


def counterfactual_distribution(
    factual: Sequence[float], counterfactual: Sequence[float], observed: int
) -> list[float]:
    """Return P(Y' = j | Y = observed) for every j, exactly."""
    ratios = [divide(p, q) for p, q in zip(factual, counterfactual, strict=True)]
    own_ratio = ratios[observed]
    result = []
    for outcome, q in enumerate(counterfactual):
        if outcome == observed:
            stay = 0.0 if isinf(own_ratio) else 1 / total_rate(factual, counterfactual, own_ratio)
            result.append(stay)
        elif ratios[outcome] < own_ratio:
            result.append(q * integral(factual, counterfactual, ratios[outcome], own_ratio))
        else:
            result.append(0.0)
    return result


def divide(p: float, q: float) -> float:
    """Return the ratio r = p / q at which an entry switches, infinite where q = 0."""
    return p / q if q > 0 else inf


def total_rate(factual: Sequence[float], counterfactual: Sequence[float], u: float) -> float:
    """Return D(u), the sum over i of max(p_i, u q_i)."""
    return fsum(max(p, u * q) for p, q in zip(factual, counterfactual, strict=True))


def integral(
    factual: Sequence[float], counterfactual: Sequence[float], start: float, stop: float
) -> float:
    """Return the integral of 1 / D(u)^2 from start to stop, where stop may be infinite."""
    ratios = [divide(p, q) for p, q in zip(factual, counterfactual, strict=True)]
    breaks = sorted({r for r in ratios if start < r < stop})
    points = [start, *breaks] if isinf(stop) else [start, *breaks, stop]
    rates = [total_rate(factual, counterfactual, point) for point in points]
    # D is linear between two neighbouring points, so the integral there is exact.
    pieces = [(points[i + 1] - points[i]) / rates[i] / rates[i + 1] for i in range(len(points) - 1)]
    if isinf(stop):
        # Past the last break every entry has switched, so D grows with slope sum(q).
        pieces.append(1 / fsum(counterfactual) / rates[-1])
    return fsum(pieces)


# ---------------------------------------------------------------------------------------------
# Three samplers of the noise, given the observed outcome
# ---------------------------------------------------------------------------------------------


def noise_by_rejection(factual: Sequence[float], observed: int, random: Random) -> list[float]:
    """Draw noise from its prior until it reproduces the observed outcome."""
    while True:
        noise = [draw_gumbel(random) for _ in factual]
        if counterfactual_outcome(factual, noise) == observed:
            return noise


def noise_top_down(factual: Sequence[float], observed: int, random: Random) -> list[float]:
    """Draw the maximum of log p + g first, then every other entry truncated below it."""
    maximum = draw_gumbel(random)
    noise = []
    for outcome, p in enumerate(factual):
        if p == 0:
            noise.append(draw_gumbel(random))
        elif outcome == observed:
            noise.append(maximum - log(p))
        else:
            noise.append(draw_truncated_gumbel(log(p), maximum, random) - log(p))
    return noise


def noise_by_race(factual: Sequence[float], observed: int, random: Random) -> list[float]:
    """Draw the winner's arrival time, then how much later each of the others arrives."""
    winning_time = draw_exponential(random)
    noise = []
    for outcome, p in enumerate(factual):
        delay = 0.0 if outcome == observed else draw_exponential(random)
        noise.append(-log(p * winning_time + delay))
    return noise


def draw_exponential(random: Random) -> float:
    """Draw a standard exponential."""
    return random.expovariate(1.0)


def draw_gumbel(random: Random) -> float:
    """Draw a standard Gumbel."""
    return -log(draw_exponential(random))


def draw_truncated_gumbel(location: float, bound: float, random: Random) -> float:
    """Draw a Gumbel with this location that lies below the bound, by inverting its CDF.

    The CDF is exp(-exp(location - x)); the draw solves CDF(x) = uniform * CDF(bound).
    """
    uniform = 1 - random.random()  # in (0, 1], so that its logarithm is finite
    return location - log(exp(location - bound) - log(uniform))


def counterfactual_outcome(counterfactual_row: Sequence[float], noise: Sequence[float]) -> int:
    """Return the argmax of log q + g over the outcomes that q allows."""
    possible = [outcome for outcome, q in enumerate(counterfactual_row) if q > 0]
    return max(possible, key=lambda outcome: log(counterfactual_row[outcome]) + noise[outcome])
