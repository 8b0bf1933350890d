"""Models drawn from the posterior: what the counts of a log leave open about its model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from butfor.checks import check_whole
from butfor.log.episodes import Episodes
from butfor.models.fit import count_transitions
from butfor.models.mdp import TabularMDP, total_by
from butfor.random import check_seed
from butfor.types import Floats

PRIOR = 0.01  # so small that a row seen a few times is what was seen, and no row is certain
LEAST = 1e-300  # smallest share of a row that a draw gives to a transition that may happen
MOST_NUMBERS = 300_000_000  # in the tables of all models


@dataclass(frozen=True, eq=False)
class DrawnModels:
    """B models of one support."""

    mean: TabularMDP  # the posterior mean, whose entries all of them have
    probability: Floats  # [E, B]

    def model(self, b: int) -> TabularMDP:
        """Return model b."""
        return replace(self.mean, probability=np.ascontiguousarray(self.probability[:, b]))


def draw_models(
    episodes: Episodes,
    *,
    models: int = 200,
    prior: float = PRIOR,
    seed: int = 0,
    terminal: str = "visits",
    unseen: str | None = None,
) -> DrawnModels:
    """Draw models from the posterior of what a log tells.

    Each row of a seen pair is Dirichlet with its counts plus `prior` on every next state seen from
    that state under any action and on every outcome; rows of unseen pairs keep their rule. Model b
    depends on the seed and b only.
    """
    check_whole(models, "models", 1, "a whole number")
    check_seed(seed)
    if not np.isfinite(prior) or prior <= 0:
        raise ValueError(
            f"prior {prior}: give a number above 0; without one a row seen once would be certain"
        )
    counted = count_transitions(episodes, terminal=terminal, unseen=unseen, prior=prior)
    mean = counted.model()
    if len(mean.probability) * models > MOST_NUMBERS:
        raise ValueError(
            f"models {models}: with {len(mean.probability)} transitions there is memory for at "
            f"most {MOST_NUMBERS // len(mean.probability)}"
        )
    drawn = ~mean.unseen.ravel()[mean.entry_row]
    probability = np.empty((len(drawn), models))
    for b in range(models):
        weight = counted.weight.copy()
        gamma = np.random.default_rng([seed, b]).standard_gamma(counted.weight[drawn])
        weight[drawn] = np.maximum(gamma, LEAST)
        total = total_by(mean.entry_row, weight, len(mean.start) - 1)
        probability[:, b] = weight / total[mean.entry_row]
    return DrawnModels(mean, probability)
