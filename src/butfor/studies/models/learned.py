"""The models that are learned from a log, each with the plan made on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from butfor.log.episodes import Episodes
from butfor.models.classifiers import BOOSTING, LOGISTIC, have_classifiers, make_classifier
from butfor.models.factored import FactoredModel
from butfor.models.fit import fit_mdp
from butfor.models.fit_factored import fit_factored
from butfor.models.mdp import TabularMDP
from butfor.models.planning import policy_iteration
from butfor.studies.settings import DISCOUNT
from butfor.types import Floats

TABULAR, COUNTS, TRUE = "Tabular", "Factored, counts", "True model"


@dataclass(frozen=True)
class Learner:
    """How the factors of a model are learned."""

    name: str  # "counts", or of a classifier
    classifier: bool = False

    def learner(self) -> Any:
        """Return the learner as `fit_factored` takes it."""
        return make_classifier(self.name) if self.classifier else self.name


LEARNERS = {
    COUNTS: Learner("counts"),
    f"Factored, {LOGISTIC}": Learner(LOGISTIC, classifier=True),
    f"Factored, {BOOSTING}": Learner(BOOSTING, classifier=True),
}
MODELS = (TABULAR, *LEARNERS, TRUE)


@dataclass(frozen=True, eq=False)
class Learned:
    """A model and the plan made on it."""

    name: str
    model: TabularMDP | FactoredModel

    @property
    def rows(self) -> TabularMDP:
        """The model's transition rows, with noise on next states."""
        return self.model.tabular() if isinstance(self.model, FactoredModel) else self.model

    @cached_property
    def plan(self) -> Floats:
        """The policy of highest value in the model, [S, A]."""
        return policy_iteration(self.rows, discount=DISCOUNT)


def learn_models(log: Episodes, terminal: str, *, classifiers: bool) -> dict[str, Learned]:
    """Learn every model from a log, by name; classifiers only if asked for and installed."""
    models = {TABULAR: Learned(TABULAR, fit_mdp(log, terminal=terminal))}
    for name, how in LEARNERS.items():
        if not how.classifier or (classifiers and have_classifiers()):
            models[name] = Learned(name, fit_factored(log, how.learner()))
    return models
