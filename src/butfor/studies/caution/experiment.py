"""What caution does to the true value of plans: the same logs, planned on in several ways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from butfor import sepsis
from butfor.log.episodes import Episodes
from butfor.models.caution import Caution, usual_actions
from butfor.models.factored import FactoredModel
from butfor.models.fit import fit_mdp
from butfor.models.fit_factored import fit_factored
from butfor.models.mdp import TabularMDP, total_by
from butfor.models.planning import policy_iteration, policy_value
from butfor.models.policies import greedy
from butfor.studies.article import DISCOUNT, HIDDEN, HORIZON, Advance, LogSettings
from butfor.types import Floats

TABULAR, FACTORED = "tabular", "factored"
USUAL, PLAIN, LIKELY = "the usual action", "no caution", "prior by likelihood"
AT_LEAST = "at least 10 cases"
PRIORS = tuple(0.01 * 2**power for power in range(11))  # among which the likelihood chooses
CAUTIONS: dict[str, Caution | None] = {
    PLAIN: None,
    AT_LEAST: Caution(bad_cases=0, least_cases=10),
    "at least 20 cases": Caution(bad_cases=0, least_cases=20),
    "1 bad case": Caution(bad_cases=1),
    "2 bad cases": Caution(),
    "5 bad cases": Caution(bad_cases=5),
    "2 bad cases, at least 10 cases": Caution(least_cases=10),
    "2 bad cases, risk 0.05": Caution(risk=0.05),
}


@dataclass(frozen=True)
class CautionSettings(LogSettings):
    """The options of this study."""

    repeats: int = 50


@dataclass(frozen=True, eq=False)
class Experiment:
    """What each plan promises, and what it is worth."""

    settings: CautionSettings
    values: pd.DataFrame  # repeat, model, caution, promised, true
    physicians: float  # true value of the physicians' policy


def run_experiment(settings: CautionSettings, *, advance: Advance = lambda: None) -> Experiment:
    """Plan on fresh logs with every form of caution; `advance` is called after each log."""
    truth = sepsis.model(settings.simulator)
    physician = sepsis.behavior_policy(settings.simulator)
    rows = []
    for repeat in range(settings.repeats):
        log = settings.simulate(physician, settings.base_seed(repeat)).hide(*HIDDEN)
        for kind, name, model, plan in plans(log, settings.terminal):
            rows.append(
                {
                    "repeat": repeat,
                    "model": kind,
                    "caution": name,
                    "promised": policy_value(model, plan, horizon=HORIZON),
                    "true": policy_value(truth, sepsis.full_policy(plan), horizon=HORIZON),
                }
            )
        advance()
    value = policy_value(truth, physician, horizon=HORIZON)
    return Experiment(settings, pd.DataFrame(rows), value)


def plans(
    log: Episodes, terminal: str
) -> Iterator[tuple[str, str, TabularMDP | FactoredModel, Floats]]:
    """Yield kind of model, form of caution, model and plan, for every form."""
    table = fit_mdp(log, terminal=terminal)
    yield TABULAR, USUAL, table, greedy(usual_actions(table))
    for name, caution in CAUTIONS.items():
        yield TABULAR, name, table, _plan(table, caution)
    chosen = likely_prior(log, terminal, PRIORS)
    for name, prior in {LIKELY: chosen, "prior 0.5": 0.5, "prior 1": 1.0}.items():
        smooth = fit_mdp(log, terminal=terminal, prior=prior)
        yield TABULAR, name, smooth, _plan(smooth, None)
    smooth = fit_mdp(log, terminal=terminal, prior=0.5, unseen="uniform")
    name = f"prior 0.5, unseen uniform, {AT_LEAST}"
    yield TABULAR, name, smooth, _plan(smooth, CAUTIONS[AT_LEAST])
    factored = fit_factored(log)
    for name, caution in CAUTIONS.items():
        yield FACTORED, name, factored, _plan(factored, caution)


def _plan(model: TabularMDP | FactoredModel, caution: Caution | None) -> Floats:
    return policy_iteration(model, discount=DISCOUNT, caution=caution).table


def likely_prior(log: Episodes, terminal: str, priors: Sequence[float]) -> float:
    """Return the prior of `fit_mdp` that best predicts each transition from all others.

    A next state that followed the state only once is left out: without that one transition no prior
    would know of it.
    """
    model = fit_mdp(log, terminal=terminal, prior=1.0)
    row, columns = model.entry_row, model.n_states + len(model.outcomes)
    size = np.diff(model.start)[row]
    cases = np.where(model.unseen.ravel()[row], 0, model.counts.ravel()[row])
    number = np.rint(model.probability * (cases + size) - 1)
    move = row // model.n_actions * columns + model.next_state
    times = total_by(move, number, model.n_states * columns)[move]
    used = (number > 0) & ((times > 1) | (model.next_state >= model.n_states))
    number, cases, size = number[used], cases[used], size[used]
    scores = [
        float((number * np.log((number - 1 + prior) / (cases - 1 + prior * size))).sum())
        for prior in priors
    ]
    return priors[int(np.argmax(scores))]
