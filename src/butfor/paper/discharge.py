"""Why the learned model is wrong: discharge after all treatment stops, by hidden glucose."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor import sepsis
from butfor.log.episodes import Episodes
from butfor.log.variables import Variable, count_levels, project, ravel, unravel
from butfor.models.fit import fit_mdp
from butfor.models.mdp import TabularMDP
from butfor.models.planning import value_tables
from butfor.replay.replay import Replay
from butfor.studies.article import HORIZON
from butfor.types import Floats


def discharge_when_treatment_stops(replay: Replay, simulator: str) -> pd.DataFrame:
    """Return the probability of discharge when all treatment stops at normal observed vital signs.

    At the next step, and within the horizon if the target continues from there. The learned
    probability is averaged over such decisions in the log; the true one, by glucose and diabetes,
    over the same treatments. The learned next step counts ends as the paper's text says, one step
    earlier than an outcome can follow with `icml2019` ends.
    """
    log, model, target = replay.log, replay.mdp, replay.target_table
    states = np.flatnonzero(_stable_under_treatment(log.state_variables) & (model.counts[:, 0] > 0))
    weights = model.counts[states, 0] / model.counts[states, 0].sum()
    learned = _discharge(fit_mdp(log), None)[states], _discharge(model, target)[states]
    rows = [("learned, whatever the glucose", *(weights @ chance for chance in learned))]

    model_of_truth, policy = sepsis.model(simulator), sepsis.full_policy(target)
    truth = np.stack([_discharge(model_of_truth, None), _discharge(model_of_truth, policy)])
    levels = unravel(sepsis.STATES, np.arange(model_of_truth.n_states))
    reduced = project(sepsis.STATES, *(variable.name for variable in log.state_variables))
    for diabetes, who in enumerate(("without diabetes", "with diabetes")):
        for glucose, name in enumerate(sepsis.STATES[4].levels):
            mine = (levels["glucose"] == glucose) & (levels["diabetes"] == diabetes)
            full = [np.flatnonzero(mine & (reduced == state))[0] for state in states]
            rows.append((f"true, glucose {name}, {who}", *(truth[:, full] @ weights)))
    for who, decisions in stopping_decisions(replay).items():
        mean = truth[:, full_states(log, decisions)].mean(axis=1)
        rows.append((f"true, where {who}", *mean))
    return pd.DataFrame(rows, columns=["case", "at the next step", "within 20 steps"])


def who_stops_when(replay: Replay) -> dict[str, float]:
    """Count decisions at normal observed vital signs under treatment, and who stops it all.

    The number of such decisions in the log and the share of them at an abnormal glucose; the same
    for those at which the physician stopped, and for those at which the target would stop.
    """
    log = replay.log
    assert log.side is not None
    abnormal = log.side["glucose"].iloc[: len(log.state)].to_numpy() != "normal"
    stable = _stable_under_treatment(log.state_variables)[log.state]
    physician, policy = stopping_decisions(replay).values()
    return {
        "decisions": int(stable.sum()),
        "abnormal": float(abnormal[stable].mean()),
        "physician": len(physician),
        "physician_abnormal": float(abnormal[physician].mean()),
        "policy": len(policy),
        "policy_abnormal": float(abnormal[policy].mean()),
    }


def stopping_decisions(replay: Replay) -> dict[str, NDArray[np.intp]]:
    """Return the rows of the log at which all treatment stops at normal observed vital signs."""
    log = replay.log
    stable = _stable_under_treatment(log.state_variables)[log.state]
    return {
        "the physician stopped": np.flatnonzero(stable & (log.action == 0)),
        "the policy would stop": np.flatnonzero(stable & (replay.target_table[log.state, 0] == 1)),
    }


def full_states(log: Episodes, rows: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return the full states of rows of a reduced log, using its side columns."""
    assert log.side is not None
    codes = {name: column.cat.codes.to_numpy()[rows] for name, column in log.side.items()}
    codes |= unravel(log.state_variables, log.state[rows])
    return ravel(sepsis.STATES, [codes[variable.name] for variable in sepsis.STATES])


def under_treatment(variables: Sequence[Variable]) -> NDArray[np.bool_]:
    """Return whether some treatment is running, for each state, [S]."""
    levels = unravel(variables, np.arange(count_levels(variables)))
    return np.any([levels[variable.name] > 0 for variable in sepsis.ACTIONS], axis=0)


def _stable_under_treatment(variables: Sequence[Variable]) -> NDArray[np.bool_]:
    """Return whether the three observed vital signs are normal under some treatment, [S]."""
    levels = unravel(variables, np.arange(count_levels(variables)))
    normal = [levels[name] == 1 for name in ("heart rate", "blood pressure", "oxygen")]
    return np.all([*normal, under_treatment(variables)], axis=0)


def _discharge(model: TabularMDP, policy: Floats | None) -> Floats:
    """Return the probability of discharge after all treatment stops (action 0), [S].

    At the next step, or within the horizon if a policy continues from there.
    """
    after = np.append(np.zeros(model.n_states), [0.0, 1.0])  # died, discharged
    if policy is not None:
        after[: model.n_states] = value_tables(model, policy, horizon=HORIZON - 1)[1][-1, :, 1]
    rows = (model.row(state, 0) for state in range(model.n_states))
    return np.array([sum(p * after[reached] for reached, p in row.items()) for row in rows])
