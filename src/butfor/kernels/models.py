"""The exact pass for B models at once that have the same support: probabilities are [E, B].

Where the factual row p and another row q hardly overlap, which is the most frequent case, the
counterfactual row is q itself, and a step in all models is a sum over contiguous numbers: with c
the sum of min(p_i, q_i) over common labels, K differs from q by less than 2 c.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.chain import Problem, Work, choose, observe
from butfor.kernels.compiled import bare, part
from butfor.kernels.mechanisms import INDEPENDENT, INVERSE_CDF, counterfactual_row
from butfor.kernels.reference import by_reference
from butfor.kernels.rows import Rows, Scratch, make_scratch, widest_row


@by_reference
class Models(NamedTuple):
    """B models: their probabilities, stored twice, by entry and by model, and what they expect.

    The next state S + O is "elsewhere": everything that a row does not list. Who goes there
    continues by the model alone, and what then follows is known beforehand, by steps left after.
    """

    at_once: NDArray[np.float64]  # [E, B]
    by_model: NDArray[np.float64]  # [B, E]
    value: NDArray[np.float64]  # [H + 1, S, B] by steps left
    ends: NDArray[np.float64]  # [H + 1, S, O + 1, B]
    value_elsewhere: NDArray[np.float64]  # [H, J, B] for each entry of the target, with its reward
    ends_elsewhere: NDArray[np.float64]  # [H, J, O + 1, B]


@by_reference
class Front(NamedTuple):
    """One thread's working space: where the episode is in each model, and the factual rows."""

    scratch: Scratch
    factual: NDArray[np.float64]  # [labels, B] the factual row of each model
    factual_by_model: NDArray[np.float64]  # [B, labels]
    common: NDArray[np.float64]  # [B] overlap of two rows in each model
    here: NDArray[np.float64]  # [B] probability of using a row without overlap
    now: NDArray[np.float64]  # [S, B]
    later: NDArray[np.float64]  # [S, B]
    active: NDArray[np.bool_]  # [S] whether a state of `now` has any probability
    active_later: NDArray[np.bool_]  # [S]


def exact_outcomes_of_models(
    first: int,
    last: int,
    problem: Problem,
    work: Work,
    drawn: Models,
    discount: float,
    negligible: float,
    outcome_mass: NDArray[np.float64],
    expected_return: NDArray[np.float64],
) -> int:
    """Push episodes first .. last - 1 through their chains in B models; see `exact_outcomes`.

    `drawn` replaces the problem's own probabilities and values. Writes `outcome_mass`
    [n, O + 1, B] and `expected_return` [n, B], with episodes counted from `first`. At each step,
    differences between a row and its counterfactual whose probability is below `negligible` are
    ignored, and states that are less probable than that in every model continue by the model alone.
    """
    labels = int(problem.dynamics.labels.max()) + 1
    states, models = problem.dynamics.states, drawn.at_once.shape[1]
    front = Front(
        make_scratch(widest_row(problem.dynamics.rows)),
        np.zeros((labels, models)),
        np.zeros((models, labels)),
        np.zeros(models),
        np.zeros(models),
        np.zeros((states, models)),
        np.zeros((states, models)),
        np.zeros(states, np.bool_),
        np.zeros(states, np.bool_),
    )
    return push_episodes(
        first,
        last,
        problem,
        work,
        front,
        drawn,
        discount,
        negligible,
        outcome_mass,
        expected_return,
    )


@bare
def push_episodes(
    first, last, problem, work, front, drawn, discount, negligible, outcome_mass, expected_return
):
    """Do the work of `exact_outcomes_of_models`."""
    for episode in range(first, last):
        impossible = push_models(
            problem,
            work,
            front,
            drawn,
            episode,
            discount,
            negligible,
            outcome_mass[episode - first],
            expected_return[episode - first],
        )
        if impossible >= 0:
            return impossible
    return -1


@part
def push_models(problem, work, front, drawn, episode, discount, negligible, outcome, earned):
    """Push one episode in all models."""
    log, target = problem.log, problem.target
    dynamics = problem.dynamics
    rows, next_state, reward = dynamics.rows, dynamics.next_state, dynamics.reward
    states, actions = dynamics.states, dynamics.actions
    probability = drawn.at_once
    models = probability.shape[1]
    elsewhere = states + outcome.shape[0] - 1
    now, later = front.now, front.later
    active, active_later = front.active, front.active_later
    for s in range(states):
        active[s] = active_later[s] = False
        for b in range(models):
            now[s, b] = later[s, b] = 0.0
    s = log.state[log.start[episode]]
    active[s] = True
    for b in range(models):
        now[s, b] = 1.0
    weight = 1.0  # discount ** t
    for i in range(log.start[episode], log.stop[episode]):
        seen_entry = observe(problem, episode, i)
        if seen_entry < 0:
            return i
        seen_row = log.state[i] * actions + log.action[i]
        observe_models(rows, next_state, elsewhere, probability, seen_row, front)
        left = log.left[episode] + log.stop[episode] - 1 - i  # after this step
        for s in range(states):
            if not active[s]:
                continue
            active[s] = False
            likely = 0.0
            for b in range(models):
                likely = max(likely, now[s, b])
            if likely < negligible:  # continues by the model alone
                add_rest(drawn, left + 1, s, weight, now, outcome, earned)
                for b in range(models):
                    now[s, b] = 0.0
                continue
            choose(problem, work, s, i)
            start = target.start[s]
            for j in range(target.start[s + 1] - start):
                share = work.choices.mass[j]
                if share == 0.0:
                    continue
                row = s * actions + target.label[start + j]
                low, high = rows.start[row], rows.start[row + 1]
                if row == seen_row:  # consistency: the observed transition repeats
                    x = next_state[seen_entry]
                    for b in range(models):
                        earned[b] += weight * share * now[s, b] * log.reward[i]
                    if x >= states:
                        for b in range(models):
                            outcome[x - states, b] += share * now[s, b]
                    else:
                        active_later[x] = True
                        for b in range(models):
                            later[x, b] += share * now[s, b]
                    continue
                close = 0
                if share * likely < negligible:  # whatever the overlap
                    for b in range(models):
                        front.here[b] = share * now[s, b]
                else:
                    compare_rows(problem.coupling.kind, rows, probability, row, seen_entry, front)
                    for b in range(models):
                        mass = share * now[s, b]
                        apart = mass * min(front.common[b], 1.0) < negligible
                        front.here[b] = mass if apart else 0.0
                        close += not apart
                for e in range(low, high):
                    x = next_state[e]
                    if x == elsewhere:
                        for b in range(models):
                            moved = front.here[b] * probability[e, b]
                            earned[b] += weight * moved * drawn.value_elsewhere[left, start + j, b]
                        for o in range(outcome.shape[0]):
                            for b in range(models):
                                moved = front.here[b] * probability[e, b]
                                outcome[o, b] += moved * drawn.ends_elsewhere[left, start + j, o, b]
                        continue
                    if reward[e] != 0.0:
                        worth = weight * reward[e]
                        for b in range(models):
                            earned[b] += worth * front.here[b] * probability[e, b]
                    if x >= states:
                        for b in range(models):
                            outcome[x - states, b] += front.here[b] * probability[e, b]
                    else:
                        active_later[x] = True
                        for b in range(models):
                            later[x, b] += front.here[b] * probability[e, b]
                for b in range(models if close else 0):
                    mass = share * now[s, b]
                    if front.here[b] > 0.0 or mass == 0.0:
                        continue
                    counterfactual_row(
                        problem.coupling,
                        Rows(rows.start, rows.label, drawn.by_model[b]),
                        row,
                        seen_row,
                        seen_entry,
                        front.factual_by_model[b],
                        front.scratch,
                    )
                    for e in range(low, high):
                        moved = mass * front.scratch.mass[e - low]
                        x = next_state[e]
                        if x == elsewhere:
                            earned[b] += weight * moved * drawn.value_elsewhere[left, start + j, b]
                            for o in range(outcome.shape[0]):
                                outcome[o, b] += moved * drawn.ends_elsewhere[left, start + j, o, b]
                            continue
                        earned[b] += weight * moved * reward[e]
                        if x >= states:
                            outcome[x - states, b] += moved
                        else:
                            later[x, b] += moved
            for b in range(models):
                now[s, b] = 0.0
        for e in range(rows.start[seen_row], rows.start[seen_row + 1]):
            for b in range(models):
                front.factual[rows.label[e], b] = 0.0
                front.factual_by_model[b, rows.label[e]] = 0.0
        now, later = later, now
        active, active_later = active_later, active
        weight *= discount
    left = log.left[episode]
    for s in range(states):
        if not active[s]:
            continue
        add_rest(drawn, left, s, weight, now, outcome, earned)
    return -1


@bare
def add_rest(drawn, left, s, weight, now, outcome, earned):
    """Add what follows in each model from a state, with this many steps left."""
    for b in range(len(earned)):
        earned[b] += weight * now[s, b] * drawn.value[left, s, b]
    for o in range(outcome.shape[0]):
        for b in range(len(earned)):
            outcome[o, b] += now[s, b] * drawn.ends[left, s, o, b]


@part
def observe_models(rows, next_state, elsewhere, probability, seen_row, front):
    """Store the factual row of each model; what lies elsewhere shares no noise with anything."""
    for e in range(rows.start[seen_row], rows.start[seen_row + 1]):
        if next_state[e] == elsewhere:
            continue
        for b in range(probability.shape[1]):
            front.factual[rows.label[e], b] = probability[e, b]
            front.factual_by_model[b, rows.label[e]] = probability[e, b]


@part
def compare_rows(kind, rows, probability, row, seen_entry, front):
    """Fill `front.common` with a bound on the overlap of two rows in each model.

    It is the sum of min(p_i, q_i), with q_k / p_k, the most that can stay, for the observed label.
    """
    models = probability.shape[1]
    low, high = rows.start[row], rows.start[row + 1]
    k = rows.label[seen_entry]
    for b in range(models):
        # an inverse CDF compares positions, not labels; a row of one entry is certain
        front.common[b] = 1.0 if kind == INVERSE_CDF and high - low > 1 else 0.0
    if high - low == 1 or kind == INDEPENDENT:
        return
    for e in range(low, high):
        x = rows.label[e]
        if front.factual[x, 0] == 0.0:
            continue
        if x == k:
            for b in range(models):
                front.common[b] += probability[e, b] / front.factual[x, b]
        else:
            for b in range(models):
                front.common[b] += min(front.factual[x, b], probability[e, b])
