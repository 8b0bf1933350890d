"""The estimators by name, and the inputs that some of them need."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

from butfor.checks import check_choice
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimators.columns import Columns
from butfor.evaluate.estimators.doubly_robust import doubly_robust, magic, weighted_doubly_robust
from butfor.evaluate.estimators.importance import (
    importance_sampling,
    observed,
    observed_continued,
    per_decision,
    per_decision_weighted,
    weighted,
)
from butfor.evaluate.estimators.model_based import (
    counterfactual,
    counterfactual_draws,
    fitted_q,
    model_based,
    model_sampled,
)
from butfor.evaluate.sample import Sample
from butfor.types import Floats

Estimator = Callable[[EpisodeColumns, Floats], Floats]  # (sample, weights [B, n]) -> values [B]


@dataclass(frozen=True)
class OnColumns:
    """An estimator that needs only columns: of episodes, or of groups of them."""

    function: Callable[[Columns, Floats], Floats]  # (columns, weights [B, n]) -> values [B]
    counterfactuals: bool = False  # whether it needs these too

    def __call__(self, sample: Sample, weights: Floats) -> Floats:
        """Evaluate it under each row of weights [B, n], [B]."""
        return self.function(sample.columns if self.counterfactuals else sample.logged, weights)


OBSERVED, CONTINUED = "Observed", "Observed, continued"  # the second only if it is another
RECORDS = (OBSERVED, CONTINUED)  # whatever the target is
ESTIMATORS: dict[str, Estimator] = {
    OBSERVED: OnColumns(observed),
    CONTINUED: OnColumns(observed_continued),
    "IS": OnColumns(importance_sampling),
    "WIS": OnColumns(weighted),
    "PDIS": OnColumns(per_decision),
    "PDWIS": OnColumns(per_decision_weighted),
    "DR": OnColumns(doubly_robust),
    "WDR": OnColumns(weighted_doubly_robust),
    "MAGIC": OnColumns(magic),
    "FQE": fitted_q,
    "MB": OnColumns(model_based),
    "MB (sampled)": model_sampled,
    "CF": OnColumns(counterfactual, counterfactuals=True),
    "CF (draws)": counterfactual_draws,
}
CROSS_FITTED = ("MB (cross-fitted)", "CF (cross-fitted)")
LOST = "censored episodes that the model continues"
NEEDS = {CONTINUED: LOST, "CF (draws)": "draws=...", "True": "truth=..."}
NEEDS |= dict.fromkeys(CROSS_FITTED, "learn=...")
NAMES = (*ESTIMATORS, *CROSS_FITTED, "True")
HIDDEN = (*RECORDS, "MB", "CF", "True")  # importance weights are invalid with a hidden state
COUNTED = ("FQE", "MB (sampled)")  # by state, which must occur more than once


def compared_with(names: Container[str]) -> str:
    """Return which of the named estimates the others are compared with."""
    return CONTINUED if CONTINUED in names else OBSERVED


def check_names(
    estimators: Sequence[str] | None,
    given: Mapping[str, object | None],
    *,
    hidden: bool,
    sampled: bool = False,
) -> tuple[str, ...]:
    """Return the estimators asked for; by default all that the `given` inputs make possible."""
    known = HIDDEN if hidden else tuple(n for n in NAMES if not (sampled and n in COUNTED))
    possible = [name for name in known if name not in NEEDS or given[NEEDS[name]] is not None]
    if estimators is None:
        return tuple(name for name in possible if name != "MB (sampled)")
    names = (estimators,) if isinstance(estimators, str) else tuple(estimators)
    if not names:
        raise ValueError(f"no estimator given; choose from {', '.join(map(repr, known))}")
    for name in names:
        check_choice(name, "estimator", NAMES)
        if name not in known:
            where = "for a model with a hidden state"
            if sampled:
                where = "where states cannot be enumerated"
            raise ValueError(
                f"estimator {name!r} is not available {where}; choose from {', '.join(known)}"
            )
        if name not in possible:
            raise ValueError(f"estimator {name!r} needs {NEEDS[name]}; see estimate_values")
    both = {OBSERVED: [name for name in RECORDS if name in possible]}  # neither alone would be true
    return tuple(dict.fromkeys(one for name in names for one in both.get(name, [name])))
