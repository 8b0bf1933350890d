"""Counterfactual trajectories of episodes, drawn at random."""

from butfor.kernels.chain import choose, move, observe, pays
from butfor.kernels.compiled import bare, part
from butfor.kernels.random import DRAW_STRIDE, uniform
from butfor.kernels.rows import pick_by_mass


@bare
def draw_counterfactuals(first, last, problem, work, keys, drawn_state, drawn_action, drawn_reward):
    """Draw trajectories of episodes first .. last - 1 from the chains of `exact_outcomes`.

    Step t of draw d uses the numbers d 2^32 + 2 t (action) and the next one (state) of the
    episode's stream. Writes `drawn_state` [n, draws, H + 1] (outcome o is S + o), `drawn_action`
    and `drawn_reward` [n, draws, H]; entries after an end are left unchanged. Returns -1, or the
    first impossible step.
    """
    log = problem.log
    for episode in range(first, last):
        length = log.stop[episode] - log.start[episode]
        drawn_state[episode, :, 0] = log.state[log.start[episode]]
        for t in range(length + log.left[episode]):
            i = log.start[episode] + t if t < length else -1
            seen_entry = seen_row = -1
            if i >= 0:
                seen_row = log.state[i] * problem.dynamics.actions + log.action[i]
                seen_entry = observe(problem, episode, i)
                if seen_entry < 0:
                    return i
            for d in range(drawn_state.shape[1]):
                s = drawn_state[episode, d, t]
                if s < 0 or s >= problem.dynamics.states:
                    continue
                counter = d * DRAW_STRIDE + 2 * t
                action, e = draw_step(problem, work, s, i, seen_entry, keys[episode], counter)
                row = s * problem.dynamics.actions + action
                drawn_action[episode, d, t] = action
                drawn_reward[episode, d, t] = pays(problem, e, i, row, seen_row)
                reached = problem.dynamics.next_state[e]
                drawn_state[episode, d, t + 1] = problem.dynamics.shown[reached]
    return -1


@part
def draw_step(problem, work, s, i, seen_entry, key, counter):
    """Draw an action and an entry from state s, given the observed step i; i < 0: no step."""
    log, target, rows = problem.log, problem.target, problem.dynamics.rows
    actions = problem.dynamics.actions
    pick = start = target.start[s]
    stop = target.start[s + 1]
    if stop - start > 1:
        u = uniform(key, counter)
        if i >= 0:
            choose(problem, work, s, i)
            pick = start + pick_by_mass(work.choices.mass, 0, stop - start, u)
        else:
            pick = pick_by_mass(target.probability, start, stop, u)
    action = target.label[pick]
    row = s * actions + action
    u = uniform(key, counter + 1)
    if i < 0:
        return action, pick_by_mass(rows.probability, rows.start[row], rows.start[row + 1], u)
    seen_row = log.state[i] * actions + log.action[i]
    low, high, place = move(problem, work, row, pick, i, seen_row, seen_entry, None)
    return action, low + pick_by_mass(work.kept.mass[place], 0, high - low, u)
