"""Caution: how a plan avoids actions that look good because they were seldom taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from butfor.checks import check_pseudo_count, check_whole
from butfor.models.cases import similar_cases
from butfor.models.factored import FactoredModel
from butfor.models.hierarchy import LEAST
from butfor.models.lookahead import Lookahead, look_ahead
from butfor.models.mdp import TabularMDP, total_by
from butfor.models.posterior import draw_factored
from butfor.types import Floats

DRAWS = 50  # models; always the same ones, so that a plan has no seed
MOST_RISK = 0.5  # from there on an action would do that is probably worse


@dataclass(frozen=True)
class Caution:
    """What a plan does about actions that were seldom taken; see `policy_iteration`.

    Cases are logged transitions of the same state and action; in a factored model those that share
    the parents of each variable, the fewest over variables (`similar_cases`).

    Parameters
    ----------
    bad_cases
        Imagined cases of each action in each state that ended in the outcome of lowest reward (if
        there are no outcomes: that led to the value of the worst state). An action with n cases is
        expected to end so with probability bad_cases / (n + bad_cases), beyond what the model says.
    least_cases
        Take only actions with at least this many cases, or the usual one: the action that was taken
        most often in that state.
    risk : optional
        Change the usual action only where another one is better with probability 1 - risk, which is
        estimated by drawing models from their posterior. Takes longer; needs some bad cases,
        because in a row that was seen once nothing varies.
    """

    bad_cases: float = 2.0
    least_cases: int = 0
    risk: float | None = None

    def __post_init__(self) -> None:
        check_whole(self.least_cases, "least_cases", 0, "a whole number of cases")
        check_pseudo_count(self.bad_cases, "bad_cases")
        if self.risk is None:
            return
        if not 0 < self.risk <= MOST_RISK:
            raise ValueError(
                f"risk {self.risk}: give a probability above 0, at most {MOST_RISK}, or None"
            )
        if self.bad_cases == 0:
            raise ValueError(
                "risk needs bad_cases above 0: without them what was seen once would be certain"
            )

    def trust(self, model: TabularMDP | FactoredModel) -> Floats | None:
        """Return the probability that the model is right about each pair, [S, A]; None: it is."""
        if self.bad_cases == 0:
            return None
        # n / (n + bad), which is 1 for infinitely many cases
        return np.asarray(1 - self.bad_cases / (cases_of(model) + self.bad_cases))

    def allowed(self, model: TabularMDP | FactoredModel) -> NDArray[np.bool_]:
        """Mark the actions that may be taken, [S, A]; at least one in each state."""
        enough = cases_of(model) >= self.least_cases
        enough |= usual_actions(model)
        return np.asarray(enough | ~enough.any(axis=1, keepdims=True))

    def draw(self, model: TabularMDP | FactoredModel, worst: float) -> Iterator[Lookahead]:
        """Yield models drawn from their posterior, given real and imagined cases."""
        cases = cases_of(model)
        known = np.isinf(cases)
        for b, drawn in enumerate(_draw_models(model)):
            generator = np.random.default_rng([1, b])
            trust = generator.beta(np.where(known | (cases == 0), 1, cases), self.bad_cases)
            yield look_ahead(drawn, np.where(known, 1.0, np.where(cases == 0, 0.0, trust)), worst)


def cases_of(model: TabularMDP | FactoredModel) -> Floats:
    """Return the cases of each state and action, [S, A]; inf if the model was not learned."""
    if isinstance(model, FactoredModel):
        return similar_cases(model)
    return np.where(model.counts.any(), model.counts, np.inf)


def usual_actions(model: TabularMDP | FactoredModel) -> NDArray[np.bool_]:
    """Mark the action that was taken most often in each state, [S, A]; none where none was."""
    counts = model.counts
    return (counts.argmax(axis=1)[:, None] == np.arange(counts.shape[1])) & (counts > 0)


def _draw_models(model: TabularMDP | FactoredModel) -> Iterator[TabularMDP | FactoredModel]:
    """Yield models: each seen row is Dirichlet with as many cases as it has."""
    if isinstance(model, FactoredModel):
        drawn = draw_factored(model, DRAWS)
        yield from map(drawn.model, range(DRAWS))
        return
    entry, rows = model.entry_row, len(model.start) - 1
    weight = model.counts.ravel()[entry] * model.probability
    for b in range(DRAWS):
        gamma = np.maximum(np.random.default_rng([0, b]).standard_gamma(weight), LEAST)
        # rows without cases stay as they are
        shares = np.where(weight > 0, gamma, model.probability)
        yield replace(model, probability=shares / total_by(entry, shares, rows)[entry])
