"""Hidden states given the observations: backward weights, posteriors and paths.

Symbols are those of a hidden Markov model: l_t(h) is the probability of the observation at step t
(and of the action taken there, if the behavior saw h), beta_t(h) = sum_x P(x|h, a_t) l_{t+1}(x)
beta_{t+1}(x), and the path goes from h to x with kappa_t(x|h) = P(x|h, a_t) l_{t+1}(x)
beta_{t+1}(x) / beta_t(h).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.chain import Log
from butfor.kernels.compiled import bare, part
from butfor.kernels.random import DRAW_STRIDE, uniform
from butfor.kernels.reference import by_reference
from butfor.kernels.rows import Rows, find_label, pick_by_mass, widest_row

LATENT, SEEN, STEP = range(3)  # what the rows of a behavior are numbered by
SAME = 1e-9  # rewards within this relative distance are equal
NUMBERS = 4  # random numbers of one step of a draw: path, action, state, observation


@by_reference
class Hidden(NamedTuple):
    """A model with hidden states; row h A + a. Ends are states without rows."""

    rows: Rows
    next_state: NDArray[np.int32]  # [E]
    reward: NDArray[np.float64]  # [E]
    labels: NDArray[np.int32]  # [H]
    classes: NDArray[np.uint64]  # [H A] one bit for each class of labels in a row
    initial: NDArray[np.float64]  # [H]
    outcome: NDArray[np.int32]  # [H] -1: none
    emission: Rows  # [H] labels are observations; rows of ends may be empty
    shows: NDArray[np.int32]  # [H] the certain observation of a state; -1: none, or random
    showing: Rows  # [Z] by observation: the states without an outcome that can show it
    ends: Rows  # [O] by outcome: the states that have it
    states: int  # H
    actions: int  # A
    reward_seen: bool  # whether the log's rewards are the model's, hence evidence


@by_reference
class Behavior(NamedTuple):
    """The policy that made the log."""

    rows: Rows  # labels are actions
    kind: int  # LATENT: one row per hidden state; SEEN: per observation; STEP: per logged step


@by_reference
class Trace(NamedTuple):
    """One thread's working space: where an episode may have been, step by step."""

    support: NDArray[np.int64]  # [T + 1, W] hidden states that fit the observation at a step
    size: NDArray[np.int64]  # [T + 1] their number
    like: NDArray[np.float64]  # [T + 1, W] l_t, scaled
    beta: NDArray[np.float64]  # [T + 1, W] scaled
    weight: NDArray[np.float64]  # [H] l beta of the step looked back from, 0 elsewhere
    place: NDArray[np.int64]  # [H] position of a state in the support of that step
    reached: NDArray[np.int64]  # [H] the last row of the log, from 1, that can lead to a state
    mass: NDArray[np.float64]  # [2, W] posterior on the support of a step, and of the next one
    # where the path can go from one state
    entry: NDArray[np.int64]  # of the row used
    onward: NDArray[np.int64]  # position in the support of the next step
    chance: NDArray[np.float64]


def make_trace(hidden: Hidden, log: Log) -> Trace:
    """Return working space for episodes of this log."""
    longest = int((log.stop - log.start).max())
    widest = max(widest_row(hidden.showing), widest_row(hidden.ends))
    size = widest_row(hidden.rows)
    return Trace(
        np.empty((longest + 1, widest), np.int64),
        np.empty(longest + 1, np.int64),
        np.empty((longest + 1, widest)),
        np.empty((longest + 1, widest)),
        np.zeros(hidden.states),
        np.empty(hidden.states, np.int64),
        np.zeros(hidden.states, np.int64),
        np.empty((2, widest)),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size),
    )


@bare
def behavior_row(behavior, log, h, i):
    """Return the row of the behavior at logged step i in hidden state h."""
    if behavior.kind == LATENT:
        return h
    if behavior.kind == SEEN:
        return log.state[i]
    return i


@bare
def chance_of(rows, row, label):
    """Return the probability of a label in a row."""
    entry = find_label(rows, row, label)
    return rows.probability[entry] if entry >= 0 else 0.0


@bare
def fits(hidden, log, e, i):
    """Return whether the reward of an entry is the one logged at step i."""
    return (not hidden.reward_seen) or abs(hidden.reward[e] - log.reward[i]) <= SAME * max(
        1.0, abs(log.reward[i])
    )


@bare
def seen_at(log, episode, t):
    """Return the observation at step t of an episode; -1 if it is unknown."""
    i = log.start[episode] + t
    return log.state[i] if i < log.stop[episode] else log.next_state[i - 1]


@part
def support_at(hidden, behavior, trace, log, episode, t):
    """List the hidden states that fit the observation at step t, with their likelihoods."""
    emission = hidden.emission
    last = log.stop[episode] - log.start[episode] == t
    ended = last and log.outcome[episode] >= 0
    observation = seen_at(log, episode, t)
    rows = hidden.ends if ended else hidden.showing
    row = log.outcome[episode] if ended else observation
    count = 0
    for e in range(rows.start[row], rows.start[row + 1]):
        h = rows.label[e]
        like = rows.probability[e]
        if ended and observation >= 0 and emission.start[h + 1] > emission.start[h]:
            like = chance_of(emission, h, observation)
        elif not last and behavior.kind == LATENT:
            like *= chance_of(behavior.rows, h, log.action[log.start[episode] + t])
        if like > 0.0:
            trace.support[t, count] = h
            trace.like[t, count] = like
            count += 1
    trace.size[t] = count


@part
def keep_reachable(hidden, trace, log, episode, t):
    """Keep only the states at step t that are reachable from the step before, or from the start.

    Unreachable states may fit the rest of a long episode so much better that everything else would
    underflow.
    """
    i = log.start[episode] + t - 1
    for k in range(trace.size[t - 1] if t > 0 else 0):
        row = trace.support[t - 1, k] * hidden.actions + log.action[i]
        for e in range(hidden.rows.start[row], hidden.rows.start[row + 1]):
            if fits(hidden, log, e, i):
                trace.reached[hidden.next_state[e]] = i + 1
    count = 0
    for k in range(trace.size[t]):
        h = trace.support[t, k]
        if trace.reached[h] == i + 1 if t > 0 else hidden.initial[h] > 0.0:
            trace.support[t, count] = h
            trace.like[t, count] = trace.like[t, k]
            count += 1
    trace.size[t] = count


@bare
def look_back_from(trace, t):
    """Fill `trace.weight` and `trace.place` for the states of step t."""
    for k in range(trace.size[t]):
        h = trace.support[t, k]
        trace.weight[h] = trace.like[t, k] * trace.beta[t, k]
        trace.place[h] = k


@bare
def look_away_from(trace, t):
    """Undo `look_back_from`."""
    for k in range(trace.size[t]):
        trace.weight[trace.support[t, k]] = 0.0


@bare
def trace_back(hidden, behavior, trace, log, episode):
    """Fill in the trace of an episode; return the logarithm of its evidence, -inf if impossible.

    `trace.mass[0]` becomes the posterior of the first state. Where an episode becomes impossible
    given the steps before, `trace.size` is 0.

    The evidence is the probability of the observations given the actions, and of the actions too
    if the behavior saw the hidden state.
    """
    length = log.stop[episode] - log.start[episode]
    for t in range(length + 1):
        support_at(hidden, behavior, trace, log, episode, t)
        keep_reachable(hidden, trace, log, episode, t)
        if trace.size[t] == 0:
            return -np.inf
    evidence = 0.0
    for k in range(trace.size[length]):
        trace.beta[length, k] = 1.0
    for t in range(length - 1, -1, -1):
        i = log.start[episode] + t
        look_back_from(trace, t + 1)
        largest = 0.0
        for k in range(trace.size[t]):
            row = trace.support[t, k] * hidden.actions + log.action[i]
            total = 0.0
            for e in range(hidden.rows.start[row], hidden.rows.start[row + 1]):
                weight = trace.weight[hidden.next_state[e]]
                if weight > 0.0 and fits(hidden, log, e, i):
                    total += hidden.rows.probability[e] * weight
            trace.beta[t, k] = total
            largest = max(largest, total)
        look_away_from(trace, t + 1)
        if largest == 0.0:
            return -np.inf
        for k in range(trace.size[t]):
            trace.beta[t, k] /= largest
        evidence += np.log(largest)
    total = 0.0
    for k in range(trace.size[0]):
        trace.mass[0, k] = hidden.initial[trace.support[0, k]] * trace.like[0, k] * trace.beta[0, k]
        total += trace.mass[0, k]
    for k in range(trace.size[0]):
        trace.mass[0, k] /= total
    return evidence + np.log(total) if total > 0.0 else -np.inf


@bare
def branch_from(hidden, trace, log, h, i):
    """Fill in where the path can go from h at step i, by kappa_t; return the number of branches.

    Call `look_back_from` for the next step first.
    """
    row = h * hidden.actions + log.action[i]
    count, total = 0, 0.0
    for e in range(hidden.rows.start[row], hidden.rows.start[row + 1]):
        x = hidden.next_state[e]
        if trace.weight[x] > 0.0 and fits(hidden, log, e, i):
            trace.entry[count] = e
            trace.onward[count] = trace.place[x]
            trace.chance[count] = hidden.rows.probability[e] * trace.weight[x]
            total += trace.chance[count]
            count += 1
    for b in range(count):
        trace.chance[b] /= total
    return count


@bare
def go_on(hidden, trace, log, episode, t, moved):
    """Move the posterior of the hidden state one step on from t; the halves of `mass` alternate.

    Adds the posterior probability of each entry to `moved` [E], unless that is empty.
    """
    now, later = trace.mass[t % 2], trace.mass[1 - t % 2]
    for k in range(trace.size[t + 1]):
        later[k] = 0.0
    look_back_from(trace, t + 1)
    for k in range(trace.size[t]):
        if now[k] > 0.0:
            i = log.start[episode] + t
            count = branch_from(hidden, trace, log, trace.support[t, k], i)
            for b in range(count):
                mass = now[k] * trace.chance[b]
                later[trace.onward[b]] += mass
                if moved.size > 0:
                    moved[trace.entry[b]] += mass
    look_away_from(trace, t + 1)


@bare
def trace_latent(
    first, last, hidden, behavior, log, trace, evidence, offsets, state, probability, keep
):
    """Write the evidence and the posterior of episodes first .. last - 1.

    Rows are the logged steps of an episode and one for its end. Without `keep`, only the number of
    possible hidden states of each row is written, to `offsets` [rows + 1] at row + 1. With `keep`,
    `offsets` contains the cumulative sums of these, and the states and their probabilities are
    written there. Returns -1, or the first impossible episode.
    """
    for episode in range(first, last):
        evidence[episode] = trace_back(hidden, behavior, trace, log, episode)
        if evidence[episode] == -np.inf:
            return episode
        length = log.stop[episode] - log.start[episode]
        for t in range(length + 1):
            now = trace.mass[t % 2]
            at = log.start[episode] + episode + t
            if keep:
                place = offsets[at]
                for k in range(trace.size[t]):
                    if now[k] > 0.0:
                        state[place] = trace.support[t, k]
                        probability[place] = now[k]
                        place += 1
            else:
                offsets[at + 1] = 0
                for k in range(trace.size[t]):
                    offsets[at + 1] += now[k] > 0.0
            if t == length:
                break
            go_on(hidden, trace, log, episode, t, trace.chance[:0])
    return -1


@bare
def draw_paths(first, last, hidden, behavior, log, trace, keys, path):
    """Draw hidden paths of episodes first .. last - 1 given their records, path [n, draws, T + 1].

    The state of step t of draw d uses the number d 2^32 + 4 t of the episode's stream. Returns -1,
    or the first impossible episode.
    """
    for episode in range(first, last):
        if trace_back(hidden, behavior, trace, log, episode) == -np.inf:
            return episode
        for d in range(path.shape[1]):
            u = uniform(keys[episode], d * DRAW_STRIDE)
            path[episode, d, 0] = trace.support[0, pick_by_mass(trace.mass[0], 0, trace.size[0], u)]
        for t in range(log.stop[episode] - log.start[episode]):
            look_back_from(trace, t + 1)
            for d in range(path.shape[1]):
                i = log.start[episode] + t
                count = branch_from(hidden, trace, log, path[episode, d, t], i)
                u = uniform(keys[episode], d * DRAW_STRIDE + NUMBERS * (t + 1))
                place = trace.onward[pick_by_mass(trace.chance, 0, count, u)]
                path[episode, d, t + 1] = trace.support[t + 1, place]
            look_away_from(trace, t + 1)
    return -1


@bare
def count_paths(first, last, hidden, behavior, log, trace, evidence, moved, began):
    """Add up the expected transitions and first states of episodes first .. last - 1.

    Adds to `moved` [E] the posterior probability of each entry at each step, and to `began` [H]
    that of each first state; writes the evidence [n]. Returns -1, or the first impossible episode.
    """
    for episode in range(first, last):
        evidence[episode] = trace_back(hidden, behavior, trace, log, episode)
        if evidence[episode] == -np.inf:
            return episode
        for k in range(trace.size[0]):
            began[trace.support[0, k]] += trace.mass[0, k]
        for t in range(log.stop[episode] - log.start[episode]):
            go_on(hidden, trace, log, episode, t, moved)
    return -1
