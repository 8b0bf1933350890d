"""The Gumbel-Max mechanism: the outcome is argmax_j log p_j + g_j, g standard Gumbel noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from butfor import kernels
from butfor.checks import check_distributions
from butfor.mechanisms.protocol import (
    Mechanism,
    counterfactual_rows,
    kernel_coupling,
    rows_by_kernel,
)
from butfor.types import Floats

Sampler = Callable[[Floats, int, int, np.random.Generator], Floats]
MOST_REJECTED = 10_000_000  # expected prior draws beyond which rejection is refused


@dataclass(frozen=True)
class GumbelMax:
    """Oberst & Sontag's mechanism: outcomes with the same label share their noise between rows.

    It obeys counterfactual stability: an outcome other than the observed one needs a larger
    relative rise in probability. Data cannot distinguish it from other mechanisms with the same
    rows.
    """

    counterfactual_rows = rows_by_kernel

    def coupling(self, size: int) -> kernels.Coupling:
        """Return the mechanism as kernels take it."""
        return kernel_coupling(kernels.GUMBEL_MAX)

    def sample_noise(
        self,
        factual: ArrayLike,
        observed: int,
        *,
        size: int = 1,
        seed: int | np.random.Generator = 0,
        method: str = "top-down",
    ) -> Floats:
        """Draw Gumbel noise given the observed outcome, [size, n], as the paper does.

        `method` is "top-down" (the maximum first, the others truncated below it), "race" (the same
        as exponential arrival times) or "rejection" (prior draws, kept if they give `observed`,
        which takes 1 / p draws each). Outcomes of probability 0 keep their prior noise.
        """
        p = check_distributions(factual, "factual row")
        if p.ndim != 1 or not 0 <= observed < len(p):
            raise ValueError(
                f"observed {observed}, row of shape {p.shape}: give one row [n] and a position"
            )
        if p[observed] == 0:
            raise ValueError(f"the observed outcome {observed} has probability 0 in the row")
        if method not in SAMPLERS:
            raise ValueError(f"method {method!r}: give one of {', '.join(SAMPLERS)}")
        return SAMPLERS[method](p, observed, size, np.random.default_rng(seed))


def counterfactual_distribution(
    factual: ArrayLike,
    counterfactual: ArrayLike,
    observed: ArrayLike,
    *,
    mechanism: Mechanism | None = None,
) -> Floats:
    """Return the distribution of the outcome under another row, given the observed one.

    Exact, in O(n log n): with r_i = p_i / q_i, D(u) = sum_i max(p_i, u q_i) and F the integral of
    1 / D^2 from 0, P(k | k) = 1 / D(r_k) and P(j | k) = q_j max(F(r_k) - F(r_j), 0).

    Parameters
    ----------
    factual, counterfactual : [n] or [m, n]
        Probabilities of the same n outcomes, under the action taken and under the alternative.
    observed : int or [m]
        The observed outcome, counted from 0.
    mechanism
        By default `GumbelMax()`. Data do not identify counterfactuals: this is an assumption.

    Returns
    -------
    [n] or [m, n]
        Abduction, action and prediction in one step; the rows sum to one.
    """
    chosen = GumbelMax() if mechanism is None else mechanism
    return counterfactual_rows(chosen, factual, counterfactual, observed)


def _top_down(p: Floats, observed: int, size: int, generator: np.random.Generator) -> Floats:
    """Draw the maximum of log p + g, standard Gumbel whatever the argmax, then the rest below."""
    noise = generator.gumbel(size=(size, len(p)))
    top = generator.gumbel(size=size)
    possible = p > 0
    location = np.log(p[possible])
    shifted = noise[:, possible] + location
    # truncation of a Gumbel below `top`: -log(exp(-top) + exp(-shifted))
    noise[:, possible] = -np.logaddexp(-top[:, None], -shifted) - location
    noise[:, observed] = top - np.log(p[observed])
    return noise


def _race(p: Floats, observed: int, size: int, generator: np.random.Generator) -> Floats:
    """Draw E = exp(-g): the observed outcome has the least E / p, at t ~ Exp(1)."""
    arrival = generator.exponential(size=(size, len(p)))
    winner = generator.exponential(size=size)
    arrival += p * winner[:, None]
    arrival[:, observed] = p[observed] * winner
    return -np.log(arrival)


def _rejection(p: Floats, observed: int, size: int, generator: np.random.Generator) -> Floats:
    """Draw from the prior and keep the draws that give the observed outcome."""
    expected = size / p[observed]
    if expected > MOST_REJECTED:
        raise ValueError(
            f"rejection would need about {expected:.3g} draws for an outcome of probability "
            f"{p[observed]:.3g}; use method='top-down'"
        )
    with np.errstate(divide="ignore"):
        location = np.log(p)
    kept: list[Floats] = []
    while sum(map(len, kept)) < size:
        noise = generator.gumbel(size=(int(1.2 * expected) + 16, len(p)))
        kept.append(noise[(noise + location).argmax(axis=1) == observed])
    return np.concatenate(kept)[:size]


SAMPLERS: dict[str, Sampler] = {"top-down": _top_down, "race": _race, "rejection": _rejection}
