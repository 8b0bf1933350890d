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
from butfor.studies.models.clustered import Clustered, cluster_states
from butfor.types import Floats

TABULAR, COUNTS, TRUE = "Tabular", "Factored, counts", "True model"
CLUSTERS = "Tabular on clusters"
MOST_CLUSTERS = 100
KNOWN_ENDS = "Factored, counts, rule of ends given"
CLASSIFIERS = {f"Factored, {name}": name for name in (LOGISTIC, BOOSTING)}
MODELS = (TABULAR, CLUSTERS, COUNTS, KNOWN_ENDS, *CLASSIFIERS, TRUE)


@dataclass(frozen=True, eq=False)
class Learned:
    """A model and the plan made on it."""

    model: TabularMDP | FactoredModel
    clustered: Clustered | None = None  # the states of the model, if they are clusters

    @property
    def rows(self) -> TabularMDP:
        """The model's transition rows, with noise on next states."""
        return self.model.tabular() if isinstance(self.model, FactoredModel) else self.model

    @cached_property
    def plan(self) -> Floats:
        """The policy of highest value in the model, [S, A]."""
        plan = policy_iteration(self.rows, discount=DISCOUNT).table
        return plan if self.clustered is None else plan[self.clustered.of_state]

    def shown(self, log: Episodes) -> Episodes:
        """Return a log in the states of the model."""
        return log if self.clustered is None else self.clustered.log(log)

    def asked(self, policy: Floats) -> Floats:
        """Return a policy [S, A] in the states of the model."""
        return policy if self.clustered is None else self.clustered.reduce(policy)


def learn_models(
    log: Episodes, terminal: str, *, end: AnyFactor | None, classifiers: bool
) -> dict[str, Learned]:
    """Learn every model from a log, by name.

    `end` is the rule of ends, if it can be stated on what the log shows. Classifiers learn only if
    asked to; they and clusters need scikit-learn.
    """
    models = {
        TABULAR: Learned(fit_mdp(log, terminal=terminal)),
        COUNTS: Learned(fit_factored(log)),
    }
    if end is not None:
        models[KNOWN_ENDS] = Learned(fit_factored(log, ends=end))
    if have_classifiers():
        clustered = cluster_states(log, MOST_CLUSTERS)
        models[CLUSTERS] = Learned(fit_mdp(clustered.log(log), terminal=terminal), clustered)
        for name, classifier in CLASSIFIERS.items() if classifiers else ():
            models[name] = Learned(fit_factored(log, make_classifier(classifier)))
    return models
