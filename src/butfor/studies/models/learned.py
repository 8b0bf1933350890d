"""The models that are learned from a log, each with the plan made on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from butfor.log.episodes import Episodes
from butfor.models.classifiers import BOOSTING, LOGISTIC, have_classifiers, make_classifier
from butfor.models.factored import AnyFactor, FactoredModel
from butfor.models.fit import fit_mdp
from butfor.models.fit_factored import fit_factored
from butfor.models.mdp import TabularMDP
from butfor.models.planning import policy_iteration
from butfor.studies.article import DISCOUNT
from butfor.types import Floats

TABULAR, COUNTS, TRUE = "Tabular", "Factored, counts", "True model"
KNOWN_ENDS = "Factored, counts, rule of ends given"


CLASSIFIERS = {f"Factored, {name}": name for name in (LOGISTIC, BOOSTING)}
MODELS = (TABULAR, COUNTS, KNOWN_ENDS, *CLASSIFIERS, TRUE)


@dataclass(frozen=True, eq=False)
class Learned:
    """A model and the plan made on it."""

    model: TabularMDP | FactoredModel

    @property
    def rows(self) -> TabularMDP:
        """The model's transition rows, with noise on next states."""
        return self.model.tabular() if isinstance(self.model, FactoredModel) else self.model

    @cached_property
    def plan(self) -> Floats:
        """The policy of highest value in the model, [S, A]."""
        return policy_iteration(self.rows, discount=DISCOUNT)


def learn_models(
    log: Episodes, terminal: str, *, end: AnyFactor | None, classifiers: bool
) -> dict[str, Learned]:
    """Learn every model from a log, by name.

    `end` is the rule of ends, if it can be stated on what the log shows. Classifiers learn only if
    asked to, and if they are installed.
    """
    models: dict[str, TabularMDP | FactoredModel] = {
        TABULAR: fit_mdp(log, terminal=terminal),
        COUNTS: fit_factored(log),
    }
    if end is not None:
        models[KNOWN_ENDS] = fit_factored(log, ends=end)
    if classifiers and have_classifiers():
        for name, classifier in CLASSIFIERS.items():
            models[name] = fit_factored(log, make_classifier(classifier))
    return {name: Learned(model) for name, model in models.items()}
