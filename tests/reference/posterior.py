"""Counterfactuals under the uncertainty of the model: one drawn model after the other."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import butfor as bf
from butfor.models.planning import state_values
from butfor.models.posterior import DrawnModels


def outcomes_by_model(
    log: bf.Episodes, drawn: DrawnModels, target: NDArray[np.float64], **options: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return outcome probabilities [n, O + 1, B] and expected returns [n, B]."""
    results = [
        bf.counterfactual_outcomes(log, drawn.model(b), target, **options)
        for b in range(drawn.probability.shape[1])
    ]
    masses = np.stack([result.probability for result in results], axis=-1)
    return masses, np.stack([result.expected_return for result in results], axis=-1)


def values_by_model(
    log: bf.Episodes,
    drawn: DrawnModels,
    target: NDArray[np.float64],
    *,
    horizon: int,
    discount: float = 1.0,
) -> list[float]:
    """Return the target's value in each model, from where the episodes of the log began."""
    return [
        float(
            np.mean(
                state_values(drawn.model(b), target, horizon=horizon, discount=discount)[
                    log.first_state
                ]
            )
        )
        for b in range(drawn.probability.shape[1])
    ]
