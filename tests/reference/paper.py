"""The paper's own procedure: 1000 draws of Gumbel noise for every step of every trajectory.

This is the baseline of the benchmarks, so it uses NumPy as a careful author would.
"""

import numpy as np
from numpy.typing import NDArray

NOISE_DRAWS = 1000


def draw_counterfactual(
    rows: NDArray[np.float64],
    observed: list[tuple[int, int, int]],
    target: NDArray[np.float64],
    horizon: int,
    generator: np.random.Generator,
) -> list[int]:
    """Draw one trajectory of states; `rows` is dense [S, A, S + O], `observed` (s, a, next)."""
    states = [observed[0][0]]
    for t in range(horizon):
        state = states[-1]
        if state >= len(rows):
            break
        action = generator.choice(target.shape[1], p=target[state])
        row = rows[state, action]
        if t < len(observed):
            factual_state, factual_action, reached = observed[t]
            row = counterfactual_row(rows[factual_state, factual_action], row, reached, generator)
        states.append(int(generator.choice(len(row), p=row)))
    return states


def counterfactual_row(
    p: NDArray[np.float64], q: NDArray[np.float64], observed: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Share of the posterior noise draws that give each outcome under the row q."""
    noise = posterior_noise(p, observed, generator)
    with np.errstate(divide="ignore"):
        winners = (np.log(q) + noise).argmax(axis=1)
    return np.bincount(winners, minlength=len(q)) / len(noise)


def posterior_noise(
    p: NDArray[np.float64], observed: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Top-down: the maximum first, the others truncated below it, [1000, n]."""
    top = generator.gumbel(size=(NOISE_DRAWS, 1))
    noise = generator.gumbel(size=(NOISE_DRAWS, len(p)))
    possible = p > 0
    location = np.log(p[possible])
    noise[:, possible] = -np.log(np.exp(-top) + np.exp(-noise[:, possible] - location)) - location
    noise[:, observed] = top[:, 0] - np.log(p[observed])
    return noise
